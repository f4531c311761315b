/* split_row.h - two optimizers for tests whose tasks are captured before one phase and adopted before another.
 *
 *     statistics    S <- S / 2 + G^2
 *     blur          S <- S + 1
 *     move          w <- w - G R
 *     task          R <- 1 / (1 + S + mean(S))          slot "root", at first 1
 *
 * split_between captures before `blur` and adopts before `move`. split_after captures after `move` and adopts before
 * `statistics`, as SOAP would. The hyperparameter `root_delay` sets that of the plan. Phases run over ranges of 3
 * elements. */
#ifndef SPLIT_ROW_H
#define SPLIT_ROW_H

#include "optimizer_ops.h"

enum { SPLIT_STATISTICS, SPLIT_ROOT }; /* indices of the slots */

extern const pd_optimizer_ops split_between, split_after;

#endif
