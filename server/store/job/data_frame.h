/* data_frame.h - frames with data, pushes and initial weights: who may send them, and are their pieces those that a
 * rank has? Step thread. */
#ifndef PD_DATA_FRAME_H
#define PD_DATA_FRAME_H

#include "job.h"

/* Checks that the rank may send data on this connection. PD_ABORTED, PD_FAILED_PRECONDITION. */
int  pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err);
/* Refuses a frame with data, and counts it. Takes the frame. */
void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err);

/* Returns a piece's parameter. NULL: there is none of that number; *err says so. */
pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err);
/* Returns the chunk of a piece that is not empty. */
pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece);
/* Checks that the piece is one of those that the rank's range is cut into, and has data. PD_INVALID_ARGUMENT. */
int  pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Checks that frame number `number` has no piece twice, and not both gradient and absence. PD_INVALID_ARGUMENT. */
int  pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err);

/* Checks that the parameter has weights to step. PD_FAILED_PRECONDITION. */
int  pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err);
/* Checks that the rank may contribute to this step, which the parameter has not closed. PD_FAILED_PRECONDITION: rounds
 * before it are open; PD_UNAVAILABLE: the server drains. */
int  pd_push_check_step(const pd_job *job, const pd_param *param, uint32_t rank, uint64_t step, pd_error *err);

#endif
