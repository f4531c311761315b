/* model.c - steps all parameters of a model together in the calling program (include/paramd/optim.h). */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "clip.h"
#include "cpu.h"
#include "factor_rules.h"
#include "optimizer.h"
#include "pages.h"
#include "state.h"

/* A group of parameters that count their steps together, since their optimizer counts by group
 * (pd_optimizer_ops.counts_by_group). */
typedef struct group {
    const pd_optimizer_ops *ops;
    int number;
    /* number of the group's last step: one in which at least one of its parameters had a gradient, or any step */
    int64_t count;
    bool counts_empty; /* steps without a gradient count (pd_optimizer_ops.counts_empty) */
    /* number of parameters of the group that take a step in this call */
    size_t stepping;
    pd_atomic_group together; /* the atomic group of these steps */
} group;

/* A group of parameters whose gradients are clipped together, since their optimizer limits the norm of all of them
 * (pd_optimizer_ops.clip_norm). */
typedef struct limited {
    const pd_optimizer_ops *ops;
    int number;
    double limit; /* largest norm of the group's gradients together */
    size_t first; /* index of the first parameter that was added to this group, which error texts name */
} limited;

#define ALONE ((size_t)-1) /* in place of the index of a group: the parameter is in no group */

struct pd_model {
    pd_optim **optims; /* the optimizer of each parameter */
    size_t n;
    /* indices of all parameters: first those that count their steps alone, then those that count them together, group
     * by group */
    size_t *order;
    /* for each parameter: index in `groups` of the group with which it counts its steps, or ALONE */
    size_t *group_of;
    group *groups;
    size_t n_groups;
    pd_optim **steps; /* optimizers whose steps are under way in this call; an array with room for all parameters */
    /* limit: largest norm of all gradients together (0: no clipping). norm: the norm that pd_model_norm returns, from
     * the last step */
    double limit, norm;
    limited *limits;
    size_t n_limits;
    /* for each parameter: index in `limits` of the group with which its gradient is clipped, or ALONE */
    size_t *limit_of;
    float **scaled;         /* for each parameter: memory for its clipped gradient; NULL: it is never clipped */
    const float **gradient; /* for each parameter: its gradient in this call, as given or clipped; NULL: it has none */
    /* memory and threads that run the steps; enough for all parameters, so that a step under way cannot fail */
    pd_batch *batch;
};

/* The model statistics of one optimizer. */
typedef struct gathered {
    const pd_optimizer_ops *ops;
    double stats[PD_MAX_MODEL_STATS];
} gathered;

static const double *stats_of(gathered *list, size_t *n_list, const pd_optimizer_ops *ops, const pd_declaration *params,
                              size_t n)
{
    for (size_t i = 0; i < *n_list; i++)
        if (list[i].ops == ops) return list[i].stats;
    list[*n_list].ops = ops;
    pd_model_stats_of(ops, params, n, list[*n_list].stats);
    return list[(*n_list)++].stats;
}

static int make_optims(pd_model *model, const pd_declaration *params, pd_error *err)
{
    gathered *list = malloc((model->n + 1) * sizeof *list);
    pd_name_maps *maps = pd_name_maps_new(model->n);
    size_t n_list = 0;
    int64_t bytes = 0;
    int rc = list == NULL || maps == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory") : PD_OK;

    for (size_t i = 0; rc == PD_OK && i < model->n; i++) rc = pd_hypers_check(&params[i].hypers, err);
    for (size_t i = 0; rc == PD_OK && i < model->n; i++) {
        pd_declaration declaration = params[i];
        declaration.maps = maps;
        rc = pd_optim_new(&model->optims[i], &declaration,
                          stats_of(list, &n_list, params[i].hypers.row, params, model->n), err);
    }
    for (size_t i = 0; rc == PD_OK && i < model->n; i++)
        bytes += pd_optim_elements(model->optims[i]) * (int64_t)sizeof(float);
    for (size_t i = 0; rc == PD_OK && i < model->n; i++) pd_optim_set_job_bytes(model->optims[i], bytes);
    pd_name_maps_free(maps);
    free(list);
    return rc;
}

static size_t find_group(pd_model *model, const pd_declaration *param)
{
    const pd_optimizer_ops *ops = param->hypers.row;
    size_t g = 0;

    if (!ops->counts_by_group) return ALONE;
    while (g < model->n_groups && (model->groups[g].ops != ops || model->groups[g].number != param->group)) g++;
    if (g == model->n_groups)
        model->groups[model->n_groups++] =
            (group){ .ops = ops,
                     .number = param->group,
                     .count = param->start_step,
                     .counts_empty = ops->counts_empty != NULL && ops->counts_empty(param->hypers.value) };
    return g;
}

static int make_groups(pd_model *model, const pd_declaration *params)
{
    size_t k = 0, by_group = 0;

    for (size_t i = 0; i < model->n; i++) by_group += params[i].hypers.row->counts_by_group;
    model->groups = calloc(by_group + 1, sizeof *model->groups);
    model->group_of = malloc((model->n + 1) * sizeof *model->group_of);
    model->order = malloc((model->n + 1) * sizeof *model->order);
    if (model->groups == NULL || model->group_of == NULL || model->order == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < model->n; i++)
        if ((model->group_of[i] = find_group(model, &params[i])) == ALONE) model->order[k++] = i;
    for (size_t g = 0; g < model->n_groups; g++)
        for (size_t i = 0; i < model->n; i++)
            if (model->group_of[i] == g) model->order[k++] = i;
    return PD_OK;
}

static int make_scaled(pd_model *model, size_t param)
{
    if (model->scaled[param] == NULL) model->scaled[param] = pd_floats_new(pd_optim_elements(model->optims[param]) + 1);
    return model->scaled[param] != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Adds a parameter to its group of parameters whose gradients are clipped together. All parameters of a group must have
 * the same limit. */
static int add_limited(pd_model *model, const pd_declaration *params, size_t param, double limit, pd_error *err)
{
    const pd_declaration *of = &params[param];
    size_t k = 0;

    while (k < model->n_limits && (model->limits[k].ops != of->hypers.row || model->limits[k].number != of->group)) k++;
    if (k == model->n_limits) model->limits[model->n_limits++] = (limited){ of->hypers.row, of->group, limit, param };
    if (model->limits[k].limit != limit)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %.160s: gradients of its group are clipped at the norm %g, but by %.160s at %g: "
                       "expected one limit",
                       of->name, limit, params[model->limits[k].first].name, model->limits[k].limit);
    model->limit_of[param] = k;
    return make_scaled(model, param) == PD_OK
               ? PD_OK
               : pd_fail(err, PD_NO_MEMORY, "parameter %.160s: no memory for its clipped gradient", of->name);
}

static int make_limits(pd_model *model, const pd_declaration *params, pd_error *err)
{
    int rc = PD_OK;

    model->limits = calloc(model->n + 1, sizeof *model->limits);
    model->limit_of = calloc(model->n + 1, sizeof *model->limit_of);
    model->scaled = calloc(model->n + 1, sizeof *model->scaled);
    model->gradient = calloc(model->n + 1, sizeof *model->gradient);
    if (model->limits == NULL || model->limit_of == NULL || model->scaled == NULL || model->gradient == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; rc == PD_OK && i < model->n; i++) {
        const pd_hypers *hypers = &params[i].hypers;
        double limit = hypers->row->clip_norm != NULL ? hypers->row->clip_norm(hypers->value) : 0;
        model->limit_of[i] = ALONE;
        if (limit > 0) rc = add_limited(model, params, i, limit, err);
    }
    return rc;
}

int pd_model_clip(pd_model *model, double limit, pd_error *err)
{
    if (limit != 0 && !(limit >= PD_CLIP_LEAST && limit <= PD_CLIP_MOST))
        return pd_fail(err, PD_OUT_OF_RANGE, "limit of the norm: expected 0 (none), or a number from %g to %g, got %g",
                       PD_CLIP_LEAST, PD_CLIP_MOST, limit);
    for (size_t i = 0; limit > 0 && i < model->n; i++)
        if (!model->optims[i]->ops->takes_values && make_scaled(model, i) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "no memory for clipped gradients");
    model->limit = limit;
    model->norm = 0;
    return PD_OK;
}

double pd_model_norm(const pd_model *model)
{
    return model->norm;
}

/* Returns true if a parameter has a gradient, not values (takes_values), that is clipped in a given scope. A scope is a
 * set of gradients that are clipped together: ALONE stands for all gradients, an index of `limits` for the gradients of
 * that group. */
static bool is_clipped(const pd_model *model, size_t scope, size_t param)
{
    return model->gradient[param] != NULL && !model->optims[param]->ops->takes_values &&
           (scope == ALONE || model->limit_of[param] == scope);
}

/* Sums or scales the gradient of a parameter, to clip it. Without `scale`, adds the squares of its elements to
 * `squares`. With `scale`, writes the gradient times *scale to model->scaled; `squares` is not used. */
static void pass_over(pd_model *model, size_t param, pd_exact_sum *squares, const float *scale)
{
    enum { AT_ONCE = 64 };
    int64_t elements = pd_optim_elements(model->optims[param]);
    pd_clip_piece pieces[AT_ONCE];

    for (int64_t first = 0; first < elements;) {
        size_t n = 0;
        for (; n < AT_ONCE && first < elements; first += pieces[n++].n) {
            pieces[n] = (pd_clip_piece){ .from = model->gradient[param] + first,
                                         .to = model->scaled[param] + first,
                                         .n = elements - first };
            if (pieces[n].n > PD_CLIP_RANGE) pieces[n].n = PD_CLIP_RANGE;
        }
        if (scale != NULL)
            pd_clip_apply(pieces, n, *scale, pd_batch_threads(model->batch));
        else
            pd_clip_sum(pieces, n, squares, pd_batch_threads(model->batch));
    }
}

/* Clips the gradients of a scope by their common norm, if it exceeds `limit`: model->gradient then points to scaled
 * copies. The scope is an index of `limits` (one group of parameters), or ALONE (all parameters). Returns the norm
 * before clipping. */
static double clip_together(pd_model *model, size_t scope, double limit)
{
    pd_exact_sum sum = { 0 };
    double squares;
    float scale;

    for (size_t i = 0; i < model->n; i++)
        if (is_clipped(model, scope, i)) pass_over(model, i, &sum, NULL);
    squares = pd_exact_sum_round(&sum);
    scale = pd_clip_scale(limit, squares);
    for (size_t i = 0; scale != 1 && i < model->n; i++) {
        if (!is_clipped(model, scope, i)) continue;
        pass_over(model, i, NULL, &scale);
        model->gradient[i] = model->scaled[i];
    }
    return sqrt(squares);
}

/* Sets model->gradient to the gradients of this call, clipped: first all together by the model's limit, then those of
 * each group of parameters whose optimizer has a limit of its own. Sets model->norm to the norm of all gradients, or
 * without the model's limit to that of the first group. */
static void clip(pd_model *model, const pd_step_io *io)
{
    for (size_t i = 0; i < model->n; i++) model->gradient[i] = io[i].gradient;
    if (model->limit > 0) model->norm = clip_together(model, ALONE, model->limit);
    for (size_t k = 0; k < model->n_limits; k++) {
        double norm = clip_together(model, k, model->limits[k].limit);
        if (k == 0 && !(model->limit > 0)) model->norm = norm;
    }
}

int pd_model_new(pd_model **out, const pd_declaration *params, size_t count, int threads, pd_error *err)
{
    pd_model *model;
    int rc = pd_cpu_check(err);

    if (rc != PD_OK) return rc;
    if ((model = calloc(1, sizeof *model)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    model->n = count;
    model->optims = calloc(count + 1, sizeof *model->optims);
    model->steps = calloc(count + 1, sizeof *model->steps);
    if (model->optims == NULL || model->steps == NULL || make_groups(model, params) != PD_OK) goto no_memory;
    if ((rc = make_optims(model, params, err)) != PD_OK || (rc = make_limits(model, params, err)) != PD_OK) goto fail;
    if ((model->batch = pd_batch_new(model->optims, count, threads)) == NULL) goto no_memory;
    *out = model;
    return PD_OK;

no_memory:
    rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
fail:
    pd_model_free(model);
    return rc;
}

void pd_model_free(pd_model *model)
{
    if (model == NULL) return;
    pd_batch_free(model->batch);
    for (size_t i = 0; model->optims != NULL && i < model->n; i++) pd_optim_free(model->optims[i]);
    for (size_t i = 0; model->scaled != NULL && i < model->n; i++) free(model->scaled[i]);
    free(model->optims);
    free(model->scaled);
    free(model->gradient);
    free(model->limits);
    free(model->limit_of);
    free(model->order);
    free(model->group_of);
    free(model->groups);
    free(model->steps);
    free(model);
}

static int check_draws(const pd_optim *optim, const pd_draws *draws, pd_error *err)
{
    int64_t wanted = optim->ops->normals != NULL ? optim->ops->normals(&optim->shared->plan) : 0;

    if (draws == NULL || draws->normal == NULL || draws->n_normal == wanted) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: expected %lld normal numbers for a step, got %lld",
                   optim->name, (long long)wanted, (long long)draws->n_normal);
}

/* Checks the inputs of a step: that changes of weights (io->update) are requested only where the optimizer computes
 * them, and that recorded random numbers are as many as the optimizer takes. */
static int check(const pd_model *model, const pd_step_io *io, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < model->n; i++) {
        const pd_optim *optim = model->optims[i];
        if (io[i].gradient == NULL) continue;
        if (io[i].update != NULL && optim->ops->update_dtype == NULL)
            return pd_fail(err, PD_UNIMPLEMENTED, "parameter %s: expected update = NULL, because %s gives no updates",
                           optim->name, optim->ops->name);
        rc = check_draws(optim, io[i].draws, err);
    }
    return rc;
}

static int begin(pd_model *model, size_t param, const pd_step_io *io)
{
    pd_optim *optim = model->optims[param];
    group *g = model->group_of[param] == ALONE ? NULL : &model->groups[model->group_of[param]];
    pd_step_io own = *io;

    own.gradient = model->gradient[param];
    if (g != NULL) pd_optim_set_count(optim, g->count);
    if (pd_optim_begin(optim, &own) != PD_OK) return PD_NO_MEMORY;
    if (g != NULL) g->stepping++;
    return PD_OK;
}

/* Begins the step of each parameter that has a gradient, and lists the optimizers of these parameters in model->steps.
 * PD_NO_MEMORY: no step is under way. */
static int begin_all(pd_model *model, const pd_step_io *io, size_t *n_steps)
{
    size_t n = 0;

    for (size_t g = 0; g < model->n_groups; g++) model->groups[g].stepping = 0;
    for (size_t k = 0; k < model->n; k++) {
        size_t i = model->order[k];
        if (io[i].gradient == NULL) continue;
        if (begin(model, i, &io[i]) != PD_OK) {
            while (n > 0) pd_optim_cancel(model->steps[--n]);
            return PD_NO_MEMORY;
        }
        model->steps[n++] = model->optims[i];
    }
    *n_steps = n;
    return PD_OK;
}

/* Makes the steps of each group of parameters that count their steps together an atomic group (pd_optim_bind). Advances
 * the groups' counters of steps. model->steps has n steps: the steps of parameters in groups come last, in the order of
 * the groups. */
static void bind_groups(pd_model *model, size_t n)
{
    for (size_t g = model->n_groups; g-- > 0;) {
        group *at = &model->groups[g];
        at->count += at->stepping > 0 || at->counts_empty;
        if (at->stepping == 0) continue;
        n -= at->stepping;
        pd_optim_bind(model->steps + n, at->stepping, &at->together);
    }
}

/* Returns the error of the first parameter whose step was refused by its optimizer; PD_OK: no step was refused. */
static int find_refusal(const pd_model *model, const pd_step_io *io, pd_error *err)
{
    for (size_t i = 0; i < model->n; i++) {
        const pd_error *why = io[i].gradient == NULL ? NULL : pd_optim_refused(model->optims[i]);
        if (why != NULL) return pd_fail(err, why->code, "%s", why->text);
    }
    return PD_OK;
}

/* Takes tasks that are ready to run from the n steps that made them, at most `room` tasks. Returns their number. */
static size_t take_tasks(pd_optim *const *steps, size_t n, pd_task **task, pd_optim **owner, size_t room)
{
    size_t taken = 0;

    for (size_t i = 0; i < n && taken < room; i++)
        while (taken < room && (task[taken] = pd_optim_capture(steps[i])) != NULL) owner[taken++] = steps[i];
    return taken;
}

enum { AT_ONCE = 64 };

/* Sorts tasks by cost, the most expensive first, so that no thread begins a large task when the others are done. The
 * order changes no result. */
static void order_tasks(pd_task **task, pd_optim **owner, size_t n)
{
    pd_load load[AT_ONCE];
    pd_task *tasks[AT_ONCE];
    pd_optim *owners[AT_ONCE];

    for (size_t i = 0; i < n; i++) {
        load[i] = (pd_load){ pd_task_cost(task[i]), i };
        tasks[i] = task[i], owners[i] = owner[i];
    }
    pd_load_sort(load, n);
    for (size_t i = 0; i < n; i++) task[i] = tasks[load[i].place], owner[i] = owners[load[i].place];
}

/* Runs the tasks that the n steps have captured. Returns whether there were any tasks. */
static bool run_tasks(const pd_model *model, size_t n)
{
    pd_task *task[AT_ONCE];
    pd_optim *owner[AT_ONCE];
    size_t taken, all = 0;

    while ((taken = take_tasks(model->steps, n, task, owner, AT_ONCE)) > 0) {
        order_tasks(task, owner, taken);
        pd_batch_run_tasks(model->batch, task, taken);
        for (size_t i = 0; i < taken; i++) pd_optim_deliver(owner[i], task[i]);
        all += taken;
    }
    return all > 0;
}

int pd_model_step(pd_model *model, const pd_step_io *io, pd_error *err)
{
    size_t n;
    int rc = check(model, io, err);

    if (rc != PD_OK) return rc;
    clip(model, io);
    if (begin_all(model, io, &n) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "no memory for a step's temporary tensors");
    bind_groups(model, n);
    do pd_batch_run_steps(model->batch, model->steps, n);
    while (run_tasks(model, n));
    for (size_t i = 0; i < n; i++) assert(pd_optim_done(model->steps[i]));
    return find_refusal(model, io, err);
}

int pd_model_read_part(const pd_model *model, size_t param, const char *slot, int number, int block, double *out,
                       int64_t n, pd_error *err)
{
    const pd_optim *optim = model->optims[param];
    char name[128];
    int64_t elements = 0;
    pd_part part;

    pd_slot_name(&(pd_slot_spec){ .name = slot, .number = number, .of_block = block >= 0, .block = block }, name,
                 sizeof name);
    if (!pd_plan_part(pd_optim_plan(optim), slot, number, block, &part))
        return pd_fail(err, PD_NOT_FOUND, "the optimizer has no slot %s", name);
    (void)pd_shape_elements(&part.shape, &elements);
    if (elements != n)
        return pd_fail(err, PD_OUT_OF_RANGE, "slot %s has %lld elements, got memory for %lld", name,
                       (long long)elements, (long long)n);
    pd_optim_read_part(optim, &part, out);
    return PD_OK;
}

void pd_model_read_out(const pd_model *model, size_t param, const float *weights, float *out)
{
    const pd_optim *optim = model->optims[param];

    if (pd_optim_has_readout(optim))
        pd_optim_read_out(optim, weights, out, 0, pd_optim_elements(optim));
    else
        memcpy(out, weights, (size_t)pd_optim_elements(optim) * sizeof *out);
}

pd_optim *pd_model_optim(const pd_model *model, size_t param)
{
    return model->optims[param];
}

int64_t pd_model_count(const pd_model *model, size_t param)
{
    size_t g = model->group_of[param];

    return g == ALONE ? pd_optim_count(model->optims[param]) : model->groups[g].count;
}

int64_t pd_model_state_bytes(const pd_model *model)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < model->n; i++) bytes += pd_optim_state_bytes(model->optims[i]);
    return bytes;
}
