/* push_scalars.h - numbers that ride with a push to a round, and come back as means over its ranks. Part of the core: no thread, no socket. */
#ifndef PD_PUSH_SCALARS_H
#define PD_PUSH_SCALARS_H

#include "core_state.h"

/* As the frame that bears them says them; names are the caller's. */
typedef struct pd_scalar_load {
    Paramd__Scalar scalar[PD_PUSH_SCALARS], *list[PD_PUSH_SCALARS];
    size_t         n;
} pd_scalar_load;

/* The caller's scalars, checked; options may be NULL. PD_INVALID_ARGUMENT, PD_RESOURCE_EXHAUSTED. */
int  pd_scalars_read(pd_scalar_load *load, const pd_push_options *options, pd_error *err);
/* The operation gives the caller's scalars with one of its items, the same one on every rank whose items have the same parameters; nothing is known of their
 * means yet. PD_INVALID_ARGUMENT: this rank has nothing of that one. */
int  pd_scalars_begin(const pd_core *core, pd_op *op, const pd_push_options *options, pd_error *err);
/* The bearer's round has closed. */
void pd_scalars_note(const pd_op *op, const Paramd__Outcome *outcome);

#endif
