/* lists.c - the columns of the tables that the commands jobs, workers and roots print. */
#include "lists.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "durable_text.h"
#include "format.h"

/* ---- cells that show several fields ---- */

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
    if (job->gradient_norm == 0 && job->clipped_steps == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%.4g", job->gradient_norm);
}

static void loss_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    if (job->loss_step == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%.4g", job->loss);
}

static void speed_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell(table, "%s", job->step_most == 0 ? "-" : pd_speed_text(text, job->steps_per_second));
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

/* Shows in which share of the steps the rank was the last one to contribute. */
static void last_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__WorkerInfo *worker = entry;

    (void)column;
    if (worker->timed_steps == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%.0f %%", 100.0 * (double)worker->times_last / (double)worker->timed_steps);
}

/* Shows by how much the rank was later than the one before it, on average over the steps in which it was last. */
static void late_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__WorkerInfo *worker = entry;
    char text[PD_CELL];

    (void)column;
    if (worker->times_last == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%s", pd_seconds_text(text, worker->late_seconds / (double)worker->times_last));
}

static void step_time_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;
    char text[PD_CELL];

    if (job->timed_steps == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%s", pd_seconds_text(text, pd_column_number(column, entry) / (double)job->timed_steps));
}

static void adopted_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__JobInfo *job = entry;

    (void)column;
    if (job->roots_due == 0)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%" PRIu64 "/%" PRIu64, job->roots_adopted, job->roots_due);
}

static void age_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RootInfo *root = entry;

    (void)column;
    if (root->adopted > 0)
        pd_table_cell(table, "%" PRIu64, root->age);
    else
        pd_table_cell(table, "-");
}

static void failed_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RootInfo *root = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell(table, "%s%s", pd_count_text(text, root->failed), root->failing ? " (failing)" : "");
    if (root->failing) pd_table_alarm(table);
}

/* ---- columns ---- */

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
    { PARAMD__LIST_KIND__LIST_JOBS, "jobs", "no jobs", job_columns },
    { PARAMD__LIST_KIND__LIST_WORKERS, "workers", "no workers", worker_columns },
    { PARAMD__LIST_KIND__LIST_ROOTS, "roots", "no roots", root_columns },
};

const pd_list *pd_list_named(const char *name)
{
    const pd_list *list = lists;

    while (strcmp(list->name, name) != 0) list++;
    return list;
}

int pd_run_list(pd_line *line)
{
    const pd_list *list = pd_list_named(line->command->name);
    pd_list_output out = pd_list_begin(list, line);
    pd_error err = { 0 };

    return pd_list_end(&out, pd_list_fetch(line, list->what, pd_list_add_page, &out, &err), &err);
}

/* ---- jobs ---- */

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
    pd_list_output out = pd_list_begin(pd_list_named("jobs"), line);
    pd_error err = { 0 };
    int rc = pd_list_fetch(line, PARAMD__LIST_KIND__LIST_JOBS, add_matching, &out, &err);

    if (rc == PD_OK && out.n == 0 && line->n_args > 0)
        rc = pd_fail(&err, PD_NOT_FOUND, "no job matches '%.200s'", line->args[0]);
    return pd_list_end(&out, rc, &err);
}
