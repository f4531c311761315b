/* batch.h - runs the phases of many steps under shared parallel regions. Step thread, or the thread that calls. */
#ifndef PD_BATCH_H
#define PD_BATCH_H

#include "optimizer_types.h"

/* Runs the phases of n steps under way as far as they go (to the end or to a wait), with one parallel region per phase
 * over the units of all steps. `threads` >= 1. Parked steps in the list are passed over.
 * PD_NO_MEMORY (scratch): nothing has run. */
int  pd_batch_run(pd_optim *const *steps, size_t n, int threads);

typedef struct pd_batch pd_batch;           /* memory for such runs */
/* Makes a batch that can run any subset of these optimizers' steps, on at most `threads` threads. NULL: out of
 * memory. */
pd_batch *pd_batch_new(pd_optim *const *optims, size_t n, int threads);
void      pd_batch_free(pd_batch *batch);                   /* accepts NULL */
int       pd_batch_threads(const pd_batch *batch);
/* As pd_batch_run, but cannot fail. */
void      pd_batch_run_steps(pd_batch *batch, pd_optim *const *steps, size_t n);
/* Runs tasks that were handed out, one thread for each. */
void      pd_batch_run_tasks(const pd_batch *batch, pd_task *const *tasks, size_t n);

#endif
