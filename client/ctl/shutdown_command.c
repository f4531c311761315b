/* shutdown_command.c - the paramctl commands drain and shutdown. They wait until the open rounds are closed: rounds
 * in which gradients of some ranks are missing. */
#include "shutdown_command.h"

#include "format.h"
#include "progress.h"
#include "result.h"
#include "watch.h"

static const double grace_s = 2, gone_s = 5, look_s = 0.05;

/* ---- drain ---- */

/* How long the daemon waits at most for open rounds before it shuts down, and for checkpoints after that. */
typedef struct timeouts {
    double drain_s, keep_s;
} timeouts;

static int read_timeouts(pd_operator *op, timeouts *out, pd_error *err)
{
    Paramd__StatusReply *status = NULL;
    int rc = pd_client_call(op->client, PD_STATUS, NULL, op->arena, (void **)&status, err);

    if (rc != PD_OK) return rc;
    out->drain_s = (double)status->drain_timeout_ms / 1e3;
    out->keep_s = (double)status->keep_timeout_ms / 1e3;
    return PD_OK;
}

/* Sends a Drain request and waits for its answer, which comes when all open rounds are closed (no gradients are
 * missing) and jobs have made their last checkpoints. */
static int drain(const pd_line *line, pd_operator *second, double within_s, pd_error *err)
{
    Paramd__DrainRequest request = PARAMD__DRAIN_REQUEST__INIT;
    pd_operator op = { 0 };
    timeouts most;
    int rc = read_timeouts(second, &most, err);

    if (rc == PD_OK) rc = pd_operator_open(&op, line->server, within_s + most.keep_s + line->timeout, err);
    request.timeout_ms = within_s * 1000 < UINT32_MAX ? (uint32_t)(within_s * 1000) : UINT32_MAX;
    if (rc == PD_OK) rc = pd_call_with_progress(&op, second, PD_DRAIN, &request.base, within_s, err);
    pd_operator_close(&op);
    return rc;
}

/* ---- shutdown ---- */

/* Waits until the daemon has ended: requests then fail, because it closes the connection. A daemon that does not answer
 * in time has not ended. */
static int await_end(pd_operator *op, pd_error *err)
{
    for (double waited = 0; waited < gone_s; waited += look_s) {
        int rc = pd_client_call(op->client, PD_HEARTBEAT, NULL, op->arena, NULL, err);
        if (rc != PD_OK) return rc == PD_DEADLINE_EXCEEDED ? rc : PD_OK;
        pd_watch_pause(look_s);
    }
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "the daemon has drained and is still there after %.0f s", gone_s);
}

/* Shuts the daemon down and waits for its end. PD_UNAVAILABLE from the request is no error: the daemon ended before
 * it had answered. PD_ABORTED: the daemon stops, but has lost steps, since a last checkpoint has failed. */
static int shut_down(const pd_line *line, pd_operator *second, pd_error *err)
{
    pd_operator op = { 0 };
    timeouts most;
    pd_error late;
    int rc = read_timeouts(second, &most, err);

    if (rc == PD_OK)
        rc = pd_operator_open(&op, line->server, most.drain_s + most.keep_s + grace_s + line->timeout, err);
    if (rc == PD_OK &&
        (rc = pd_call_with_progress(&op, second, PD_SHUTDOWN, NULL, most.drain_s, err)) == PD_UNAVAILABLE)
        rc = PD_OK;
    if (rc == PD_OK) rc = await_end(second, err);
    if (rc == PD_ABORTED) (void)await_end(second, &late);
    pd_operator_close(&op);
    return rc;
}

/* ---- entry points of the commands ---- */

static int tell(const pd_line *line, const char *done)
{
    if (line->json) return pd_result_json(json_pack("{s:b}", "ok", 1));
    pd_print_line(stdout, "%s", done);
    return PD_EXIT_OK;
}

int pd_run_drain(pd_line *line)
{
    pd_operator second;
    pd_error err = { 0 };
    int rc = pd_operator_open(&second, line->server, line->timeout, &err), status;

    if (rc != PD_OK) {
        status = pd_result_fail(line->json, &err);
    } else if ((rc = drain(line, &second, pd_line_seconds(line, "within"), &err)) != PD_OK) {
        status = rc == PD_DEADLINE_EXCEEDED
                     ? pd_result_fail_reached(line->json, &err) /* rounds did not close in time */
                     : pd_result_fail(line->json, &err);
    } else {
        status = tell(line, "drained: no step is under way and none will begin");
    }
    pd_operator_close(&second);
    return status;
}

int pd_run_shutdown(pd_line *line)
{
    pd_operator second;
    pd_error err = { 0 };
    int rc = pd_operator_open(&second, line->server, line->timeout, &err), status;

    if (rc == PD_OK) rc = shut_down(line, &second, &err);
    status = rc == PD_OK ? tell(line, "the daemon has stopped") : pd_result_fail(line->json, &err);
    pd_operator_close(&second);
    return status;
}
