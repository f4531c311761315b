/* data_frame.c - does the checks that pushes and frames of initial weights have in common. */
#include "data_frame.h"

#include "fragment.h"
#include "mutant.h"
#include "ranks.h"

#include <stdio.h>

/* Checks that the piece has an element type that such frames may have, and that all ranks have promised to push. */
static int check_type(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err)
{
    bool quantized = pd_dtype_is_quantized(piece->dtype), push = frame->kind == PD_REQ_PUSH;

    if (!quantized && pd_dtype_size(piece->dtype) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %d is not a supported element type", param->name,
                       (int)piece->dtype);
    if (quantized && (!push || param->rule->hypers.row->takes_values))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.160s: %s are float32, float16 or bfloat16, got %s: only gradients may be quantized",
                       param->name, push ? "values of model state" : "weights", pd_dtype_name(piece->dtype));
    if (!push || param->push_dtype == 0 || piece->dtype == param->push_dtype) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: pushed as %s, but every rank has declared to push %s, for which memory is counted",
                   param->name, pd_dtype_name(piece->dtype), pd_dtype_name(param->push_dtype));
}

int pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err)
{
    pd_rank_range range = pd_round_range(&param->round, frame->rank);
    int64_t chunk = param->round.chunk_elements;

    if (piece->count < 0 ||
        piece->count != pd_range_piece(range.start, range.end, (uint64_t)chunk, (uint64_t)piece->first))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.160s: %lld elements from %lld on are not one piece: rank %u has elements %lld to %lld, cut "
                       "at multiples of %lld",
                       param->name, (long long)piece->count, (long long)piece->first, frame->rank,
                       (long long)range.start, (long long)range.end, (long long)chunk);
    if (check_type(param, piece, frame, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (piece->count > 0 && (piece->at == NULL || frame->u.data.buffer == NULL))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: the piece has no data", param->name);
    return PD_OK;
}

pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err)
{
    if (piece->param < job->steps.n_params) return &job->steps.params[piece->param];
    pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s has %u parameters, there is no number %u", job->steps.name,
            job->steps.n_params, piece->param);
    return NULL;
}

pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece)
{
    return &param->round.chunks[piece->first / param->round.chunk_elements];
}

int pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err)
{
    bool named = param->frame.number == number;
    pd_chunk *chunk;

    if (named && (piece->absent || param->frame.absent))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: reported absent twice in one push, or absent with a gradient",
                       param->name);
    param->frame.number = number;
    param->frame.absent = piece->absent;
    if (piece->absent || (piece->count == 0 && !named)) return PD_OK;
    chunk = piece->count > 0 ? pd_piece_chunk(param, piece) : NULL;
    if (chunk == NULL || chunk->seen == number)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: the piece at element %lld is in the frame twice", param->name,
                       (long long)piece->first);
    chunk->seen = number;
    return PD_OK;
}

int pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err)
{
    pd_rank *rank = pd_rank_speaker(job, frame, err);

    if (rank == NULL) return err->code;
    if (!pd_rank_quota(job, rank)->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "rank %u of job %.100s has not declared its parameters on this connection", frame->rank,
                       job->steps.name);
    return PD_OK;
}

void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err)
{
    job->saved.refused++;
    pd_request_refuse(job->steps.outbox, frame, err);
}

static int refuse_without_weights(const pd_job *job, const pd_param *param, pd_error *err)
{
    char one[64] = "the next rank that declares sends them";

    if (job->membership.giver < PD_MAX_WORLD) snprintf(one, sizeof one, "rank %u sends them", job->membership.giver);
    return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s has no weights yet: %s with Init", param->name,
                   param->ranged               ? "every rank sends those of its range"
                   : pd_job_averages_init(job) ? "every rank sends them"
                                               : one);
}

int pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err)
{
    return param->current != NULL ? PD_OK : refuse_without_weights(job, param, err);
}

int pd_push_check_step(const pd_job *job, const pd_param *param, uint32_t rank, uint64_t step, pd_error *err)
{
    bool early = pd_param_admit(&job->steps, param, rank, step) == PD_ADMIT_EARLY;

    if (early && step <= param->saved.step + 1)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: this push is for step %llu, but the push of rank %u for step %llu has not counted yet. "
                       "It counts again as before the restart of the server: push again later",
                       param->name, (unsigned long long)step, rank,
                       (unsigned long long)param->fragment->ranks[rank].step);
    if (early)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.160s: this push is for step %llu, expected step %llu: earlier rounds are still open",
                       param->name, (unsigned long long)step, (unsigned long long)param->saved.step + 1);
    if (step > job->drain_step)
        return pd_fail(err, PD_UNAVAILABLE, "%.160s: the server is draining and accepts no contributions to step %llu",
                       param->name, (unsigned long long)step);
    return PD_OK;
}

/* Returns whether the weight of a push counts for the parameter of one of its pieces. It does not count if the piece
 * only reports that there is no gradient. If the push has scalars, the weight always counts, because it is also their
 * weight in the mean. */
static bool tells_weight(const pd_piece *piece, const pd_request *frame)
{
    return !piece->absent || frame->u.data.n_scalars > 0;
}

static const char *sum_text(bool presummed)
{
    return presummed ? "sum over its examples" : "mean over its examples";
}

int pd_weight_check(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err)
{
    const pd_contribution *told = pd_round_first_contribution(&param->round, frame->rank);

    if (told == NULL || !told->weighed || told->process != (uint16_t)job->ranks[frame->rank].saved.process ||
        !tells_weight(piece, frame))
        return PD_OK;
    if ((told->weight == frame->u.data.weight && told->as_sum == frame->u.data.presummed) ||
        PD_MUTANT(weight_per_chunk))
        return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: rank %u has given step %llu with weight %.17g, as a %s, and now gives it with weight "
                   "%.17g, as a %s: all that a rank pushes of a parameter in one step has the same weight",
                   param->name, frame->rank, (unsigned long long)frame->u.data.step, told->weight,
                   sum_text(told->as_sum), frame->u.data.weight, sum_text(frame->u.data.presummed));
}

void pd_weight_keep(const pd_job *job, pd_param *param, const pd_piece *piece, const pd_request *frame)
{
    pd_contribution *told = pd_round_first_contribution(&param->round, frame->rank);

    if (!tells_weight(piece, frame)) return;
    told->weighed = true;
    told->as_sum = frame->u.data.presummed;
    told->process = (uint16_t)job->ranks[frame->rank].saved.process;
    told->weight = frame->u.data.weight;
}
