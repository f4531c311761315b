/* replay_tensors.c - keeps the weights and gradients of a recorded run that is played, and compares the weights
 * with the record. */
#include "replay_tensors.h"

#include <stdlib.h>

/* Allocates n floats set to 0, and one more, because a parameter may have no elements. */
static float *new_floats(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(float));
}

int pd_replay_tensors_new(pd_replay_tensors *out, const pd_trace *trace, pd_error *err)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    *out = (pd_replay_tensors){ .trace = trace, .params = params, .n = n };
    out->weights = calloc(n, sizeof *out->weights);
    out->gradient = calloc(n, sizeof *out->gradient);
    out->present = calloc(n, sizeof *out->present);
    out->recorded = calloc((size_t)pd_trace_elements(trace) + 1, sizeof *out->recorded);
    if (!out->weights || !out->gradient || !out->present || !out->recorded)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        out->weights[i] = new_floats(params[i].elements);
        out->gradient[i] = new_floats(params[i].elements);
        if (out->weights[i] == NULL || out->gradient[i] == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        pd_trace_initial(trace, i, out->weights[i]);
    }
    return pd_replay_net_wanted(trace) ? pd_replay_net_open(&out->net, trace, err) : PD_OK;
}

void pd_replay_tensors_free(pd_replay_tensors *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->weights != NULL) free(t->weights[i]);
        if (t->gradient != NULL) free(t->gradient[i]);
    }
    free(t->weights);
    free(t->gradient);
    free(t->present);
    free(t->recorded);
    pd_replay_net_close(t->net);
}

void pd_replay_tensors_fill(pd_replay_tensors *t, int64_t step, int replica)
{
    if (t->net != NULL) t->loss = pd_replay_net_differentiate(t->net, step, t->weights, t->gradient);
    for (size_t i = 0; i < t->n; i++) {
        int64_t own = t->params[i].step > 0 ? t->params[i].step : step;
        t->present[i] = t->net != NULL || pd_trace_gradient(t->trace, own, replica, i, t->gradient[i]);
    }
}

void pd_replay_tensors_judge(const pd_replay_tensors *t, int64_t step, pd_verdict *verdicts)
{
    if (t->net != NULL) pd_verdict_add(&verdicts[t->n], t->n, step, pd_replay_net_error(t->net, step, t->loss));
    for (size_t i = 0; t->net == NULL && i < t->n; i++) {
        if (!pd_trace_weights(t->trace, step, i, t->recorded)) continue;
        pd_verdict_add(&verdicts[i], i, step, pd_relative_error(t->weights[i], t->recorded, t->params[i].elements, 0));
    }
}
