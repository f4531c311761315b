/* optimizers.h - answers an Optimizers request: all optimizers with their hyperparameters, in pages. Loop thread. */
#ifndef PD_OPTIMIZERS_H
#define PD_OPTIMIZERS_H

#include "message.h"
#include "paramd/optim.h"

/* Most bytes of optimizers' descriptions in one reply: the most bytes of a frame's header, less 1 KiB for the reply's
 * other fields. */
#define PD_OPTIMIZERS_BYTES (PD_MAX_HEADER_BYTES - 1024)

/* A function that returns the optimizer with an index, or NULL if there is none. It is pd_optim_at, except in tests. */
typedef const pd_optimizer_ops *pd_optimizer_at(size_t index);

/* Makes a reply with as many optimizers as fit into a frame, from index `start` on. It has at least one optimizer,
 * unless there is none with index `start`. If `name` is not "", the reply has only the optimizer of that name.
 *
 * PD_NOT_FOUND: no optimizer has that name; the error lists all names. PD_NO_MEMORY: out of memory. */
int pd_optimizers_page(Paramd__OptimizersReply **out, pd_optimizer_at *at, uint32_t start, const char *name,
                       pd_error *err);
void pd_optimizers_free(Paramd__OptimizersReply *reply); /* accepts NULL */

/* The packed descriptions of all optimizers. A daemon makes them once, and copies from them for each answer. */
typedef struct pd_packed_optimizers pd_packed_optimizers;

pd_packed_optimizers *pd_optimizers_pack(pd_optimizer_at *at); /* NULL: out of memory */
void pd_packed_optimizers_free(pd_packed_optimizers *packed);  /* accepts NULL */
/* Fills in a reply with the optimizers that pd_optimizers_page would put into it. The caller may only pack the reply:
 * its optimizers are what protobuf-c calls unknown fields, and borrow the memory of `packed`. Allocates nothing.
 * PD_NOT_FOUND: no optimizer has that name; the error lists all names. */
int pd_optimizers_packed_page(Paramd__OptimizersReply *reply, pd_packed_optimizers *packed, uint32_t start,
                              const char *name, pd_error *err);

#endif
