/* kron_shape.h - decides which factors and which blocks a parameter of the optimizer kron
 * has. Pure functions; any thread. */
#ifndef PD_KRON_SHAPE_H
#define PD_KRON_SHAPE_H

#include "partition.h"

enum { KRON_SAVE_NONE, KRON_SAVE_ONE_DIAG, KRON_SAVE_ALL_DIAG }; /* values of the hyperparameter memory_save_mode */

/* Decides for each dimension of a shape whether its factor is diagonal or triangular. A scalar
 * counts as one dimension of size 1. */
void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular,
                   int memory_save_mode, bool *diagonal);

/* A shape with merged dimensions. Dimension d of `shape` was merged from the original dimensions first[d] to first[d +
 * 1] - 1. diagonal[d] says whether its factor is diagonal: only if the factors of all these dimensions were to be
 * diagonal. */
typedef struct pd_kron_shape {
    pd_shape shape;
    bool diagonal[PD_MAX_RANK];
    int first[PD_MAX_RANK + 1];
} pd_kron_shape;

/* Merges neighbouring dimensions of a shape, which must have elements, so that the sizes come as close as possible to
 * `target` (at least 1). With a target of 0 nothing is merged. A scalar becomes one dimension of size 1. */
pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target);

/* How a merged shape is cut into blocks: each dimension into pieces. Blocks are numbered with the last dimension
 * fastest. */
typedef struct pd_kron_cut {
    int64_t n_blocks;          /* number of blocks; INT64_MAX: the number does not fit */
    int64_t cuts[PD_MAX_RANK]; /* number of pieces into which each dimension is cut */
    int64_t step[PD_MAX_RANK]; /* size of each dimension's pieces; the last piece may be smaller */
    int64_t side[PD_MAX_RANK]; /* size to which each dimension's pieces are padded */
} pd_kron_cut;

/* Cuts a merged shape (neighbouring dimensions joined) into blocks. With a block_size of 0 there is one block without
 * padding. If `pads` is set, padded sizes are multiples of block_size; otherwise a padded size is the size of the
 * largest piece. */
pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads);
/* Returns block number `index` (below n_blocks) of a shape that is cut into blocks: its place and size in
 * merged->shape. */
pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index);

#endif
