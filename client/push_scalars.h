/* push_scalars.h - scalars of a push: numbers that belong to a round, and come back as means over its ranks. */
#ifndef PD_PUSH_SCALARS_H
#define PD_PUSH_SCALARS_H

#include "core_state.h"
#include "scalar_check.h"

/* Scalars as fields of a frame; names are the caller's. */
typedef struct pd_scalar_load {
    Paramd__Scalar scalar[PD_PUSH_SCALARS], *list[PD_PUSH_SCALARS];
    size_t         n;
} pd_scalar_load;

/* Reads and checks the caller's scalars. `options` may be NULL. PD_INVALID_ARGUMENT, PD_RESOURCE_EXHAUSTED. */
int  pd_scalars_read(pd_scalar_load *load, const pd_push_options *options, pd_error *err);
/* Chooses the item that bears the scalars, the same one on every rank whose items have the same parameters, and clears
 * their means. PD_INVALID_ARGUMENT: this rank has no elements of that item. */
int  pd_scalars_begin(const pd_core *core, pd_op *op, const pd_push_options *options, pd_error *err);
/* Copies the means from the outcome of the bearer's round. */
void pd_scalars_note(const pd_op *op, const Paramd__Outcome *outcome);

#endif
