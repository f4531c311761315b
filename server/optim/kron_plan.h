/* kron_plan.h - hyperparameters of the optimizer kron, and the slots, blocks and tasks of a parameter. Called by the
 * step thread, or by the thread that plans. */
#ifndef PD_KRON_PLAN_H
#define PD_KRON_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kron_factor.h"
#include "kron_fit.h"
#include "optimizer_ops.h"
#include "partition.h"

/* Indices of kron's hyperparameters, in the order of its table. */
enum {
    LEARNING_RATE,
    B1,
    WEIGHT_DECAY,
    DECAY_MIN_NDIM,
    PROBABILITY,
    MAX_SIZE,
    MIN_NDIM,
    SAVE_MODE,
    FACTOR_RATE,
    INIT_SCALE,
    MU_DTYPE,
    MU_ROUNDING,
    PRECOND_DTYPE,
    UPDATE_PRECISION,
    GRADS_PRECISION,
    LAX_MAP,
    LAX_MAP_BATCH,
    MERGE,
    MERGED_SIZE,
    PARTITION,
    BLOCK_SIZE,
    SCANNED_AXES,
    SCALE_ONLY,
    ROOT_DELAY,
    PAD_BLOCKS,
    SKIP_ZERO,
    UPDATE_RULE,
    BETA_L,
    NOISE,
    MAX_SKEW,
    WHITEN_GRAD,
    CLIP_RMS,
    CLIP_ELEMENT
};

/* Value of preconditioner_init_scale that takes the scale from a parameter's first gradient, "auto". Factors are zero
 * until then. */
#define PD_KRON_AUTO (-1.0)

/* kron's own struct in a parameter's plan, to which plan->own points. plan->shape has the scanned dimensions, which
 * count layers, and then the other dimensions, merged. Blocks are numbered layer by layer. */
typedef struct pd_kron_own {
    /* indices of the slots of the momentum (-1: no momentum) and of the counter of steps since the last update of the
     * factors */
    int mu, counter;
    int q; /* index of the slot of the first dimension's factors; the slots of the other dimensions' factors follow */
    pd_kron_rule rule; /* how factors are updated: dQ. The members l and fitted are for rules other than PD_KRON_EQ */
    int l; /* index of the slot of the first dimension's smoothness numbers; those of the other dimensions follow */
    /* index of the slot, of shape plan->shape, to which factors are fitted: x itself, or a temporary one with the
     * gradient */
    int fitted;
    /* index of a temporary slot of shape plan->shape: first the momentum corrected for its bias, later the update of
     * the weights */
    int x;
    /* index of a temporary slot of shape plan->shape: work memory for products that threads share; -1: no block needs
     * it */
    int other;
    int decision; /* index of a temporary slot: what the step decides about factors, an array indexed by DECIDED_... */
    int scanned;  /* number of scanned dimensions: leading ones that count independent layers */
    int rank;     /* number of dimensions of a block, without scanned dimensions */
    bool diagonal[PD_MAX_RANK]; /* whether the factor of dimension d of a block is diagonal, and not triangular */
    int64_t probe;              /* number of elements of a padded block */
    int64_t normals;            /* number of random numbers that the update of the largest block needs */
    bool pads;                  /* whether all blocks are padded to one size; false: each has its own size */
    bool in_step; /* whether factors are updated within the step, and not by tasks of the preconditioner pool */
    bool decays;  /* whether weight decay changes the weights of this parameter */
    int64_t side[PD_MAX_RANK]; /* number of rows of each dimension's factor in memory */
} pd_kron_own;
/* Indices of the elements of the slot `decision`. UPDATE and BALANCE are 0 or 1: whether factors are updated, and
 * whether their largest elements are made equal. MEAN is the mean absolute value of the momentum over the blocks,
 * including padding. DECIDED is the number of elements. */
enum { DECIDED_UPDATE, DECIDED_BALANCE, DECIDED_MEAN, DECIDED };

int pd_kron_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err);
/* Returns the elements on the diagonal of `rank` factors that are multiples of the identity, where `scale` is that of
 * their product, or with factors P = Q'Q the scale of the product of all Q. */
double pd_kron_fill(pd_kron_rule rule, double scale, int rank);
pd_kron_block pd_kron_block_of(const pd_plan *plan, int64_t index);
/* Returns how many floats of scratch memory a task needs that updates the factors of a block: for its random numbers
 * and its arithmetic. */
int64_t pd_kron_task_floats(const pd_kron_own *own, const pd_kron_block *block);
/* Where a block lies in its parameter: `first` is the index of the first element of the block's layer, `shape` the
 * shape of a layer, and `box` the place and size of the block in this shape. */
typedef struct pd_kron_place {
    int64_t first;
    pd_shape shape;
    pd_block box;
} pd_kron_place;
pd_kron_place pd_kron_place_of(const pd_plan *plan, int64_t index);

enum { KRON_SAVE_NONE, KRON_SAVE_ONE_DIAG, KRON_SAVE_ALL_DIAG }; /* values of the hyperparameter memory_save_mode */

/* Decides for each dimension d of a shape whether its factor is diagonal or triangular, by the hyperparameters of the
 * same names as the arguments. Sets diagonal[d]. A scalar counts as one dimension of size 1. */
void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular,
                   int memory_save_mode, bool *diagonal);

/* A shape, some of whose neighbouring dimensions were merged. Dimension d of `shape` was merged from the original
 * dimensions first[d] to first[d + 1] - 1. diagonal[d] says whether its factor is diagonal: only if the factors of all
 * these dimensions were to be diagonal. */
typedef struct pd_kron_shape {
    pd_shape shape;
    bool diagonal[PD_MAX_RANK];
    int first[PD_MAX_RANK + 1];
} pd_kron_shape;

/* Merges neighbouring dimensions of a shape, which must have elements, so that the sizes come as close as possible to
 * `target` (at least 1). With a target of 0 nothing is merged. A scalar becomes one dimension of size 1. */
pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target);

/* How a merged shape is cut into blocks: each dimension is cut into ranges of indices. Blocks are numbered in row-major
 * order. */
typedef struct pd_kron_cut {
    int64_t n_blocks;          /* number of blocks; INT64_MAX: the number does not fit */
    int64_t cuts[PD_MAX_RANK]; /* number of ranges into which each dimension is cut */
    int64_t step[PD_MAX_RANK]; /* size of each dimension's ranges; the last range may be smaller */
    int64_t side[PD_MAX_RANK]; /* size to which each dimension's ranges are padded */
} pd_kron_cut;

/* Cuts a merged shape into blocks. With a block_size of 0 there is one block without padding. If `pads` is set, padded
 * sizes are multiples of block_size; otherwise a padded size is the size of the dimension's largest range. */
pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads);
/* Returns block number `index` (below n_blocks) of a shape that is cut into blocks: its place and size in
 * merged->shape. */
pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index);

#endif
