/* replay_local.c - a trace through the optimizer library in this process. */
#include "replay_local.h"

#include <stdlib.h>

#include "replay_draws.h"
#include "replay_net.h"
#include "replay_parts.h"
#include "replay_step.h"
#include "replay_updates.h"
#include "row.h"

typedef struct play {
    const pd_trace       *trace;
    const pd_recipe      *recipe;
    const pd_trace_param *params;
    size_t                n;                /* parameters of the trace */
    float               **weights, **gradient;
    bool                 *present;          /* there is a gradient in this step */
    float               **update;           /* what a step adds to the weights; NULL: the row does not tell, or nobody asks */
    pd_replay_draws      *draws;            /* NULL: none were recorded */
    pd_replay_net        *net;              /* NULL: gradients were recorded */
    double                loss;             /* of the net, before this step */
    double               *recorded;         /* of the largest parameter */
    pd_replay_parts       parts;            /* what is declared */
    pd_declaration       *declarations;
    pd_step_io           *io;
    double                hypers[PD_MAX_HYPERS];        /* that of the recorded rate is used */
    int                   rate;
    pd_model             *model;            /* NULL: the declaration was refused, as it should be */
    int                   shaken;           /* 1 …: gradients have last bits turned in this way: shows how much of the state is noise. 0: as recorded */
} play;

static void free_play(play *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (p->weights != NULL) free(p->weights[i]);
        if (p->gradient != NULL) free(p->gradient[i]);
        if (p->update != NULL) free(p->update[i]);
    }
    free(p->update);
    pd_replay_draws_close(p->draws);
    free(p->weights);
    free(p->gradient);
    free(p->present);
    free(p->recorded);
    free(p->declarations);
    free(p->io);
    pd_replay_net_close(p->net);
    pd_replay_parts_free(&p->parts);
    pd_model_free(p->model);
}

static float *new_floats(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(float));        /* a parameter may have no elements */
}

static int allocate(play *p, pd_error *err)
{
    p->weights = calloc(p->n, sizeof *p->weights);
    p->gradient = calloc(p->n, sizeof *p->gradient);
    p->present = calloc(p->n, sizeof *p->present);
    p->recorded = calloc((size_t)pd_trace_elements(p->trace) + 1, sizeof *p->recorded);
    p->declarations = calloc(p->parts.n + 1, sizeof *p->declarations);
    p->io = calloc(p->parts.n + 1, sizeof *p->io);
    if (!p->weights || !p->gradient || !p->present || !p->recorded || !p->declarations || !p->io) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < p->n; i++) {
        p->weights[i] = new_floats(p->params[i].elements);
        p->gradient[i] = new_floats(p->params[i].elements);
        if (p->weights[i] == NULL || p->gradient[i] == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        pd_trace_initial(p->trace, i, p->weights[i]);
    }
    return PD_OK;
}

/* Where updates were recorded. */
static int allocate_updates(play *p, pd_error *err)
{
    if (!pd_replay_updates_wanted(p->trace) || pd_replay_is_sharded(p->trace) || p->recipe->groups[0].row->update_dtype == NULL) return PD_OK;
    if ((p->update = calloc(p->n + 1, sizeof *p->update)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < p->n; i++) {
        if ((p->update[i] = new_floats(p->params[i].elements)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

static int declare(play *p, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    for (size_t i = 0; i < p->parts.n; i++) {
        const pd_replay_part *part = &p->parts.at[i];
        p->declarations[i] = (pd_declaration){ .name = part->name, .shape = part->shape, .hypers = p->recipe->groups[part->group], .group = (int)part->group,
                                              .axes = part->axes, .start_step = p->recipe->start_step };
    }
    rc = pd_model_new(&p->model, p->declarations, p->parts.n, 1, &why);
    if (rc != PD_OK && pd_replay_is_refusal(p->trace, rc)) {
        pd_replay_refused(p->trace, p->weights);
        return PD_OK;
    }
    if (rc != PD_OK && err != NULL) *err = why;
    return rc;
}

static int prepare(play *p, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    int rc;

    p->trace = trace;
    p->recipe = recipe;
    p->params = pd_trace_params(trace, &p->n);
    p->rate = pd_hypers_find(recipe->groups[0].row, recipe->rate);
    rc = pd_replay_parts_find(&p->parts, trace, recipe, err);
    if (rc == PD_OK && pd_replay_net_wanted(trace)) rc = pd_replay_net_open(&p->net, trace, err);
    if (rc == PD_OK && pd_replay_draws_wanted(trace)) rc = pd_replay_draws_open(&p->draws, trace, &p->parts, err);
    if (rc == PD_OK) rc = allocate(p, err);
    if (rc == PD_OK) rc = allocate_updates(p, err);
    return rc == PD_OK ? declare(p, err) : rc;
}

static int fill_io(play *p, int64_t step, pd_error *err)
{
    const pd_draws *draws = NULL;
    uint64_t mask = p->rate >= 0 && pd_replay_rate(p->trace, p->recipe, step, &p->hypers[p->rate]) ? (uint64_t)1 << p->rate : 0;
    int rc;

    if (p->net != NULL) p->loss = pd_replay_net_differentiate(p->net, step, p->weights, p->gradient);
    for (size_t i = 0; i < p->n; i++) {
        p->present[i] = p->net != NULL || pd_trace_gradient(p->trace, step, 0, i, p->gradient[i]);
        if (p->present[i] && p->shaken > 0) pd_replay_shake(p->gradient[i], p->params[i].elements, p->shaken == 1 ? 0 : (uint64_t)(step * PD_REPLAY_SHAKEN + p->shaken));
    }
    for (size_t i = 0; i < p->parts.n; i++) {
        const pd_replay_part *part = &p->parts.at[i];
        float *weights = p->weights[part->param] + part->offset;
        p->io[i] = (pd_step_io){ .gradient = p->present[part->param] ? p->gradient[part->param] + part->offset : NULL,
                                 .before = weights, .after = weights, .hypers = p->hypers, .hypers_mask = mask,
                                 .update = p->update != NULL ? p->update[part->param] : NULL };
    }
    if (p->draws == NULL) return PD_OK;
    rc = pd_replay_draws_at(p->draws, step, &draws, err);
    for (size_t i = 0; rc == PD_OK && i < p->parts.n; i++) p->io[i].draws = &draws[i];
    return rc;
}

static int take_step(play *p, int64_t step, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    if (p->model == NULL) return PD_OK;
    if ((rc = fill_io(p, step, err)) != PD_OK) return rc;
    return pd_replay_judge_step(p->trace, step, pd_model_step(p->model, p->io, &why), &why, err);
}

static int judge_updates(play *p, int64_t step, pd_verdict *updates, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && p->update != NULL && i < p->n; i++) {
        bool there;
        if (!p->present[i] || (rc = pd_replay_update(p->trace, step, i, p->recorded, &there, err)) != PD_OK || !there) continue;
        pd_verdict_add(updates, i, step, pd_relative_error(p->update[i], p->recorded, p->params[i].elements, 0));
    }
    return rc;
}

static void judge_step(play *p, int64_t step, pd_verdict *verdicts)
{
    if (p->net != NULL) pd_verdict_add(&verdicts[p->n], p->n, step, pd_replay_net_error(p->net, step, p->loss));
    for (size_t i = 0; p->net == NULL && i < p->n; i++) {
        if (!pd_trace_weights(p->trace, step, i, p->recorded)) continue;
        pd_verdict_add(&verdicts[i], i, step, pd_relative_error(p->weights[i], p->recorded, p->params[i].elements, 0));
    }
}

/* One step of the replay, and of its shaken companions where there are some; then what was recorded after it. */
static int play_step(play *p, play *shaken, int64_t step, pd_verdict *verdicts, pd_verdict *updates, pd_replay_state *state, pd_error *err)
{
    const pd_model *models[PD_REPLAY_SHAKEN] = { NULL };
    int rc = take_step(p, step, err);

    if (rc == PD_OK) judge_step(p, step, verdicts);
    if (rc == PD_OK && p->model != NULL) rc = judge_updates(p, step, updates, err);
    for (int i = 0; rc == PD_OK && i < PD_REPLAY_SHAKEN && shaken[i].shaken > 0; i++) {
        rc = take_step(&shaken[i], step, err);
        models[i] = shaken[i].model;
    }
    return rc == PD_OK && state != NULL && p->model != NULL ? pd_replay_state_compare(state, p->model, models, step, err) : rc;
}

int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates, pd_replay_state *state, pd_error *err)
{
    play p = { 0 }, shaken[PD_REPLAY_SHAKEN] = { 0 };
    bool wanted = state != NULL && pd_replay_state_wants_noise(state);
    int rc = PD_OK;

    rc = prepare(&p, trace, recipe, err);
    for (int i = 0; rc == PD_OK && wanted && i < PD_REPLAY_SHAKEN; i++) {
        shaken[i].shaken = i + 1;
        rc = prepare(&shaken[i], trace, recipe, err);
    }
    for (int64_t step = 1; rc == PD_OK && step <= pd_trace_steps(trace); step++) {
        rc = play_step(&p, shaken, step, verdicts, updates, state, err);
    }
    free_play(&p);
    for (int i = 0; i < PD_REPLAY_SHAKEN; i++) free_play(&shaken[i]);
    return rc;
}
