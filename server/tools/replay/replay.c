/* replay.c - opens one recorded file, plays it and compares the results with the recorded ones. */
#include "replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay_case.h"
#include "replay_net.h"
#include "replay_run.h"
#include "replay_state.h"

static int keep_names(pd_replay_result *out, const pd_trace *trace)
{
    const pd_trace_param *params = trace->params;
    size_t n = trace->n;

    out->n = n + pd_replay_net_wanted(trace);
    out->params = calloc(out->n, sizeof *out->params);
    out->verdicts = calloc(out->n, sizeof *out->verdicts);
    if (out->params == NULL || out->verdicts == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < out->n; i++)
        if ((out->params[i] = strdup(i < n ? params[i].name : "loss")) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

static int play_routine(pd_replay_result *out, pd_trace *trace, const pd_replay_options *options)
{
    out->cases = true;
    if (!options->local)
        return pd_fail(&out->why, PD_UNIMPLEMENTED, "cases of a routine are computed in this process: use --local");
    return pd_replay_routine(out, trace);
}

static int play_local(pd_replay_result *out, const pd_trace *trace, const pd_recipe *recipe, bool with_state)
{
    pd_replay_state *state = NULL;
    int rc;

    if (trace->averages) return pd_replay_average(trace, recipe, out->verdicts, &out->why);
    rc = with_state && !pd_replay_is_sharded(trace) ? pd_replay_state_new(&state, trace, recipe, &out->why) : PD_OK;

    if (rc == PD_OK) rc = pd_replay_updates_tolerance(trace, &out->update_tolerance, &out->why);
    if (rc == PD_OK) rc = pd_replay_local(trace, recipe, out->verdicts, &out->update, state, &out->why);
    if (rc == PD_OK && state != NULL) out->state = pd_replay_state_verdict(state);
    pd_replay_state_free(state);
    return rc;
}

static int skip_defect(pd_replay_result *out, const char *quirk)
{
    out->excused = true;
    return pd_fail(&out->why, PD_UNIMPLEMENTED, "records a defect: %.200s", quirk);
}

static int play_run(pd_replay_result *out, pd_trace *trace, const pd_recipe *recipe, const pd_replay_options *options)
{
    const char *own = NULL;

    if (options->local) return play_local(out, trace, recipe, options->state && !recipe->weights_only);
    if (pd_replay_has_draws(trace)) own = "its random probes were recorded, and a daemon draws its own: use --local";
    if (pd_replay_has_bases(trace))
        own = "the first basis of a factor without full rank was recorded, and a daemon computes its own: use --local";
    if (own == NULL)
        return pd_replay_server(trace, recipe, options->server, options->timeout, out->verdicts, &out->why);
    out->excused = true;
    return pd_fail(&out->why, PD_UNIMPLEMENTED, "%s", own);
}

/* Plays a recorded run that shows a defect of the reference optimizer, if the defect made every recorded step fail. If
 * paramd's steps fail as well, the run counts as any other; if they succeed, it is skipped. A run of which a step
 * succeeded is skipped without being played. */
static int play_defect(pd_replay_result *out, pd_trace *trace, const pd_recipe *recipe,
                       const pd_replay_options *options)
{
    const char *quirk = pd_trace_meta(trace, "quirk");
    int rc = pd_replay_always_fails(trace) ? play_run(out, trace, recipe, options) : PD_FAILED_PRECONDITION;

    return rc == PD_FAILED_PRECONDITION ? skip_defect(out, quirk) : rc;
}

/* Sets *mean to the mean of the fourth powers of a parameter's first gradient; 0: it has none. */
static int mean_fourth_power(const pd_trace *trace, const pd_trace_param *param, double *mean, pd_error *err)
{
    char name[400];
    pd_shape shape;
    double *gradient;

    *mean = 0;
    snprintf(name, sizeof name, "grad/0001/%s", param->name);
    if (!pd_trace_tensor(trace, name, &shape) || !pd_shape_equal(&shape, &param->shape)) return PD_OK;
    gradient = calloc((size_t)param->elements + 1, sizeof *gradient);
    if (gradient == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_trace_values(trace, name, gradient);
    for (int64_t i = 0; i < param->elements; i++) *mean += pow(gradient[i], 4) / (double)param->elements;
    free(gradient);
    return PD_OK;
}

/* Declares the initial scale of kron's factors where psgd_torch has taken it from the first gradients of all parameters
 * together. kron takes it from those of each, so a worker has to compute it. */
static int declare_scale(pd_recipe *recipe, const pd_trace *trace, const json_t *config, pd_error *err)
{
    double damping = json_number_value(json_object_get(config, "damping")), most = 0, mean;

    if (!json_is_null(json_object_get(config, "preconditioner_init_scale"))) return PD_OK;
    for (size_t i = 0; i < trace->n; i++) {
        int rc = mean_fourth_power(trace, &trace->params[i], &mean, err);
        if (rc != PD_OK) return rc;
        most = fmax(most, mean);
    }
    return pd_recipe_declare(recipe, "preconditioner_init_scale", pow(most + pow(damping, 4), -0.125), err);
}

/* Reads the configuration of a trace, with what its other metadata and tensors say about hyperparameters. */
static int read_recipe(pd_recipe *recipe, pd_trace *trace, pd_error *err)
{
    const json_t *config = NULL;
    json_t *updated = NULL;
    double rate;
    int rc = PD_OK;

    if (pd_recipe_knows(trace->system)) rc = pd_trace_config(trace, &config, err);
    if (rc == PD_OK) rc = pd_recipe_read(recipe, trace->system, config, err);
    if (rc == PD_OK) rc = pd_trace_check(trace, err);
    if (rc == PD_OK && pd_trace_meta(trace, "inject_steps") != NULL) rc = pd_recipe_take_bases(recipe, err);
    if (rc == PD_OK && pd_trace_rate(trace, 1, &rate)) rc = pd_recipe_declare_rate(recipe, rate, err);
    if (rc != PD_OK || strcmp(trace->system, "psgd_torch") != 0) return rc;
    if ((rc = declare_scale(recipe, trace, config, err)) != PD_OK) return rc;
    rc = pd_trace_json(trace, "updated_steps", JSON_ARRAY, &updated, err);
    if (rc == PD_OK && updated != NULL) rc = pd_recipe_declare_updates(recipe, updated, trace->steps, err);
    json_decref(updated);
    return rc;
}

static int play_recipe(pd_replay_result *out, pd_trace *trace, pd_recipe *recipe, const pd_replay_options *options)
{
    int rc = read_recipe(recipe, trace, &out->why);

    if (rc == PD_OK && keep_names(out, trace) != PD_OK) rc = pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) return rc;
    if (pd_trace_meta(trace, "first_gradient") != NULL && pd_replay_always_fails(trace))
        recipe->defect = "a NaN in the first gradient leaves the parameter without a basis, so all later steps fail";
    if (recipe->defect != NULL) return skip_defect(out, recipe->defect);
    out->excused = recipe->left_out != NULL;
    if (out->excused) return pd_fail(&out->why, PD_UNIMPLEMENTED, "%s", recipe->left_out);
    return (pd_trace_meta(trace, "quirk") != NULL ? play_defect : play_run)(out, trace, recipe, options);
}

static int play(pd_replay_result *out, pd_trace *trace, const pd_replay_options *options)
{
    pd_recipe recipe = { 0 };
    int rc;

    if (pd_replay_is_routine(trace)) return play_routine(out, trace, options);
    out->excused = strcmp(trace->system, "data") == 0;
    rc = play_recipe(out, trace, &recipe, options);
    pd_recipe_free(&recipe);
    return rc;
}

/* Names the result after the file, without folder and suffix, and its system "?". If the file can be read, the name and
 * the system in its metadata replace them. */
static void name_after_file(pd_replay_result *out, const char *path)
{
    const char *base = strrchr(path, '/');

    base = base != NULL ? base + 1 : path;
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(base, "."), base);
    snprintf(out->system, sizeof out->system, "?");
}

void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options)
{
    pd_trace *trace = NULL;
    int rc;

    *out = (pd_replay_result){ .outcome = PD_REPLAY_FAILED };
    name_after_file(out, path);
    if ((rc = pd_trace_open(&trace, path, &out->why)) == PD_OK) {
        snprintf(out->system, sizeof out->system, "%s", trace->system);
        snprintf(out->name, sizeof out->name, "%s", trace->name);
        out->steps = trace->steps;
        out->tolerance = trace->tolerance;
        rc = play(out, trace, options);
        pd_trace_close(trace);
    }
    if (rc == PD_UNIMPLEMENTED) out->outcome = PD_REPLAY_SKIPPED;
    if (rc != PD_OK) return;
    out->why = (pd_error){ 0 };
    for (size_t i = 0; i < out->n; i++) pd_verdict_fold(&out->verdict, &out->verdicts[i]);
    if (pd_verdict_holds(&out->verdict, out->tolerance) && !pd_replay_updates_fail(out) && !pd_replay_state_fails(out))
        out->outcome = PD_REPLAY_OK;
}
