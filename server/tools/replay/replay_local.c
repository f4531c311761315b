/* replay_local.c - plays a recorded run with the optimizer library in this process, without a daemon. */
#include "replay_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimizer.h"
#include "optimizer_ops.h"
#include "part.h"
#include "replay_state.h"
#include "task.h"

enum { NAME_TEXT = 400 };

/* The recorded random numbers of a run of distributed_kron or psgd_torch. They are in tensors `probe/TTTT/NAME` (TTTT:
 * step), and in the metadata `balanced_steps`, a list of the steps in which the factor matrices were balanced. In each
 * step one random number decides for all parameters whether they are balanced. */
typedef struct draws {
    json_t *balanced; /* NULL: not recorded */
    pd_draws *at;     /* random numbers of each declared part in the present step; NULL: none were recorded */
    float **normal;
} draws;

/* A model that plays a trace, with all that its steps need. */
typedef struct play {
    const pd_trace *trace;
    const pd_recipe *recipe;
    pd_replay_tensors t;
    float **update; /* change of the weights of each parameter in a step; NULL: the optimizer does not report it, or the
                     * trace has none */
    pd_replay_parts parts; /* the declared parts */
    draws draws;
    pd_declaration *declarations;
    pd_step_io *io;
    /* hypers: hyperparameters for one step, of which only hypers[rate], the learning rate, is set. rate: its index;
     * below 0: the optimizer has no learning rate. */
    double hypers[PD_MAX_HYPERS];
    int rate;
    pd_model *model; /* the model that is trained; NULL: the optimizer refused it, as the recorded run expects */
    int shaken;      /* which shaken model this is, from 1; 0: none, since its gradients are the recorded ones */
} play;

bool pd_replay_has_draws(const pd_trace *trace)
{
    return pd_trace_has(trace, "probe/");
}

static int open_draws(play *p, pd_error *err)
{
    if (!pd_replay_has_draws(p->trace)) return PD_OK;
    p->draws.at = calloc(p->parts.n + 1, sizeof *p->draws.at);
    p->draws.normal = calloc(p->parts.n + 1, sizeof *p->draws.normal);
    if (p->draws.at == NULL || p->draws.normal == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_trace_json(p->trace, "balanced_steps", JSON_ARRAY, &p->draws.balanced, err);
}

static void free_probes(play *p)
{
    for (size_t i = 0; p->draws.normal != NULL && i < p->parts.n; i++) {
        free(p->draws.normal[i]);
        p->draws.normal[i] = NULL;
    }
}

static bool is_balanced(const play *p, int64_t step)
{
    json_t *balanced;
    size_t i;

    json_array_foreach(p->draws.balanced, i, balanced)
    {
        if (json_is_integer(balanced) && json_integer_value(balanced) == step) return true;
    }
    return false;
}

/* Appends a recorded tensor of random numbers to those of a declared part. Returns false if the trace lacks it, or
 * after an error, which *rc has. */
static bool append_probe(play *p, size_t part, const char *name, int *rc, pd_error *err)
{
    pd_draws *of = &p->draws.at[part];
    pd_shape shape;
    int64_t n = 0, before = of->n_normal;
    double *wide;
    float *normal;

    if (!pd_trace_tensor(p->trace, name, &shape)) return false;
    if ((*rc = pd_shape_elements(&shape, &n)) != PD_OK) {
        pd_fail(err, *rc = PD_INVALID_ARGUMENT, "%.256s: too large", name);
        return false;
    }
    wide = calloc((size_t)n + 1, sizeof *wide);
    normal = realloc(p->draws.normal[part], (size_t)(before + n + 1) * sizeof *normal);
    if (normal != NULL) of->normal = p->draws.normal[part] = normal;
    if (wide == NULL || normal == NULL) {
        *rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    } else {
        pd_trace_values(p->trace, name, wide);
        for (int64_t i = 0; i < n; i++) normal[before + i] = (float)wide[i];
        of->n_normal = before + n;
    }
    free(wide);
    return *rc == PD_OK;
}

/* Reads the random numbers of a declared part in a step: the probe, and for psgd_torch those that bounded the norms of
 * matrices. If the trace has no such tensor, the optimizer drew none for the part in this step. */
static int read_probe(play *p, size_t part, int64_t step, pd_error *err)
{
    char name[NAME_TEXT];
    int rc = PD_OK;

    snprintf(name, sizeof name, "probe/%04d/%s", (int)step, p->parts.at[part].recorded);
    if (!append_probe(p, part, name, &rc, err)) return rc;
    for (int i = 0;; i++) {
        snprintf(name, sizeof name, "probe/%04d/%s/norm/%d", (int)step, p->parts.at[part].recorded, i);
        if (!append_probe(p, part, name, &rc, err)) return rc;
    }
}

/* Reads the recorded random numbers of a step into p->draws.at; steps count from 1. PD_INVALID_ARGUMENT: a tensor of
 * random numbers is too large. */
static int read_draws(play *p, int64_t step, pd_error *err)
{
    int rc = PD_OK;

    free_probes(p);
    for (size_t i = 0; rc == PD_OK && i < p->parts.n; i++) {
        p->draws.at[i] = (pd_draws){ .uniform = is_balanced(p, step) ? 0 : 0.5 };
        rc = read_probe(p, i, step, err);
    }
    return rc;
}

int pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err)
{
    const char *text = pd_trace_meta(trace, "noise_update");
    char *end = NULL;
    double noise = text != NULL ? strtod(text, &end) : 0;

    if (text != NULL && (end == text || *end != '\0' || !(noise >= 0) || isinf(noise)))
        return pd_fail(err, PD_INVALID_ARGUMENT, "metadata noise_update: expected a number from 0 on, got \"%.64s\"",
                       text);
    *tolerance = text != NULL ? 10 * noise + 1e-6 : trace->tolerance;
    return PD_OK;
}

/* Copies the recorded update of a parameter in a step to `at`: the change of its weights, with its sign and learning
 * rate. Sets *there to whether it was recorded, as the tensor `update/TTTT/NAME`. PD_INVALID_ARGUMENT: it has another
 * shape than the parameter. */
static int read_update(const pd_trace *trace, int64_t step, size_t param, double *at, bool *there, pd_error *err)
{
    char name[NAME_TEXT];
    pd_shape shape;

    snprintf(name, sizeof name, "update/%04d/%s", (int)step, trace->params[param].name);
    if (!(*there = pd_trace_tensor(trace, name, &shape))) return PD_OK;
    if (!pd_shape_equal(&shape, &trace->params[param].shape))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected the parameter's shape", name);
    pd_trace_values(trace, name, at);
    return PD_OK;
}

static void free_play(play *p)
{
    for (size_t i = 0; p->update != NULL && i < p->t.n; i++) free(p->update[i]);
    free(p->update);
    free_probes(p);
    free(p->draws.normal);
    free(p->draws.at);
    json_decref(p->draws.balanced);
    free(p->declarations);
    free(p->io);
    pd_replay_tensors_free(&p->t);
    pd_replay_parts_free(&p->parts);
    pd_model_free(p->model);
}

/* Allocates memory for the changes of weights in a step, if the trace has recorded such changes. */
static int allocate_updates(play *p, pd_error *err)
{
    if (!pd_trace_has(p->trace, "update/") || pd_replay_is_sharded(p->trace) ||
        p->recipe->groups[0].row->update_dtype == NULL)
        return PD_OK;
    if ((p->update = calloc(p->t.n + 1, sizeof *p->update)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < p->t.n; i++) {
        p->update[i] = calloc((size_t)p->t.params[i].elements + 1, sizeof(float));
        if (p->update[i] == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

static int declare(play *p, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    for (size_t i = 0; i < p->parts.n; i++) {
        const pd_replay_part *part = &p->parts.at[i];
        p->declarations[i] = (pd_declaration){ .name = part->name,
                                               .shape = part->shape,
                                               .hypers = p->recipe->groups[part->group],
                                               .group = (int)part->group,
                                               .axes = part->axes,
                                               .start_step = p->recipe->start_step };
    }
    rc = pd_model_new(&p->model, p->declarations, p->parts.n, 1, &why);
    if (rc != PD_OK && pd_replay_is_refusal(p->trace, rc)) {
        pd_replay_refused(p->trace, p->t.weights);
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
    p->rate = pd_hypers_find(recipe->groups[0].row, recipe->rate);
    rc = pd_replay_parts_find(&p->parts, trace, recipe, err);
    if (rc == PD_OK) rc = pd_replay_tensors_new(&p->t, trace, err);
    p->t.zeros = recipe->zeros;
    if (rc == PD_OK) rc = open_draws(p, err);
    if (rc == PD_OK) p->declarations = calloc(p->parts.n + 1, sizeof *p->declarations);
    if (rc == PD_OK) p->io = calloc(p->parts.n + 1, sizeof *p->io);
    if (rc == PD_OK && (p->declarations == NULL || p->io == NULL)) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = allocate_updates(p, err);
    return rc == PD_OK ? declare(p, err) : rc;
}

static int fill_io(play *p, int64_t step, pd_error *err)
{
    uint64_t mask =
        p->rate >= 0 && pd_replay_rate(p->trace, p->recipe, step, &p->hypers[p->rate]) ? (uint64_t)1 << p->rate : 0;
    int rc;

    pd_replay_tensors_fill(&p->t, step, 0);
    for (size_t i = 0; p->shaken > 0 && i < p->t.n; i++)
        if (p->t.present[i])
            pd_replay_shake(p->t.gradient[i], p->t.params[i].elements,
                            p->shaken == 1 ? 0 : (uint64_t)(step * PD_REPLAY_SHAKEN + p->shaken));
    for (size_t i = 0; i < p->parts.n; i++) {
        const pd_replay_part *part = &p->parts.at[i];
        float *weights = p->t.weights[part->param] + part->offset;
        p->io[i] =
            (pd_step_io){ .gradient = p->t.present[part->param] ? p->t.gradient[part->param] + part->offset : NULL,
                          .before = weights,
                          .after = weights,
                          .hypers = p->hypers,
                          .hypers_mask = mask,
                          .update = p->update != NULL ? p->update[part->param] : NULL };
    }
    if (p->draws.at == NULL) return PD_OK;
    rc = read_draws(p, step, err);
    for (size_t i = 0; rc == PD_OK && i < p->parts.n; i++) p->io[i].draws = &p->draws.at[i];
    return rc;
}

/* Replaces a basis of a parameter by the recorded one of this name, if there is one. */
static int inject_basis(pd_optim *optim, const pd_trace *trace, const char *name, const pd_slot_spec *slot,
                        pd_error *err)
{
    pd_shape shape;
    pd_part part;
    int64_t n = 0;
    double *basis;
    int rc;

    if (!pd_trace_tensor(trace, name, &shape)) return PD_OK;
    if (!pd_plan_part(pd_optim_plan(optim), slot->name, slot->number, slot->of_block ? slot->block : -1, &part) ||
        !pd_shape_equal(&part.shape, &shape))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: the optimizer has no such basis", name);
    (void)pd_shape_elements(&shape, &n);
    if ((basis = calloc((size_t)n + 1, sizeof *basis)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_trace_values(trace, name, basis);
    rc = pd_optim_write_part(optim, &part, basis);
    free(basis);
    return rc;
}

/* Replaces the eigenvectors of all factors by those that were recorded after a step (metadata `inject_steps`). */
static int inject_vectors(play *p, int64_t step, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < p->t.n && pd_trace_meta(p->trace, "inject_steps") != NULL; i++) {
        pd_optim *optim = pd_model_optim(p->model, i);
        const pd_plan *plan = pd_optim_plan(optim);
        for (size_t k = 0; rc == PD_OK && k < plan->n_slots; k++) {
            char name[NAME_TEXT], slot[128];
            if (strcmp(plan->slots[k].name, "factor_matrices_eigenvectors") != 0) continue;
            snprintf(name, sizeof name, "state/%04d/%s/%s", (int)step, p->t.params[i].name,
                     pd_slot_name(&plan->slots[k], slot, sizeof slot));
            rc = inject_basis(optim, p->trace, name, &plan->slots[k], err);
        }
    }
    return rc;
}

bool pd_replay_has_bases(const pd_trace *trace)
{
    char name[NAME_TEXT];
    pd_shape shape;

    if (pd_trace_meta(trace, "inject_steps") != NULL) return true;
    if (pd_trace_meta(trace, "first_gradient") == NULL) return false;
    for (size_t i = 0; i < trace->n; i++)
        for (int64_t step = 1; step <= trace->steps; step++)
            for (int d = 0; d < PD_MAX_RANK; d++) {
                snprintf(name, sizeof name, "state/%04d/%s/Q/%d", (int)step, trace->params[i].name, d);
                if (pd_trace_tensor(trace, name, &shape) && shape.dim[0] * shape.dim[0] > trace->params[i].elements)
                    return true;
            }
    return false;
}

/* Adopts new bases at the end of a step, as upstream programs do. Then replaces the bases of parameters whose first
 * gradient this was (metadata `first_gradient`) by the recorded ones: eigenvectors of a rank-deficient factor are
 * arbitrary. Declared parts are whole parameters here. */
static int settle_bases(play *p, int64_t step, pd_error *err)
{
    json_t *first = NULL;
    int rc = PD_OK;

    for (size_t i = 0; p->model != NULL && i < p->parts.n; i++) pd_optim_adopt_early(pd_model_optim(p->model, i));
    if (p->model == NULL || pd_replay_is_sharded(p->trace)) return PD_OK;
    rc = pd_trace_json(p->trace, "first_gradient", JSON_OBJECT, &first, err);
    for (size_t i = 0; rc == PD_OK && i < p->t.n; i++) {
        const pd_trace_param *param = &p->t.params[i];
        if (json_integer_value(json_object_get(first, param->name)) != step) continue;
        for (int d = 0; rc == PD_OK && d < PD_MAX_RANK; d++) {
            char name[NAME_TEXT];
            snprintf(name, sizeof name, "state/%04d/%s/Q/%d", (int)step, param->name, d);
            rc = inject_basis(pd_model_optim(p->model, i), p->trace, name, &(pd_slot_spec){ .name = "Q", .number = d },
                              err);
        }
    }
    json_decref(first);
    return rc;
}

static int take_step(play *p, int64_t step, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    if (p->model == NULL) return PD_OK;
    if ((rc = fill_io(p, step, err)) != PD_OK || (rc = inject_vectors(p, step, err)) != PD_OK) return rc;
    rc = pd_replay_judge_step(p->trace, step, pd_model_step(p->model, p->io, &why), &why, err);
    return rc == PD_OK ? settle_bases(p, step, err) : rc;
}

static int judge_updates(play *p, int64_t step, pd_verdict *updates, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && p->update != NULL && i < p->t.n; i++) {
        bool there;
        if (!p->t.present[i] || (rc = read_update(p->trace, step, i, p->t.recorded, &there, err)) != PD_OK || !there)
            continue;
        pd_verdict_add(updates, i, step, pd_relative_error(p->update[i], p->t.recorded, p->t.params[i].elements, 0));
    }
    return rc;
}

/* Compares the weights to evaluate with, where the trace has some: tensors `eval/TTTT/NAME`. */
static int judge_readouts(play *p, int64_t step, pd_verdict *verdicts, pd_error *err)
{
    float *out = NULL;
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && !pd_replay_is_sharded(p->trace) && i < p->t.n; i++) {
        const pd_trace_param *param = &p->t.params[i];
        char name[NAME_TEXT];
        pd_shape shape;
        snprintf(name, sizeof name, "eval/%04d/%s", (int)step, param->name);
        if (!pd_trace_tensor(p->trace, name, &shape)) continue;
        if (!pd_shape_equal(&shape, &param->shape))
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "%.256s: expected the parameter's shape", name);
        else if ((out = malloc((size_t)(param->elements + 1) * sizeof *out)) == NULL)
            rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
        if (rc != PD_OK) break;
        pd_trace_values(p->trace, name, p->t.recorded);
        pd_model_read_out(p->model, i, p->t.weights[i], out);
        pd_verdict_add(&verdicts[i], i, step, pd_relative_error(out, p->t.recorded, param->elements, 0));
        free(out);
    }
    return rc;
}

/* Takes one step with the model, and with the shaken models if there are any. Then compares the results with everything
 * that was recorded after this step. */
static int play_step(play *p, play *shaken, int64_t step, pd_verdict *verdicts, pd_verdict *updates,
                     pd_replay_state *state, pd_error *err)
{
    const pd_model *models[PD_REPLAY_SHAKEN] = { NULL };
    int rc = take_step(p, step, err);

    if (rc == PD_OK) pd_replay_tensors_judge(&p->t, step, verdicts);
    if (rc == PD_OK && p->model != NULL) rc = judge_updates(p, step, updates, err);
    if (rc == PD_OK && p->model != NULL) rc = judge_readouts(p, step, verdicts, err);
    for (int i = 0; rc == PD_OK && i < PD_REPLAY_SHAKEN && shaken[i].shaken > 0; i++) {
        rc = take_step(&shaken[i], step, err);
        models[i] = shaken[i].model;
    }
    if (rc != PD_OK || state == NULL || p->model == NULL) return rc;
    return pd_replay_state_compare(state, p->model, models, step, err);
}

int pd_replay_local(const pd_trace *trace, const pd_recipe *recipe, pd_verdict *verdicts, pd_verdict *updates,
                    pd_replay_state *state, pd_error *err)
{
    play p = { 0 }, shaken[PD_REPLAY_SHAKEN] = { 0 };
    bool wanted = state != NULL && pd_replay_state_wants_noise(state);
    int rc = PD_OK;

    rc = prepare(&p, trace, recipe, err);
    for (int i = 0; rc == PD_OK && wanted && i < PD_REPLAY_SHAKEN; i++) {
        shaken[i].shaken = i + 1;
        rc = prepare(&shaken[i], trace, recipe, err);
    }
    for (int64_t step = 1; rc == PD_OK && step <= trace->steps; step++)
        rc = play_step(&p, shaken, step, verdicts, updates, state, err);
    free_play(&p);
    for (int i = 0; i < PD_REPLAY_SHAKEN; i++) free_play(&shaken[i]);
    return rc;
}
