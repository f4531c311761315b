/* coupled_row.h - an optimizer for tests: small, and it uses everything that the row contract offers.
 *
 * It is not in the table of optimizers: declare parameters with pd_hypers_init(&hypers, &coupled_row). A parameter of
 * any shape is cut into blocks b of at most `block_size` along each dimension. Step number `count` with gradient G has
 * these phases, where all operations are elementwise:
 *
 *     early, over blocks     S_b <- S_b / 2 + G_b^2                                                 slot "statistics.b"
 *     task, when interval divides count       R_b <- 1 / (1 + sqrt(S_b + mean(S_b)))          slot "root.b", at first 1
 *     late, over blocks      D_b = G_b R_b;  partials: sum of D_b^2, largest |D_b|           temporary slot "direction"
 *     late, over ranges  w <- w - lr D / (sqrt(sum of D^2) + largest |D| + largest_block)  largest_block: a fact of the
 *         model
 *     late, whole, in steps of odd count      T <- T + sqrt(sum of D^2)                                    slot "tally"
 *
 * Roots are adopted root_delay steps after their statistics (-1: when they are ready). With `spoil`, the tasks of step
 * spoil_at fail or give NaN. */
#ifndef COUPLED_ROW_H
#define COUPLED_ROW_H

#include "optimizer_ops.h"

enum {
    COUPLED_LR,
    COUPLED_BLOCK_SIZE,
    COUPLED_INTERVAL,
    COUPLED_ROOT_DELAY,
    COUPLED_RANGE,
    COUPLED_SPOIL,
    COUPLED_SPOIL_AT
};
enum { COUPLED_SPOIL_NONE, COUPLED_SPOIL_ERROR, COUPLED_SPOIL_NAN };

extern const pd_optimizer_ops coupled_row;

#endif
