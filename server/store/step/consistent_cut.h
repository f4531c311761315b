/* consistent_cut.h - a consistent cut of a job, for an export or a checkpoint: the weights of all its parameters at
 * one step; and their optimizer state, if the parameters are quiesced there. Step thread.
 *
 * The step of a cut is at least the largest step that any parameter has closed or is working on, so every parameter
 * can still reach it. If the job has several fragments, a cut takes each of them at the step that it has then: other
 * fragments may stay far behind it. Published weights do not change: the cut keeps a reference to those of its step,
 * and training continues. A cut that quiesces stops each parameter at that step: its next round may collect
 * contributions, but the round's step begins only after the cut has ended. */
#ifndef PD_CONSISTENT_CUT_H
#define PD_CONSISTENT_CUT_H

#include "steps.h"

/* The cut's data of one parameter. */
typedef struct pd_cut_part {
    /* the parameter's published version after the step of the cut; NULL: it has not closed this step yet */
    pd_published *weights;
    uint64_t step; /* step of the cut for this parameter: the same for all parameters of a fragment */
    bool passed;   /* the parameter is not quiesced any more (pd_cut_pass) */
} pd_cut_part;

/* A consistent cut. */
typedef struct pd_cut {
    uint64_t step;       /* step of the cut; with several fragments: the highest of their steps */
    uint64_t place;      /* number of the last step of the cut (steps.h) */
    bool quiesces;       /* parameters are quiesced at the cut */
    bool early;          /* parameters are quiesced at the steps that they have, which may be lower than `step` */
    bool fixed;          /* the cut's weights are being read, so pd_cut_replaced must not change them any more */
    uint32_t behind;     /* number of parameters that have not closed their step of the cut yet */
    pd_cut_part parts[]; /* one for each parameter */
} pd_cut;

/* Returns the lowest step that a cut can have now: the highest step that any parameter has closed or is working on, or
 * whose set of ranks is fixed. While gradients are clipped together, the parameters work on the step of these
 * gradients. */
uint64_t pd_cut_least_step(const pd_steps *steps);
/* Begins a cut at this step; if the job has several fragments, at the lowest step that a cut of each can have now. Call
 * it only if all parameters have weights, and the job has no other cut. PD_NO_MEMORY:
 * nothing has changed. */
int pd_cut_begin(pd_steps *steps, uint64_t step, bool quiesces);
/* Makes the cut quiesce the parameter no longer. The cut keeps its reference to the parameter's weights. The caller
 * then releases the parameter (pd_riders_release_one). */
void pd_cut_pass(pd_steps *steps, pd_param *param);
/* Takes the cut at the steps that the parameters have now, although some have not reached the step of the cut. Call it
 * only if no step is under way. From now on all parameters are quiesced. */
void pd_cut_take_early(pd_steps *steps);
/* Ends the job's cut, when an export is over or a checkpoint is copied. The caller releases quiesced parameters
 * (pd_riders_release). Does nothing if the job has no cut. */
void pd_cut_end(pd_steps *steps);
/* Takes the cut away from the job, so that the job may have another one, and returns it. The cut must not quiesce, and
 * all parameters must have closed its step. The caller frees it with pd_cut_free. */
pd_cut *pd_cut_detach(pd_steps *steps);
/* Frees a detached cut, and drops its references to weights. `n_params` is the number of the job's parameters. Accepts
 * NULL. */
void pd_cut_free(pd_cut *cut, uint32_t n_params);
/* Returns how many bytes of old weights a cut keeps in memory at most, while training continues. */
uint64_t pd_cut_bytes(const pd_steps *steps);
/* Returns a parameter that has not closed the step of the cut yet; NULL: all parameters have. */
const pd_param *pd_cut_awaited(const pd_steps *steps);

/* Called when the published weights of a parameter were replaced without a step. If the parameter is at the step of the
 * cut, the cut takes the new weights, unless its old ones are being read already. */
void pd_cut_replaced(pd_steps *steps, const pd_param *param);
/* Called when the parameter has closed a round. If the round is that of the cut's step, the cut takes the weights. */
void pd_cut_closed(pd_steps *steps, const pd_param *param);
/* Returns whether the cut quiesces the parameter before its next step. */
bool pd_cut_stops(const pd_steps *steps, const pd_param *param);
/* Returns whether the parameters of each fragment are all at one step in the cut. */
bool pd_cut_is_even(const pd_cut *cut);

#endif
