/* paramctl_replay.c - the program of `paramctl replay`: plays recorded runs of reference optimizers again, and
 * reports how far paramd's weights are from the recorded weights. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "connection.h"
#include "format.h"
#include "programs.h"
#include "replay.h"
#include "result.h"

typedef struct tally {
    int ok, failed, skipped;
} tally;

typedef struct report {
    bool verbose;
    pd_replay_options options;
    tally all;
    int folders;
    json_t *traces, *summaries; /* results of all files as JSON; NULL: they are printed as text */
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
    printf("%-16s %-30s %4d %s  ", r->system, r->name, (int)(r->cases ? (int64_t)r->n : r->steps),
           r->cases ? "cases" : "steps");
    if (r->verdict.compared > 0) printf("error %8.2e  tolerance %8.2e  ", r->verdict.error, r->tolerance);
    if (r->update.compared > 0) printf("update %8.2e  tolerance %8.2e  ", r->update.error, r->update_tolerance);
    if (r->state.compared > 0) printf("state %8.2e  tolerance %8.2e  ", r->state.error, r->state.tolerance);
    printf("%s", outcome_words[r->outcome]);
    if (r->why.text[0] != '\0')
        printf(": %s", r->why.text);
    else if (r->outcome == PD_REPLAY_FAILED && r->verdict.compared == 0)
        printf(": the trace records no weights to compare with");
    else if (r->outcome == PD_REPLAY_FAILED && r->cases)
        printf(": %s", r->params[r->verdict.param]);
    else if (r->outcome == PD_REPLAY_FAILED && !pd_verdict_holds(&r->verdict, r->tolerance))
        print_where(r, &r->verdict);
    else if (r->outcome == PD_REPLAY_FAILED && pd_replay_updates_fail(r))
        print_where(r, &r->update);
    else if (r->outcome == PD_REPLAY_FAILED)
        printf(": %s", r->state.worst);
    printf("\n");
    if (verbose && r->outcome != PD_REPLAY_SKIPPED) print_params(r);
    fflush(stdout);
}

/* Returns a number as JSON. A number that is not finite becomes null, because JSON has no infinity. */
static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *params_json(const pd_replay_result *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:I}", "name", r->params[i], "error",
                                        number_or_null(r->verdicts[i].error), "step", (json_int_t)r->verdicts[i].step));
    return list;
}

static json_t *result_json(const pd_replay_result *r, bool verbose)
{
    bool compared = r->verdict.compared > 0;
    json_t *object = json_pack("{s:s, s:s, s:I, s:o, s:o, s:s}", "system", r->system, "case", r->name, "steps",
                               (json_int_t)r->steps, "error", compared ? number_or_null(r->verdict.error) : json_null(),
                               "tolerance", number_or_null(r->tolerance), "outcome", outcome_words[r->outcome]);

    if (r->update.compared > 0)
        json_object_set_new(object, "update",
                            json_pack("{s:o, s:o}", "error", number_or_null(r->update.error), "tolerance",
                                      number_or_null(r->update_tolerance)));
    if (r->state.compared > 0)
        json_object_set_new(object, "state",
                            json_pack("{s:o, s:o, s:s}", "error", number_or_null(r->state.error), "tolerance",
                                      number_or_null(r->state.tolerance), "worst", r->state.worst));
    if (r->cases) json_object_set_new(object, "cases", json_integer((json_int_t)r->n));
    if (r->why.text[0] != '\0') json_object_set_new(object, "why", json_string(r->why.text));
    if (verbose) json_object_set_new(object, "params", params_json(r));
    return object;
}

static void replay_one(report *rep, const char *path, tally *folder)
{
    pd_replay_result result;

    pd_replay_file(&result, path, &rep->options);
    if (rep->traces != NULL)
        json_array_append_new(rep->traces, result_json(&result, rep->verbose));
    else
        print_line(&result, rep->verbose);
    folder->ok += result.outcome == PD_REPLAY_OK;
    folder->failed += result.outcome == PD_REPLAY_FAILED;
    folder->skipped += result.outcome == PD_REPLAY_SKIPPED;
    pd_replay_result_free(&result);
}

static void summarise(report *rep, const char *name, const tally *t)
{
    if (rep->summaries != NULL) {
        json_array_append_new(rep->summaries, json_pack("{s:s, s:i, s:i, s:i}", "name", name, "ok", t->ok, "failed",
                                                        t->failed, "skipped", t->skipped));
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

    return entry->d_name[0] != '.' &&
           (entry->d_type == DT_DIR || (suffix != NULL && strcmp(suffix, ".safetensors") == 0));
}

static void add(tally *to, const tally *t)
{
    to->ok += t->ok;
    to->failed += t->failed;
    to->skipped += t->skipped;
}

/* Plays the traces in a folder in the order of their names, then the traces in the folders inside it. Links to folders
 * are not followed, so the recursion always ends. */
static void replay_folder(report *rep, const char *path)
{
    struct dirent **entries = NULL;
    tally own = { 0 };
    int n = scandir(path, &entries, is_worth_a_look, alphasort);
    const char *base = strrchr(path, '/');

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            char *inner = NULL;
            if ((entries[i]->d_type == DT_DIR) != (pass == 1) ||
                asprintf(&inner, "%s/%s", path, entries[i]->d_name) < 0)
                continue;
            if (pass == 0)
                replay_one(rep, inner, &own);
            else
                replay_folder(rep, inner);
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

/* Plays the traces that the command line names, and those in the folders that it names. */
static int play_all(const pd_line *line, report *rep)
{
    for (int i = 0; i < line->n_args; i++) {
        strip_slashes(line->args[i]);
        if (is_folder(line->args[i]))
            replay_folder(rep, line->args[i]);
        else
            replay_one(rep, line->args[i], &rep->all);
    }
    if (rep->folders > 1) summarise(rep, "all", &rep->all);
    if (rep->all.ok + rep->all.failed + rep->all.skipped == 0) {
        fprintf(stderr, "paramctl: no traces (*.safetensors) found\n");
        rep->all.failed++;
    }
    if (line->json) pd_result_json(json_pack("{s:o, s:o}", "traces", rep->traces, "summaries", rep->summaries));
    return rep->all.failed > 0 ? PD_CTL_FAILED : PD_CTL_OK;
}

int main(int argc, char **argv)
{
    report rep = { 0 };
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_REPLAY], argc, argv);
    pd_error err = { 0 };

    pd_line_parse(&line);
    rep.verbose = pd_line_has(&line, "verbose");
    rep.options.local = pd_line_has(&line, "local");
    rep.options.state = pd_line_has(&line, "state");
    rep.options.server = line.server;
    rep.options.timeout = line.timeout;
    if (rep.options.state && !rep.options.local)
        pd_line_refuse(&line, "--state compares the state of this process: add --local");
    if (line.json && ((rep.traces = json_array()) == NULL || (rep.summaries = json_array()) == NULL))
        return PD_CTL_FAILED;
    if (!rep.options.local && pd_operator_probe(line.server, line.timeout, &err) != PD_OK)
        return pd_result_fail(line.json, &err);
    return play_all(&line, &rep);
}
