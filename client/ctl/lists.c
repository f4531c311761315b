/* lists.c - runs the commands that print what a daemon has: status, jobs, workers, roots, params. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "connection.h"
#include "format.h"
#include "list_table.h"
#include "result.h"

bool pd_durable_text(char text[PD_DURABLE_TEXT], const Paramd__JobInfo *job)
{
    bool failing = job->checkpoint_error[0] != '\0';
    char age[PD_CELL], mirror[40] = "";

    if (job->mirrored_step > 0) snprintf(mirror, sizeof mirror, ", mirror %" PRIu64, job->mirrored_step);
    if (job->durability[0] == '\0' || strcmp(job->durability, "none") == 0)
        snprintf(text, PD_DURABLE_TEXT, "-");
    else if (job->durable_step == 0)
        snprintf(text, PD_DURABLE_TEXT, "none%s", failing ? " (failing)" : "");
    else
        snprintf(text, PD_DURABLE_TEXT, "%" PRIu64 " (%s%s%s)", job->durable_step,
                 pd_duration_text(age, job->checkpoint_age_ms), mirror, failing ? ", failing" : "");
    return failing;
}

static void connected_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    pd_table_cell(table, "%u/%u", job->connected, job->world_size);
}

static void steps_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    if (job->step_least == job->step_most)
        pd_table_cell(table, "%" PRIu64, job->step_least);
    else
        pd_table_cell(table, "%" PRIu64 "-%" PRIu64, job->step_least, job->step_most);
}

static void norm_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    pd_table_cell_if(table, job->gradient_norm != 0 || job->clipped_steps != 0, "%.4g", job->gradient_norm);
}

static void loss_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    pd_table_cell_if(table, job->loss_step > 0, "%.4g", job->loss);
}

static void speed_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell_if(table, job->step_most > 0, "%s", pd_speed_text(text, job->steps_per_second));
}

static void durable_cell(pd_table *table, const pd_column *column, const void *entry)
{
    char text[PD_DURABLE_TEXT];
    bool failing = pd_durable_text(text, entry);

    (void)column;
    pd_table_cell(table, "%s", text);
    if (failing) pd_table_alarm(table);
}

static void worker_state_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__WorkerInfo *worker = entry;

    pd_cell_text(table, column, entry);
    if (strcmp(worker->state, "lost") == 0) pd_table_alarm(table);
}

/* Adds a cell with the fraction of the steps in which the rank was the last one to contribute. */
static void last_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__WorkerInfo *worker = entry;

    (void)column;
    pd_table_cell_if(table, worker->timed_steps > 0, "%.0f %%",
                     100.0 * (double)worker->times_last / (double)worker->timed_steps);
}

/* Adds a cell with the mean time by which the rank was later than the rank before it, over the steps in which it was
 * last. */
static void late_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__WorkerInfo *worker = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell_if(table, worker->times_last > 0, "%s",
                     pd_seconds_text(text, worker->late_seconds / (double)worker->times_last));
}

static void step_time_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;
    char text[PD_CELL];

    pd_table_cell_if(table, job->timed_steps > 0, "%s",
                     pd_seconds_text(text, pd_column_number(column, entry) / (double)job->timed_steps));
}

static void adopted_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    pd_table_cell_if(table, job->roots_due > 0, "%" PRIu64 "/%" PRIu64, job->roots_adopted, job->roots_due);
}

static void age_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RootInfo *root = entry;

    (void)column;
    pd_table_cell_if(table, root->adopted > 0, "%" PRIu64, root->age);
}

static void failed_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RootInfo *root = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell(table, "%s%s", pd_count_text(text, root->failed), root->failing ? " (failing)" : "");
    if (root->failing) pd_table_alarm(table);
}

static const pd_column job_columns[] = { { "~JOB", "name", pd_cell_text },
                                         { "~OPTIMIZER", "optimizer", pd_cell_text_or_dash },
                                         { ">WORKERS", NULL, connected_cell },
                                         { ">STEP", NULL, steps_cell },
                                         { ">STEPS/S", NULL, speed_cell },
                                         { ">LOSS", NULL, loss_cell },
                                         { "STATE", "state", pd_cell_text },
                                         { ">MEMORY", "committed_bytes", pd_cell_bytes },
                                         { "DURABLE", NULL, durable_cell },
                                         { "+>PARAMS", "params", pd_cell_count },
                                         { "+>ELEMENTS", "elements", pd_cell_count },
                                         { "+>WEIGHTS", "weight_bytes", pd_cell_bytes },
                                         { "+>OPTIMIZER STATE", "state_bytes", pd_cell_bytes },
                                         { "+>CONTRIBUTIONS", "contributions", pd_cell_count },
                                         { "+>SKIPPED", "skipped", pd_cell_count },
                                         { "+>REFUSED STEPS", "refused_steps", pd_cell_count },
                                         { "+>REFUSED", "refused", pd_cell_count },
                                         { "+>NORM", NULL, norm_cell },
                                         { "+>CLIPPED", "clipped_steps", pd_cell_count },
                                         { "+>OUTLIERS", "outlier_steps", pd_cell_count },
                                         { "+>ROOTS", NULL, adopted_cell },
                                         { "+>FAILED ROOTS", "roots_failed", pd_cell_count },
                                         { "+>IN", "bytes_in", pd_cell_bytes },
                                         { "+>OUT", "bytes_out", pd_cell_bytes },
                                         { "+>CHECKPOINT", "checkpoint_bytes", pd_cell_bytes },
                                         { "+CHECKPOINT ERROR", "checkpoint_error", pd_cell_text_or_dash },
                                         { "+>WAITING", "waiting_seconds", step_time_cell },
                                         { "+>SUMMING", "summing_seconds", step_time_cell },
                                         { "+>STEPPING", "stepping_seconds", step_time_cell },
                                         { "+>PUBLISHING", "publishing_seconds", step_time_cell },
                                         { "+WAITS FOR", "waits_for", pd_cell_text_or_dash },
                                         { 0 } };

static const pd_column worker_columns[] = { { ">RANK", "rank", pd_cell_number },
                                            { "~LABEL", "label", pd_cell_text_or_dash },
                                            { "~IDENTITY", "identity", pd_cell_text_or_dash },
                                            { "STATE", "state", worker_state_cell },
                                            { ">STEP", "step", pd_cell_number },
                                            { ">CONTRIBUTIONS", "contributions", pd_cell_count },
                                            { ">HELD", "held_bytes", pd_cell_bytes },
                                            { ">LAST", NULL, last_cell },
                                            { ">LATE BY", NULL, late_cell },
                                            { 0 } };

static const pd_column root_columns[] = {
    { "~PARAMETER", "param", pd_cell_text }, { "~ROOT", "root", pd_cell_text },
    { "SIZE", "shape", pd_cell_shape },      { ">CONDITION", "condition", pd_cell_power },
    { ">ERROR", "error", pd_cell_power },    { ">AGE", NULL, age_cell },
    { ">MS", "ms", pd_cell_decimal },        { "+>ADOPTED", "adopted", pd_cell_count },
    { ">FAILED", NULL, failed_cell },        { 0 },
};

static const pd_list lists[] = {
    { PARAMD__LIST_KIND__LIST_JOBS, "jobs", "no jobs", job_columns, .placed = false },
    { PARAMD__LIST_KIND__LIST_WORKERS, "workers", "no workers", worker_columns, .placed = false },
    { PARAMD__LIST_KIND__LIST_ROOTS, "roots", "no roots", root_columns, .placed = true },
};

/* Returns the list of this name: jobs, workers or roots. */
static const pd_list *list_named(const char *name)
{
    const pd_list *list = lists;

    while (strcmp(list->name, name) != 0) list++;
    return list;
}

int pd_run_list(pd_line *line)
{
    const pd_list *list = list_named(line->command->name);
    pd_list_output out = pd_list_begin(list, line);
    pd_error err = { 0 };

    return pd_list_end(&out, pd_list_fetch(line, list->what, pd_list_add_page, &out, &err), &err);
}

/* Adds those jobs of a page of the daemon's list whose name matches the command's argument. */
static void add_matching(void *arg, const Paramd__ListReply *page)
{
    pd_list_output *out = arg;
    const pd_line *line = out->line;

    for (size_t i = 0; i < page->n_jobs; i++)
        if (line->n_args == 0 || fnmatch(line->args[0], page->jobs[i]->name, 0) == 0)
            pd_list_add(out, &page->jobs[i]->base);
}

int pd_run_jobs(pd_line *line)
{
    pd_list_output out = pd_list_begin(list_named("jobs"), line);
    pd_error err = { 0 };
    int rc = pd_list_fetch(line, PARAMD__LIST_KIND__LIST_JOBS, add_matching, &out, &err);

    if (rc == PD_OK && out.n == 0 && line->n_args > 0)
        rc = pd_fail(&err, PD_NOT_FOUND, "no job matches '%.200s'", line->args[0]);
    return pd_list_end(&out, rc, &err);
}

static void roots_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;
    char text[PD_CELL];

    (void)column;
    if (param->roots_failing == 0) {
        pd_table_cell(table, "%s", param->roots > 0 ? pd_count_text(text, param->roots) : "-");
        return;
    }
    pd_table_cell(table, "%" PRIu64 " (%" PRIu64 " failing)", param->roots, param->roots_failing);
    pd_table_alarm(table);
}

static void aggregate_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;
    char text[PD_CELL];

    (void)column;
    if (param->collect_bytes > 0)
        pd_table_cell(table, "%s (holds %s)", param->aggregate, pd_bytes_text(text, param->collect_bytes));
    else
        pd_table_cell(table, "%s", param->aggregate);
}

static void waits_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;

    (void)column;
    if (param->initialised)
        pd_table_cell(table, "%s", param->missing[0] != '\0' ? param->missing : "-");
    else
        pd_table_cell(table, "initial weights%s%s", param->missing[0] != '\0' ? " of " : "", param->missing);
}

static const pd_column param_columns[] = { { "~PARAMETER", "name", pd_cell_text },
                                           { "OPTIMIZER", "optimizer", pd_cell_text },
                                           { "SHAPE", "shape", pd_cell_shape },
                                           { "+>FRAGMENT", "fragment", pd_cell_number },
                                           { ">STEP", "step", pd_cell_number },
                                           { "+>VERSION", "version", pd_cell_number },
                                           { "+>SKIPPED", "skipped", pd_cell_count },
                                           { "+>REFUSED", "refused_steps", pd_cell_count },
                                           { "+>CONTRIBUTIONS", "contributions", pd_cell_count },
                                           { ">STATE", "state_bytes", pd_cell_bytes },
                                           { ">ROOTS", NULL, roots_cell },
                                           { "+>ROOT ERROR", "root_error", pd_cell_power },
                                           { "+AGGREGATE", NULL, aggregate_cell },
                                           { "WAITS FOR", NULL, waits_cell },
                                           { 0 } };

static const pd_list params_list = { PARAMD__LIST_KIND__LIST_PARAMS, "params", "no parameters", param_columns,
                                     .placed = true };

typedef struct output {
    pd_list_output list;
    /* Pattern of parameter names; NULL: all. It is compared with names here, since the daemon always lists all
     * parameters. */
    const char *pattern;
    bool any_roots;  /* at least one parameter of the list has matrix roots */
    json_t *remarks; /* text lines about parameters, for --verbose; NULL: the user does not want them */
    /* For each parameter's name the list of errors of its matrix roots; NULL: the user does not want them. */
    json_t *errors;
} output;

/* Adds a text line with the names of a parameter's dimensions and the optimizer's note on it. Adds none if the
 * parameter has neither. */
static void add_remark(json_t *remarks, const Paramd__ParamInfo *param)
{
    bool both = param->axes[0] != '\0' && param->note[0] != '\0';

    if (param->axes[0] == '\0' && param->note[0] == '\0') return;
    json_array_append_new(remarks, json_sprintf("%s: %s%s%s%s", param->name, param->axes[0] != '\0' ? "axes " : "",
                                                param->axes, both ? "; " : "", param->note));
}

/* Adds a text line for each scalar that was averaged in the parameter's last round. */
static void add_scalars(json_t *remarks, const Paramd__ParamInfo *param)
{
    for (size_t i = 0; i < param->n_scalars; i++)
        json_array_append_new(remarks, json_sprintf("%s: %s %.6g in step %llu, of weight %.6g", param->name,
                                                    param->scalars[i]->name, param->scalars[i]->value,
                                                    (unsigned long long)param->step, param->scalars[i]->weight));
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    output *out = arg;

    for (size_t i = 0; i < page->n_params; i++) {
        const Paramd__ParamInfo *param = page->params[i];
        if (out->pattern != NULL && fnmatch(out->pattern, param->name, 0) != 0) continue;
        pd_list_add(&out->list, &param->base);
        out->any_roots = out->any_roots || param->roots > 0;
        if (out->remarks == NULL) continue;
        add_remark(out->remarks, param);
        add_scalars(out->remarks, param);
    }
}

/* Adds the error of one matrix root to the list of its parameter. An error that is NaN becomes null, as JSON has no
 * NaN. */
static void add_error(json_t *errors, const Paramd__RootInfo *root)
{
    json_t *list = json_object_get(errors, root->param), *value;

    if (root->kept_error < 0) return;
    if (list == NULL) {
        list = json_array();
        json_object_set_new_nocheck(errors, root->param, list);
    }
    value = json_real(root->kept_error);
    json_array_append_new(list, value != NULL ? value : json_null());
}

static void add_errors(void *arg, const Paramd__ListReply *page)
{
    for (size_t i = 0; i < page->n_roots; i++) add_error(arg, page->roots[i]);
}

/* Fetches the errors of all matrix roots of a job. The daemon sends them with its list of roots, since a parameter
 * in the list of parameters may have many roots. */
static int fetch_errors(const pd_line *line, output *out, pd_error *err)
{
    if ((out->errors = json_object()) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_list_fetch(line, PARAMD__LIST_KIND__LIST_ROOTS, add_errors, out->errors, err);
}

static void merge_errors(const output *out)
{
    size_t i;
    json_t *param;

    json_array_foreach(out->list.json, i, param)
    {
        json_t *list = json_object_get(out->errors, json_string_value(json_object_get(param, "name")));
        if (list != NULL) json_object_set(param, "inverse_pth_root_errors", list);
    }
}

/* Prints the lines about parameters, and for each parameter the errors of its matrix roots. */
static void print_details(const output *out)
{
    const char *name;
    json_t *remark, *list, *value;
    size_t i, n;
    char *text;

    json_array_foreach(out->remarks, i, remark) pd_print_line(stdout, "%s", json_string_value(remark));
    json_object_foreach(out->errors, name, list)
    {
        FILE *line = open_memstream(&text, &n);
        if (line == NULL) return;
        json_array_foreach(list, i, value) fprintf(line, " %.3g", json_number_value(value));
        fclose(line);
        pd_print_line(stdout, "%s: inverse_pth_root_errors%s", name, text);
        free(text);
    }
}

int pd_run_params(pd_line *line)
{
    bool verbose = pd_line_has(line, "verbose");
    output out = { .list = pd_list_begin(&params_list, line), .pattern = line->n_args > 1 ? line->args[1] : NULL };
    pd_error err = { 0 };
    int rc, status;

    out.remarks = verbose && !line->json ? json_array() : NULL;
    rc = pd_list_fetch(line, PARAMD__LIST_KIND__LIST_PARAMS, add_page, &out, &err);
    if (rc == PD_OK && out.pattern != NULL && out.list.n == 0)
        rc = pd_fail(&err, PD_NOT_FOUND, "no parameter matches '%.200s'", out.pattern);
    if (rc == PD_OK && out.any_roots && (line->json || verbose)) rc = fetch_errors(line, &out, &err);
    if (rc == PD_OK && line->json) merge_errors(&out);
    status = pd_list_end(&out.list, rc, &err);
    if (rc == PD_OK && !line->json) print_details(&out);
    json_decref(out.remarks);
    json_decref(out.errors);
    return status;
}

/* Prints the identities that are connected. The daemon tells them only to an admin of the server. */
static void print_identities(const Paramd__StatusReply *s)
{
    for (size_t i = 0; i < s->n_identities; i++)
        pd_print_line(stdout, "%s  %s, connections %u, requests under way %u", i == 0 ? "identities " : "           ",
                      s->identities[i]->identity, s->identities[i]->connections, s->identities[i]->requests);
    if (s->identities_left_off > 0) printf("             and %llu more\n", (unsigned long long)s->identities_left_off);
}

static void print_daemon(const Paramd__StatusReply *s)
{
    char a[PD_CELL], b[PD_CELL];

    pd_print_line(stdout, "server       %s, protocol %u, CPU %s, BLAS core %s%s", s->server, s->protocol, s->cpu,
                  s->blas_core, s->draining ? ", draining" : "");
    printf("up           %s\n", pd_duration_text(a, s->uptime_ms));
    printf("connections  %u\n", s->connections);
    printf("memory       %s resident, %s at most\n", pd_bytes_text(a, s->resident_bytes),
           pd_bytes_text(b, s->peak_resident_bytes));
    printf("ingest       %s of %s\n", pd_bytes_text(a, s->ingest_used), pd_bytes_text(b, s->ingest_bytes));
    printf("traffic      %s in, %s out\n", pd_bytes_text(a, s->bytes_in), pd_bytes_text(b, s->bytes_out));
    printf("frames       %s in, %s refused\n", pd_count_text(a, s->frames_in), pd_count_text(b, s->frames_refused));
    if (s->n_loop_busy_ms == 4)
        printf("loop         busy %.2f ms median, %.2f 99 %%, %.2f 99.9 %%, %.2f at most\n", s->loop_busy_ms[0],
               s->loop_busy_ms[1], s->loop_busy_ms[2], s->loop_busy_ms[3]);
    print_identities(s);
    printf("\n");
}

static int print_status(const pd_line *line, const Paramd__StatusReply *status)
{
    pd_list_output jobs = pd_list_begin(list_named("jobs"), line);

    print_daemon(status);
    for (size_t i = 0; i < status->n_jobs; i++) pd_list_add(&jobs, &status->jobs[i]->base);
    return pd_list_end(&jobs, PD_OK, NULL);
}

/* Prints the status of each daemon of a cluster that has answered, below its address. */
static int print_all(const pd_line *line, const pd_cluster *cluster, void *const *replies)
{
    json_t *all = json_array();
    int status = PD_CTL_OK;

    for (size_t i = 0; i < cluster->n; i++) {
        json_t *one = line->json && replies[i] != NULL ? pd_message_json(replies[i]) : NULL;
        if (replies[i] == NULL) continue;
        if (one != NULL) {
            json_object_set_new(one, "shard", json_integer((json_int_t)i));
            json_object_set_new(one, "url", json_string(cluster->at[i].url));
            json_array_append_new(all, one);
        } else {
            pd_print_line(stdout, "%sshard %zu      %s", i > 0 ? "\n" : "", i, cluster->at[i].url);
            status = print_status(line, replies[i]);
        }
    }
    if (line->json) return pd_result_json(json_pack("{s:o}", "shards", all));
    json_decref(all);
    return status;
}

static int print_statuses(const pd_line *line, const pd_cluster *cluster, void *const *replies, pd_error *err)
{
    (void)err;
    if (cluster->n > 1) return print_all(line, cluster, replies);
    return line->json ? pd_result_json(pd_message_json(replies[0])) : print_status(line, replies[0]);
}

int pd_run_status(pd_line *line)
{
    return pd_cluster_print(line, PD_STATUS, print_statuses);
}
