/* striped_row.h - an optimizer for tests, similar to Muon. Threads share its one matrix: each takes stripes of rows.
 *
 *     X <- G / |G|;   STRIPED_ITERATIONS times (Newton-Schulz):  A = X X',  B = b A + c A A,  X <- a X + B X
 *     w <- w - X / (1 + largest |X|)
 *
 * The hyperparameter `stripes` is the number of stripes into which such a phase is divided. */
#ifndef STRIPED_ROW_H
#define STRIPED_ROW_H

#include "optimizer_ops.h"

enum { STRIPED_ITERATIONS = 5 };
#define STRIPED_A 3.4445f
#define STRIPED_B (-4.7750f)
#define STRIPED_C 2.0315f

extern const pd_optimizer_ops striped_row;

#endif
