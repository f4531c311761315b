/* kron_plan.h - hyperparameters of kron, and which slots, blocks and tasks a parameter has. Step thread, or who
 * plans. */
#ifndef PD_KRON_PLAN_H
#define PD_KRON_PLAN_H

#include "kron_factor.h"
#include "kron_shape.h"
#include "row.h"

/* Hyperparameters, in this order. */
enum {
    LEARNING_RATE, B1, WEIGHT_DECAY, DECAY_MIN_NDIM, PROBABILITY, MAX_SIZE, MIN_NDIM, SAVE_MODE, FACTOR_RATE, INIT_SCALE, MU_DTYPE, PRECOND_DTYPE,
    UPDATE_PRECISION, GRADS_PRECISION, LAX_MAP, LAX_MAP_BATCH, MERGE, MERGED_SIZE, PARTITION, BLOCK_SIZE, SCANNED_AXES, SCALE_ONLY, ROOT_DELAY, PAD_BLOCKS,
    SKIP_ZERO
};

/* What plan->own of a parameter of kron points to. plan->shape is the scanned dimensions, then the merged others;
 * blocks go layer by layer. */
typedef struct pd_kron_own {
    int     mu, counter;                /* slots; mu: of the momentum, -1: there is none */
    int     q;                          /* slot of the first factor: one slot for each dimension */
    int     x;                          /* temporary slot: the debiased momentum, then the update, in plan->shape */
    int     decision;                   /* temporary slot: the step's decisions, by DECIDED_... */
    int     scanned;                    /* number of leading dimensions that count layers */
    int     rank;                       /* of a block: that of the merged shape */
    bool    diagonal[PD_MAX_RANK];      /* whether factor d is diagonal */
    int64_t probe;                      /* elements of a block with its padding: distance of blocks in the probe */
    bool    pads;                       /* blocks are padded to one size; else they have their own sizes */
    bool    in_step;                    /* factors are updated in a phase, not by tasks */
    bool    decays;                     /* weights of this parameter decay */
    int64_t side[PD_MAX_RANK];          /* of the factors */
} pd_kron_own;
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

#endif
