/* kron_plan.h - hyperparameters of kron, and the slots, blocks and tasks of a parameter. Called by the step thread,
 * or by the thread that plans. */
#ifndef PD_KRON_PLAN_H
#define PD_KRON_PLAN_H

#include "kron_factor.h"
#include "kron_shape.h"
#include "row.h"

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
    SKIP_ZERO
};

/* kron's own part of a plan, to which plan->own points. plan->shape has the scanned dimensions, which count layers,
 * then the other dimensions, merged. Blocks are numbered layer by layer. */
typedef struct pd_kron_own {
    int mu, counter;            /* slots of the momentum (-1: no momentum) and of the counter */
    int q;                      /* slot of the first factor; the other dimensions' factors follow */
    int x;                      /* temporary slot: first the debiased momentum, later the update; shape: plan->shape */
    int other;                  /* temporary slot like x: work memory for large products; -1: there are none */
    int decision;               /* temporary slot: the step's decisions, indexed by DECIDED_... */
    int scanned;                /* number of scanned dimensions: leading ones that count layers */
    int rank;                   /* number of dimensions of a block: that of the merged shape */
    bool diagonal[PD_MAX_RANK]; /* whether the factor of dimension d is diagonal */
    int64_t probe;              /* elements of a padded block; the random probe has as many for each block */
    bool pads;                  /* blocks are padded to one size; false: each has its own size */
    bool in_step;               /* factors are updated in a phase of the step, not by tasks of the root pool */
    bool decays;                /* the weights of this parameter decay */
    int64_t side[PD_MAX_RANK];  /* size of each dimension's factor, as stored */
} pd_kron_own;
/* Elements of the slot `decision`. UPDATE and BALANCE are 0 or 1; MEAN is the mean of |X| over the blocks, including
 * padding. */
enum { DECIDED_UPDATE, DECIDED_BALANCE, DECIDED_MEAN, DECIDED };

int pd_kron_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err);
pd_kron_block pd_kron_block_of(const pd_plan *plan, int64_t index);
/* The place of a block in its parameter: `first` is the element at which the block's layer begins, `box` the block's
 * box in the shape of a layer. */
typedef struct pd_kron_place {
    int64_t first;
    pd_shape shape;
    pd_block box;
} pd_kron_place;
pd_kron_place pd_kron_place_of(const pd_plan *plan, int64_t index);

#endif
