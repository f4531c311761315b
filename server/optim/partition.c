/* partition.c - cuts a tensor's shape into blocks, and copies blocks from and to a whole tensor. */
#include "partition.h"

#include <string.h>

/* Returns how many pieces of at most block_size indices a dimension of length `dim` is cut into. */
static int64_t cuts(int64_t dim, int64_t block_size)
{
    return block_size <= 0 ? 1 : dim / block_size + (dim % block_size != 0);
}

int64_t pd_partition_count(const pd_shape *shape, int64_t block_size)
{
    int64_t n = 1;
    bool too_many = false;

    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] == 0) return 0;
        if (__builtin_mul_overflow(n, cuts(shape->dim[d], block_size), &n)) too_many = true;
    }
    return too_many ? INT64_MAX : n;
}

pd_block pd_partition_block(const pd_shape *shape, int64_t block_size, int64_t index)
{
    pd_block block = { 0 };

    for (int d = shape->rank - 1; d >= 0; d--) {
        int64_t n = cuts(shape->dim[d], block_size);
        int64_t left;
        block.start[d] = n == 1 ? 0 : index % n * block_size;
        left = shape->dim[d] - block.start[d];
        block.size[d] = n == 1 || left < block_size ? left : block_size;
        index /= n;
    }
    return block;
}

int64_t pd_block_elements(const pd_block *block, int rank)
{
    int64_t n = 1;

    for (int d = 0; d < rank; d++) n *= block->size[d];
    return n;
}

/* ---- runs ---- */

/* Returns the dimension along which a block's contiguous runs extend: a run covers the block's indices of this
 * dimension, and every later dimension completely. */
static int run_dim(const pd_shape *shape, const pd_block *block)
{
    int d = shape->rank - 1;

    while (d > 0 && block->size[d] == shape->dim[d]) d--;
    return d;
}

int64_t pd_block_run_length(const pd_shape *shape, const pd_block *block)
{
    int64_t n = 1;

    for (int d = shape->rank - 1; d >= 0 && d >= run_dim(shape, block); d--) n *= block->size[d];
    return n;
}

int64_t pd_block_run_start(const pd_shape *shape, const pd_block *block, int64_t run)
{
    int64_t start = 0, stride = 1;
    int along = run_dim(shape, block);

    for (int d = shape->rank - 1; d >= 0; d--) {
        int64_t within = 0;
        if (d < along) {
            within = run % block->size[d];
            run /= block->size[d];
        }
        start += (block->start[d] + within) * stride;
        stride *= shape->dim[d];
    }
    return start;
}

void pd_block_gather(float *dense, const float *whole, const pd_shape *shape, const pd_block *block)
{
    int64_t n = pd_block_elements(block, shape->rank), length = pd_block_run_length(shape, block);

    for (int64_t i = 0; i < n; i += length)
        memcpy(dense + i, whole + pd_block_run_start(shape, block, i / length), (size_t)length * sizeof *dense);
}

void pd_block_scatter(float *whole, const float *dense, const pd_shape *shape, const pd_block *block)
{
    int64_t n = pd_block_elements(block, shape->rank), length = pd_block_run_length(shape, block);

    for (int64_t i = 0; i < n; i += length)
        memcpy(whole + pd_block_run_start(shape, block, i / length), dense + i, (size_t)length * sizeof *dense);
}
