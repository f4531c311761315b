/* orders.c - ping, drop, drain and shutdown. */
#include "orders.h"

#include <time.h>

#include "format.h"
#include "connection.h"
#include "result.h"

static int order(const pd_line *line, unsigned method, const ProtobufCMessage *request, const char *done)
{
    pd_operator op;
    pd_error err = { 0 };
    int status = PD_EXIT_OK;

    if (pd_operator_ask(line, &op, method, request, NULL, &err) != PD_OK) status = pd_result_fail(line->json, &err);
    else if (line->json) status = pd_result_json(json_pack("{s:b}", "ok", 1));
    else pd_print_line(stdout, "%s", done);
    pd_operator_close(&op);
    return status;
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int pd_run_ping(pd_line *line)
{
    bool quiet = false;
    const pd_line_option options[] = { { "quiet", 'q', NULL, "Print nothing: the exit status is the answer",
                                         pd_take_flag, &quiet, 0, 0 }, { 0 } };
    pd_operator op;
    pd_error err = { 0 };
    double began;
    int rc, status = PD_EXIT_OK;

    pd_line_parse(line, options);
    rc = pd_operator_open(&op, line->server, line->timeout, &err);
    began = now_ms();
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_HEARTBEAT, NULL, op.arena, NULL, &err);
    if (rc != PD_OK) {
        status = quiet ? pd_result_fail_quietly(line->json, &err) : pd_result_fail(line->json, &err);
    } else if (line->json) {
        status = pd_result_json(json_pack("{s:s, s:f}", "server", pd_client_welcome(op.client)->server,
                                          "ms", now_ms() - began));
    } else if (!quiet) {
        pd_print_line(stdout, "%s answers in %.2f ms", pd_client_welcome(op.client)->server, now_ms() - began);
    }
    pd_operator_close(&op);
    return status;
}

int pd_run_drop(pd_line *line)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    char done[300];

    pd_line_parse(line, NULL);
    request.job = line->args[0];
    snprintf(done, sizeof done, "dropped %.256s", line->args[0]);
    return order(line, PD_DROP, &request.base, done);
}

int pd_run_drain(pd_line *line)
{
    double within = 60;
    const pd_line_option options[] = {
        { "within", 0, "SECONDS", "Time that open rounds have to finish (default 60)", pd_take_seconds,
          &within, 0, 0 }, { 0 }
    };
    Paramd__DrainRequest request = PARAMD__DRAIN_REQUEST__INIT;
    pd_error err;
    int status;

    pd_line_parse(line, options);
    if (pd_operator_probe(line->server, line->timeout, &err) != PD_OK) return pd_result_fail(line->json, &err);
    request.timeout_ms = within * 1000 < UINT32_MAX ? (uint32_t)(within * 1000) : UINT32_MAX;
    line->timeout += within;                    /* the answer comes when the rounds have finished */
    status = order(line, PD_DRAIN, &request.base, "drained: no step is under way and none will begin");
    /* the daemon was there, so only the deadline has passed */
    return status == PD_EXIT_UNREACHABLE ? PD_EXIT_REFUSED : status;
}

int pd_run_shutdown(pd_line *line)
{
    pd_line_parse(line, NULL);
    return order(line, PD_SHUTDOWN, NULL, "shutting down");
}
