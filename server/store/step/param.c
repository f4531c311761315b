/* param.c - keeps a parameter's weights and updates in the element types that workers pull, and publishes them. */
#include "param.h"

#include "convert.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONVERT_RANGE = 1 << 16 };

uint64_t pd_weight_bytes(int64_t elements, const bool pulled[4])
{
    uint64_t bytes = 0;

    for (int t = PD_F32; t <= PD_BF16; t++)
        /* There are two buffers: one for the published weights, one for the next weights. */
        if (t == PD_F32 || pulled[t]) bytes += 2 * (uint64_t)elements * pd_dtype_size((pd_dtype)t);
    return bytes;
}

/* Converts at most CONVERT_RANGE float32 weights of a published version, from element `first` on, to its other
 * element types. Converts the float32 update `added`, too; NULL: there is no update to convert. */
static void convert_range(const pd_published *published, const float *added, int64_t first)
{
    int64_t n = published->elements - first < CONVERT_RANGE ? published->elements - first : CONVERT_RANGE;

    for (int t = PD_F16; t <= PD_BF16; t++)
        if (published->at[t] != NULL)
            pd_convert((char *)published->at[t] + (size_t)first * pd_dtype_size((pd_dtype)t), (pd_dtype)t,
                       (const float *)published->at[PD_F32] + first, PD_F32, n);
    if (added != NULL)
        pd_convert((char *)published->at[PD_UPDATE] + (size_t)first * pd_dtype_size(published->update_dtype),
                   published->update_dtype, added + first, PD_F32, n);
}

/* Makes a version of the parameter that has no content yet, in all element types in which weights are published, with
 * the number of the version that is published now. NULL: out of memory. */
static pd_published *new_beside(const pd_param *param)
{
    pd_buffer_pool *const pool[4] = { [PD_F32] = param->buffers.pool[PD_F32],
                                      [PD_F16] = param->buffers.pool[PD_F16],
                                      [PD_BF16] = param->buffers.pool[PD_BF16] };
    pd_published *made = pd_published_new(pool, param->elements);

    if (made == NULL) return NULL;
    made->job = param->current->job;
    made->param = param->current->param;
    made->version = param->current->version;
    return made;
}

pd_published *pd_param_read_out(const pd_param *param, int threads)
{
    pd_published *made = new_beside(param);
    const float *weights = param->current->at[PD_F32];
    float *out;

    (void)threads;
    if (made == NULL) return NULL;
    out = made->at[PD_F32];
#pragma omp parallel for num_threads(threads) schedule(static) if (param->elements > CONVERT_RANGE)
    for (int64_t first = 0; first < param->elements; first += CONVERT_RANGE) {
        const int64_t left = param->elements - first;
        pd_optim_read_out(param->optim, weights + first, out + first, first,
                          left < CONVERT_RANGE ? left : CONVERT_RANGE);
        convert_range(made, NULL, first);
    }
    return made;
}

/* Returns a copy of the published version in all element types that workers pull now. NULL: out of memory. */
static pd_published *copy_current(const pd_param *param)
{
    pd_published *old = param->current, *copy = pd_published_new(param->buffers.pool, param->elements);

    if (copy == NULL) return NULL;
    copy->job = old->job;
    copy->param = old->param;
    copy->version = old->version;
    memcpy(copy->at[PD_F32], old->at[PD_F32], (size_t)param->elements * sizeof(float));
    for (int64_t first = 0; first < param->elements; first += CONVERT_RANGE) convert_range(copy, NULL, first);
    return copy;
}

/* Lets the pool of an element type keep more idle buffers (`more`), or ends that: one for old weights that a checkpoint
 * keeps, and PD_WAL_MOST for aggregates that records of the stream of steps keep. */
static void keep_idle(const pd_param *param, int type, bool more)
{
    if (param->buffers.durable) pd_buffer_pool_keep_more(param->buffers.pool[type], more);
    for (int i = 0; param->buffers.logged && type == PD_F32 && i < PD_WAL_MOST; i++)
        pd_buffer_pool_keep_more(param->buffers.pool[type], more);
}

int pd_param_join_pool(pd_param *param, const pd_memory *memory, int type, size_t bytes)
{
    if ((param->buffers.pool[type] = pd_memory_pool(memory, bytes)) == NULL) return PD_NO_MEMORY;
    keep_idle(param, type, true);
    return PD_OK;
}

static void leave_pool(pd_param *param, int type)
{
    if (param->buffers.pool[type] != NULL) keep_idle(param, type, false);
    pd_buffer_pool_leave(param->buffers.pool[type]);
    param->buffers.pool[type] = NULL;
}

void pd_param_leave_pools(pd_param *param)
{
    for (int t = 0; t < 4; t++) leave_pool(param, t);
}

int pd_param_pull(pd_param *param, const pd_memory *memory, pd_dtype dtype, pd_published **again)
{
    *again = NULL;
    if (param->buffers.pool[dtype] != NULL) return PD_OK;
    if (pd_param_join_pool(param, memory, (int)dtype, (size_t)param->elements * pd_dtype_size(dtype)) != PD_OK)
        return PD_NO_MEMORY;
    if (param->current != NULL && (*again = copy_current(param)) == NULL) goto fail;
    if (param->next != NULL && pd_published_widen(param->next, dtype, param->buffers.pool[dtype]) != PD_OK) goto fail;
    return PD_OK;

fail:
    pd_published_unref(*again);
    *again = NULL;
    leave_pool(param, (int)dtype);
    return PD_NO_MEMORY;
}

uint64_t pd_param_type_bytes(const pd_param *param, pd_dtype dtype)
{
    /* Counts a buffer for the published weights and one for the next weights. With checkpoints, counts one more for the
     * old weights that a checkpoint keeps. */
    return param->buffers.pool[dtype] != NULL
               ? 0
               : (2 + param->buffers.durable) * (uint64_t)param->elements * pd_dtype_size(dtype);
}

uint64_t pd_param_update_bytes(const pd_param *param, pd_dtype dtype)
{
    uint64_t n = (uint64_t)param->elements;

    if (param->update_dtype != 0) return 0;
    /* Counts a buffer for the published update and one for the next update. With checkpoints, counts one more for an
     * old update that a checkpoint keeps. An update of another type than float32 is converted from a float32 buffer,
     * which counts, too. */
    return (2 + param->buffers.durable) * n * pd_dtype_size(dtype) + (dtype == PD_F32 ? 0 : n * sizeof(float));
}

int pd_param_pull_updates(pd_param *param, const pd_memory *memory, pd_dtype dtype)
{
    assert(param->update_dtype == 0 || param->update_dtype == dtype);
    if (param->update_dtype != 0) return PD_OK;
    if (pd_param_join_pool(param, memory, PD_UPDATE, (size_t)param->elements * pd_dtype_size(dtype)) != PD_OK)
        return PD_NO_MEMORY;
    param->update_dtype = dtype;
    return PD_OK;
}

int pd_param_begin_update(pd_param *param, float **update)
{
    pd_published *next = param->next;

    *update = NULL;
    if (next->at[PD_UPDATE] == NULL) return PD_OK;
    next->update_dtype = param->update_dtype;
    next->builds_on = 1 + param->current->version;
    if (param->update_dtype == PD_F32)
        *update = next->at[PD_UPDATE];
    else if ((*update = param->buffers.added = pd_buffer_pool_take(param->buffers.pool[PD_F32])) == NULL)
        return PD_NO_MEMORY;
    return PD_OK;
}

void pd_param_end_update(pd_param *param)
{
    if (param->buffers.added != NULL) pd_buffer_pool_give(param->buffers.pool[PD_F32], param->buffers.added);
    param->buffers.added = NULL;
}

char *pd_round_text(const pd_param *param, char *text, size_t size)
{
    if (param->current == NULL)
        snprintf(text, size, "the initial weights");
    else
        snprintf(text, size, "step %llu", (unsigned long long)param->saved.step + 1);
    return text;
}

char *pd_param_why_skipped(const pd_param *param, char *text, size_t size)
{
    if (param->round.weightless)
        snprintf(text, size, "all weights of %.160s are 0", param->name);
    else if (!param->round.finite)
        snprintf(text, size, "the gradient of %.160s is not finite", param->name);
    else
        snprintf(text, size, "an element of the gradient of %.160s, %.3g, exceeds the largest that %s takes, %.3g",
                 param->name, (double)param->round.largest, pd_optimizer_name(param->rule->hypers.row),
                 (double)param->rule->hypers.row->gradient_most);
    return text;
}

void pd_param_publish(pd_unread *unread, pd_param *param, pd_published *published, pd_outcome outcome,
                      pd_closed *closed)
{
    *closed =
        (pd_closed){ .param = param->index, .outcome = outcome, .step = param->saved.step, .published = published };
    if (published == NULL) return;
    /* This reference to the published version is the loop thread's. */
    published->store_refs++;
    pd_published_replace(unread, published, param->current);
    pd_published_unref(param->current);
    param->current = published;
}

void pd_param_publish_again(pd_unread *unread, pd_param *param, pd_closed *closed)
{
    *closed = (pd_closed){ .param = param->index,
                           .outcome = (pd_outcome)param->saved.outcome,
                           .step = param->saved.step,
                           .published = param->current };
    if (param->current == NULL) return;
    param->current->store_refs++;
    pd_published_replace(unread, param->current, NULL);
}

static bool has_types(const pd_param *param)
{
    const pd_published *next = param->next;
    return next != NULL && (next->at[PD_F16] != NULL || next->at[PD_BF16] != NULL || param->buffers.added != NULL);
}

void pd_params_convert(pd_param *const *params, size_t n, int threads)
{
    size_t first = 0;

    (void)threads;
    while (first < n && !has_types(params[first])) first++;
    if (first == n) return;
#pragma omp parallel num_threads(threads)
    for (size_t i = first; i < n; i++) {
        const pd_published *next = params[i]->next;
        int64_t elements = has_types(params[i]) ? next->elements : 0;
#pragma omp for schedule(static) nowait
        for (int64_t at = 0; at < elements; at += CONVERT_RANGE) convert_range(next, params[i]->buffers.added, at);
    }
}
