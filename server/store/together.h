/* together.h - parameters that wait for others of their job before they step. Who waits for whom, and until when?
 *
 * Step thread. Pure bookkeeping. A parameter whose round is gathered and summed is handed in here; it goes on to job->ready at once, or is held
 * (PD_HELD) until what it waits for is there. Its contributions are summed by then and its frames have gone, so holding costs no share of
 * the ingest budget. There are two reasons to wait:
 *
 * The job steps as a whole (nonfinite_scope = job, or gradients are clipped together): nobody begins step s before the rounds s of all parameters are
 * gathered; then what one round finds counts for all, and the global norm is known (norm.h). Every parameter is at the same step then, so one number is all
 * the state there is.
 *
 * A group counts its steps together (pd_row.counts_by_group; the group is what one rule of the job matches): the optimizer's count in step s is the
 * number of earlier rounds in which some parameter of the group had a gradient that was not skipped, plus 1. Of rounds up to `base` (closed by
 * all of the group) that is known. Of a later one it is known as soon as somebody steps in it. So a parameter may step in round s when all
 * rounds between base and s have been stepped in; they are one run, base + 1 ... unknown - 1, since nobody steps beyond the first round of which it is
 * not known. A parameter whose own rounds all had gradients never waits. The others wait for the slower ones to close theirs. */
#ifndef PD_TOGETHER_H
#define PD_TOGETHER_H

#include "job.h"

/* The parameters of one rule whose row counts by group. */
typedef struct pd_step_group {
    pd_param *members;                  /* linked by next_member, in the order of declaration */
    pd_param *held;                     /* linked by next_ready */
    uint64_t  base;                     /* rounds that all of them have closed */
    uint64_t  unknown;                  /* first round later than base in which nobody has stepped yet */
    uint64_t  missed;                   /* rounds up to base in which nobody stepped */
    uint32_t  behind;                   /* members that have closed `base` rounds and no more */
    int64_t   brought;                  /* steps that it had counted elsewhere: import.h */
    uint32_t  to_begin, begun;          /* members whose steps stand or fall together in this round; those of them that have begun */
    bool      bound;                    /* all have, and some may wait for others */
    pd_bond   bond;
} pd_step_group;

/* Finds the job's groups, once its parameters are added. PD_NO_MEMORY. They are the job's: pd_job_forget_set frees them. */
int  pd_step_groups_make(pd_job *job);

/* All parameters begin each step together. */
bool pd_job_is_whole(const pd_job *job);
/* Rounds of this parameter may be held: until it is ready it stands in job->waiting. */
bool pd_param_may_be_held(const pd_job *job, const pd_param *param);
/* Its round is gathered and summed: it goes on or is held, and others that waited for it go on. Sets the outcome of those that go on. */
void pd_param_gathered(pd_job *job, pd_param *param);
/* Where the job steps as a whole: all are held, and go on now. */
void pd_params_go_on(pd_job *job);
/* Its round has closed, and its step is counted. */
void pd_param_moved_on(pd_job *job, pd_param *param);
/* ---- refusals: where the job steps as a whole, the steps of a group whose row may refuse one stand or fall together ---- */

/* Its step, which has just begun, does not run before those of its group have. */
bool pd_param_is_bound(const pd_job *job, const pd_param *param);
/* One that is bound has begun. The last binds them all, and they are in job->ready again. */
void pd_param_begun(pd_job *job, pd_param *param);
/* After steps were run or a task has come back: all of the group have said whether they refuse, so those that were parked go on. */
void pd_step_group_look(pd_job *job, pd_step_group *group);       /* NULL: none */
void pd_step_groups_look(pd_job *job);

/* Of one that is held: a parameter that it waits for. */
const pd_param *pd_param_awaited(const pd_job *job, const pd_param *param);
/* The optimizer's count before the step of a parameter of a group that is ready. */
int64_t pd_step_group_count(const pd_param *param);
/* All its members have closed the same rounds: then its counter can be set, also theirs. */
bool    pd_step_group_is_even(const pd_step_group *group);
void    pd_step_group_set_count(pd_step_group *group, int64_t count);

#endif
