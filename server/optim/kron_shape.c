/* kron_shape.c - decides for the optimizer kron which factors are diagonal and which triangular, which dimensions are
 * merged, and how shapes are cut into blocks. */
#include "kron_shape.h"

#include <math.h>
#include <string.h>

/* ---- types ---- */

void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular,
                   int memory_save_mode, bool *diagonal)
{
    int largest = 0;

    for (int d = 1; d < shape->rank; d++)
        if (shape->dim[d] >= shape->dim[largest]) largest = d;
    for (int d = 0; d < PD_MAX_RANK; d++)
        diagonal[d] = d >= shape->rank || shape->dim[d] == 1 || shape->dim[d] > max_size_triangular ||
                      shape->rank < min_ndim_triangular || memory_save_mode == KRON_SAVE_ALL_DIAG ||
                      (memory_save_mode == KRON_SAVE_ONE_DIAG && d == largest);
}

/* ---- merging ---- */

/* Returns the loss of a merged dimension of size `product`: a measure of how far the size is from the target size. The
 * merging with the least sum of losses is chosen. */
static double loss_of(double product, double target)
{
    double loss = product < target ? log2(target / product) : 10 * log2(product / target);

    if (product < target / 8) loss += 100 * log2(target / (8 * product));
    if (product > 8 * target) loss += 1000 * log2(product / (8 * target));
    return loss;
}

/* Returns whether dimensions d and d + 1 of a shape are joined if neighbours are merged in the way number `way`. Each
 * bit of the number says whether two neighbours are joined, the highest bit for the first two. So a low number joins
 * dimensions at the end only. */
static bool joins(const pd_shape *shape, int way, int d)
{
    return d + 1 < shape->rank && (way >> (shape->rank - 2 - d) & 1) != 0;
}

static double loss_of_way(const pd_shape *shape, int way, int64_t target)
{
    double loss = 0, product = 1;

    for (int d = 0; d < shape->rank; d++) {
        product *= (double)shape->dim[d];
        if (joins(shape, way, d)) continue;
        loss += loss_of(product, (double)target);
        product = 1;
    }
    return loss;
}

/* Returns the number of the way to merge neighbouring dimensions with the least loss (distance from the target size);
 * of equally good ways the lowest number. */
static int best_way(const pd_shape *shape, int64_t target)
{
    int best = 0;
    double least = loss_of_way(shape, 0, target);

    for (int way = 1; way < 1 << (shape->rank - 1); way++) {
        double loss = loss_of_way(shape, way, target);
        if (!(loss < least)) continue;
        least = loss;
        best = way;
    }
    return best;
}

static bool all_are_1(const pd_shape *shape)
{
    for (int d = 0; d < shape->rank; d++)
        if (shape->dim[d] != 1) return false;
    return true;
}

pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target)
{
    pd_kron_shape merged = { .shape = { .rank = 0 } };
    bool one = shape->rank == 0 || (target > 0 && all_are_1(shape));
    int way = one || target <= 0 ? 0 : best_way(shape, target), n = 0;

    if (one) {
        merged = (pd_kron_shape){ .shape = { .rank = 1, .dim = { 1 } }, .diagonal = { true } };
        merged.first[1] = shape->rank;
        return merged;
    }
    for (int d = 0; d < shape->rank; d++) {
        bool begins = d == 0 || !joins(shape, way, d - 1);
        if (begins) merged.first[n] = d;
        merged.shape.dim[n] = begins ? shape->dim[d] : merged.shape.dim[n] * shape->dim[d];
        merged.diagonal[n] = diagonal[d] && (begins || merged.diagonal[n]);
        n += !joins(shape, way, d);
    }
    merged.shape.rank = n;
    merged.first[n] = shape->rank;
    return merged;
}

/* ---- blocks ---- */

static int64_t rounded_up(int64_t n, int64_t to)
{
    return n / to * to + (n % to != 0 ? to : 0);
}

pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads)
{
    pd_kron_cut cut = { .n_blocks = 1 };

    for (int d = 0; d < merged->shape.rank; d++) {
        int64_t dim = merged->shape.dim[d];
        bool is_cut = block_size > 0 && !merged->diagonal[d] && dim > block_size;
        cut.step[d] = is_cut ? block_size : dim;
        cut.cuts[d] = is_cut ? rounded_up(dim, block_size) / block_size : 1;
        cut.side[d] = block_size > 0 && pads ? rounded_up(cut.step[d], block_size) : cut.step[d];
        if (__builtin_mul_overflow(cut.n_blocks, cut.cuts[d], &cut.n_blocks)) cut.n_blocks = INT64_MAX;
    }
    return cut;
}

pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index)
{
    pd_block block = { 0 };

    for (int d = merged->shape.rank - 1; d >= 0; d--) {
        int64_t left;
        block.start[d] = index % cut->cuts[d] * cut->step[d];
        left = merged->shape.dim[d] - block.start[d];
        block.size[d] = left < cut->step[d] ? left : cut->step[d];
        index /= cut->cuts[d];
    }
    return block;
}
