/* replay_local.c - a trace through the optimizer library in this process. */
#include <stdlib.h>

#include "replay.h"

typedef struct play {
    const pd_trace       *trace;
    const pd_trace_param *params;
    size_t                n;
    pd_declaration       *declarations;
    pd_step_io           *io;
    float               **weights, **gradient;
    double               *recorded;         /* of the largest parameter */
    double                hypers[PD_MAX_HYPERS];        /* that of the recorded rate is used */
    pd_model             *model;
    bool                  shaken;           /* gradients have their last bits turned: shows how much of the state is noise */
} play;

static void free_play(play *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->weights != NULL) free(p->weights[i]);
        if (p->gradient != NULL) free(p->gradient[i]);
    }
    free(p->weights);
    free(p->gradient);
    free(p->declarations);
    free(p->io);
    free(p->recorded);
    pd_model_free(p->model);
}

static float *new_floats(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(float));        /* a parameter may have no elements */
}

static int prepare(play *p, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    p->trace = trace;
    p->params = pd_trace_params(trace, &p->n);
    p->declarations = calloc(p->n, sizeof *p->declarations);
    p->io = calloc(p->n, sizeof *p->io);
    p->weights = calloc(p->n, sizeof *p->weights);
    p->gradient = calloc(p->n, sizeof *p->gradient);
    p->recorded = calloc((size_t)pd_trace_elements(trace) + 1, sizeof *p->recorded);
    if (!p->declarations || !p->io || !p->weights || !p->gradient || !p->recorded) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < p->n; i++) {
        p->declarations[i] = (pd_declaration){ .name = p->params[i].name, .shape = p->params[i].shape, .hypers = recipe->hypers };
        p->weights[i] = new_floats(p->params[i].elements);
        p->gradient[i] = new_floats(p->params[i].elements);
        if (p->weights[i] == NULL || p->gradient[i] == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        pd_trace_initial(trace, i, p->weights[i]);
    }
    return pd_model_new(&p->model, p->declarations, p->n, 1, err);
}

static int take_step(play *p, int64_t step, int rate, pd_error *err)
{
    uint64_t mask = rate >= 0 && pd_trace_rate(p->trace, step, &p->hypers[rate]) ? (uint64_t)1 << rate : 0;
    int rc;

    for (size_t i = 0; i < p->n; i++) {
        bool present = pd_trace_gradient(p->trace, step, 0, i, p->gradient[i]);
        if (present && p->shaken) pd_replay_shake(p->gradient[i], p->params[i].elements);
        p->io[i] = (pd_step_io){ .gradient = present ? p->gradient[i] : NULL, .before = p->weights[i], .after = p->weights[i], .hypers = p->hypers, .hypers_mask = mask };
    }
    rc = pd_model_step(p->model, p->io, err);
    if (!pd_trace_fails(p->trace, step)) return rc;
    if (rc == PD_OK) return pd_fail(err, PD_FAILED_PRECONDITION, "step %d was recorded to fail and did not", (int)step);
    return PD_OK;
}

/* One step of the replay, and of its shaken companion where there is one; then what was recorded after it. */
static int play_step(play *p, play *shaken, int64_t step, int rate, pd_verdict *verdicts, pd_replay_state *state, pd_error *err)
{
    int rc = take_step(p, step, rate, err);

    for (size_t i = 0; rc == PD_OK && i < p->n; i++) {
        if (!pd_trace_weights(p->trace, step, i, p->recorded)) continue;
        pd_verdict_add(&verdicts[i], i, step, pd_relative_error(p->weights[i], p->recorded, p->params[i].elements, 0));
    }
    if (rc == PD_OK && shaken->shaken) rc = take_step(shaken, step, rate, err);
    return rc == PD_OK && state != NULL ? pd_replay_state_compare(state, p->model, shaken->model, step, err) : rc;
}

int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_replay_state *state, pd_error *err)
{
    play p = { 0 }, shaken = { .shaken = state != NULL && pd_replay_state_wants_noise(state) };
    int rate = pd_hypers_find(recipe->hypers.row, recipe->rate);
    int rc = PD_OK;

    if (pd_trace_averages(trace)) return pd_fail(err, PD_UNIMPLEMENTED, "averages of replicas are taken by a server: use --server");
    rc = prepare(&p, trace, recipe, err);
    if (rc == PD_OK && shaken.shaken) rc = prepare(&shaken, trace, recipe, err);
    for (int64_t step = 1; rc == PD_OK && step <= pd_trace_steps(trace); step++) {
        rc = play_step(&p, &shaken, step, rate, verdicts, state, err);
    }
    free_play(&p);
    free_play(&shaken);
    return rc;
}
