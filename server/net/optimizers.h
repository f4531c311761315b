/* optimizers.h - the answer to Optimizers: the row table with all hyperparameters, in pages. Loop thread. */
#ifndef PD_OPTIMIZERS_H
#define PD_OPTIMIZERS_H

#include "message.h"
#include "paramd/optim.h"

/* Most bytes of the optimizers in one page: what a header holds, and room for the rest. */
#define PD_OPTIMIZERS_BYTES (PD_MAX_HEADER_BYTES - 1024)

/* The rows there are, in order: NULL behind the last. pd_optim_at, but for tests. */
typedef const pd_row *pd_row_at(size_t index);

/* Optimizers from number `start` on, as many as fit but at least one where there is one; or, where `name` is not "", the one of that name.
 * Gives *out: pd_optimizers_free. PD_NOT_FOUND: none of that name (the text lists those there are). PD_NO_MEMORY. */
int  pd_optimizers_page(Paramd__OptimizersReply **out, pd_row_at *at, uint32_t start, const char *name, pd_error *err);
void pd_optimizers_free(Paramd__OptimizersReply *reply);        /* accepts NULL */

#endif
