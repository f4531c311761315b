/* push_weight.h - one weight for everything that a rank pushes of a parameter in a step. Step thread. */
#ifndef PD_PUSH_WEIGHT_H
#define PD_PUSH_WEIGHT_H

#include "job.h"

/* Checks that a process weighs all its contributions to a parameter's open round alike. A process that has taken the
 * rank over may bring a weight of its own for the chunks that are still missing. PD_INVALID_ARGUMENT: names both
 * weights. */
int  pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Remembers the weight of a piece that was checked and filed, of a rank that contributes to the parameter. */
void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame);

#endif
