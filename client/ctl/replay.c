/* replay.c - one file played and judged, and the command's report. */
#include "replay.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctl.h"
#include "format.h"
#include "replay_draws.h"
#include "replay_updates.h"

/* ---- what both ways of playing judge by ---- */

/* An error by which an optimizer refuses, and not one of memory or of the way to a server. */
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
    return pd_fail(err, PD_FAILED_PRECONDITION, "step %d was recorded to fail with \"%.128s\", and failed with \"%.192s\"", (int)step, recorded, ours->text);
}

static bool fails_in_every_step(const pd_trace *trace)
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

/* Of every parameter, after every step. */
static bool leaves_nan_alone(const pd_trace *trace)
{
    double *at = calloc((size_t)pd_trace_elements(trace) + 1, sizeof *at);
    bool so = at != NULL && pd_trace_steps(trace) > 0 && !pd_trace_averages(trace);
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    for (int64_t step = 1; so && step <= pd_trace_steps(trace); step++) {
        for (size_t i = 0; so && i < n; i++) so = pd_trace_weights(trace, step, i, at) && all_nan(at, params[i].elements);
    }
    free(at);
    return so;
}

bool pd_replay_is_refusal(const pd_trace *trace, int rc)
{
    return refuses(rc) && (fails_in_every_step(trace) || leaves_nan_alone(trace));
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

/* ---- one file ---- */

static int keep_names(pd_replay_result *out, const pd_trace *trace)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    out->n = n + pd_replay_net_wanted(trace);
    out->params = calloc(out->n, sizeof *out->params);
    out->verdicts = calloc(out->n, sizeof *out->verdicts);
    if (out->params == NULL || out->verdicts == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < out->n; i++) {
        if ((out->params[i] = strdup(i < n ? params[i].name : "loss")) == NULL) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static int play_routine(pd_replay_result *out, pd_trace *trace, const pd_replay_options *options)
{
    out->cases = true;
    if (!options->local) return pd_fail(&out->why, PD_UNIMPLEMENTED, "cases of a routine are computed in this process: use --local");
    return pd_replay_routine(out, trace);
}

static int play_local(pd_replay_result *out, const pd_trace *trace, const pd_recipe *recipe, bool with_state)
{
    pd_replay_state *state = NULL;
    int rc;

    if (pd_trace_averages(trace)) return pd_replay_average(trace, recipe, out->verdicts, &out->why);
    rc = with_state && !pd_replay_is_sharded(trace) ? pd_replay_state_new(&state, trace, recipe, &out->why) : PD_OK;

    if (rc == PD_OK) rc = pd_replay_updates_tolerance(trace, &out->update_tolerance, &out->why);
    if (rc == PD_OK) rc = pd_replay_local(trace, recipe, out->verdicts, &out->update, state, &out->why);
    if (rc == PD_OK && state != NULL) out->state = pd_replay_state_verdict(state);
    pd_replay_state_free(state);
    return rc;
}

static int skip(pd_replay_result *out, const char *why)
{
    out->excused = true;
    return pd_fail(&out->why, PD_UNIMPLEMENTED, "%.200s", why);
}

static int skip_defect(pd_replay_result *out, const char *quirk)
{
    out->excused = true;
    return pd_fail(&out->why, PD_UNIMPLEMENTED, "records a defect: %.200s", quirk);
}

static int play_run(pd_replay_result *out, pd_trace *trace, const pd_recipe *recipe, const pd_replay_options *options)
{
    if (options->local) return play_local(out, trace, recipe, options->state);
    if (pd_replay_draws_wanted(trace)) return skip(out, "its random probes were recorded, and a daemon draws its own: use --local");
    return pd_replay_server(trace, recipe, options->server, options->timeout, out->verdicts, &out->why);
}

/* What upstream's release does wrong, and we do not: only where it makes every step fail may we agree, by a refusal. */
static int play_defect(pd_replay_result *out, pd_trace *trace, const pd_recipe *recipe, const pd_replay_options *options)
{
    const char *quirk = pd_trace_meta(trace, "quirk");
    int rc = fails_in_every_step(trace) ? play_run(out, trace, recipe, options) : PD_FAILED_PRECONDITION;

    return rc == PD_FAILED_PRECONDITION ? skip_defect(out, quirk) : rc;
}

static int play_recipe(pd_replay_result *out, pd_trace *trace, pd_recipe *recipe, const pd_replay_options *options)
{
    const json_t *config = NULL;
    double rate;
    int rc = PD_OK;

    if (pd_recipe_knows(pd_trace_system(trace))) rc = pd_trace_config(trace, &config, &out->why);
    if (rc == PD_OK) rc = pd_recipe_read(recipe, pd_trace_system(trace), config, &out->why);
    if (rc == PD_OK) rc = pd_trace_check(trace, &out->why);
    if (rc == PD_OK && pd_trace_rate(trace, 1, &rate)) rc = pd_recipe_declare_rate(recipe, rate, &out->why);
    if (rc == PD_OK && keep_names(out, trace) != PD_OK) rc = pd_fail(&out->why, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) return rc;
    if (recipe->defect != NULL) return skip_defect(out, recipe->defect);
    return pd_trace_meta(trace, "quirk") != NULL ? play_defect(out, trace, recipe, options) : play_run(out, trace, recipe, options);
}

static int play(pd_replay_result *out, pd_trace *trace, const pd_replay_options *options)
{
    pd_recipe recipe = { 0 };
    int rc;

    if (pd_replay_is_routine(trace)) return play_routine(out, trace, options);
    out->excused = strcmp(pd_trace_system(trace), "data") == 0;
    rc = play_recipe(out, trace, &recipe, options);
    pd_recipe_free(&recipe);
    return rc;
}

/* The file's name without folder and suffix: what to call a trace that cannot be read. */
static void name_after_file(pd_replay_result *out, const char *path)
{
    const char *base = strrchr(path, '/');

    base = base != NULL ? base + 1 : path;
    snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(base, "."), base);
    snprintf(out->system, sizeof out->system, "?");
}

static bool updates_fail(const pd_replay_result *r)
{
    return r->update.compared > 0 && !pd_verdict_holds(&r->update, r->update_tolerance);
}

static bool state_fails(const pd_replay_result *r)
{
    return r->state.compared > 0 && !(r->state.error <= r->state.tolerance);
}

void pd_replay_file(pd_replay_result *out, const char *path, const pd_replay_options *options)
{
    pd_trace *trace = NULL;
    int rc;

    *out = (pd_replay_result){ .outcome = PD_REPLAY_FAILED };
    name_after_file(out, path);
    if ((rc = pd_trace_open(&trace, path, &out->why)) == PD_OK) {
        snprintf(out->system, sizeof out->system, "%s", pd_trace_system(trace));
        snprintf(out->name, sizeof out->name, "%s", pd_trace_case(trace));
        out->steps = pd_trace_steps(trace);
        out->tolerance = pd_trace_tolerance(trace);
        rc = play(out, trace, options);
        pd_trace_close(trace);
    }
    if (rc == PD_UNIMPLEMENTED) out->outcome = PD_REPLAY_SKIPPED;
    if (rc != PD_OK) return;
    out->why = (pd_error){ 0 };
    for (size_t i = 0; i < out->n; i++) pd_verdict_fold(&out->verdict, &out->verdicts[i]);
    if (pd_verdict_holds(&out->verdict, out->tolerance) && !updates_fail(out) && !state_fails(out)) out->outcome = PD_REPLAY_OK;
}

void pd_replay_result_free(pd_replay_result *result)
{
    for (size_t i = 0; result->params != NULL && i < result->n; i++) free(result->params[i]);
    free(result->params);
    free(result->verdicts);
}

/* ---- the report ---- */

typedef struct tally { int ok, failed, skipped; } tally;

typedef struct report {
    const pd_ctl     *ctl;
    pd_replay_options options;
    tally             all;
    int               folders;
    json_t           *traces, *summaries;       /* NULL: text */
} report;

static const char *const outcome_words[] = { "ok", "FAIL", "skip" };

static void print_params(const pd_replay_result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->verdicts[i].compared == 0) continue;
        printf("    %-44s error %8.2e", r->params[i], r->verdicts[i].error);
        if (!r->cases) printf("  after step %d", (int)r->verdicts[i].step);
        printf("\n");
    }
}

static void print_where(const pd_replay_result *r, const pd_verdict *verdict)
{
    printf(": %s after step %d", r->params[verdict->param], (int)verdict->step);
}

static void print_line(const pd_replay_result *r, bool verbose)
{
    printf("%-16s %-30s %4d %s  ", r->system, r->name, (int)(r->cases ? (int64_t)r->n : r->steps), r->cases ? "cases" : "steps");
    if (r->verdict.compared > 0) printf("error %8.2e  tolerance %8.2e  ", r->verdict.error, r->tolerance);
    if (r->update.compared > 0) printf("update %8.2e  tolerance %8.2e  ", r->update.error, r->update_tolerance);
    if (r->state.compared > 0) printf("state %8.2e  tolerance %8.2e  ", r->state.error, r->state.tolerance);
    printf("%s", outcome_words[r->outcome]);
    if (r->why.text[0] != '\0') printf(": %s", r->why.text);
    else if (r->outcome == PD_REPLAY_FAILED && r->verdict.compared == 0) printf(": the trace records no weights to compare with");
    else if (r->outcome == PD_REPLAY_FAILED && r->cases) printf(": %s", r->params[r->verdict.param]);
    else if (r->outcome == PD_REPLAY_FAILED && !pd_verdict_holds(&r->verdict, r->tolerance)) print_where(r, &r->verdict);
    else if (r->outcome == PD_REPLAY_FAILED && updates_fail(r)) print_where(r, &r->update);
    else if (r->outcome == PD_REPLAY_FAILED) printf(": %s", r->state.worst);
    printf("\n");
    if (verbose && r->outcome != PD_REPLAY_SKIPPED) print_params(r);
    fflush(stdout);
}

/* JSON has no infinity: such an error is null. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *params_json(const pd_replay_result *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n; i++) {
        json_array_append_new(list, json_pack("{s:s, s:o, s:I}", "name", r->params[i], "error", number_or_null(r->verdicts[i].error),
                                              "step", (json_int_t)r->verdicts[i].step));
    }
    return list;
}

static json_t *state_json(const pd_replay_result *r)
{
    return json_pack("{s:o, s:o, s:s}", "error", number_or_null(r->state.error), "tolerance", number_or_null(r->state.tolerance),
                     "worst", r->state.worst);
}

static json_t *result_json(const pd_replay_result *r, bool verbose)
{
    bool compared = r->verdict.compared > 0;
    json_t *object = json_pack("{s:s, s:s, s:I, s:o, s:o, s:s}", "system", r->system, "case", r->name, "steps", (json_int_t)r->steps,
                               "error", compared ? number_or_null(r->verdict.error) : json_null(),
                               "tolerance", number_or_null(r->tolerance), "outcome", outcome_words[r->outcome]);

    if (r->update.compared > 0)
        json_object_set_new(object, "update", json_pack("{s:o, s:o}", "error", number_or_null(r->update.error), "tolerance", number_or_null(r->update_tolerance)));
    if (r->state.compared > 0) json_object_set_new(object, "state", state_json(r));
    if (r->cases) json_object_set_new(object, "cases", json_integer((json_int_t)r->n));
    if (r->why.text[0] != '\0') json_object_set_new(object, "why", json_string(r->why.text));
    if (verbose) json_object_set_new(object, "params", params_json(r));
    return object;
}

static void replay_one(report *rep, const char *path, tally *folder)
{
    pd_replay_result result;

    pd_replay_file(&result, path, &rep->options);
    if (rep->traces != NULL) json_array_append_new(rep->traces, result_json(&result, rep->ctl->verbose));
    else print_line(&result, rep->ctl->verbose);
    folder->ok += result.outcome == PD_REPLAY_OK;
    folder->failed += result.outcome == PD_REPLAY_FAILED;
    folder->skipped += result.outcome == PD_REPLAY_SKIPPED;
    pd_replay_result_free(&result);
}

static void summarise(report *rep, const char *name, const tally *t)
{
    if (rep->summaries != NULL) {
        json_array_append_new(rep->summaries, json_pack("{s:s, s:i, s:i, s:i}", "name", name, "ok", t->ok, "failed", t->failed, "skipped", t->skipped));
    } else {
        printf("%s: %d ok, %d failed, %d skipped\n", name, t->ok, t->failed, t->skipped);
    }
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int is_worth_a_look(const struct dirent *entry)
{
    const char *suffix = strrchr(entry->d_name, '.');

    return entry->d_name[0] != '.' && (entry->d_type == DT_DIR || (suffix != NULL && strcmp(suffix, ".safetensors") == 0));
}

static void add(tally *to, const tally *t)
{
    to->ok += t->ok;
    to->failed += t->failed;
    to->skipped += t->skipped;
}

/* The traces of a folder in the order of their names, then its folders. Links to folders are not followed, so this ends. */
static void replay_folder(report *rep, const char *path)
{
    struct dirent **entries = NULL;
    tally own = { 0 };
    int n = scandir(path, &entries, is_worth_a_look, alphasort);
    const char *base = strrchr(path, '/');

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            char *inner = NULL;
            if ((entries[i]->d_type == DT_DIR) != (pass == 1) || asprintf(&inner, "%s/%s", path, entries[i]->d_name) < 0) continue;
            if (pass == 0) replay_one(rep, inner, &own);
            else replay_folder(rep, inner);
            free(inner);
        }
        if (pass == 0 && own.ok + own.failed + own.skipped > 0) {
            summarise(rep, base != NULL && base[1] != '\0' ? base + 1 : path, &own);
            rep->folders++;
        }
    }
    for (int i = 0; i < n; i++) free(entries[i]);
    free(entries);
    add(&rep->all, &own);
}

static void strip_slashes(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
}

int pd_ctl_replay(const pd_ctl *ctl)
{
    report rep = { .ctl = ctl, .options = { ctl->local, ctl->state, ctl->server, ctl->timeout } };
    pd_error err = { 0 };

    if (ctl->state && !ctl->local) {
        fprintf(stderr, "paramctl replay: --state compares what only this process has: add --local\n");
        return PD_EXIT_USAGE;
    }
    if (ctl->json && ((rep.traces = json_array()) == NULL || (rep.summaries = json_array()) == NULL)) return PD_EXIT_REFUSED;
    if (!ctl->local && pd_operator_probe(ctl->server, ctl->timeout, &err) != PD_OK) return pd_ctl_fail(ctl, &err);
    for (int i = 0; i < ctl->n_args; i++) {
        strip_slashes(ctl->args[i]);
        if (is_folder(ctl->args[i])) replay_folder(&rep, ctl->args[i]);
        else replay_one(&rep, ctl->args[i], &rep.all);
    }
    if (rep.folders > 1) summarise(&rep, "all", &rep.all);
    if (rep.all.ok + rep.all.failed + rep.all.skipped == 0) {
        fprintf(stderr, "paramctl: no traces (*.safetensors) found\n");
        rep.all.failed++;
    }
    if (ctl->json) pd_ctl_print_json(json_pack("{s:o, s:o}", "traces", rep.traces, "summaries", rep.summaries));
    return rep.all.failed > 0 ? PD_EXIT_REFUSED : PD_EXIT_OK;
}
