/* ask_all.c - sends a command's requests to all daemons of a list at the same time. */
#include "ask_all.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "merged_list.h"
#include "result.h"

/* Returns a line of text that a terminal can show. The caller frees it. NULL: out of memory. */
static char *line_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *line_of(const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = pd_text_formatted(format, args);
    va_end(args);
    return text;
}

void pd_cluster_miss(const pd_line *line, const pd_shard *shard, const pd_error *err)
{
    pd_asked *asked = line->asked;
    int status = pd_result_status(err->code);
    char *more = NULL, *one = line_of("paramctl: shard %u (%s): %s", shard->number, shard->url,
                                      err->text[0] != '\0' ? err->text : pd_code_text(err->code));

    if (status > asked->status) asked->status = status;
    if (one != NULL && asked->lines != NULL && strstr(asked->lines, one) != NULL) {
        free(one); /* the command has connected twice */
        return;
    }
    if (one != NULL && asprintf(&more, "%s%s\n", asked->lines != NULL ? asked->lines : "", one) >= 0) {
        free(asked->lines);
        asked->lines = more;
    }
    free(one);
}

/* A call of pd_cluster_each for one shard. */
typedef struct call {
    pd_shard *shard;
    pd_shard_work *work;
    void *arg;
    pthread_t thread;
    bool started;
} call;

static void *run(void *arg)
{
    call *c = arg;

    c->shard->rc = c->work(c->shard, c->arg, &c->shard->err);
    return NULL;
}

static void start(call *c)
{
    if (pthread_create(&c->thread, NULL, run, c) == 0)
        c->started = true;
    else
        c->shard->rc = pd_fail(&c->shard->err, PD_NO_MEMORY, "out of memory for a thread");
}

/* Returns whether all shards have failed in the same way although they can be reached, such as with "no job x". */
static bool agree(const pd_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n; i++)
        if (cluster->at[i].rc != cluster->at[0].rc || strcmp(cluster->at[i].err.text, cluster->at[0].err.text) != 0)
            return false;
    return true;
}

static bool is_unreachable(const pd_shard *shard)
{
    return pd_result_status(shard->rc) == PD_CTL_UNREACHABLE;
}

/* Returns whether an error of a shard counts as a failure of the call. */
static bool counts(const pd_cluster *cluster, const pd_shard *shard)
{
    return shard->rc != PD_OK && shard->rc != cluster->tolerated[0] && shard->rc != cluster->tolerated[1];
}

/* Makes the error of a shard that of the command. */
static int fail_with(const pd_cluster *cluster, const pd_shard *shard, pd_error *err)
{
    if (agree(cluster)) return pd_fail(err, shard->rc, "%s", shard->err.text);
    return pd_fail(err, shard->rc, "shard %u (%s): %s", shard->number, shard->url,
                   shard->err.text[0] != '\0' ? shard->err.text : pd_code_text(shard->rc));
}

/* Reports the shards that failed in the calls of this round, or makes the error of one of them that of the command. */
static int settle(pd_cluster *cluster, const call *calls, pd_error *err)
{
    const pd_shard *first = NULL; /* the first shard that has failed */
    bool any = false;

    for (size_t i = cluster->n; i-- > 0;) {
        any = any || cluster->at[i].rc == PD_OK;
        if (counts(cluster, &cluster->at[i])) first = &cluster->at[i];
    }
    if (!any && first == NULL) first = &cluster->at[0];
    if (first != NULL && (!any || cluster->complete)) return fail_with(cluster, first, err);
    for (size_t i = 0; i < cluster->n; i++)
        if (calls[i].shard != NULL && counts(cluster, &cluster->at[i]))
            pd_cluster_miss(cluster->line, &cluster->at[i], &cluster->at[i].err);
    return PD_OK;
}

int pd_cluster_each(pd_cluster *cluster, pd_shard_work *work, void *arg, pd_error *err)
{
    call *calls;
    int rc;

    if (cluster->n == 1) {
        cluster->at[0].rc = work(&cluster->at[0], arg, err);
        return cluster->at[0].rc;
    }
    if ((calls = calloc(cluster->n, sizeof *calls)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < cluster->n; i++) {
        if (is_unreachable(&cluster->at[i])) continue;
        calls[i] = (call){ .shard = &cluster->at[i], .work = work, .arg = arg };
        start(&calls[i]);
    }
    for (size_t i = 0; i < cluster->n; i++)
        if (calls[i].started) pthread_join(calls[i].thread, NULL);
    rc = settle(cluster, calls, err);
    free(calls);
    return rc;
}

/* How the shards of a cluster are opened. */
typedef struct opening {
    double deadline_s;
} opening;

static int open_shard(pd_shard *shard, void *arg, pd_error *err)
{
    const opening *how = arg;

    return pd_operator_open(&shard->op, shard->url, how->deadline_s, err);
}

/* Connects to the daemons of the command line. */
static int open_all(pd_cluster *out, const pd_line *line, double more_s, bool complete, pd_error *err)
{
    opening how = { line->timeout + more_s };
    size_t n = line->asked->n_shards;

    *out = (pd_cluster){ .line = line, .at = calloc(n, sizeof *out->at), .complete = complete };
    if (out->at == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    out->n = n;
    for (size_t i = 0; i < n; i++)
        out->at[i] = (pd_shard){ .number = (uint32_t)i, .url = n == 1 ? line->server : line->asked->shards[i] };
    return pd_cluster_each(out, open_shard, &how, err);
}

/* Takes over the addresses of a table of shards, as if the command line named them. */
static int take_table(pd_asked *asked, const Paramd__ShardsReply *table, pd_error *err)
{
    char **shards = calloc(table->n_shards + 1, sizeof *shards);
    int rc = shards != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");

    for (size_t i = 0; rc == PD_OK && i < table->n_shards; i++) {
        if (table->shards[i]->url[0] == '\0')
            rc = pd_fail(err, PD_UNAVAILABLE, "shard %zu of cluster %.60s has had no owner yet", i, table->cluster);
        else if ((shards[i] = strdup(table->shards[i]->url)) == NULL)
            rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    if (rc == PD_OK) {
        asked->shards = shards;
        asked->n_shards = table->n_shards;
        return PD_OK;
    }
    for (size_t i = 0; shards != NULL && i < table->n_shards; i++) free(shards[i]);
    free(shards);
    return rc;
}

/* Works as open_all. If the command line names one daemon of several that have a table of shards, connects to all. */
static int open_found(pd_cluster *out, const pd_line *line, double more_s, bool complete, pd_error *err)
{
    Paramd__ShardsReply *table;
    pd_operator *op;
    int rc = open_all(out, line, more_s, complete, err);

    if (rc != PD_OK || out->n > 1) return rc;
    op = &out->at[0].op;
    if (pd_client_shards_known(op->client) <= 1) return PD_OK;
    rc = pd_client_call(op->client, PD_SHARDS, NULL, op->arena, (void **)&table, err);
    if (rc == PD_OK) rc = take_table(line->asked, table, err);
    pd_cluster_close(out);
    return rc == PD_OK ? open_all(out, line, more_s, complete, err) : rc;
}

int pd_cluster_open(pd_cluster *out, const pd_line *line, double more_s, pd_error *err)
{
    return open_found(out, line, more_s, false, err);
}

int pd_cluster_open_complete(pd_cluster *out, const pd_line *line, double more_s, pd_error *err)
{
    return open_found(out, line, more_s, true, err);
}

int pd_cluster_open_named(pd_cluster *out, const pd_line *line, double more_s, pd_error *err)
{
    return open_all(out, line, more_s, false, err);
}

static void *reopen(void *arg)
{
    call *c = arg;
    const opening *how = c->arg;

    pd_operator_close(&c->shard->op);
    c->shard->rc = pd_operator_open(&c->shard->op, c->shard->url, how->deadline_s, &c->shard->err);
    return NULL;
}

void pd_cluster_reopen(pd_cluster *cluster, double most_s)
{
    opening how = { most_s };
    call *calls = cluster->n > 1 ? calloc(cluster->n, sizeof *calls) : NULL;

    for (size_t i = 0; calls != NULL && i < cluster->n; i++) {
        if (!is_unreachable(&cluster->at[i])) continue;
        calls[i] = (call){ .shard = &cluster->at[i], .arg = &how };
        calls[i].started = pthread_create(&calls[i].thread, NULL, reopen, &calls[i]) == 0;
    }
    for (size_t i = 0; calls != NULL && i < cluster->n; i++)
        if (calls[i].started) pthread_join(calls[i].thread, NULL);
    free(calls);
}

int pd_cluster_probe(const pd_line *line, pd_error *err)
{
    pd_cluster cluster;
    int rc = pd_cluster_open_complete(&cluster, line, 0, err);

    pd_cluster_close(&cluster);
    return rc;
}

uint64_t pd_cluster_payload(const pd_cluster *cluster, uint64_t most)
{
    for (size_t i = 0; i < cluster->n; i++) {
        uint64_t one = pd_client_welcome(cluster->at[i].op.client)->max_payload;
        most = one < most ? one : most;
    }
    return most;
}

void pd_cluster_close(pd_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n; i++) pd_operator_close(&cluster->at[i].op);
    free(cluster->at);
    *cluster = (pd_cluster){ 0 };
}

/* A request that goes to all shards, and their answers. */
typedef struct asking {
    unsigned method;
    const ProtobufCMessage *request;
    void **replies; /* of each shard; NULL: not wanted */
} asking;

static int ask(pd_shard *shard, void *arg, pd_error *err)
{
    const asking *a = arg;

    return pd_client_call(shard->op.client, a->method, a->request, shard->op.arena,
                          a->replies != NULL ? &a->replies[shard->number] : NULL, err);
}

int pd_cluster_ask(pd_cluster *cluster, unsigned method, const ProtobufCMessage *request, void **replies, pd_error *err)
{
    asking a = { method, request, replies };

    for (size_t i = 0; replies != NULL && i < cluster->n; i++) replies[i] = NULL;
    return pd_cluster_each(cluster, ask, &a, err);
}

int pd_cluster_print(const pd_line *line, unsigned method, pd_replies_print *print)
{
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open(&cluster, line, 0, &err), status;
    void **replies = calloc(line->asked->n_shards, sizeof *replies);

    if (rc == PD_OK && replies == NULL) rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = pd_cluster_ask(&cluster, method, NULL, replies, &err);
    status = rc == PD_OK ? print(line, &cluster, replies, &err) : pd_result_fail(line->json, &err);
    pd_cluster_close(&cluster);
    free(replies);
    return status;
}

/* The fetching of a list from all shards. */
typedef struct listing {
    const Paramd__ListRequest *request;
    pd_merged_list *lists; /* of each shard */
} listing;

static int list(pd_shard *shard, void *arg, pd_error *err)
{
    const listing *l = arg;
    pd_merged_list *pages = &l->lists[shard->number];
    Paramd__ListRequest request = *l->request;
    int rc = pd_operator_list(&shard->op, &request, pd_merged_list_keep, pages, err);

    return rc == PD_OK && pages->failed ? pd_fail(err, PD_NO_MEMORY, "out of memory") : rc;
}

int pd_cluster_list(pd_cluster *cluster, const Paramd__ListRequest *request, pd_page_user *use, void *arg,
                    pd_error *err)
{
    Paramd__ListRequest first = *request;
    listing l = { .request = request };
    int rc;

    if (cluster->n == 1) return pd_operator_list(&cluster->at[0].op, &first, use, arg, err);
    if ((l.lists = calloc(cluster->n, sizeof *l.lists)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = pd_cluster_each(cluster, list, &l, err);
    for (size_t i = 0; i < cluster->n; i++)
        if (cluster->at[i].rc != PD_OK) pd_merged_list_free(&l.lists[i]);
    if (rc == PD_OK)
        rc = pd_merged_lists_use(l.lists, cluster->n, request->what, &cluster->line->asked->shard, use, arg, err);
    for (size_t i = 0; i < cluster->n; i++) pd_merged_list_free(&l.lists[i]);
    free(l.lists);
    return rc;
}
