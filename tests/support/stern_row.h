/* stern_row.h - an optimizer for tests: it refuses steps, counts by group and gives updates.
 *
 * Not in the table: declare a vector with pd_hypers_init(&hypers, &stern_row). Cut into blocks of STERN_BLOCK elements, each step, b over the blocks:
 *
 *     early, over blocks     s_b <- sum of G_b                  "block_b.sum", float64
 *     early, over ranges     M <- M / 2 + G                     "average", stored as `storage` says
 *     task, when interval divides count      r_b <- 1 + s_b     "block_b.root", at first 1; it fails where s_b < 0
 *     late, over blocks      D_b = r_b G_b                      temporary "direction", which may be `after`
 *     late, over ranges      update = -lr (D + M), w <- w + update
 *     late, whole            C <- count                         "seen"
 *
 * refuses: `nothing`; `unfit`, a task whose inputs were not finite ("NaN in block 2"); `failures`, every task that failed. What it was told
 * of the task is noted in "noted", by block: status, or 100 and why its inputs were unfit. With roots=no a parameter has no tasks. */
#ifndef STERN_ROW_H
#define STERN_ROW_H

#include "row.h"

enum { STERN_BLOCK = 4 };
enum { STERN_LR, STERN_STORAGE, STERN_DELAY, STERN_INTERVAL, STERN_REFUSES, STERN_ROOTS };      /* hyperparameters */
enum { STERN_DIRECTION, STERN_AVERAGE, STERN_SEEN, STERN_NOTED, STERN_FIRST_BLOCK };            /* slots; then sum and root of each block */

extern const pd_row stern_row;

#endif
