/* batch.h - runs the phases of many steps under shared parallel regions. Called on the server's step thread, or on
 * the thread of a program that steps a pd_model (model.c). */
#ifndef PD_BATCH_H
#define PD_BATCH_H

#include "optimizer_types.h"

/* Runs n steps that have begun, as far as possible: each until it ends or has to wait. Each phase has one parallel
 * region for all steps. `threads` >= 1. Steps that still have to wait are skipped. PD_NO_MEMORY: there is no scratch
 * memory, and no step has run. */
int pd_batch_run(pd_optim *const *steps, size_t n, int threads);

typedef struct pd_batch pd_batch; /* memory that is needed to run steps */
/* Makes a batch that can run any subset of these optimizers' steps, on at most `threads` threads. NULL: out of
 * memory. */
pd_batch *pd_batch_new(pd_optim *const *optims, size_t n, int threads);
void pd_batch_free(pd_batch *batch); /* accepts NULL */
int pd_batch_threads(const pd_batch *batch);
/* Does the same as pd_batch_run in memory that exists already, so it cannot fail. */
void pd_batch_run_steps(pd_batch *batch, pd_optim *const *steps, size_t n);
/* Runs n tasks that optimizers have handed out, each on one thread. */
void pd_batch_run_tasks(const pd_batch *batch, pd_task *const *tasks, size_t n);

#endif
