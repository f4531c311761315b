/* step_batch.h - runs the optimizer steps of parameters that are ready. Step thread. */
#ifndef PD_STEP_BATCH_H
#define PD_STEP_BATCH_H

#include "steps.h"

/* Runs the steps of parameters in steps->queue.ready: as many as the time budget (in ns of one core) allows, but at
 * least one. Closes the rounds whose steps are finished. *out becomes the parameter for which memory was short; NULL:
 * none. Steps that have begun and are not finished keep their progress, and go on later. */
void pd_steps_run(pd_steps *steps, double budget_ns, pd_param **out);

#endif
