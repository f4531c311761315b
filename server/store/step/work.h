/* work.h - one batch of bounded work on a job's rounds and steps. Step thread. */
#ifndef PD_WORK_H
#define PD_WORK_H

#include "steps.h"

/* Works for about so long (ns of one core). Where memory is short those who wait are told once, and steps->retry_ns
 * says when to go on. */
void pd_steps_work(pd_steps *steps, double budget_ns, uint64_t now_ns);
/* Returns whether there is something to do, whatever retry_ns says. */
bool pd_steps_have_work(const pd_steps *steps);
/* Takes a root task that is back. `gone`: the job was dropped, and nothing goes on. */
void pd_steps_task(pd_steps *steps, pd_param *param, struct pd_task *task, bool gone);

#endif
