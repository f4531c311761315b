/* mirror_command.c - the command mirror, which makes a state directory from a mirror, without a daemon. */
#include "commands.h"

#include <inttypes.h>
#include <string.h>

#include "format.h"
#include "mirror.h"
#include "result.h"
#include "text_table.h"

/* The list of jobs that were fetched, as a table or as JSON. */
typedef struct fetching {
    pd_table *table; /* NULL: the list is made as JSON */
    json_t *json;
} fetching;

static void add_row(pd_table *table, const pd_mirror_fetched *job)
{
    char bytes[PD_CELL];

    pd_table_cell(table, "%s", job->job);
    pd_table_cell(table, "%" PRIu64, job->step);
    pd_table_cell_if(table, job->last > job->step, "%" PRIu64, job->last);
    pd_table_cell_if(table, !job->had, "%s", pd_bytes_text(bytes, job->bytes));
    if (job->had)
        pd_table_cell(table, "was there already");
    else
        pd_table_cell_if(table, job->n_damaged > 0, "%zu newer left out: %.300s", job->n_damaged,
                         job->why != NULL ? job->why->text : "");
    if (job->n_damaged > 0) pd_table_alarm(table);
}

static void take(void *arg, const pd_mirror_fetched *job)
{
    fetching *f = arg;
    json_t *entry;

    if (f->table != NULL) {
        add_row(f->table, job);
        return;
    }
    entry = json_pack("{s:s, s:I, s:I, s:I, s:b, s:I}", "job", job->job, "step", (json_int_t)job->step, "last",
                      (json_int_t)job->last, "bytes", (json_int_t)job->bytes, "had", job->had, "damaged",
                      (json_int_t)job->n_damaged);
    if (entry != NULL && job->why != NULL) json_object_set_new(entry, "error", json_string(job->why->text));
    json_array_append_new(f->json, entry);
}

int pd_run_mirror(pd_line *line)
{
    fetching f = { 0 };
    const pd_mirror_reader user = { &f, take };
    pd_error err = { 0 };
    int rc;

    if (strcmp(line->args[0], "fetch") != 0)
        pd_line_refuse(line, "%.60s: expected mirror fetch MIRROR STATE_DIR", line->args[0]);
    if (line->json)
        f.json = json_array();
    else
        f.table = pd_table_new("JOB|>STEP|>WAL TO|>COPIED|~");
    rc = pd_mirror_fetch(line->args[1], line->args[2], &user, &err);
    if (rc != PD_OK) {
        json_decref(f.json);
        pd_table_free(f.table);
        return pd_result_fail_reached(line->json, &err);
    }
    if (line->json) return pd_result_json(f.json != NULL ? json_pack("{s:o}", "jobs", f.json) : NULL);
    return pd_result_table(line, f.table, "no jobs");
}
