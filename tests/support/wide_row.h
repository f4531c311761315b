/* wide_row.h - an optimizer for tests whose state is kept in float64, and in any other form beside it.
 *
 * Not in the table: declare a matrix with pd_hypers_init(&hypers, &wide_row). Cut into blocks of at most WIDE_SIDE, each step, b over the
 * blocks, in float64 but for what says otherwise:
 *
 *     early, over blocks     S_b <- S_b / 2 + G_b G_b'          "block_b.statistics.0", its lower half; at first 2 I
 *     task                   R_b <- 1 / (1 + |S_b|)             "block_b.root.0", elementwise, of both halves; at first I
 *                            d_b <- diagonal of R_b             "block_b.short", float32
 *     late, over blocks      D_b = R_b G_b                      temporary "direction"
 *     late, over ranges      A <- A / 2 + D                     "average"; at first 0.5
 *                            M <- M / 2 + D                     "momentum", in float32 and stored as `storage` says, or in float64
 *                            w <- w - (A + M) / 8               rounded to float32
 *
 * The task notes why its inputs were unfit in "unfit", by block, and is given up where S_b[0][0] > 1e9. */
#ifndef WIDE_ROW_H
#define WIDE_ROW_H

#include "row.h"

enum { WIDE_SIDE = 3 };
enum { WIDE_STORAGE, WIDE_DELAY };              /* hyperparameters */
enum { WIDE_DIRECTION, WIDE_MOMENTUM, WIDE_AVERAGE, WIDE_UNFIT, WIDE_FIRST_BLOCK };     /* slots; then statistics, root and short of each block */

extern const pd_row wide_row;

#endif
