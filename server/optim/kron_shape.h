/* kron_shape.h - decides which factors and which blocks a parameter of the optimizer kron has. Pure functions; any
 * thread. */
#ifndef PD_KRON_SHAPE_H
#define PD_KRON_SHAPE_H

#include "partition.h"

enum { KRON_SAVE_NONE, KRON_SAVE_ONE_DIAG, KRON_SAVE_ALL_DIAG }; /* memory_save_mode */

/* Decides the type of each dimension's factor: diagonal or triangular. A scalar counts as one dimension of size 1. */
void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular,
                   int memory_save_mode, bool *diagonal);

/* A shape with merged dimensions. Dimension d of `shape` was merged from the original dimensions first[d] to first[d
 * + 1] - 1. Its factor is diagonal only if the factors of all these dimensions were to be diagonal. */
typedef struct pd_kron_shape {
    pd_shape shape;
    bool diagonal[PD_MAX_RANK];
    int first[PD_MAX_RANK + 1];
} pd_kron_shape;

/* Merges the dimensions of a shape, which must have elements. A scalar becomes (1). `target` >= 1: neighbours are
 * merged in the way whose sizes come closest to `target`; 0: nothing is merged. */
pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target);

/* How a merged shape is cut into blocks. Blocks are numbered with the last dimension fastest. */
typedef struct pd_kron_cut {
    int64_t n_blocks;          /* INT64_MAX: too many */
    int64_t cuts[PD_MAX_RANK]; /* number of pieces of each dimension */
    int64_t step[PD_MAX_RANK]; /* size of each dimension's pieces, except the last */
    int64_t side[PD_MAX_RANK]; /* size that each dimension's pieces are padded to */
} pd_kron_cut;

/* Cuts a merged shape into blocks. block_size 0: one block without padding. `pads`: padded sizes are multiples of
 * block_size; otherwise a padded size is the size of the largest piece. */
pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads);
/* Returns block number `index` (below n_blocks) of a cut shape, as a box of merged->shape. */
pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index);

#endif
