/* kron_plan.h - hyperparameters of kron, and which slots, blocks and tasks a parameter has. Step thread, or who plans. */
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

#endif
