/* stern_row.h - an optimizer for tests: it can refuse a step, counts steps by group, and gives updates of weights.
 *
 * It is not in the table of optimizers: declare a vector with pd_hypers_init(&hypers, &stern_row). The vector is cut
 * into blocks b of STERN_BLOCK elements. Each step has these phases:
 *
 *     early, over blocks     s_b <- sum of G_b                  "block_b.sum", float64
 *     early, over ranges     M <- M / 2 + G                     "average", stored as `storage` says
 *     task, when interval divides count      r_b <- 1 + s_b     "block_b.root", at first 1; it fails where s_b < 0
 *     late, over blocks      D_b = r_b G_b                      temporary "direction", which may be `after`
 *     late, over ranges      update = -lr (D + M), w <- w + update
 *     late, whole            C <- count                         "seen"
 *
 * The hyperparameter `refuses` has three values. `nothing`: no step is refused. `unfit`: a step is refused if a task's
 * inputs are not finite ("NaN in block 2"). `failures`: a step is refused if a task has failed. The slot "noted" has a
 * number for each block: the status of its task, or 100 plus the reason why the task's inputs were unfit. With roots=no
 * a parameter has no tasks. */
#ifndef STERN_ROW_H
#define STERN_ROW_H

#include "optimizer_ops.h"

enum { STERN_BLOCK = 4 };
/* index of each hyperparameter in the optimizer's list */
enum { STERN_LR, STERN_STORAGE, STERN_DELAY, STERN_INTERVAL, STERN_REFUSES, STERN_ROOTS };
enum {
    STERN_DIRECTION,
    STERN_AVERAGE,
    STERN_SEEN,
    STERN_NOTED,
    STERN_FIRST_BLOCK
}; /* index of each slot; the slots "sum" and "root" of each block follow */

extern const pd_optimizer_ops stern_row;

#endif
