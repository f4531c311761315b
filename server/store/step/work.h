/* work.h - does one bounded batch of work on a job's rounds and steps. Step thread. */
#ifndef PD_WORK_H
#define PD_WORK_H

#include "steps.h"

/* Works on the job's rounds and steps for about budget_ns nanoseconds of one core. If out of memory, notifies waiting
 * workers once, and sets steps->shortage.retry_ns to the time at which the caller may try again. */
void pd_steps_work(pd_steps *steps, double budget_ns, uint64_t now_ns);
/* Returns whether pd_steps_work has something to do. It must not be called before steps->shortage.retry_ns. */
bool pd_steps_have_work(const pd_steps *steps);
/* Takes a preconditioner task that has come back from the preconditioner pool. If the parameter's step waited for the
 * task, the step continues. `gone`: the job was dropped, so no step continues. */
void pd_steps_task(pd_steps *steps, pd_param *param, struct pd_task *task, bool gone);

/* Logs that the parameter's initial weights are not finite, and `why`. They are used all the same. */
void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why);

#endif
