/* replay_step.c - decides whether a step that is played ended as the recorded step did. */
#include "replay_step.h"

#include <math.h>
#include <stdlib.h>

#include "verdict.h"

/* Returns true for an error by which an optimizer refuses a step, and false for other errors, such as lack of memory
 * or a missing daemon. */
static bool refuses(int rc)
{
    return rc == PD_FAILED_PRECONDITION || rc == PD_INVALID_ARGUMENT || rc == PD_OUT_OF_RANGE;
}

int pd_replay_judge_step(const pd_trace *trace, int64_t step, int rc, const pd_error *ours, pd_error *err)
{
    const char *recorded = pd_trace_error(trace, step);

    if (recorded == NULL || (rc != PD_OK && !refuses(rc))) {
        if (rc != PD_OK && err != NULL) *err = *ours;
        return rc;
    }
    if (rc == PD_OK) return pd_fail(err, PD_FAILED_PRECONDITION, "step %d was recorded to fail and did not", (int)step);
    if (pd_says_alike(ours->text, recorded)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "step %d was recorded to fail with \"%.128s\", and failed with \"%.192s\"", (int)step, recorded,
                   ours->text);
}

bool pd_replay_always_fails(const pd_trace *trace)
{
    for (int64_t step = 1; step <= pd_trace_steps(trace); step++) {
        if (pd_trace_error(trace, step) == NULL) return false;
    }
    return true;
}

static bool all_nan(const double *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(at[i])) return false;
    }
    return true;
}

/* Returns true if all recorded weights are NaN after every step. */
static bool leaves_nan_alone(const pd_trace *trace)
{
    double *at = calloc((size_t)pd_trace_elements(trace) + 1, sizeof *at);
    bool so = at != NULL && pd_trace_steps(trace) > 0 && !pd_trace_averages(trace);
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    for (int64_t step = 1; so && step <= pd_trace_steps(trace); step++) {
        for (size_t i = 0; so && i < n; i++)
            so = pd_trace_weights(trace, step, i, at) && all_nan(at, params[i].elements);
    }
    free(at);
    return so;
}

bool pd_replay_is_refusal(const pd_trace *trace, int rc)
{
    return refuses(rc) && (pd_replay_always_fails(trace) || leaves_nan_alone(trace));
}

void pd_replay_refused(const pd_trace *trace, float *const *weights)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    if (!leaves_nan_alone(trace)) return;
    for (size_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < params[i].elements; k++) weights[i][k] = NAN;
    }
}

bool pd_replay_rate(const pd_trace *trace, const pd_recipe *recipe, int64_t step, double *rate)
{
    return pd_trace_rate(trace, step, rate) || pd_recipe_rate(recipe, step, rate);
}
