/* step_group.h - parameters that wait for others of their job before they step: says who waits for whom, and until
 * when.
 *
 * Step thread. Pure bookkeeping. A parameter whose aggregate is complete is handed in here; it goes on to
 * steps->ready at once, or is held (PD_HELD) until the parameters that it waits for are there. Its contributions are
 * summed by then and its frames have gone, so holding costs no share of the ingest budget. There are two reasons to
 * wait:
 *
 * The job steps as a whole (nonfinite_scope = job, or gradients are clipped together): nobody begins step s before
 * the aggregates of all parameters for step s are there; then the finding of one round counts for all, and the
 * global norm is known (global_clip.h). Every parameter is at the same step then, so one number is all the state
 * there is.
 *
 * A step group counts its steps together (pd_row.counts_by_group; the group are the parameters that one rule of the
 * job matches). The optimizer's count in step s is the number of earlier rounds in which some parameter of the group
 * had a gradient that was not skipped, plus 1. Of rounds up to `base` (closed by all of the group) that is known. Of
 * a later one it is known as soon as somebody steps in it. So a parameter may step in round s when all rounds
 * between base and s have been stepped in; they are one run, base + 1 ... unknown - 1, since nobody steps beyond the
 * first round of which it is not known. A parameter whose own rounds all had gradients never waits. The others wait
 * for the slower ones to close theirs. */
#ifndef PD_STEP_GROUP_H
#define PD_STEP_GROUP_H

#include "steps.h"

/* The part of a step group that a restart must bring back: store/image. */
typedef struct pd_step_group_saved {
    uint64_t base;                      /* rounds that all of them have closed */
    uint64_t unknown;                   /* first round later than base in which nobody has stepped yet */
    uint64_t missed;                    /* rounds up to base in which nobody stepped */
    int64_t  brought;                   /* steps that it had counted elsewhere: job/import.h */
} pd_step_group_saved;

/* The parameters of one rule whose row counts by group. */
typedef struct pd_step_group {
    pd_step_group_saved saved;
    pd_param *members;                  /* linked by next_member, in the order of declaration */
    pd_param *held;                     /* linked by next_ready */
    uint32_t  behind;                   /* members that have closed `base` rounds and no more */
    uint32_t  to_begin, begun;          /* members whose steps stand or fall together in this round; those of them that have begun */
    bool      bound;                    /* all of these have begun, and some may wait for others */
    pd_atomic_group atomic;
} pd_step_group;

/* Finds the job's groups, once its parameters are added. PD_NO_MEMORY. pd_param_set_forget frees them. */
int  pd_step_groups_make(pd_steps *steps);
/* Counts again which members are behind, after the steps of its members were read from an image. */
void pd_step_group_recount(pd_step_group *group);

/* Returns whether all parameters begin each step together. */
bool pd_steps_are_whole(const pd_steps *steps);
/* Returns whether rounds of this parameter may be held: until it is ready it stays in steps->waiting. */
bool pd_param_may_be_held(const pd_steps *steps, const pd_param *param);
/* Takes in a parameter whose aggregate is complete: it goes on or is held, and others that waited for it go on. Sets
 * the outcome of those that go on. */
void pd_param_collected(pd_steps *steps, pd_param *param);
/* Lets all parameters go on, where the job steps as a whole and all are held. */
void pd_step_groups_go_on(pd_steps *steps);
/* Counts a parameter whose round has closed. Others that waited for it go on. */
void pd_param_moved_on(pd_steps *steps, pd_param *param);

/* ---- refusals: where the job steps as a whole, the steps of a group whose row may refuse one are an atomic group
 * ---- */

/* Returns whether the parameter's step, which has just begun, does not run before those of its atomic group have
 * begun. */
bool pd_param_is_bound(const pd_steps *steps, const pd_param *param);
/* Counts a bound parameter whose step has begun. The last binds them all, and they are in steps->ready again. */
void pd_param_begun(pd_steps *steps, pd_param *param);
/* Lets parked members go on once all of the atomic group have reported whether they refuse. Called after steps were
 * run, and when a task has come back. */
void pd_step_group_look(pd_steps *steps, pd_step_group *group);       /* NULL: nothing */
void pd_step_groups_look(pd_steps *steps);

/* Returns a parameter that a held one waits for. */
const pd_param *pd_param_awaited(const pd_steps *steps, const pd_param *param);
/* Returns the optimizer's count before the step of a member that is ready. */
int64_t pd_step_group_count(const pd_param *param);
/* Returns whether all members have closed the same rounds: then the group's counter can be set. */
bool    pd_step_group_is_even(const pd_step_group *group);
/* Sets the counter of the group and of its members. */
void    pd_step_group_set_count(pd_step_group *group, int64_t count);

#endif
