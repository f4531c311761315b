/* durable_job.h - a job "job" of two ranks and two parameters, in a store whose jobs have checkpoints. */
#ifndef DURABLE_JOB_H
#define DURABLE_JOB_H

#include "rig.h"

enum { DURABLE_CONN = 10 }; /* connection and nonce of rank 0; rank 1 has the next ones */
extern const int64_t durable_job_sizes[2];

/* Returns the configuration of a store with a checkpoint writer. */
pd_store_config durable_config(void);
/* Makes the rig, and starts the job with initial weights. */
void durable_job_start(rig *r, const pd_store_config *config, const char *options);
/* Lets both ranks join and declare, as after a restart. */
void durable_job_join(rig *r, const char *options);
void durable_job_push(rig *r, uint32_t rank, uint32_t param, uint64_t step);
/* Lets both ranks push a parameter, and lets the store work. */
void durable_job_step_one(rig *r, uint32_t param, uint64_t step);
void durable_job_step(rig *r, uint64_t step);
/* Lets an operator import a count of steps of the first parameter: a change that no record of decisions can
 * tell. */
void durable_job_import_count(rig *r);
uint64_t durable_job_step_of(const rig *r, uint32_t param);

#endif
