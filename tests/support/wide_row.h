/* wide_row.h - an optimizer for tests with state in float64, beside state in every other element type.
 *
 * It is not in the table of optimizers: declare a matrix with pd_hypers_init(&hypers, &wide_row). The matrix is cut
 * into blocks b of at most WIDE_SIDE rows and columns. Each step has these phases, in float64 unless another type is
 * named:
 *
 *     early, over blocks     S_b <- S_b / 2 + G_b G_b'          "block_b.statistics.0", its lower half; at first 2 I
 *     task                 R_b <- 1 / (1 + |S_b|)             "block_b.root.0", elementwise, of both halves; at first I
 *                            d_b <- diagonal of R_b             "block_b.short", float32
 *     late, over blocks      D_b = R_b G_b                      temporary "direction"
 *     late, over ranges      A <- A / 2 + D                     "average"; at first 0.5
 *                            M <- M / 2 + D          "momentum", in float32 and stored as `storage` says, or in float64
 *                            w <- w - (A + M) / 8               rounded to float32
 *
 * The slot "unfit" has, for each block, the reason why the inputs of its task were unfit. A task fails if
 * S_b[0][0] > 1e9. */
#ifndef WIDE_ROW_H
#define WIDE_ROW_H

#include "optimizer_ops.h"

enum { WIDE_SIDE = 3 };
enum { WIDE_STORAGE, WIDE_DELAY }; /* index of each hyperparameter in the optimizer's list */
enum {
    WIDE_DIRECTION,
    WIDE_MOMENTUM,
    WIDE_AVERAGE,
    WIDE_UNFIT,
    WIDE_FIRST_BLOCK
}; /* index of each slot; the slots statistics, root and short of each block follow */

extern const pd_optimizer_ops wide_row;

#endif
