/* operators.c - the commands that ask a daemon one thing: ping, status, jobs, params, workers, roots, optimizers, drop, drain, shutdown. */
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "format.h"
#include "optimizer_table.h"

/* ---- connection, errors, JSON ---- */

/* Who asks, for the daemon's log and what it records: "user@host:pid". */
static const char *operator_label(char *text, size_t size)
{
    const struct passwd *user = getpwuid(geteuid());
    char host[64] = "";

    gethostname(host, sizeof host - 1);
    if (user != NULL) snprintf(text, size, "%.40s@%s:%ld", user->pw_name, host, (long)getpid());
    else snprintf(text, size, "%ld@%s:%ld", (long)geteuid(), host, (long)getpid());
    return text;
}

int pd_operator_open(pd_operator *out, const char *url, double timeout, pd_error *err)
{
    char label[128];
    pd_client_options options = { .urls = url, .job = "", .deadline = timeout, .impatient = true, .label = operator_label(label, sizeof label) };
    int rc;

    *out = (pd_operator){ .arena = pd_arena_new(PD_ARENA_BUDGET) };
    if (out->arena == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if ((rc = pd_client_open(&out->client, &options, err)) != PD_OK) pd_operator_close(out);
    return rc;
}

void pd_operator_close(pd_operator *op)
{
    pd_client_close(op->client);
    pd_arena_free(op->arena);
    *op = (pd_operator){ 0 };
}

int pd_operator_probe(const char *url, double timeout, pd_error *err)
{
    pd_operator op;
    int rc = pd_operator_open(&op, url, timeout, err);

    if (rc == PD_OK) pd_operator_close(&op);
    return rc;
}

void pd_operator_drop(const char *url, double timeout, const char *job)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    pd_operator op;

    request.job = (char *)job;
    if (pd_operator_open(&op, url, timeout, NULL) != PD_OK) return;
    pd_client_call(op.client, PD_DROP, &request.base, op.arena, NULL, NULL);
    pd_operator_close(&op);
}

static int exit_status(int code)
{
    if (code == PD_OK) return PD_EXIT_OK;
    return code == PD_UNAVAILABLE || code == PD_DEADLINE_EXCEEDED ? PD_EXIT_UNREACHABLE : PD_EXIT_REFUSED;
}

int pd_ctl_fail(const pd_ctl *ctl, const pd_error *err)
{
    if (!ctl->quiet) pd_print_line(stderr, "paramctl: %s", err->text[0] != '\0' ? err->text : pd_code_text(err->code));
    if (ctl->json) {
        pd_ctl_print_json(json_pack("{s:{s:s, s:s}}", "error", "code", pd_code_name(err->code), "text", err->text));
    }
    return exit_status(err->code);
}

int pd_ctl_print_json(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(2)) : NULL;

    json_decref(value);
    if (text == NULL) {
        fprintf(stderr, "paramctl: out of memory\n");
        return PD_EXIT_REFUSED;
    }
    pd_print_json(stdout, text);
    fputc('\n', stdout);
    free(text);
    return PD_EXIT_OK;
}

int pd_operator_ask(const pd_ctl *ctl, pd_operator *op, unsigned method, const ProtobufCMessage *request, void **reply, pd_error *err)
{
    int rc = pd_operator_open(op, ctl->server, ctl->timeout, err);

    return rc == PD_OK ? pd_client_call(op->client, method, request, op->arena, reply, err) : rc;
}

/* The commands whose answer is that it is done. */
static int command_without_answer(const pd_ctl *ctl, unsigned method, const ProtobufCMessage *request, const char *done)
{
    pd_operator op;
    pd_error err = { 0 };
    int status = PD_EXIT_OK;

    if (pd_operator_ask(ctl, &op, method, request, NULL, &err) != PD_OK) status = pd_ctl_fail(ctl, &err);
    else if (ctl->json) status = pd_ctl_print_json(json_pack("{s:b}", "ok", 1));
    else pd_print_line(stdout, "%s", done);
    pd_operator_close(&op);
    return status;
}

/* ---- ping, drop, drain, shutdown ---- */

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int pd_ctl_ping(const pd_ctl *ctl)
{
    pd_operator op;
    pd_error err = { 0 };
    int status = PD_EXIT_OK;
    int rc = pd_operator_open(&op, ctl->server, ctl->timeout, &err);
    double began = now_ms();

    if (rc == PD_OK) rc = pd_client_call(op.client, PD_HEARTBEAT, NULL, op.arena, NULL, &err);
    if (rc != PD_OK) {
        status = pd_ctl_fail(ctl, &err);
    } else if (ctl->json) {
        status = pd_ctl_print_json(json_pack("{s:s, s:f}", "server", pd_client_welcome(op.client)->server, "ms", now_ms() - began));
    } else if (!ctl->quiet) {
        pd_print_line(stdout, "%s answers in %.2f ms", pd_client_welcome(op.client)->server, now_ms() - began);
    }
    pd_operator_close(&op);
    return status;
}

int pd_ctl_drop(const pd_ctl *ctl)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    char done[PD_CELL + 300];

    request.job = ctl->args[0];
    snprintf(done, sizeof done, "dropped %.256s", ctl->args[0]);
    return command_without_answer(ctl, PD_DROP, &request.base, done);
}

int pd_ctl_drain(const pd_ctl *ctl)
{
    Paramd__DrainRequest request = PARAMD__DRAIN_REQUEST__INIT;
    pd_ctl patient = *ctl;
    pd_error err;
    int status;

    if (pd_operator_probe(ctl->server, ctl->timeout, &err) != PD_OK) return pd_ctl_fail(ctl, &err);
    request.timeout_ms = ctl->within * 1000 < UINT32_MAX ? (uint32_t)(ctl->within * 1000) : UINT32_MAX;
    patient.timeout = ctl->within + ctl->timeout;       /* the answer comes when the rounds have finished */
    status = command_without_answer(&patient, PD_DRAIN, &request.base, "drained: no step is under way and none will begin");
    return status == PD_EXIT_UNREACHABLE ? PD_EXIT_REFUSED : status;        /* it was there: its deadline has passed */
}

int pd_ctl_shutdown(const pd_ctl *ctl)
{
    return command_without_answer(ctl, PD_SHUTDOWN, NULL, "shutting down");
}

/* ---- status and jobs ---- */

static void jobs_row(pd_table *table, const Paramd__JobInfo *job)
{
    char text[PD_CELL];

    pd_table_cell(table, "%s", job->name);
    pd_table_cell(table, "%s", job->state);
    pd_table_cell(table, "%u/%u", job->connected, job->world_size);
    pd_table_cell(table, "%s", pd_count_text(text, job->params));
    pd_table_cell(table, "%s", pd_count_text(text, job->elements));
    pd_table_cell(table, "%s", pd_bytes_text(text, job->weight_bytes));
    pd_table_cell(table, "%s", pd_bytes_text(text, job->state_bytes));
    pd_table_cell(table, "%s", pd_bytes_text(text, job->committed_bytes));
    if (job->step_least == job->step_most) pd_table_cell(table, "%" PRIu64, job->step_least);
    else pd_table_cell(table, "%" PRIu64 "-%" PRIu64, job->step_least, job->step_most);
    pd_table_cell(table, "%s", pd_count_text(text, job->contributions));
    pd_table_cell(table, "%s", pd_count_text(text, job->skipped));
    pd_table_cell(table, "%s", pd_count_text(text, job->refused_steps));
    pd_table_cell(table, "%s", pd_count_text(text, job->refused));
    if (job->gradient_norm == 0 && job->clipped_steps == 0) pd_table_cell(table, "-");
    else pd_table_cell(table, "%.4g", job->gradient_norm);
    pd_table_cell(table, "%s", pd_count_text(text, job->clipped_steps));
    if (job->roots_due == 0) pd_table_cell(table, "-");
    else pd_table_cell(table, "%" PRIu64 "/%" PRIu64, job->roots_adopted, job->roots_due);
    pd_table_cell(table, "%s", pd_count_text(text, job->roots_failed));
}

static pd_table *jobs_table(void)
{
    return pd_table_new("JOB|STATE|>WORKERS|>PARAMS|>ELEMENTS|>WEIGHTS|>OPTIMIZER STATE|>MEMORY|>STEP|>CONTRIBUTIONS|>SKIPPED|>REFUSED STEPS|>REFUSED|>NORM|>CLIPPED|>ROOTS|>FAILED ROOTS");
}

static void print_status(const Paramd__StatusReply *s)
{
    char a[PD_CELL], b[PD_CELL];

    pd_print_line(stdout, "server       %s, protocol %u, BLAS core %s%s", s->server, s->protocol, s->blas_core, s->draining ? ", draining" : "");
    printf("up           %s\n", pd_duration_text(a, s->uptime_ms));
    printf("connections  %u\n", s->connections);
    printf("memory       %s resident, %s at most\n", pd_bytes_text(a, s->resident_bytes), pd_bytes_text(b, s->peak_resident_bytes));
    printf("ingest       %s of %s\n", pd_bytes_text(a, s->ingest_used), pd_bytes_text(b, s->ingest_bytes));
    printf("traffic      %s in, %s out\n", pd_bytes_text(a, s->bytes_in), pd_bytes_text(b, s->bytes_out));
    printf("frames       %s in, %s refused\n", pd_count_text(a, s->frames_in), pd_count_text(b, s->frames_refused));
    if (s->n_loop_busy_ms == 4) {
        printf("loop         busy at a time: %.2f ms median, %.2f 99 %%, %.2f 99.9 %%, %.2f at most\n",
               s->loop_busy_ms[0], s->loop_busy_ms[1], s->loop_busy_ms[2], s->loop_busy_ms[3]);
    }
    printf("\n");
}

int pd_ctl_status(const pd_ctl *ctl)
{
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    int status = PD_EXIT_OK;

    if (pd_operator_ask(ctl, &op, PD_STATUS, NULL, &reply, &err) != PD_OK) {
        status = pd_ctl_fail(ctl, &err);
    } else if (ctl->json) {
        status = pd_ctl_print_json(pd_message_json(reply));
    } else {
        const Paramd__StatusReply *answer = reply;
        pd_table *table = jobs_table();
        print_status(answer);
        for (size_t i = 0; table != NULL && i < answer->n_jobs; i++) jobs_row(table, answer->jobs[i]);
        pd_table_print(table, stdout, "no jobs");
    }
    pd_operator_close(&op);
    return status;
}

/* ---- lists, which come in pages ---- */

/* Where the pages go: a table, or a JSON list, or (roots) a JSON object of what the optimizer keeps of their errors, by parameter. */
typedef struct pages {
    pd_table *table;
    json_t   *list, *errors;
    bool      any_roots;            /* some parameter has roots */
    json_t   *remarks;              /* what there is to say of parameters, by name, or NULL: nobody asks */
} pages;

/* "-" where it is not known. */
static void number_cell(pd_table *table, const char *format, double value)
{
    char text[PD_CELL];

    snprintf(text, sizeof text, format, value);
    pd_table_cell(table, "%s", value == 0 ? "-" : text);
}

static const char *shape_of(const uint64_t *dims, size_t n, char *text, size_t size)
{
    pd_shape shape = { 0 };

    for (size_t i = 0; i < n && i < PD_MAX_RANK; i++) shape.dim[shape.rank++] = (int64_t)dims[i];
    return pd_shape_text(&shape, text, size);
}

static void params_row(pd_table *table, const Paramd__ParamInfo *param)
{
    char text[PD_CELL], shape[192];

    pd_table_cell(table, "%s", param->name);
    pd_table_cell(table, "%s", param->optimizer);
    pd_table_cell(table, "%s", shape_of(param->shape, param->n_shape, shape, sizeof shape));
    pd_table_cell(table, "%" PRIu64, param->step);
    pd_table_cell(table, "%" PRIu64, param->version);
    pd_table_cell(table, "%s", pd_count_text(text, param->skipped));
    pd_table_cell(table, "%s", pd_count_text(text, param->refused_steps));
    pd_table_cell(table, "%s", pd_count_text(text, param->contributions));
    pd_table_cell(table, "%s", pd_bytes_text(text, param->state_bytes));
    if (param->roots_failing > 0) pd_table_cell(table, "%" PRIu64 " (%" PRIu64 " failing)", param->roots, param->roots_failing);
    else pd_table_cell(table, "%s", param->roots > 0 ? pd_count_text(text, param->roots) : "-");
    number_cell(table, "%.2e", param->root_error);
    if (param->gather_bytes > 0) pd_table_cell(table, "%s (holds %s)", param->aggregate, pd_bytes_text(text, param->gather_bytes));
    else pd_table_cell(table, "%s", param->aggregate);
    if (param->initialised) pd_table_cell(table, "%s", param->missing[0] != '\0' ? param->missing : "-");
    else pd_table_cell(table, "initial weights%s%s", param->missing[0] != '\0' ? " of " : "", param->missing);
}

static void workers_row(pd_table *table, const Paramd__WorkerInfo *worker)
{
    char text[PD_CELL];

    pd_table_cell(table, "%u", worker->rank);
    pd_table_cell(table, "%s", worker->label[0] != '\0' ? worker->label : "-");
    pd_table_cell(table, "%s", worker->state);
    pd_table_cell(table, "%" PRIu64, worker->step);
    pd_table_cell(table, "%s", pd_count_text(text, worker->contributions));
    pd_table_cell(table, "%s", pd_bytes_text(text, worker->held_bytes));
}

static void roots_row(pd_table *table, const Paramd__RootInfo *root)
{
    char text[PD_CELL], shape[192];

    pd_table_cell(table, "%s", root->param);
    pd_table_cell(table, "%s", root->root);
    pd_table_cell(table, "%s", shape_of(root->shape, root->n_shape, shape, sizeof shape));
    number_cell(table, "%.2e", root->condition);
    number_cell(table, "%.2e", root->error);
    if (root->adopted > 0) pd_table_cell(table, "%" PRIu64, root->age);
    else pd_table_cell(table, "-");
    number_cell(table, "%.2f", root->ms);
    pd_table_cell(table, "%s", pd_count_text(text, root->adopted));
    pd_table_cell(table, "%s%s", pd_count_text(text, root->failed), root->failing ? " (failing)" : "");
}

/* JSON cannot say NaN: null. */
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

/* Names of its dimensions, and what its optimizer wants known. */
static void add_remark(json_t *remarks, const Paramd__ParamInfo *param)
{
    bool both = param->axes[0] != '\0' && param->note[0] != '\0';

    if (param->axes[0] == '\0' && param->note[0] == '\0') return;
    json_array_append_new(remarks, json_sprintf("%s: %s%s%s%s", param->name, param->axes[0] != '\0' ? "axes " : "", param->axes, both ? "; " : "", param->note));
}

/* What its last round returned of the numbers that workers gave. */
static void add_scalars(json_t *remarks, const Paramd__ParamInfo *param)
{
    for (size_t i = 0; i < param->n_scalars; i++)
        json_array_append_new(remarks, json_sprintf("%s: %s %.6g in step %llu, of weight %.6g", param->name, param->scalars[i]->name, param->scalars[i]->value,
                                                    (unsigned long long)param->step, param->scalars[i]->weight));
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    pages *out = arg;

    for (size_t i = 0; i < page->n_params; i++) out->any_roots = out->any_roots || page->params[i]->roots > 0;
    if (out->errors != NULL) {
        for (size_t i = 0; i < page->n_roots; i++) add_error(out->errors, page->roots[i]);
        return;
    }
    if (out->list != NULL) {
        for (size_t i = 0; i < page->n_jobs; i++) json_array_append_new(out->list, pd_message_json(&page->jobs[i]->base));
        for (size_t i = 0; i < page->n_params; i++) json_array_append_new(out->list, pd_message_json(&page->params[i]->base));
        for (size_t i = 0; i < page->n_workers; i++) json_array_append_new(out->list, pd_message_json(&page->workers[i]->base));
        for (size_t i = 0; i < page->n_roots; i++) json_array_append_new(out->list, pd_message_json(&page->roots[i]->base));
        return;
    }
    for (size_t i = 0; i < page->n_jobs; i++) jobs_row(out->table, page->jobs[i]);
    for (size_t i = 0; i < page->n_params; i++) params_row(out->table, page->params[i]);
    for (size_t i = 0; out->remarks != NULL && i < page->n_params; i++) {
        add_remark(out->remarks, page->params[i]);
        add_scalars(out->remarks, page->params[i]);
    }
    for (size_t i = 0; i < page->n_workers; i++) workers_row(out->table, page->workers[i]);
    for (size_t i = 0; i < page->n_roots; i++) roots_row(out->table, page->roots[i]);
}

int pd_operator_list(const pd_ctl *ctl, Paramd__ListRequest *request, pd_page_user *use, void *arg, pd_error *err)
{
    pd_operator op;
    Paramd__ListReply *page = NULL;
    int rc = pd_operator_open(&op, ctl->server, ctl->timeout, err);

    while (rc == PD_OK) {
        rc = pd_client_call(op.client, PD_LIST, &request->base, op.arena, (void **)&page, err);
        if (rc != PD_OK) break;
        use(arg, page);
        if (page->next <= request->start) break;        /* 0: that was the last */
        request->start = page->next;
    }
    pd_operator_close(&op);
    return rc;
}

/* What the optimizers keep of their roots' errors, by parameter's name: parameters with many roots have no room for it in their entry. */
static int fetch_errors(const pd_ctl *ctl, pages *out, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;

    request.what = PD_LIST_ROOTS;
    request.job = ctl->args[0];
    if ((out->errors = json_object()) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_operator_list(ctl, &request, add_page, out, err);
}

static void add_errors(const pages *out)
{
    size_t i;
    json_t *param;

    json_array_foreach(out->list, i, param) {
        json_t *list = json_object_get(out->errors, json_string_value(json_object_get(param, "name")));
        if (list != NULL) json_object_set(param, "inverse_pth_root_errors", list);
    }
}

static void print_remarks(const json_t *remarks)
{
    size_t i;
    json_t *remark;

    json_array_foreach(remarks, i, remark) pd_print_line(stdout, "%s", json_string_value(remark));
}

static void print_errors(json_t *errors)
{
    const char *name;
    json_t *list, *value;
    size_t i, n;
    char *text;

    json_object_foreach(errors, name, list) {
        FILE *line = open_memstream(&text, &n);
        if (line == NULL) return;
        json_array_foreach(list, i, value) fprintf(line, " %.3g", json_number_value(value));
        fclose(line);
        pd_print_line(stdout, "%s: inverse_pth_root_errors%s", name, text);
        free(text);
    }
}

/* Prints what was fetched, or what went wrong, and ends `out`; `none` is said where there are no rows; `key` names the list in JSON. */
static int print_pages(const pd_ctl *ctl, pages *out, int rc, const pd_error *err, const char *key, const char *none)
{
    if (rc == PD_OK && !ctl->json) pd_table_print(out->table, stdout, none);
    else pd_table_free(out->table);
    if (rc == PD_OK && !ctl->json) print_remarks(out->remarks);
    json_decref(out->remarks);
    if (rc == PD_OK && !ctl->json) print_errors(out->errors);
    json_decref(out->errors);
    if (rc == PD_OK && ctl->json) return pd_ctl_print_json(json_pack("{s:o}", key, out->list));
    json_decref(out->list);
    return rc == PD_OK ? PD_EXIT_OK : pd_ctl_fail(ctl, err);
}

/* Takes `table`, into which the rows go. */
static int command_list(const pd_ctl *ctl, unsigned what, pd_table *table, const char *key, const char *none)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    pages out = { .table = table, .list = ctl->json ? json_array() : NULL, .remarks = ctl->verbose && !ctl->json ? json_array() : NULL };
    pd_error err = { 0 };
    int rc;

    request.what = what;
    if (ctl->n_args > 0) request.job = ctl->args[0];
    if (ctl->n_args > 1) request.param = ctl->args[1];
    rc = out.table == NULL ? pd_fail(&err, PD_NO_MEMORY, "out of memory") : pd_operator_list(ctl, &request, add_page, &out, &err);
    if (rc == PD_OK && out.any_roots && (ctl->json || ctl->verbose)) rc = fetch_errors(ctl, &out, &err);
    if (rc == PD_OK && ctl->json) add_errors(&out);
    return print_pages(ctl, &out, rc, &err, key, none);
}

int pd_ctl_jobs(const pd_ctl *ctl)
{
    return command_list(ctl, PD_LIST_JOBS, jobs_table(), "jobs", "no jobs");
}

int pd_ctl_params(const pd_ctl *ctl)
{
    pd_table *table = pd_table_new("PARAMETER|OPTIMIZER|SHAPE|>STEP|>VERSION|>SKIPPED|>REFUSED|>CONTRIBUTIONS|>STATE|>ROOTS|>ROOT ERROR|AGGREGATE|WAITS FOR");
    return command_list(ctl, PD_LIST_PARAMS, table, "params", "no parameters");
}

int pd_ctl_workers(const pd_ctl *ctl)
{
    pd_table *table = pd_table_new(">RANK|LABEL|STATE|>STEP|>CONTRIBUTIONS|>HELD");
    return command_list(ctl, PD_LIST_WORKERS, table, "workers", "no workers");
}

int pd_ctl_roots(const pd_ctl *ctl)
{
    pd_table *table = pd_table_new("PARAMETER|ROOT|SIZE|>CONDITION|>ERROR|>AGE|>MS|>ADOPTED|>FAILED");
    return command_list(ctl, PD_LIST_ROOTS, table, "roots", "no roots");
}

/* ---- optimizers ---- */

static int list_optimizers(const pd_ctl *ctl, pages *out, pd_error *err)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    Paramd__OptimizersReply *page = NULL;
    pd_operator op;
    int rc = pd_operator_open(&op, ctl->server, ctl->timeout, err);

    while (rc == PD_OK) {
        rc = pd_client_call(op.client, PD_OPTIMIZERS, &request.base, op.arena, (void **)&page, err);
        for (size_t i = 0; rc == PD_OK && i < page->n_optimizers; i++) {
            if (out->list != NULL) json_array_append_new(out->list, pd_message_json(&page->optimizers[i]->base));
            else pd_optimizer_row(out->table, page->optimizers[i]);
        }
        if (rc != PD_OK || page->next <= request.start) break;          /* 0: that was the last */
        request.start = page->next;
    }
    pd_operator_close(&op);
    return rc;
}

/* One, by its name. */
static int show_optimizer(const pd_ctl *ctl)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    const Paramd__OptimizersReply *page;
    int status = PD_EXIT_OK;

    request.name = ctl->args[0];
    if (pd_operator_ask(ctl, &op, PD_OPTIMIZERS, &request.base, &reply, &err) != PD_OK) status = pd_ctl_fail(ctl, &err);
    else if ((page = reply)->n_optimizers != 1) status = pd_ctl_fail(ctl, &(pd_error){ PD_INTERNAL, "the server answers with other optimizers" });
    else if (ctl->json) status = pd_ctl_print_json(pd_message_json(&page->optimizers[0]->base));
    else pd_optimizer_print(page->optimizers[0]);
    pd_operator_close(&op);
    return status;
}

int pd_ctl_optimizers(const pd_ctl *ctl)
{
    pages out = { 0 };
    pd_error err = { 0 };
    int rc;

    if (ctl->n_args > 0) return show_optimizer(ctl);
    out.table = pd_table_new("OPTIMIZER|ABOUT|HYPERPARAMETERS");
    out.list = ctl->json ? json_array() : NULL;
    rc = out.table == NULL ? pd_fail(&err, PD_NO_MEMORY, "out of memory") : list_optimizers(ctl, &out, &err);
    return print_pages(ctl, &out, rc, &err, "optimizers", "no optimizers");
}
