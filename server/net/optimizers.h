/* optimizers.h - the answer to Optimizers: the table of optimizers with all hyperparameters, in pages. Loop thread. */
#ifndef PD_OPTIMIZERS_H
#define PD_OPTIMIZERS_H

#include "message.h"
#include "paramd/optim.h"

/* Most bytes of optimizers in one page: the limit of a header, less 1 KiB for the other fields. */
#define PD_OPTIMIZERS_BYTES (PD_MAX_HEADER_BYTES - 1024)

/* Returns the optimizer at an index; NULL: behind the last one. pd_optim_at, except in tests. */
typedef const pd_row *pd_row_at(size_t index);

/* Makes a page with the optimizers from number `start` on, at least one of them if there is one. If `name` is not "",
 * the page has only the optimizer of that name. PD_NOT_FOUND: no optimizer has that name; the text lists all names.
 * PD_NO_MEMORY. */
int  pd_optimizers_page(Paramd__OptimizersReply **out, pd_row_at *at, uint32_t start, const char *name, pd_error *err);
void pd_optimizers_free(Paramd__OptimizersReply *reply);        /* accepts NULL */

#endif
