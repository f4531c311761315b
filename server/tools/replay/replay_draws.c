/* replay_draws.c - reads the random numbers that the reference optimizer drew in a recorded run. */
#include "replay_draws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_replay_draws {
    const pd_trace *trace;
    const pd_replay_parts *parts;
    /* JSON list of steps in which factors were balanced: made equal in size; NULL: not
     * recorded */
    json_t *balanced;
    pd_draws *at; /* recorded random numbers of each declared parameter in the present step */
    float **normal;
};

enum { NAME_TEXT = 400 };

bool pd_replay_draws_wanted(const pd_trace *trace)
{
    return pd_trace_has(trace, "probe/");
}

int pd_replay_draws_open(pd_replay_draws **out, const pd_trace *trace, const pd_replay_parts *parts, pd_error *err)
{
    pd_replay_draws *draws = calloc(1, sizeof *draws);
    int rc;

    if (draws == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    draws->trace = trace;
    draws->parts = parts;
    draws->at = calloc(parts->n + 1, sizeof *draws->at);
    draws->normal = calloc(parts->n + 1, sizeof *draws->normal);
    rc = draws->at == NULL || draws->normal == NULL
             ? pd_fail(err, PD_NO_MEMORY, "out of memory")
             : pd_trace_json(trace, "balanced_steps", JSON_ARRAY, &draws->balanced, err);
    if (rc == PD_OK)
        *out = draws;
    else
        pd_replay_draws_close(draws);
    return rc;
}

static void forget(pd_replay_draws *draws)
{
    for (size_t i = 0; draws->normal != NULL && i < draws->parts->n; i++) {
        free(draws->normal[i]);
        draws->normal[i] = NULL;
    }
}

void pd_replay_draws_close(pd_replay_draws *draws)
{
    if (draws == NULL) return;
    forget(draws);
    free(draws->normal);
    free(draws->at);
    json_decref(draws->balanced);
    free(draws);
}

static bool is_balanced(const pd_replay_draws *draws, int64_t step)
{
    json_t *balanced;
    size_t i;

    json_array_foreach(draws->balanced, i, balanced)
    {
        if (json_is_integer(balanced) && json_integer_value(balanced) == step) return true;
    }
    return false;
}

/* Reads the random probe (a tensor of random numbers) of one declared parameter in a step. If the trace (the file of a
 * recorded run) has none, the optimizer drew no probe for the parameter in this step. */
static int take_probe(pd_replay_draws *draws, size_t part, int64_t step, pd_error *err)
{
    char name[NAME_TEXT];
    pd_shape shape;
    int64_t n = 0;
    double *wide;

    snprintf(name, sizeof name, "probe/%04d/%s", (int)step, draws->parts->at[part].recorded);
    if (!pd_trace_tensor(draws->trace, name, &shape)) return PD_OK;
    if (pd_shape_elements(&shape, &n) != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: too large", name);
    wide = calloc((size_t)n + 1, sizeof *wide);
    draws->normal[part] = calloc((size_t)n + 1, sizeof *draws->normal[part]);
    if (wide != NULL && draws->normal[part] != NULL) {
        pd_trace_values(draws->trace, name, wide);
        for (int64_t i = 0; i < n; i++) draws->normal[part][i] = (float)wide[i];
        draws->at[part].normal = draws->normal[part];
        draws->at[part].n_normal = n;
    }
    free(wide);
    return draws->at[part].normal != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

int pd_replay_draws_at(pd_replay_draws *draws, int64_t step, const pd_draws **out, pd_error *err)
{
    int rc = PD_OK;

    forget(draws);
    for (size_t i = 0; rc == PD_OK && i < draws->parts->n; i++) {
        draws->at[i] = (pd_draws){ .uniform = is_balanced(draws, step) ? 0 : 0.5 };
        rc = take_probe(draws, i, step, err);
    }
    *out = draws->at;
    return rc;
}
