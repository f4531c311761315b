/* replay_updates.c - reads the updates that a trace recorded. */
#include "replay_updates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_TEXT = 400 };

bool pd_replay_updates_wanted(const pd_trace *trace)
{
    return pd_trace_has(trace, "update/");
}

int pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err)
{
    const char *text = pd_trace_meta(trace, "noise_update");
    char *end = NULL;
    double noise = text != NULL ? strtod(text, &end) : 0;

    if (text != NULL && (end == text || *end != '\0' || !(noise >= 0) || isinf(noise)))
        return pd_fail(err, PD_INVALID_ARGUMENT, "metadata noise_update: expected a number from 0 on, got \"%.64s\"",
                       text);
    *tolerance = text != NULL ? 10 * noise + 1e-6 : pd_trace_tolerance(trace);
    return PD_OK;
}

int pd_replay_update(const pd_trace *trace, int64_t step, size_t param, double *at, bool *there, pd_error *err)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);
    char name[NAME_TEXT];
    pd_shape shape;

    snprintf(name, sizeof name, "update/%04d/%s", (int)step, params[param].name);
    if (!(*there = pd_trace_tensor(trace, name, &shape))) return PD_OK;
    if (!pd_shape_equal(&shape, &params[param].shape))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected the parameter's shape", name);
    pd_trace_values(trace, name, at);
    return PD_OK;
}
