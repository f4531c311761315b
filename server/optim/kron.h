/* kron.h - inside of the optimizer kron: shared by its files (kron.c: the row; kron_plan.c: slots, blocks and tasks; kron_shape.c: which factors and blocks there are;
 * kron_factor.c: the arithmetic of one block; kron_move.c: passes over runs of elements), and by its tests. Pure; any thread; what allocates says so.
 * Source: distributed_kron 1.0.0 (PSGD Kron, arXiv:1512.04202, arXiv:2211.04422). */
#ifndef PD_KRON_H
#define PD_KRON_H

#include "block_products.h"
#include "plan.h"

/* Hyperparameters, in this order. */
enum {
    LEARNING_RATE, B1, WEIGHT_DECAY, DECAY_MIN_NDIM, PROBABILITY, MAX_SIZE, MIN_NDIM, SAVE_MODE, FACTOR_RATE, INIT_SCALE, MU_DTYPE, PRECOND_DTYPE,
    UPDATE_PRECISION, GRADS_PRECISION, LAX_MAP, LAX_MAP_BATCH, MERGE, MERGED_SIZE, PARTITION, BLOCK_SIZE, SCANNED_AXES, SCALE_ONLY, ROOT_DELAY, PAD_BLOCKS,
    SKIP_ZERO
};

/* ---- kron_shape.c ---- */

enum { KRON_SAVE_NONE, KRON_SAVE_ONE_DIAG, KRON_SAVE_ALL_DIAG };       /* memory_save_mode */

/* What each dimension gets: a diagonal factor, or a triangular one. A scalar counts as one dimension of size 1. */
void pd_kron_types(const pd_shape *shape, int64_t max_size_triangular, int64_t min_ndim_triangular, int memory_save_mode, bool *diagonal);

/* A shape whose dimensions are merged: dimension d of `shape` is made of those from first[d] up to first[d + 1] of what it came from, and is diagonal
 * only where all of them were. */
typedef struct pd_kron_shape {
    pd_shape shape;
    bool     diagonal[PD_MAX_RANK];
    int      first[PD_MAX_RANK + 1];
} pd_kron_shape;

/* Of a shape with elements, by their types. A scalar becomes (1). `target` >= 1: the way to merge neighbours whose loss is least; 0: nothing is merged. */
pd_kron_shape pd_kron_merged(const pd_shape *shape, const bool *diagonal, int64_t target);

/* How such a shape is cut into blocks, which are numbered with the last dimension fastest: */
typedef struct pd_kron_cut {
    int64_t n_blocks;                   /* INT64_MAX where that does not fit */
    int64_t cuts[PD_MAX_RANK];          /* of each dimension */
    int64_t step[PD_MAX_RANK];          /* size of all pieces but the last */
    int64_t side[PD_MAX_RANK];          /* what a piece is padded to: one size for all blocks */
} pd_kron_cut;

/* block_size 0: one block, not padded. `pads`: sides are multiples of the block size, else those of the largest piece. */
pd_kron_cut pd_kron_cut_of(const pd_kron_shape *merged, int64_t block_size, bool pads);
/* Block `index` < n_blocks, as a box of merged->shape. */
pd_block pd_kron_block_at(const pd_kron_shape *merged, const pd_kron_cut *cut, int64_t index);

/* ---- kron_factor.c ---- */

/* One block and its factors. */
typedef struct pd_kron_block {
    int     rank;
    bool    diagonal[PD_MAX_RANK];
    int64_t size[PD_MAX_RANK];          /* of the elements that there are */
    int64_t full[PD_MAX_RANK];          /* with the zeros behind them that the update of the factors takes for elements, too */
    int64_t side[PD_MAX_RANK];          /* of a factor in memory, at least `full`: a diagonal of that many, or a matrix with rows of that many, upper triangular with
                                           zeros below its diagonal */
} pd_kron_block;

/* Lower bound of a symmetric matrix's largest absolute eigenvalue, at least 1/sqrt(2) of it where none is negative. Reads the lower half of S, and leaves it divided by
 * its largest absolute element. Not positive (NaN, or no element but 0): gives that element. `scratch`: 3 floats a row. */
float pd_kron_norm_bound(pd_mat S, float *scratch);

/* What is done to a block along a dimension with its factor Q. */
typedef enum pd_kron_deed {
    PD_KRON_APPLY,                      /* y[..b..] = sum over a of Q[b,a] x[..a..] */
    PD_KRON_APPLY_TRANSPOSED,           /* y[..b..] = sum over a of Q[a,b] x[..a..] */
    PD_KRON_SOLVE_TRANSPOSED,           /* undoes the one before */
} pd_kron_deed;

/* Does it in place. `side`: floats from one row of Q to the next, where it is not diagonal. */
void pd_kron_along(const pd_block_view *x, int dim, const float *Q, bool diagonal, int64_t side, pd_kron_deed deed);

/* What an update of the factors takes besides the inputs, in floats. */
int64_t pd_kron_update_scratch(const pd_kron_block *block);
/* How the factors are to change: M[d], of the form of Q[d], such that the new factor is M[d] Q[d] where it is triangular, and Q[d] + M[d] Q[d], element by element,
 * where it is diagonal: Q times 1.1 lies between two bfloat16 numbers for one Q in ten, and 1 + M, rounded, would choose where upstream's sum does not. H: the damped
 * momentum; V: the probe; both dense, of the sizes block->full, and used up. All factors are those before the update. */
void pd_kron_multipliers(const pd_kron_block *block, float *H, float *V, float *const *Q, float rate, float *const *M, float *scratch);
/* The new factors in Q, rounded to bfloat16 where that is wanted. */
void pd_kron_multiply(const pd_kron_block *block, float *const *Q, float *const *M, bool bfloat16);
/* Brings the largest absolute elements of all factors to their geometric mean; the product of the factors stays. */
void pd_kron_balance(const pd_kron_block *block, float *const *Q, bool bfloat16);
/* Multiplies the block's elements by Q'Q along every dimension, in place; x has the sizes block->size. */
void pd_kron_precondition(const pd_kron_block *block, const pd_block_view *x, float *const *Q);
/* Multiplications and additions of all that: an update's (multipliers and multiply), and preconditioning's. Symmetric and triangular products count half. */
double pd_kron_update_flops(const pd_kron_block *block);
double pd_kron_precondition_flops(const pd_kron_block *block);

/* ---- kron_plan.c ---- */

/* The row's plan. Its shape is the scanned dimensions, then the merged others; its blocks go layer by layer. pd_plan.own holds: */
enum {
    KRON_MU, KRON_COUNTER, KRON_Q,      /* indices of the slots; of the momentum -1 where there is none; of the first factor, if any: one for each dimension */
    KRON_X,                             /* temporary: the debiased momentum, then the update, in plan->shape */
    KRON_DECISION,                      /* temporary: what is decided in a step, by: */
    KRON_SCANNED,                       /* number of leading dimensions that count layers */
    KRON_RANK,                          /* of a block: that of the merged shape */
    KRON_DIAGONAL,                      /* bit d: factor d is diagonal */
    KRON_PROBE,                         /* elements of a block with its padding: distance of blocks in the probe */
    KRON_PADS,                          /* blocks are padded to one size; else they have their own */
    KRON_IN_STEP,                       /* factors are updated in a phase, not by tasks */
    KRON_DECAYS,                        /* weights of this parameter decay */
    KRON_SIDE,                          /* of its factors: one for each dimension */
};
enum { DECIDED_UPDATE, DECIDED_BALANCE, DECIDED_MEAN, DECIDED };       /* 0 or 1; 0 or 1; mean |X| with the padding */

int pd_kron_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
pd_kron_block pd_kron_block_of(const pd_plan *plan, int64_t index);
/* Where a block lies: in a tensor of its own layer's shape, so many elements behind the beginning. */
typedef struct pd_kron_place {
    int64_t  first;
    pd_shape shape;
    pd_block box;
} pd_kron_place;
pd_kron_place pd_kron_place_of(const pd_plan *plan, int64_t index);

/* ---- kron.c ---- */

/* Floats that the update of a block's factors takes where it runs in a phase. */
int64_t pd_kron_phase_scratch(const pd_kron_block *block);
/* And of a task's. */
int64_t pd_kron_task_scratch(const pd_kron_block *block);

/* ---- kron_move.c ---- */

typedef struct pd_kron_momentum {
    float *X, *mu;                      /* out: the momentum without bias; in and out, NULL: there is none, and X is the gradient */
    const float *gradient;
    int64_t n;
    float   keep, gain, divisor;        /* b1, 1 - b1, 1 - b1^t */
    bool    bfloat16;                   /* of mu: `keep` is, and its product with mu becomes, a bfloat16 number */
} pd_kron_momentum;

/* Gives the sum of |X|. */
double pd_kron_follow(const pd_kron_momentum *m);
/* after = before + rate (u / clip + decay before); `after` may be `before` or `u`; `update`, where not NULL, gets what is added. */
typedef struct pd_kron_step {
    float *after, *update;
    const float *before, *u;
    int64_t n;
    float   clip, decay, rate;
} pd_kron_step;
void pd_kron_move(const pd_kron_step *s);

/* ---- when factors are updated ---- */

/* One step of the counter, in float32 as upstream's; `p`: the probability in this step. True: now, and the counter is 0 again. */
bool pd_kron_counts(float *counter, double p);

#endif
