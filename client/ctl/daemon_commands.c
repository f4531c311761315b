/* daemon_commands.c - runs the commands about a daemon as a whole: ping, drain, shutdown. */
#include "commands.h"

#include <pthread.h>
#include <stdatomic.h>

#include "connection.h"
#include "format.h"
#include "result.h"

int pd_run_ping(pd_line *line)
{
    bool quiet = pd_line_has(line, "quiet");
    pd_operator op;
    pd_error err = { 0 };
    double began, ms;
    int rc = pd_operator_open(&op, line->server, line->timeout, &err), status = PD_CTL_OK;

    began = pd_now_s();
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_HEARTBEAT, NULL, op.arena, NULL, &err);
    ms = (pd_now_s() - began) * 1e3;
    if (rc != PD_OK)
        status = quiet ? pd_result_fail_quietly(line->json, &err) : pd_result_fail(line->json, &err);
    else if (line->json)
        status = pd_result_json(json_pack("{s:s, s:f}", "server", pd_client_welcome(op.client)->server, "ms", ms));
    else if (!quiet)
        pd_print_line(stdout, "%s answers in %.2f ms", pd_client_welcome(op.client)->server, ms);
    pd_operator_close(&op);
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

/* Prints, for each job that waits, for which ranks it waits, for how long, and for how long at most (`most_s`). */
static void report(pd_operator *op, double most_s)
{
    Paramd__StatusReply *status;

    if (pd_client_call(op->client, PD_STATUS, NULL, op->arena, (void **)&status, NULL) != PD_OK) return;
    for (size_t i = 0; i < status->n_jobs; i++) {
        const Paramd__JobInfo *job = status->jobs[i];
        if (job->waits_ms == 0 || job->waits_for[0] == '\0') continue;
        pd_print_line(stderr, "paramctl: job %s: step %llu waits for rank %s, %llu of at most %.0f s", job->name,
                      (unsigned long long)job->step_least + 1, job->waits_for, (unsigned long long)job->waits_ms / 1000,
                      most_s);
    }
}

/* Sends a Drain or Shutdown request over `op`, whose deadline must be long enough, and waits for the answer. Meanwhile
 * asks the same daemon once a second over `second` for which ranks the open rounds wait, and prints them. */
static int call_with_progress(pd_operator *op, pd_operator *second, unsigned method, const ProtobufCMessage *request,
                              double most_s, pd_error *err)
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
        report(second, most_s);
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

/* Sends a Drain request and waits for its answer, which comes when all open rounds are closed and the jobs have made
 * their last checkpoints. */
static int drain(const pd_line *line, pd_operator *second, double within_s, pd_error *err)
{
    Paramd__DrainRequest request = PARAMD__DRAIN_REQUEST__INIT;
    pd_operator op = { 0 };
    timeouts most;
    int rc = read_timeouts(second, &most, err);

    if (rc == PD_OK) rc = pd_operator_open(&op, line->server, within_s + most.checkpoint_s + line->timeout, err);
    request.timeout_ms = within_s * 1000 < UINT32_MAX ? (uint32_t)(within_s * 1000) : UINT32_MAX;
    if (rc == PD_OK) rc = call_with_progress(&op, second, PD_DRAIN, &request.base, within_s, err);
    pd_operator_close(&op);
    return rc;
}

int pd_run_drain(pd_line *line)
{
    pd_operator second;
    pd_error err = { 0 };
    int rc = pd_operator_open(&second, line->server, line->timeout, &err), status;

    if (rc != PD_OK)
        status = pd_result_fail(line->json, &err);
    else if ((rc = drain(line, &second, pd_line_seconds(line, "within"), &err)) == PD_DEADLINE_EXCEEDED)
        status = pd_result_fail_reached(line->json, &err); /* rounds did not close in time */
    else
        status = rc == PD_OK ? pd_result_done(line->json, "drained: no step is under way and none will begin")
                             : pd_result_fail(line->json, &err);
    pd_operator_close(&second);
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

/* Shuts the daemon down and waits for its end. PD_UNAVAILABLE from the request is no error: the daemon ended before
 * it had answered. PD_ABORTED: the daemon stops, but has lost steps, since a last checkpoint has failed. */
static int shut_down(const pd_line *line, pd_operator *second, pd_error *err)
{
    static const double grace_s = 2;
    pd_operator op = { 0 };
    timeouts most;
    pd_error late;
    int rc = read_timeouts(second, &most, err);

    if (rc == PD_OK)
        rc = pd_operator_open(&op, line->server, most.drain_s + most.checkpoint_s + grace_s + line->timeout, err);
    if (rc == PD_OK && (rc = call_with_progress(&op, second, PD_SHUTDOWN, NULL, most.drain_s, err)) == PD_UNAVAILABLE)
        rc = PD_OK;
    if (rc == PD_OK) rc = await_end(second, err);
    if (rc == PD_ABORTED) (void)await_end(second, &late);
    pd_operator_close(&op);
    return rc;
}

int pd_run_shutdown(pd_line *line)
{
    pd_operator second;
    pd_error err = { 0 };
    int rc = pd_operator_open(&second, line->server, line->timeout, &err), status;

    if (rc == PD_OK) rc = shut_down(line, &second, &err);
    status = rc == PD_OK ? pd_result_done(line->json, "the daemon has stopped") : pd_result_fail(line->json, &err);
    pd_operator_close(&second);
    return status;
}
