/* store_inside.h - finds jobs inside a store, for tests. */
#ifndef STORE_INSIDE_H
#define STORE_INSIDE_H

#include "store.h"
#include "store_state.h"

/* Returns the job that has this number or name, or NULL if there is no such job. */
static inline pd_job *inside_job(const pd_store *store, uint32_t number)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, number);

    return job != NULL && !job->gone ? job : NULL;
}
static inline pd_job *inside_find(const pd_store *store, const char *name)
{
    return pd_jobs_find(&store->jobs, name);
}

#endif
