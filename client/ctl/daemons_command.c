/* daemons_command.c - the command daemons: lists this user's local daemons, their jobs and steps. */
#include "daemons_command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "format.h"
#include "local_daemons.h"
#include "reflect.h"
#include "result.h"
#include "text_table.h"

enum { MOST_JOBS = 4 }; /* jobs that a line of the table names */

/* Writes the names and steps of jobs, such as "default 120, eval 3 and 2 more". */
static void jobs_text(char *text, size_t size, const Paramd__StatusReply *status)
{
    size_t used = 0;

    snprintf(text, size, "-");
    for (size_t i = 0; i < status->n_jobs && i < MOST_JOBS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.60s %" PRIu64, i > 0 ? ", " : "", status->jobs[i]->name,
                                 status->jobs[i]->step_least);
    if (status->n_jobs > MOST_JOBS && used < size)
        snprintf(text + used, size - used, " and %zu more", status->n_jobs - MOST_JOBS);
}

static void add_row(pd_table *table, const pd_local_daemon *daemon, const Paramd__StatusReply *status,
                    const pd_error *err)
{
    char jobs[512], up[PD_CELL] = "-";

    if (status != NULL) {
        pd_duration_text(up, status->uptime_ms);
        jobs_text(jobs, sizeof jobs, status);
    } else {
        snprintf(jobs, sizeof jobs, "no answer: %.400s", err->text);
    }
    pd_table_cell(table, "%s", daemon->name);
    pd_table_cell(table, "%ld", (long)daemon->pid);
    pd_table_cell(table, "%s", up);
    pd_table_cell(table, "%s", jobs);
    if (status == NULL) pd_table_alarm(table);
    pd_table_cell(table, "unix://%s.sock", daemon->base);
}

static json_t *entry_of(const pd_local_daemon *daemon, const Paramd__StatusReply *status, const pd_error *err)
{
    json_t *entry =
        json_pack("{s:s, s:I, s:o, s:o}", "name", daemon->name, "pid", (json_int_t)daemon->pid, "url",
                  json_sprintf("unix://%s.sock", daemon->base), "log", json_sprintf("%s.log", daemon->base));
    json_t *jobs = json_array();

    if (entry == NULL || jobs == NULL) {
        json_decref(entry);
        json_decref(jobs);
        return NULL;
    }
    for (size_t i = 0; status != NULL && i < status->n_jobs; i++)
        json_array_append_new(jobs, json_pack("{s:s, s:s, s:I}", "name", status->jobs[i]->name, "state",
                                              status->jobs[i]->state, "step", (json_int_t)status->jobs[i]->step_least));
    json_object_set_new(entry, "jobs", jobs);
    if (status != NULL) json_object_set_new(entry, "uptime_ms", json_integer((json_int_t)status->uptime_ms));
    if (status == NULL) json_object_set_new(entry, "error", json_string(err->text));
    return entry;
}

/* Asks a daemon, and adds its answer to the table or to the list. */
static void ask(const pd_line *line, const pd_local_daemon *daemon, pd_table *table, json_t *list)
{
    char url[sizeof daemon->base + 16];
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    int rc;

    snprintf(url, sizeof url, "unix://%s.sock", daemon->base);
    rc = pd_operator_open(&op, url, line->timeout, &err);
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_STATUS, NULL, op.arena, &reply, &err);
    if (line->json)
        json_array_append_new(list, entry_of(daemon, rc == PD_OK ? reply : NULL, &err));
    else
        add_row(table, daemon, rc == PD_OK ? reply : NULL, &err);
    pd_operator_close(&op);
}

int pd_run_daemons(pd_line *line)
{
    pd_local_daemon *daemons = NULL;
    pd_table *table = NULL;
    json_t *list = NULL;
    pd_error err = { 0 };
    size_t n = 0;
    int rc = pd_local_daemons(&daemons, &n, &err);

    if (rc != PD_OK) return pd_result_fail_reached(line->json, &err);
    if (line->json)
        list = json_array();
    else if ((table = pd_table_new("NAME|>PID|>UP|~JOBS|~ADDRESS")) != NULL)
        pd_table_limit(table, line->wide ? 0 : pd_table_default_limit());
    for (size_t i = 0; i < n; i++) ask(line, &daemons[i], table, list);
    free(daemons);
    if (line->json) return pd_result_json(list != NULL ? json_pack("{s:o}", "daemons", list) : NULL);
    return pd_table_print(table, stdout, "no local daemons") == PD_OK ? PD_EXIT_OK : PD_EXIT_FAILED;
}
