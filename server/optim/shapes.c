/* shapes.c - merges the dimensions of a parameter's shape, and checks the blocks that the shape is cut into. */
#include "shapes.h"

#include <limits.h>

#include "partition.h"

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

int64_t pd_statistics_count(const pd_plan *plan)
{
    return (int64_t)plan->n_blocks * plan->shape.rank;
}

int64_t pd_statistics_side(const pd_plan *plan, int64_t number)
{
    return plan->blocks[number / plan->shape.rank].size[number % plan->shape.rank];
}

int pd_shape_check_blocks(const pd_shape *shape, int64_t block_size, const char *hyper, pd_error *err)
{
    int64_t side = pd_shape_largest_side(shape, block_size), bytes;
    pd_block first = pd_partition_block(shape, block_size, 0);
    char text[192];

    if (pd_partition_count(shape, block_size) > PD_MAX_BLOCKS)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shape %s would be cut into more than %d blocks; use a larger %s than %lld",
                       pd_shape_text(shape, text, sizeof text), PD_MAX_BLOCKS, hyper, (long long)block_size);
    if (side > INT_MAX || __builtin_mul_overflow(side * side, (int64_t)8, &bytes))
        return pd_fail(err, PD_INVALID_ARGUMENT, "a matrix of side %lld is not possible; use a smaller %s",
                       (long long)side, hyper);
    if (pd_block_elements(&first, shape->rank) > INT_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a block of %lld elements is not possible, at most %d are; use a smaller %s",
                       (long long)pd_block_elements(&first, shape->rank), INT_MAX, hyper);
    return PD_OK;
}
