#include "param.h"

#include "convert.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { CONVERT_RANGE = 1 << 16 };

void pd_param_clear(pd_param *param)
{
    if (param->shelf[PD_F32] != NULL) pd_shelf_give(param->shelf[PD_F32], param->accumulator);
    pd_snapshot_unref(param->next);
    pd_snapshot_unref(param->current);
    pd_optim_free(param->optim);
    for (int t = 0; t < 4; t++) pd_shelf_leave(param->shelf[t]);
    free(param->pushed);
    free(param->name);
}

uint64_t pd_param_bytes(int64_t elements, const bool pulled[4])
{
    uint64_t n = (uint64_t)elements, bytes = n * sizeof(float);         /* the sum */

    for (int t = PD_F32; t <= PD_BF16; t++)
        if (t == PD_F32 || pulled[t]) bytes += 2 * n * pd_dtype_size((pd_dtype)t);      /* the weights, and those to come */
    return bytes;
}

/* A copy with all the types that the parameter has. NULL: out of memory. */
static pd_snapshot *copy_current(const pd_param *param)
{
    pd_snapshot *old = param->current, *copy = pd_snapshot_new(param->shelf, param->elements);

    if (copy == NULL) return NULL;
    copy->job = old->job;
    copy->param = old->param;
    copy->version = old->version;
    memcpy(copy->at[PD_F32], old->at[PD_F32], (size_t)param->elements * sizeof(float));
    pd_snapshots_convert(&copy, 1, 1);
    return copy;
}

int pd_param_pull(pd_param *param, pd_shelves *all, pd_dtype dtype, pd_snapshot **again)
{
    *again = NULL;
    if (param->shelf[dtype] != NULL) return PD_OK;
    param->shelf[dtype] = pd_shelf_join(all, (size_t)param->elements * pd_dtype_size(dtype));
    if (param->shelf[dtype] == NULL) return PD_NO_MEMORY;
    if (param->current != NULL && (*again = copy_current(param)) == NULL) goto fail;
    if (param->next != NULL && pd_snapshot_widen(param->next, dtype, param->shelf[dtype]) != PD_OK) goto fail;
    return PD_OK;

fail:
    pd_snapshot_unref(*again);
    *again = NULL;
    pd_shelf_leave(param->shelf[dtype]);
    param->shelf[dtype] = NULL;
    return PD_NO_MEMORY;
}

void pd_param_publish(pd_param *param, pd_snapshot *snapshot, pd_outcome outcome, pd_closed *closed)
{
    *closed = (pd_closed){ .param = param->index, .outcome = outcome, .step = param->step, .snapshot = snapshot };
    if (snapshot == NULL) return;
    snapshot->store_refs++;                     /* the loop thread's */
    pd_snapshot_unref(param->current);
    param->current = snapshot;
}

/* One range of one type of a snapshot. */
static void convert_range(const pd_snapshot *snapshot, pd_dtype dtype, int64_t first)
{
    int64_t n = snapshot->elements - first < CONVERT_RANGE ? snapshot->elements - first : CONVERT_RANGE;

    pd_convert((char *)snapshot->at[dtype] + (size_t)first * pd_dtype_size(dtype), dtype, (const float *)snapshot->at[PD_F32] + first, PD_F32, n);
}

static bool only_float32(const pd_snapshot *snapshot)
{
    return snapshot->at[PD_F16] == NULL && snapshot->at[PD_BF16] == NULL;
}

void pd_snapshots_convert(pd_snapshot *const *at, size_t n, int threads)
{
    (void)threads;
    #pragma omp parallel num_threads(threads) if(threads > 1)
    for (size_t i = 0; i < n; i++) {
        if (at[i] == NULL || only_float32(at[i])) continue;
        #pragma omp for schedule(static) nowait
        for (int64_t first = 0; first < at[i]->elements; first += CONVERT_RANGE)
            for (int t = PD_F16; t <= PD_BF16; t++)
                if (at[i]->at[t] != NULL) convert_range(at[i], (pd_dtype)t, first);
    }
}
