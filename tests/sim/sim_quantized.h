/* sim_quantized.h - a model of pushes in int8 and int4 with error feedback (client/lib/feedback.h): it knows which
 * vector each process has sent, and what that has left over, from the rules of the documents alone. */
#ifndef SIM_QUANTIZED_H
#define SIM_QUANTIZED_H

#include "paramd/client.h"
#include "sim_history.h"

/* Returns whether gradients of the parameter are quantized. */
static inline bool sim_is_quantized(const sim_job *job, uint32_t param)
{
    return job->push_dtype != 0 && !job->params[param].model_state;
}

/* What a process knows of its quantized parameters. */
typedef struct sim_rests {
    float *rest[SIM_PARAMS]; /* what its pushes have left over; NULL: it has pushed nothing yet */
    float *sum[SIM_PARAMS];  /* the gradient that it has pushed last, with the rest of before */
    float *sent[SIM_PARAMS]; /* the values into which that was quantized */
    bool ended[SIM_PARAMS];  /* it is known what has become of that push: `rest` is what it has left over */
} sim_rests;

/* Notes that the rank pushes a gradient for a step of a parameter: computes the values that count. `start`: the index
 * of the gradient's first element. */
void sim_quantized_push(sim_history *h, sim_rests *rests, uint32_t rank, uint64_t step, uint32_t param,
                        const float *gradient, int64_t start, int64_t n);
/* Notes how a push has ended: an enum pd_outcome. */
void sim_quantized_end(const sim_job *job, sim_rests *rests, uint32_t param, int64_t n, int outcome);
/* Frees what a process has left over; it has 0 then. */
void sim_rests_free(sim_rests *rests);
/* Returns whether some process of the rank has begun to push a gradient for the step of a parameter. */
bool sim_quantized_is_sent(const sim_history *h, uint32_t rank, uint64_t step, uint32_t param);
/* Returns the values that count of a rank's push; its first element is that of the rank's range. */
const float *sim_quantized_of(const sim_history *h, uint32_t rank, uint64_t step, uint32_t param);
void sim_quantized_free(sim_history *h);

#endif
