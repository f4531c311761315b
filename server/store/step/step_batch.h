/* step_batch.h - runs the optimizer steps of parameters that are ready. Step thread. */
#ifndef PD_STEP_BATCH_H
#define PD_STEP_BATCH_H

#include "steps.h"

/* Runs the steps of as many parameters in steps->ready as the time budget (ns of one core) allows, at least one, and
 * closes the rounds that are finished. *out: the parameter for which memory was short, else NULL. Steps that have
 * begun keep their progress and go on later. */
void pd_steps_run(pd_steps *steps, double budget_ns, pd_param **out);

#endif
