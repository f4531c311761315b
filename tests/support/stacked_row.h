/* stacked_row.h - an optimizer for tests whose tasks share slots. A task reads and writes the box of its block in a
 * slot that is shaped as the parameter, or its item in a slot that is a stack with one item for each block.
 *
 * It is not in the table of optimizers: declare a parameter with pd_hypers_init(&hypers, &stacked_row). The parameter
 * is cut into blocks b. Each step has these phases:
 *
 *     early, over ranges     X = G                temporary "direction", which may lie in the weights to come; by boxes
 *     task  z = draws, where normals are given: normal[b] + uniform, else a number in [0, 16) of stream, step and b,
 *         plus one of the stream of all
 *                            s = sum of X_b + z                 ... and the task is refused where that is above 1e6
 *                            Q_b <- Q_b / 2 + s I               "Q", 2 x 3 a block, at first 1.5 I; by items
 *                            n_b <- n_b + 1                     "tally", a number a block, at first 0.25; by items
 *                            T_b <- X_b * Q_b[0][0] - T_b / 4   "trace", as the parameter; by boxes
 *     late, over ranges      w <- w - (X + T) / 8
 *
 * The slots Q and trace have the element type `storage`. A root is due if the absolute value of X[0] is at least
 * `threshold`. It is always due if the caller has no slots. */
#ifndef STACKED_ROW_H
#define STACKED_ROW_H

#include "optimizer_ops.h"

/* index of each hyperparameter in the optimizer's list */
enum { STACKED_BLOCK_SIZE, STACKED_ROOT_DELAY, STACKED_STORAGE, STACKED_THRESHOLD };
enum { STACKED_DIRECTION, STACKED_Q, STACKED_TALLY, STACKED_TRACE }; /* indices of the slots */
enum { STACKED_ROWS = 2, STACKED_COLS = 3, STACKED_SQUARE = STACKED_ROWS * STACKED_COLS };

extern const pd_optimizer_ops stacked_row;
/* A variant of stacked_row that copies the results of its tasks into the slots itself. */
extern const pd_optimizer_ops stacked_row_adopting;

#endif
