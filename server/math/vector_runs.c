/* vector_runs.c - reads vectors whose elements are stored as runs of any element type. */
#include "vector_runs.h"

#include <string.h>

#include "block_codec.h"
#include "convert.h"

pd_vector_run pd_vector_run_of(const void *at, pd_dtype dtype, int64_t skip, int64_t of)
{
    if (pd_dtype_is_quantized(dtype)) return (pd_vector_run){ at, dtype, skip, of };
    return (pd_vector_run){ (const char *)at + (size_t)skip * pd_dtype_size(dtype), dtype, 0, of - skip };
}

void pd_vector_run_read(float *to, const pd_vector_run *run, int64_t first, int64_t n)
{
    if (pd_dtype_is_quantized(run->dtype))
        pd_blocks_decode(to, run->dtype, run->at, run->of, run->skip + first, n);
    else
        pd_convert(to, PD_F32, (const char *)run->at + (size_t)first * pd_dtype_size(run->dtype), run->dtype, n);
}

size_t pd_vectors_run(const pd_vectors *v, int64_t i)
{
    size_t low = 0, high = v->n_runs - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->ends[middle] > i)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

const float *pd_vectors_load(const pd_vectors *v, int r, size_t p, int64_t first, int64_t n, int64_t room, float *tile)
{
    int64_t begin = p > 0 ? v->ends[p - 1] : 0, i = 0;
    const pd_vector_run *source = &v->at[p * (size_t)v->k + (size_t)r];

    if (source->dtype == PD_F32 && source->at != NULL && first + n <= v->ends[p] && room == n)
        return (const float *)source->at + (first - begin);
    while (i < n) {
        int64_t skip = first + i - begin, some = v->ends[p] - (first + i);
        if (some > n - i) some = n - i;
        source = &v->at[p * (size_t)v->k + (size_t)r];
        if (source->at == NULL)
            memset(tile + i, 0, (size_t)some * sizeof *tile);
        else
            pd_vector_run_read(tile + i, source, skip, some);
        i += some;
        begin = v->ends[p++];
    }
    memset(tile + n, 0, (size_t)(room - n) * sizeof *tile);
    return tile;
}
