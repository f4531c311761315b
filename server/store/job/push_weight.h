/* push_weight.h - makes sure that a rank gives everything that it pushes of a parameter in one step the same weight
 * (number of examples). Step thread. */
#ifndef PD_PUSH_WEIGHT_H
#define PD_PUSH_WEIGHT_H

#include "job.h"

/* Checks that the weight of a push is the one that the process has given its earlier contributions to the parameter's
 * open round. When another process has taken the rank over, it may use another weight for the chunks (sections of
 * parameters) that are still missing. PD_INVALID_ARGUMENT: the weights differ; the error names both. */
int pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Stores the weight of a push for the parameter of one of its pieces. The piece must be checked and
 * filed before. */
void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame);

#endif
