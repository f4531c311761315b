/* shards_command.c - runs the command shards: what each daemon of a cluster has of a job, and whether they agree. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ask_all.h"
#include "commands.h"
#include "format.h"
#include "grow.h"
#include "result.h"

/* A job on one daemon. */
typedef struct row {
    char job[257];
    const pd_shard *shard;
    const Paramd__StatusReply *daemon;
    const Paramd__JobInfo *info; /* in the daemon's answer */
    double load;                 /* bytes that the job takes there, over the mean of all daemons that have it */
} row;

typedef struct rows {
    row *at;
    size_t n, room;
    bool failed; /* memory was missing */
} rows;

/* Adds the jobs of one daemon's answer, or the one of the command's argument. */
static void add_rows(rows *all, const pd_line *line, const pd_shard *shard, const Paramd__StatusReply *daemon)
{
    for (size_t i = 0; i < daemon->n_jobs; i++) {
        const Paramd__JobInfo *info = daemon->jobs[i];
        if (line->n_args > 0 && strcmp(line->args[0], info->name) != 0) continue;
        if (pd_grow((void **)&all->at, &all->room, all->n + 1, sizeof *all->at) != PD_OK) {
            all->failed = true;
            return;
        }
        all->at[all->n] = (row){ .shard = shard, .daemon = daemon, .info = info };
        snprintf(all->at[all->n++].job, sizeof all->at->job, "%s", info->name);
    }
}

static int compare(const void *left, const void *right)
{
    const row *a = left, *b = right;
    int order = strcmp(a->job, b->job);

    return order != 0 ? order : (a->shard->number > b->shard->number) - (a->shard->number < b->shard->number);
}

/* Returns the number of rows of the job that begins at row `first`. */
static size_t rows_of_job(const rows *all, size_t first)
{
    size_t n = 1;

    while (first + n < all->n && strcmp(all->at[first].job, all->at[first + n].job) == 0) n++;
    return n;
}

static void find_loads(row *at, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) sum += (double)at[i].info->committed_bytes;
    for (size_t i = 0; i < n; i++) at[i].load = sum > 0 ? (double)at[i].info->committed_bytes * (double)n / sum : 1;
}

/* What is wrong with the cluster, as lines of text. */
typedef struct problems {
    json_t *lines;
} problems;

static void tell(problems *p, json_t *line)
{
    json_array_append_new(p->lines, line);
}

/* Checks that a daemon has the place in the list that its job was created with, and the same map as the first
 * daemon. */
static void check_row(problems *p, const pd_line *line, const row *first, const row *at)
{
    const Paramd__JobInfo *a = first->info, *b = at->info;

    if (b->shards <= 1 && line->n_shards > 1)
        tell(p, json_sprintf("job %s: shard %u has the job alone: it is no part of a cluster", at->job,
                             at->shard->number));
    else if (b->shards != line->n_shards || b->shard != at->shard->number)
        tell(p, json_sprintf("job %s: the list's shard %u of %zu is shard %u of %u: order the list as the workers' is",
                             at->job, at->shard->number, line->n_shards, b->shard, b->shards));
    if (a->cluster != b->cluster)
        tell(p, json_sprintf("job %s: shards %u and %u belong to different runs: drop the one that is left over",
                             at->job, first->shard->number, at->shard->number));
    else if (a->map != b->map && a->map != 0 && b->map != 0)
        tell(p, json_sprintf("job %s: shards %u and %u have different maps: they run %s and %s", at->job,
                             first->shard->number, at->shard->number, first->daemon->server, at->daemon->server));
}

/* Checks the daemons of one job, whose rows are at[0] to at[n - 1]. */
static void check_job(problems *p, const pd_line *line, const row *at, size_t n)
{
    const row *last = at;
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        check_row(p, line, &at[0], &at[i]);
        if (at[i].info->step_least < last->info->step_least) last = &at[i];
        most = at[i].info->step_most > most ? at[i].info->step_most : most;
    }
    if (n < line->n_shards) tell(p, json_sprintf("job %s: %zu of %zu shards have it", at->job, n, line->n_shards));
    /* Where not every rank counts in each step, shards take their steps apart. */
    if (most > last->info->step_least + 1 && !last->info->open_sets)
        tell(p, json_sprintf("job %s: shard %u is %llu steps behind: it waits for %s", at->job, last->shard->number,
                             (unsigned long long)(most - last->info->step_least),
                             last->info->waits_for[0] != '\0' ? last->info->waits_for : "nobody"));
}

static void step_cell(pd_table *table, const Paramd__JobInfo *job)
{
    if (job->step_least == job->step_most)
        pd_table_cell(table, "%" PRIu64, job->step_least);
    else
        pd_table_cell(table, "%" PRIu64 "-%" PRIu64, job->step_least, job->step_most);
}

static void add_cells(pd_table *table, const row *at)
{
    char text[PD_CELL], durable[PD_DURABLE_TEXT];
    const Paramd__JobInfo *job = at->info;
    const char *version = strchr(at->daemon->server, ' ');
    double step_s = job->timed_steps > 0 ? job->stepping_seconds / (double)job->timed_steps : 0;

    pd_table_cell(table, "%s", at->job);
    pd_table_cell(table, "%u", at->shard->number);
    pd_table_cell(table, "%s", at->shard->url != NULL ? at->shard->url : "-");
    pd_table_cell(table, "%s", version != NULL ? version + 1 : at->daemon->server);
    pd_table_cell(table, "%08" PRIx32, (uint32_t)(job->life >> 32));
    step_cell(table, job);
    pd_durable_text(durable, job);
    pd_table_cell(table, "%s", durable);
    pd_table_cell(table, "%s (%.2f)", pd_bytes_text(text, job->committed_bytes), at->load);
    pd_table_cell_if(table, job->timed_steps > 0, "%s", pd_seconds_text(text, step_s));
    pd_table_cell_if(table, at->daemon->n_loop_busy_ms == 4, "%.2f ms", at->daemon->loop_busy_ms[1]);
}

static json_t *row_json(const row *at)
{
    json_t *loop = at->daemon->n_loop_busy_ms == 4 ? json_real(at->daemon->loop_busy_ms[1]) : json_null();
    json_t *object = pd_message_json(&at->info->base);

    json_object_set_new(object, "shard_of_list", json_integer(at->shard->number));
    json_object_set_new(object, "url", json_string(at->shard->url != NULL ? at->shard->url : ""));
    json_object_set_new(object, "server", json_string(at->daemon->server));
    json_object_set_new(object, "load", json_real(at->load));
    json_object_set_new(object, "loop_busy_ms", loop);
    return object;
}

static int print(const pd_line *line, const rows *all, const problems *p)
{
    pd_table *table = NULL;
    json_t *list = json_array(), *text;
    size_t i;
    int status;

    if (line->json) {
        for (i = 0; i < all->n; i++) json_array_append_new(list, row_json(&all->at[i]));
        status = pd_result_json(json_pack("{s:o, s:O}", "shards", list, "problems", p->lines));
        return status == PD_CTL_OK && json_array_size(p->lines) > 0 ? PD_CTL_FAILED : status;
    }
    json_decref(list);
    table = pd_table_new("~JOB|>SHARD|ADDRESS|VERSION|LIFE|>STEP|DURABLE|>MEMORY (OF MEAN)|>STEPPING|>LOOP 99 %");
    for (i = 0; table != NULL && i < all->n; i++) add_cells(table, &all->at[i]);
    status = pd_result_table(line, table, "no jobs");
    json_array_foreach(p->lines, i, text) pd_print_line(stdout, "%s", json_string_value(text));
    return status == PD_CTL_OK && json_array_size(p->lines) > 0 ? PD_CTL_FAILED : status;
}

/* Prints what the daemons have answered. */
static int print_answers(const pd_line *line, const pd_cluster *cluster, void *const *replies, pd_error *err)
{
    rows all = { 0 };
    problems p = { json_array() };
    size_t n;
    int status;

    for (size_t i = 0; i < cluster->n; i++)
        if (replies[i] != NULL) add_rows(&all, line, &cluster->at[i], replies[i]);
    if (all.n > 0) qsort(all.at, all.n, sizeof *all.at, compare);
    for (size_t i = 0; i < all.n; i += n) {
        n = rows_of_job(&all, i);
        find_loads(&all.at[i], n);
        if (cluster->n > 1) check_job(&p, line, &all.at[i], n);
    }
    if (all.failed)
        status = pd_result_fail(line->json, (pd_fail(err, PD_NO_MEMORY, "out of memory"), err));
    else if (all.n == 0 && line->n_args > 0)
        status = pd_result_fail(line->json, (pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", line->args[0]), err));
    else
        status = print(line, &all, &p);
    json_decref(p.lines);
    free(all.at);
    return status;
}

int pd_run_shards(pd_line *line)
{
    return pd_cluster_print(line, PD_STATUS, print_answers);
}
