/* daemon_commands.c - runs the commands about a daemon as a whole: ping, drain, shutdown. */
#include "commands.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ask_all.h"
#include "common_checkpoint.h"
#include "format.h"
#include "grow.h"
#include "result.h"

/* Measures how long a shard takes to answer; arg: milliseconds of each shard. */
static int ping(pd_shard *shard, void *arg, pd_error *err)
{
    double *ms = arg, began = pd_now_s();
    int rc = pd_client_call(shard->op.client, PD_HEARTBEAT, NULL, shard->op.arena, NULL, err);

    ms[shard->number] = (pd_now_s() - began) * 1e3;
    return rc;
}

static json_t *ping_json(const pd_shard *shard, double ms)
{
    return json_pack("{s:s, s:f}", "server", pd_client_welcome(shard->op.client)->server, "ms", ms);
}

static int print_pings(const pd_line *line, const pd_cluster *cluster, const double *ms)
{
    json_t *all;

    if (line->json && cluster->n == 1) return pd_result_json(ping_json(&cluster->at[0], ms[0]));
    all = json_array();
    for (size_t i = 0; i < cluster->n; i++) {
        const pd_shard *shard = &cluster->at[i];
        if (shard->rc != PD_OK) continue;
        json_array_append_new(all, ping_json(shard, ms[i]));
        if (line->json) continue;
        pd_print_line(stdout, "%s%s%s answers in %.2f ms", cluster->n > 1 ? shard->url : "", cluster->n > 1 ? ": " : "",
                      pd_client_welcome(shard->op.client)->server, ms[i]);
    }
    if (line->json) return pd_result_json(json_pack("{s:o}", "shards", all));
    json_decref(all);
    return PD_CTL_OK;
}

int pd_run_ping(pd_line *line)
{
    bool quiet = pd_line_has(line, "quiet");
    double *ms = calloc(line->asked->n_shards, sizeof *ms);
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open_named(&cluster, line, 0, &err), status = PD_CTL_OK;

    if (rc == PD_OK && ms == NULL) rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = pd_cluster_each(&cluster, ping, ms, &err);
    if (rc != PD_OK)
        status = quiet ? pd_result_fail_quietly(line->json, &err) : pd_result_fail(line->json, &err);
    else if (line->json || !quiet)
        status = print_pings(line, &cluster, ms);
    if (quiet) line->asked->quiet = true;
    pd_cluster_close(&cluster);
    free(ms);
    return status;
}

/* A request whose answer a background thread waits for. The caller must not use `op` until the thread has ended. */
typedef struct background {
    pd_operator *op;
    unsigned method;
    const ProtobufCMessage *request;
    atomic_bool answered;
    int rc;
    pd_error *err;
} background;

static void *wait_for_answer(void *arg)
{
    background *call = arg;

    call->rc = pd_client_call(call->op->client, call->method, call->request, call->op->arena, NULL, call->err);
    atomic_store(&call->answered, true);
    return NULL;
}

/* Prints, for each job of a shard that waits, for which ranks it waits, for how long, and for how long at most
 * (`most_s`). */
static void report(const pd_line *line, pd_shard *shard, double most_s)
{
    Paramd__StatusReply *status;
    char which[32] = "";

    if (line->asked->n_shards > 1) snprintf(which, sizeof which, "shard %u: ", shard->number);
    if (pd_client_call(shard->op.client, PD_STATUS, NULL, shard->op.arena, (void **)&status, NULL) != PD_OK) return;
    for (size_t i = 0; i < status->n_jobs; i++) {
        const Paramd__JobInfo *job = status->jobs[i];
        if (job->waits_ms == 0 || job->waits_for[0] == '\0') continue;
        pd_print_line(stderr, "paramctl: %sjob %s: step %llu waits for rank %s, %llu of at most %.0f s", which,
                      job->name, (unsigned long long)job->step_least + 1, job->waits_for,
                      (unsigned long long)job->waits_ms / 1000, most_s);
    }
}

/* Sends a Drain or Shutdown request over `op`, whose deadline must be long enough, and waits for the answer. Meanwhile
 * asks the same daemon once a second over the shard's connection for which ranks the open rounds wait, and prints
 * them. */
static int call_with_progress(const pd_line *line, pd_operator *op, pd_shard *shard, unsigned method,
                              const ProtobufCMessage *request, double most_s, pd_error *err)
{
    static const double look_s = 0.02, report_s = 1;
    background call = { .op = op, .method = method, .request = request, .err = err };
    double since_report = 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, wait_for_answer, &call) != 0)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for a thread");
    while (!atomic_load(&call.answered)) {
        pd_pause_s(look_s);
        if ((since_report += look_s) < report_s) continue;
        since_report = 0;
        report(line, shard, most_s);
    }
    pthread_join(thread, NULL);
    return call.rc;
}

/* How long the daemon waits at most for open rounds before it shuts down, and for checkpoints after that. */
typedef struct timeouts {
    double drain_s, checkpoint_s;
} timeouts;

static int read_timeouts(pd_operator *op, timeouts *out, pd_error *err)
{
    Paramd__StatusReply *status = NULL;
    int rc = pd_client_call(op->client, PD_STATUS, NULL, op->arena, (void **)&status, err);

    if (rc != PD_OK) return rc;
    out->drain_s = (double)status->drain_timeout_ms / 1e3;
    out->checkpoint_s = (double)status->keep_timeout_ms / 1e3;
    return PD_OK;
}

/* What is asked of each shard. */
typedef struct ending {
    const pd_line *line;
    double within_s; /* of a drain: time for open rounds to close */
} ending;

/* Sends a Drain request and waits for its answer, which comes when all open rounds are closed and the jobs have made
 * their last checkpoints. */
static int drain(pd_shard *shard, void *arg, pd_error *err)
{
    const ending *e = arg;
    Paramd__DrainRequest request = PARAMD__DRAIN_REQUEST__INIT;
    pd_operator op = { 0 };
    timeouts most;
    int rc = read_timeouts(&shard->op, &most, err);

    if (rc == PD_OK) rc = pd_operator_open(&op, shard->url, e->within_s + most.checkpoint_s + e->line->timeout, err);
    request.timeout_ms = e->within_s * 1000 < UINT32_MAX ? (uint32_t)(e->within_s * 1000) : UINT32_MAX;
    if (rc == PD_OK) rc = call_with_progress(e->line, &op, shard, PD_DRAIN, &request.base, e->within_s, err);
    pd_operator_close(&op);
    return rc;
}

int pd_run_drain(pd_line *line)
{
    ending e = { .line = line, .within_s = pd_line_seconds(line, "within") };
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open_named(&cluster, line, 0, &err), status;

    if (rc != PD_OK)
        status = pd_result_fail(line->json, &err);
    else if ((rc = pd_cluster_each(&cluster, drain, &e, &err)) == PD_DEADLINE_EXCEEDED)
        status = pd_result_fail_reached(line->json, &err); /* rounds did not close in time */
    else
        status = rc == PD_OK ? pd_result_done(line->json, "drained: no step is under way and none will begin")
                             : pd_result_fail(line->json, &err);
    pd_cluster_close(&cluster);
    return status;
}

/* Waits until requests fail, since the daemon has closed the connection. A daemon that does not answer in time has not
 * ended. */
static int await_end(pd_operator *op, pd_error *err)
{
    static const double gone_s = 5, look_s = 0.05;

    for (double waited = 0; waited < gone_s; waited += look_s) {
        int rc = pd_client_call(op->client, PD_HEARTBEAT, NULL, op->arena, NULL, err);
        if (rc != PD_OK) return rc == PD_DEADLINE_EXCEEDED ? rc : PD_OK;
        pd_pause_s(look_s);
    }
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "daemon still running %.0f s after the drain", gone_s);
}

/* Shuts a daemon down and waits for its end. PD_UNAVAILABLE from the request is no error: the daemon ended before it
 * had answered. PD_ABORTED: the daemon stops, but has lost steps, since a last checkpoint has failed. */
static int shut_down(pd_shard *shard, void *arg, pd_error *err)
{
    static const double grace_s = 2;
    const ending *e = arg;
    pd_operator op = { 0 };
    timeouts most;
    pd_error late;
    int rc = read_timeouts(&shard->op, &most, err);

    if (rc == PD_OK)
        rc = pd_operator_open(&op, shard->url, most.drain_s + most.checkpoint_s + grace_s + e->line->timeout, err);
    if (rc == PD_OK &&
        (rc = call_with_progress(e->line, &op, shard, PD_SHUTDOWN, NULL, most.drain_s, err)) == PD_UNAVAILABLE)
        rc = PD_OK;
    if (rc == PD_OK) rc = await_end(&shard->op, err);
    if (rc == PD_ABORTED) (void)await_end(&shard->op, &late);
    pd_operator_close(&op);
    return rc;
}

/* The names of the jobs that make checkpoints. */
typedef struct names {
    char **at;
    size_t n, room;
} names;

static void add_durable(void *arg, const Paramd__ListReply *page)
{
    names *to = arg;

    for (size_t i = 0; i < page->n_jobs; i++) {
        const Paramd__JobInfo *job = page->jobs[i];
        if (job->durability[0] == '\0' || strcmp(job->durability, "none") == 0 || job->step_most == 0) continue;
        if (pd_grow((void **)&to->at, &to->room, to->n + 1, sizeof *to->at) != PD_OK) return;
        if ((to->at[to->n] = strdup(job->name)) != NULL) to->n++;
    }
}

/* Lets all daemons of a cluster write a checkpoint of one step of each job. Without it, the last checkpoints that they
 * write when they end may be a step apart, and the job would continue from an earlier step that all of them have.
 * Errors are ignored, for that would be no loss but of time. */
static void make_common_checkpoints(const pd_line *line)
{
    static const double wait_s = 60;
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    names jobs = { 0 };
    pd_cluster cluster;
    pd_error ignored;
    int rc = pd_cluster_open(&cluster, line, wait_s, &ignored);

    cluster.tolerated[0] = PD_NOT_FOUND;
    request.what = PARAMD__LIST_KIND__LIST_JOBS;
    if (rc == PD_OK) (void)pd_cluster_list(&cluster, &request, add_durable, &jobs, &ignored);
    for (size_t i = 0; i < jobs.n; i++) {
        Paramd__CheckpointRequest one = PARAMD__CHECKPOINT_REQUEST__INIT;
        pd_checkpoints_made made;
        one.job = jobs.at[i];
        one.wait_ms = (uint32_t)(wait_s * 1000);
        (void)pd_common_checkpoint(&cluster, &one, &made, &ignored);
        free(jobs.at[i]);
    }
    free(jobs.at);
    pd_cluster_close(&cluster);
}

int pd_run_shutdown(pd_line *line)
{
    ending e = { .line = line };
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open_named(&cluster, line, 0, &err), status;

    if (rc == PD_OK && cluster.n > 1) make_common_checkpoints(line);
    if (rc == PD_OK) rc = pd_cluster_each(&cluster, shut_down, &e, &err);
    if (rc == PD_OK)
        status = pd_result_done(line->json, cluster.n > 1 ? "the daemons have stopped" : "the daemon has stopped");
    else
        status = pd_result_fail(line->json, &err);
    pd_cluster_close(&cluster);
    return status;
}
