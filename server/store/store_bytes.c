/* store_bytes.c - counts the bytes of memory that the store uses, by purpose. */
#include "store.h"

#include "store_state.h"

pd_store_bytes pd_store_count_bytes(const pd_store *store)
{
    pd_store_bytes bytes = { .held = store->ingest.held };
    const pd_job *job, *next;

    HASH_ITER(hh_number, store->jobs.numbers, job, next)
    {
        for (uint32_t i = 0; i < job->steps.n_params; i++) {
            const pd_param *param = &job->steps.params[i];
            if (param->current != NULL) bytes.weights += (uint64_t)param->elements * sizeof(float);
            if (param->buffers.accumulator != NULL) bytes.accumulators += (uint64_t)param->elements * sizeof(float);
            bytes.state += (uint64_t)pd_optim_state_bytes(param->optim);
        }
    }
    bytes.published_list = store->pools.used + store->pools.idle - bytes.weights - bytes.accumulators;
    return bytes;
}
