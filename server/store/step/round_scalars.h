/* round_scalars.h - averages the scalars that workers push to a round, such as the loss. When the round closes, workers
 * get the mean of each scalar over the ranks that gave it.
 *
 * Step thread. A round does not wait for scalars: it averages those that have come when it closes, from ranks that
 * count in it. Each has the weight of the push that brought it, and sums are taken in rank order. A rank gives one
 * value for each name; the same process may repeat it, but not change it. If a process at the rank has given scalars to
 * the round, those of a later process at that rank are ignored. */
#ifndef PD_ROUND_SCALARS_H
#define PD_ROUND_SCALARS_H

#include "steps.h"

/* The scalars that a rank has given to the open round. */
typedef struct pd_scalar_row {
    uint64_t nonce; /* nonce of the process that gave the scalars */
    uint32_t mask;  /* bit i: the rank has given a value for the scalar names[i] */
    double value[PD_MAX_SCALARS], weight[PD_MAX_SCALARS];
} pd_scalar_row;

/* The scalars of one parameter: those of the open round, and the means of the last closed one. */
typedef struct pd_scalars {
    uint32_t n; /* number of different names of scalars in the open round */
    char names[PD_MAX_SCALARS][PD_SCALAR_NAME_MAX + 1];
    pd_scalar_means *means; /* memory for the means of the open round, which pd_scalars_close returns to the caller */
    uint32_t n_last;        /* number of means of the last closed round */
    pd_scalar_mean last[PD_MAX_SCALARS]; /* means of the last closed round, for operators */
    pd_scalar_row rows[];                /* one for each rank: the scalars that it has given to the open round */
} pd_scalars;

/* Allocates the memory for a parameter's scalars, and counts its bytes. PD_RESOURCE_EXHAUSTED: max_total_bytes has no
 * room for them. PD_NO_MEMORY. */
int pd_scalars_make(pd_steps *steps, pd_param *param, pd_error *err);
/* Checks the scalars of a push whose other parts are valid. `nonce` is that of the process that pushes.
 *
 * If the parameter has no memory for scalars yet, it is allocated. The parameter keeps this memory, and its bytes count
 * against max_total_bytes.
 *
 * PD_INVALID_ARGUMENT: the rank gave another value for a name, or the round would have more than PD_MAX_SCALARS names.
 * PD_RESOURCE_EXHAUSTED: max_total_bytes would be exceeded. PD_NO_MEMORY. */
int pd_scalars_admit(pd_steps *steps, const pd_request *frame, uint64_t nonce, pd_error *err);
/* Files the scalars of a push that pd_scalars_admit has checked. */
void pd_scalars_file(pd_steps *steps, const pd_request *frame, uint64_t nonce);
/* Returns the means of the scalars of a round that closes, and removes its scalars. Call it before the round is
 * emptied. NULL: no rank has given any. */
pd_scalar_means *pd_scalars_close(pd_param *param);
/* Copies the means of the last closed round's scalars into an entry of the operators' list of parameters. */
void pd_scalars_of_param(pd_param_info *info, const pd_param *param);
/* Returns a new copy of the means of the last closed round's scalars. NULL: the round had none, or out of memory. */
pd_scalar_means *pd_scalars_again(const pd_param *param);
/* Forgets the scalars that the rank has given to the open round. */
void pd_scalars_forget(pd_param *param, uint32_t rank);
void pd_scalars_free(pd_scalars *scalars); /* accepts NULL */

#endif
