/* push_weight.c - the weight of a rank's contributions: one weight for all that it pushes of a parameter in one
 * step. */
#include "push_weight.h"

#include "mutant.h"

/* Returns whether the weight of a push counts for the parameter of one of its pieces. It does not
 * count if the piece only reports that there is no gradient. But if the push has scalars it
 * always counts, because they are averaged by it. */
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
                   "%.160s: rank %u has given step %llu with weight %.17g, as a %s, and now "
                   "gives it with weight %.17g, as a %s: all that a rank pushes of a parameter in one step has the "
                   "same weight",
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
