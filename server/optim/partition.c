/* partition.c - cuts a tensor's shape into blocks, and copies blocks from and to a whole tensor. */
#include "partition.h"

#include <limits.h>
#include <string.h>

/* Returns into how many ranges of at most block_size indices a dimension of length `dim` is cut. */
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

static bool has_elements(const pd_shape *shape)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] == 0) return false;
    return true;
}

static void append(pd_shape *shape, int64_t dim)
{
    if (dim > 1) shape->dim[shape->rank++] = dim;
}

pd_shape pd_shape_merged(const pd_shape *shape, int64_t limit)
{
    pd_shape merged = { 0 };
    int64_t product = 1, next;

    if (shape->rank == 0 || !has_elements(shape)) return *shape;
    for (int d = 0; d < shape->rank; d++) {
        if (!__builtin_mul_overflow(product, shape->dim[d], &next) && next <= limit) {
            product = next;
            continue;
        }
        append(&merged, product);
        product = shape->dim[d];
    }
    append(&merged, product);
    if (merged.rank == 0) merged = (pd_shape){ .rank = 1, .dim = { 1 } };
    return merged;
}

static void reverse(pd_shape *shape)
{
    for (int d = 0; d < shape->rank / 2; d++) {
        int64_t dim = shape->dim[d];
        shape->dim[d] = shape->dim[shape->rank - 1 - d];
        shape->dim[shape->rank - 1 - d] = dim;
    }
}

pd_shape pd_shape_merged_backwards(const pd_shape *shape, int64_t limit, int64_t target)
{
    pd_shape plain = pd_shape_merged(shape, 0), merged = { 0 };

    if (plain.rank == 0 || !has_elements(shape)) return *shape;
    for (int d = plain.rank - 1; d >= 0; d--) {
        int64_t *last = &merged.dim[merged.rank > 0 ? merged.rank - 1 : 0], product;
        /* the dimensions that there will be if nothing more is merged */
        bool may_merge = merged.rank > 0 && merged.rank + d + 1 > target;
        if (may_merge && !__builtin_mul_overflow(*last, plain.dim[d], &product) && product <= limit)
            *last = product;
        else
            merged.dim[merged.rank++] = plain.dim[d];
    }
    reverse(&merged);
    return merged;
}

int pd_shape_merged_from(const pd_shape *shape, const pd_shape *merged, int d)
{
    int at = 0, from = -1;

    for (int m = 0; m <= d; m++) {
        int64_t size = 1;
        int many = 0;
        from = at < shape->rank ? at : -1;
        /* A merged dimension of length 1 comes from one original dimension: nothing was merged, or all dimensions have
         * length 1. */
        if (merged->dim[m] == 1) at++;
        while (at < shape->rank && size < merged->dim[m]) {
            if (shape->dim[at] > 1 && many++ == 0) from = at;
            size *= shape->dim[at++];
        }
        if (many > 1) from = -1;
    }
    return from;
}

bool pd_shape_exceeds(const pd_shape *shape, int64_t limit)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] > limit) return true;
    return false;
}

int64_t pd_shape_largest_side(const pd_shape *shape, int64_t block_size)
{
    int64_t largest = 0;

    if (!has_elements(shape)) return 0;
    for (int d = 0; d < shape->rank; d++) {
        int64_t side = block_size > 0 && shape->dim[d] > block_size ? block_size : shape->dim[d];
        if (side > largest) largest = side;
    }
    return largest;
}

int pd_shape_check_blocks(const pd_shape *shape, int64_t block_size, const char *hyper, pd_error *err)
{
    int64_t side = pd_shape_largest_side(shape, block_size), bytes;
    pd_block first = pd_partition_block(shape, block_size, 0);
    char text[192];

    if (pd_partition_count(shape, block_size) > PD_MAX_BLOCKS)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shape %s would be cut into more than %d blocks: use a larger %s than %lld",
                       pd_shape_text(shape, text, sizeof text), PD_MAX_BLOCKS, hyper, (long long)block_size);
    if (side > INT_MAX || __builtin_mul_overflow(side * side, (int64_t)8, &bytes))
        return pd_fail(err, PD_INVALID_ARGUMENT, "a matrix of side %lld is too large: use a smaller %s",
                       (long long)side, hyper);
    if (pd_block_elements(&first, shape->rank) > INT_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a block of %lld elements is too large, expected at most %d: use a smaller %s",
                       (long long)pd_block_elements(&first, shape->rank), INT_MAX, hyper);
    return PD_OK;
}
