/* round_scalars.h - numbers that workers give to a round beside their gradients (loss, token count): the mean of
 * each over the ranks that gave it.
 *
 * Step thread. A round waits for nobody's scalars: those that have come when it closes count, weighted as the push
 * that brought them, and sums are taken in rank order. The first value of a name stands; the same process may send
 * it again, but not another one. Scalars of a process whose predecessor at the rank gave some in this round already
 * are not counted twice. */
#ifndef PD_ROUND_SCALARS_H
#define PD_ROUND_SCALARS_H

#include "steps.h"

/* What a rank has given to the open round. */
typedef struct pd_scalar_row {
    uint64_t nonce;                     /* of the process that gave it */
    uint32_t mask;                      /* bit i: there is one of name i */
    double   value[PD_MAX_SCALARS], weight[PD_MAX_SCALARS];
} pd_scalar_row;

typedef struct pd_scalars {
    uint32_t n;                         /* names in this round */
    char     names[PD_MAX_SCALARS][PD_SCALAR_NAME_MAX + 1];
    pd_scalar_means *means;             /* memory for what the round returns */
    uint32_t n_last;
    pd_scalar_mean   last[PD_MAX_SCALARS];      /* what the round before returned, for operators */
    pd_scalar_row    rows[];            /* by rank */
} pd_scalars;

/* Makes the memory for a parameter's scalars. PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int  pd_scalars_make(pd_steps *steps, pd_param *param, pd_error *err);
/* Checks that a checked push may bring its scalars, and makes memory for them, for good, counted against
 * max_total_bytes. `nonce`: of the process that pushes. PD_INVALID_ARGUMENT: another value of a name; names beyond
 * PD_MAX_SCALARS. PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int  pd_scalars_admit(pd_steps *steps, const pd_request *frame, uint64_t nonce, pd_error *err);
/* Files what was admitted. */
void pd_scalars_file(pd_steps *steps, const pd_request *frame, uint64_t nonce);
/* Gives the means of a round that closes, NULL where nobody gave any, and forgets its scalars. */
pd_scalar_means *pd_scalars_close(pd_param *param);
/* Fills in, for operators, what the last round returned. */
void pd_scalars_of_param(pd_param_info *info, const pd_param *param);
/* Gives the means that the last round returned once more. NULL: it had none, or memory is short. */
pd_scalar_means *pd_scalars_again(const pd_param *param);
void pd_scalars_free(pd_scalars *scalars);      /* accepts NULL */

#endif
