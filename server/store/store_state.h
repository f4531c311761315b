/* store_state.h - the struct of the whole training state, for store.c, its tests and the simulator. Step thread. */
#ifndef PD_STORE_STATE_H
#define PD_STORE_STATE_H

#include "collect.h"
#include "drain.h"
#include "publishing.h"
#include "sums.h"

typedef struct pd_store pd_store;

struct pd_store {
    pd_store_config config;
    pd_job_values presets;
    pd_effects outbox;
    pd_buffer_pools pools;
    pd_budget budget;
    bool may_end_jobs; /* jobs that are over may be ended now to make room in a budget: pd_store_relief */
    pd_ingest ingest;
    pd_sums sums; /* memory for the sums of the present batch of work */
    pd_collect_batch collecting;
    pd_jobs jobs;
    pd_job *due;       /* jobs that have work */
    uint64_t turns;    /* number of batches of work that all jobs together have had */
    pd_job *deadlines; /* the job with the earliest deadline: deadlines.h; NULL: no job has one */
    bool unknown;      /* jobs were made from images, and their deadlines are not known yet */
    pd_drain drain;
    pd_roles *roles; /* NULL: the server has none */
    pd_owners owners;
    pd_publishing publishing;
};

/* Returns the parts of the store that its jobs use. */
static inline pd_job_env pd_store_env(pd_store *store)
{
    return (pd_job_env){ &store->config, &store->presets, &store->outbox, &store->pools,
                         &store->budget, &store->ingest,  &store->sums,   &store->collecting };
}

#endif
