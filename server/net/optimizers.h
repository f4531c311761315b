/* optimizers.h - makes the answer to an Optimizers request: all optimizers with their hyperparameters, in pages.
 * Loop thread. */
#ifndef PD_OPTIMIZERS_H
#define PD_OPTIMIZERS_H

#include "message.h"
#include "paramd/optim.h"

/* Most bytes of optimizers in one page: the size limit of a frame's header, less 1 KiB for the other fields. */
#define PD_OPTIMIZERS_BYTES (PD_MAX_HEADER_BYTES - 1024)

/* Returns the optimizer at an index, or NULL behind the last optimizer. The function is pd_optim_at, except in
 * tests. */
typedef const pd_row *pd_row_at(size_t index);

/* Makes a page with the optimizers from index `start` on. The page has at least one optimizer, unless `start` is
 * behind the last. If `name` is not "", the page has only the optimizer of that name.
 *
 * PD_NOT_FOUND: no optimizer has that name; the error lists all names. PD_NO_MEMORY: memory is out. */
int pd_optimizers_page(Paramd__OptimizersReply **out, pd_row_at *at, uint32_t start, const char *name, pd_error *err);
void pd_optimizers_free(Paramd__OptimizersReply *reply); /* accepts NULL */

#endif
