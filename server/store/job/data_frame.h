/* data_frame.h - checks of frames with data (pushes and initial weights): the rank may send them, and each piece
 * (one tensor or chunk of a frame) fits the rank's range. Step thread. */
#ifndef PD_DATA_FRAME_H
#define PD_DATA_FRAME_H

#include "job.h"

/* Checks that the frame comes from the rank's current connection, and that the rank has declared its parameters on
 * it. PD_ABORTED, PD_FAILED_PRECONDITION. */
int pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err);
/* Answers a frame with the error, and counts it as refused. Takes the frame. */
void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err);

/* Returns the parameter that a piece belongs to. NULL, with the reason in *err: no parameter has the number that the
 * piece names. */
pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err);
/* Returns the chunk that the piece belongs to. The piece must not be empty. */
pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece);
/* Checks that the piece has data, and that its elements are the part of one chunk that lies in the rank's range.
 * PD_INVALID_ARGUMENT. */
int pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Checks that the frame with this number has no piece twice, and does not both give a gradient of the parameter and
 * report it absent. PD_INVALID_ARGUMENT. */
int pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err);

/* Checks that the parameter has its initial weights: without them it cannot step. PD_FAILED_PRECONDITION. */
int pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err);
/* Checks that the rank may contribute to this step of the parameter. The step's round must not be closed.
 * PD_FAILED_PRECONDITION: rounds before this one are open. PD_UNAVAILABLE: the server drains. */
int pd_push_check_step(const pd_job *job, const pd_param *param, uint32_t rank, uint64_t step, pd_error *err);

#endif
