/* data_frame.h - checks frames with tensors (pushes and initial weights): that the rank may send them, that each piece
 * has elements that the rank contributes, and that all pushes of a rank to one step of a parameter have the same
 * weight. Step thread. */
#ifndef PD_DATA_FRAME_H
#define PD_DATA_FRAME_H

#include "job.h"

/* Checks that the frame comes from the connection that its rank has now, and that the rank has declared its
 * parameters on this connection. PD_ABORTED, PD_FAILED_PRECONDITION. */
int pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err);
/* Answers a frame with the error *err, and counts it among the job's refused frames. Takes ownership of the frame. */
void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err);

/* Returns the parameter that a piece belongs to. NULL, with the reason in *err: the job has no parameter with the
 * piece's number. */
pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err);
/* Returns the chunk of the parameter that the piece's elements belong to. The piece must have elements. */
pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece);
/* Checks that a piece has data, and that its elements are those elements of one chunk that the rank contributes.
 * PD_INVALID_ARGUMENT. */
int pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Checks that a frame does not bring the same chunk of a parameter twice, and does not both give a gradient of the
 * parameter and report that there is none. Called for each piece of the frame, with the frame's number.
 * PD_INVALID_ARGUMENT. */
int pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err);

/* Checks that the parameter has its initial weights: before it has them it takes no push. PD_FAILED_PRECONDITION. */
int pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err);
/* Checks that the rank may contribute to this step of the parameter, whose round must not be closed.
 * PD_FAILED_PRECONDITION: the rounds of earlier steps are still open. PD_UNAVAILABLE: the server drains. */
int pd_push_check_step(const pd_job *job, const pd_param *param, uint32_t rank, uint64_t step, pd_error *err);

/* Checks that the weight of a push is the one that the process has given its earlier contributions to the parameter's
 * open round. When another process has taken the rank over, it may use another weight for the chunks that are still
 * missing. PD_INVALID_ARGUMENT: the weights differ; the error names both. */
int pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err);
/* Stores the weight of a push for the parameter of one of its pieces. The piece must be checked and filed before. */
void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame);

#endif
