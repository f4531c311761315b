/* traffic.c - counts the bytes that the connections of each job have received and sent, for operators. */
#include "traffic.h"

#include <stdlib.h>

/* Lets uthash survive a lack of memory: it then adds no element and sets the element's
 * table pointer to NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_traffic {
    uint32_t job; /* number of the job and key of the hash table. The store chooses it, not a peer, so the hash needs no
                   * secret */
    uint64_t in, out;
    UT_hash_handle hh;
};

static pd_traffic *find(pd_traffic *jobs, uint32_t job)
{
    pd_traffic *found;
    HASH_FIND(hh, jobs, &job, sizeof job, found);
    return found;
}

void pd_traffic_add(pd_traffic **jobs, uint32_t job)
{
    pd_traffic *added = find(*jobs, job) == NULL ? calloc(1, sizeof *added) : NULL;

    if (added == NULL) return;
    added->job = job;
    HASH_ADD(hh, *jobs, job, sizeof added->job, added);
    if (added->hh.tbl == NULL) free(added);
}

void pd_traffic_count(pd_traffic *jobs, uint32_t job, uint64_t in, uint64_t out)
{
    pd_traffic *found = job != 0 ? find(jobs, job) : NULL;

    if (found == NULL) return;
    found->in += in;
    found->out += out;
}

void pd_traffic_read(pd_traffic *jobs, uint32_t job, uint64_t *in, uint64_t *out)
{
    const pd_traffic *found = find(jobs, job);

    *in = found != NULL ? found->in : 0;
    *out = found != NULL ? found->out : 0;
}

void pd_traffic_remove(pd_traffic **jobs, uint32_t job)
{
    pd_traffic *found = find(*jobs, job);

    if (found == NULL) return;
    HASH_DEL(*jobs, found);
    free(found);
}

void pd_traffic_free(pd_traffic **jobs)
{
    while (*jobs != NULL) pd_traffic_remove(jobs, (*jobs)->job);
}
