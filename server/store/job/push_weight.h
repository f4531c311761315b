/* push_weight.h - one weight for everything that a rank pushes of a parameter in a step. Step thread. */
#ifndef PD_PUSH_WEIGHT_H
#define PD_PUSH_WEIGHT_H

#include "job.h"

/* Checks that a process gives all its contributions to a parameter's open round the same weight. After a process has
 * taken the rank over, it may use another weight for the chunks that are still missing. PD_INVALID_ARGUMENT: names
 * both weights. */
int pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Stores the frame's weight for the piece's parameter. The piece must be checked and filed before. */
void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame);

#endif
