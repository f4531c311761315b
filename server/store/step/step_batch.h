/* step_batch.h - runs the optimizer steps of parameters that are ready. Step thread. */
#ifndef PD_STEP_BATCH_H
#define PD_STEP_BATCH_H

#include "steps.h"

/* Runs the steps of as many parameters of steps->ready as the budget (ns of one core) holds, at least one, and closes
 * the rounds of those that are finished. *starved: the parameter for which memory was short, else NULL: what was begun
 * stands, and can go on later. */
void pd_steps_run(pd_steps *steps, double budget_ns, pd_param **starved);

#endif
