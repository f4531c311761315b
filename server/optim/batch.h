/* batch.h - runs the optimizer steps of many parameters together, so that all threads have work. Called on the server's
 * step thread, or on the thread of a program that steps a pd_model (model.c). */
#ifndef PD_BATCH_H
#define PD_BATCH_H

#include "optimizer_types.h"

/* Runs n steps that have begun, as far as possible: each until it ends, or until it has to wait for a task. The phases
 * of different steps run in one parallel region of at most `threads` (>= 1) threads. Steps that still have to wait are
 * skipped. PD_NO_MEMORY: there is no scratch memory, and no step has run. */
int pd_batch_run(pd_optim *const *steps, size_t n, int threads);

typedef struct pd_batch pd_batch; /* memory for running optimizer steps: scratch memory of each thread, and lists */
/* Makes a batch: the memory that is needed to run the steps of any subset of these optimizers, on at most `threads`
 * threads. NULL: out of memory. */
pd_batch *pd_batch_new(pd_optim *const *optims, size_t n, int threads);
void pd_batch_free(pd_batch *batch); /* frees a batch; accepts NULL */
int pd_batch_threads(const pd_batch *batch);
/* Runs n optimizer steps like pd_batch_run, but in the memory of an existing batch, so it allocates nothing and cannot
 * fail. */
void pd_batch_run_steps(pd_batch *batch, pd_optim *const *steps, size_t n);
/* Runs n tasks that pd_optim_capture has returned, each on one thread. */
void pd_batch_run_tasks(const pd_batch *batch, pd_task *const *tasks, size_t n);

#endif
