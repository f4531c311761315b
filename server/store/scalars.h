/* scalars.h - numbers that workers give to a round beside their gradients (loss, token count): the mean of each over the ranks that gave it.
 *
 * Step thread. A round waits for nobody's scalars: what has come when it closes counts, weighted as the push that brought it, and sums are taken
 * in rank order. The first value of a name stands; the same process may send it again, not another one, and what a process sends whose
 * predecessor at the rank gave some in this round already is not counted twice. */
#ifndef PD_SCALARS_H
#define PD_SCALARS_H

#include "job.h"

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

/* May the checked push bring its scalars? When it may there is memory for them, for good, counted against max_total_bytes. PD_INVALID_ARGUMENT: another
 * value of a name; names beyond PD_MAX_SCALARS. PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY. */
int  pd_scalars_admit(pd_job *job, const pd_request *frame, pd_error *err);
/* Files what was admitted. */
void pd_scalars_file(pd_job *job, const pd_request *frame);
/* The round closes: what its scalars became, and none are there for the next. Gives; NULL: nobody gave any. */
pd_scalar_means *pd_scalars_close(pd_param *param);
/* For operators: what the last round returned. */
void pd_scalars_of_param(pd_param_info *info, const pd_param *param);
void pd_scalars_free(pd_scalars *scalars);      /* accepts NULL */

#endif
