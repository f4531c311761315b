/* shards_command.c - runs the command shards: what each daemon of a cluster has of a job, whether they agree, and where
 * the shards are, if the daemons have a table of them. */
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

    if (b->shards <= 1 && line->asked->n_shards > 1)
        tell(p, json_sprintf("job %s: shard %u has the job alone: it is no part of a cluster", at->job,
                             at->shard->number));
    else if (b->shards != line->asked->n_shards || b->shard != at->shard->number)
        tell(p, json_sprintf("job %s: the list's shard %u of %zu is shard %u of %u: order the list as the workers' is",
                             at->job, at->shard->number, line->asked->n_shards, b->shard, b->shards));
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
    if (n < line->asked->n_shards)
        tell(p, json_sprintf("job %s: %zu of %zu shards have it", at->job, n, line->asked->n_shards));
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

/* Adds what another daemon knows to the table of the first one: newer owners, and how long its own lease lasts. */
static void merge_table(json_t *table, const Paramd__ShardsReply *other)
{
    json_t *shards = json_object_get(table, "shards");

    for (size_t i = 0; i < other->n_shards; i++) {
        const json_t *known = json_array_get(shards, i);
        const Paramd__ShardInfo *told = other->shards[i];
        if (known == NULL || told->lease_ms > 0 ||
            json_integer_value(json_object_get(known, "tenure")) < (json_int_t)told->tenure)
            json_array_set_new(shards, i, pd_message_json(&told->base));
    }
}

/* Fetches the table of shards from all daemons. NULL: they have none. */
static json_t *fetch_table(const pd_cluster *cluster)
{
    json_t *table = NULL;

    for (size_t i = 0; i < cluster->n; i++) {
        const pd_operator *op = &cluster->at[i].op;
        Paramd__ShardsReply *reply;
        if (cluster->at[i].rc != PD_OK || pd_client_shards_known(op->client) == 0) continue;
        if (pd_client_call(op->client, PD_SHARDS, NULL, op->arena, (void **)&reply, NULL) != PD_OK) continue;
        if (table == NULL)
            table = pd_message_json(&reply->base);
        else
            merge_table(table, reply);
    }
    return table;
}

static void add_owner(pd_table *out, const json_t *shard)
{
    bool alive = json_is_true(json_object_get(shard, "alive"));
    const char *url = json_string_value(json_object_get(shard, "url"));
    const char *http = json_string_value(json_object_get(shard, "http"));
    json_int_t tenure = json_integer_value(json_object_get(shard, "tenure"));
    json_int_t lease_ms = json_integer_value(json_object_get(shard, "lease_ms"));
    char text[PD_CELL];

    pd_table_cell(out, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(shard, "shard")));
    pd_table_cell(out, "%s%s", alive ? "" : "none, last ", url != NULL && url[0] != '\0' ? url : "-");
    pd_table_cell_if(out, tenure > 0, "%" JSON_INTEGER_FORMAT, tenure);
    pd_table_cell(out, "%s", !alive ? "ended" : lease_ms > 0 ? pd_seconds_text(text, (double)lease_ms / 1e3) : "kept");
    pd_table_cell(out, "%s", http != NULL && http[0] != '\0' ? http : "-");
}

/* Prints the table of shards, and the spares. */
static int print_table(const pd_line *line, const json_t *table)
{
    pd_table *out = pd_table_new("~SHARD|OWNER|>TENURE|>LEASE|HTTP");
    const json_t *shards = json_object_get(table, "shards"), *spares = json_object_get(table, "spares");
    size_t i;
    json_t *one;
    int status;

    if (out != NULL) json_array_foreach(shards, i, one) add_owner(out, one);
    status = pd_result_table(line, out, "no shards");
    json_array_foreach(spares, i, one)
        pd_print_line(stdout, "spare %s (%s)", json_string_value(json_object_get(one, "name")),
                      json_string_value(json_object_get(one, "http")));
    return status;
}

static int print_json(const rows *all, const problems *p, json_t *owners)
{
    json_t *list = json_array();
    int status;

    for (size_t i = 0; i < all->n; i++) json_array_append_new(list, row_json(&all->at[i]));
    status = pd_result_json(json_pack("{s:o, s:O, s:O*}", "shards", list, "problems", p->lines, "table", owners));
    return status == PD_CTL_OK && json_array_size(p->lines) > 0 ? PD_CTL_FAILED : status;
}

static int print(const pd_line *line, const rows *all, const problems *p, json_t *owners)
{
    pd_table *table = NULL;
    json_t *text;
    size_t i;
    int status;

    if (line->json) return print_json(all, p, owners);
    table = pd_table_new("~JOB|>SHARD|ADDRESS|VERSION|LIFE|>STEP|DURABLE|>MEMORY (OF MEAN)|>STEPPING|>LOOP 99 %");
    for (i = 0; table != NULL && i < all->n; i++) add_cells(table, &all->at[i]);
    status = pd_result_table(line, table, "no jobs");
    if (owners != NULL && status == PD_CTL_OK) {
        fputc('\n', stdout);
        status = print_table(line, owners);
    }
    json_array_foreach(p->lines, i, text) pd_print_line(stdout, "%s", json_string_value(text));
    return status == PD_CTL_OK && json_array_size(p->lines) > 0 ? PD_CTL_FAILED : status;
}

/* Tells which shards have no owner. */
static void check_owners(problems *p, const json_t *owners)
{
    const json_t *shard;
    size_t i;

    json_array_foreach(json_object_get(owners, "shards"), i, shard) if (!json_is_true(json_object_get(shard, "alive")))
        tell(p, json_sprintf("shard %zu has no owner: nobody keeps its lease", i));
}

/* Prints what the daemons have answered. */
static int print_answers(const pd_line *line, const pd_cluster *cluster, void *const *replies, json_t *owners,
                         pd_error *err)
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
    check_owners(&p, owners);
    if (all.failed)
        status = pd_result_fail(line->json, (pd_fail(err, PD_NO_MEMORY, "out of memory"), err));
    else if (all.n == 0 && line->n_args > 0)
        status = pd_result_fail(line->json, (pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", line->args[0]), err));
    else
        status = print(line, &all, &p, owners);
    json_decref(p.lines);
    free(all.at);
    return status;
}

int pd_run_shards(pd_line *line)
{
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open(&cluster, line, 0, &err), status;
    void **replies = calloc(line->asked->n_shards, sizeof *replies);
    json_t *owners = rc == PD_OK ? fetch_table(&cluster) : NULL;

    if (rc == PD_OK && replies == NULL) rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = pd_cluster_ask(&cluster, PD_STATUS, NULL, replies, &err);
    status = rc == PD_OK ? print_answers(line, &cluster, replies, owners, &err) : pd_result_fail(line->json, &err);
    pd_cluster_close(&cluster);
    json_decref(owners);
    free(replies);
    return status;
}
