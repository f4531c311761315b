/* kron_shape.h - which factors, and which blocks, a parameter of kron has. Pure; any thread. */
#ifndef PD_KRON_SHAPE_H
#define PD_KRON_SHAPE_H

#include "partition.h"

enum { KRON_SAVE_NONE, KRON_SAVE_ONE_DIAG, KRON_SAVE_ALL_DIAG };       /* memory_save_mode */

/* What each dimension gets: a diagonal factor, or a triangular one. A scalar counts as one dimension of size 1. */
void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular, int memory_save_mode, bool *diagonal);

/* A shape whose dimensions are merged: dimension d of `shape` is made of those from first[d] up to first[d + 1] of
 * what it came from, and is diagonal only where all of them were. */
typedef struct pd_kron_shape {
    pd_shape shape;
    bool     diagonal[PD_MAX_RANK];
    int      first[PD_MAX_RANK + 1];
} pd_kron_shape;

/* Of a shape with elements, by their types. A scalar becomes (1). `target` >= 1: the way to merge neighbours whose
 * loss is least; 0: nothing is merged. */
pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target);

/* How such a shape is cut into blocks, which are numbered with the last dimension fastest: */
typedef struct pd_kron_cut {
    int64_t n_blocks;                   /* INT64_MAX where that does not fit */
    int64_t cuts[PD_MAX_RANK];          /* of each dimension */
    int64_t step[PD_MAX_RANK];          /* size of all pieces but the last */
    int64_t side[PD_MAX_RANK];          /* what a piece is padded to: one size for all blocks */
} pd_kron_cut;

/* block_size 0: one block, not padded. `pads`: sides are multiples of the block size, else those of the largest
 * piece. */
pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads);
/* Block `index` < n_blocks, as a box of merged->shape. */
pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index);

#endif
