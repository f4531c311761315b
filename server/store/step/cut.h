/* cut.h - a cut through a job: the weights of all its parameters at one step, for an export. If the parameters rest
 * at this step, their optimizer state can be read, too. Step thread.
 *
 * The step of the cut is the largest step that a parameter has closed or is working on, so every parameter can still
 * reach it. Published weights are immutable: the cut keeps a reference to those of its step, and training goes on. A
 * cut that `rests` also stops each parameter at that step: its next round may collect contributions, but the round's
 * step begins only after the cut has ended. */
#ifndef PD_CUT_H
#define PD_CUT_H

#include "steps.h"

typedef struct pd_cut {
    uint64_t step;
    bool rests;
    uint32_t behind;        /* number of parameters that have not closed `step` yet */
    pd_param *resting;      /* list of parameters whose next step waits for the end of the cut, linked by next_ready */
    pd_snapshot *weights[]; /* the snapshot of `step` for each parameter; NULL: the parameter has not closed it yet */
} pd_cut;

/* Begins a cut. Call it only if all parameters have weights, and the job has no other cut. PD_NO_MEMORY: nothing has
 * changed. */
int pd_cut_begin(pd_steps *steps, bool rests);
/* Ends the cut. Parameters that rested go on. Does nothing if the job has no cut. */
void pd_cut_end(pd_steps *steps);
/* Returns the most bytes of old weights that a cut without `rests` keeps in memory beside the weights of later
 * steps. */
uint64_t pd_cut_bytes(const pd_steps *steps);
/* Returns a parameter that has not closed the step of the cut; NULL: all have. */
const pd_param *pd_cut_awaited(const pd_steps *steps);

/* ---- for commit.c and step_group.c ---- */

/* Notes that the parameter has closed a round: if it was the step of the cut, the cut keeps its weights. */
void pd_cut_closed(pd_steps *steps, const pd_param *param);
/* Returns whether the parameter, whose next step could begin, must rest at the cut; if so, puts it into the cut's
 * list. */
bool pd_cut_keeps(pd_steps *steps, pd_param *param);

#endif
