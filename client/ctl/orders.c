/* orders.c - the paramctl commands ping (is a daemon there?), drop and reset-state (set optimizer state
 * back to its initial values). */
#include "orders.h"

#include <time.h>

#include "format.h"
#include "connection.h"
#include "result.h"

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int pd_run_ping(pd_line *line)
{
    bool quiet = pd_line_has(line, "quiet");
    pd_operator op;
    pd_error err = { 0 };
    double began;
    int rc, status = PD_EXIT_OK;

    rc = pd_operator_open(&op, line->server, line->timeout, &err);
    began = now_ms();
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_HEARTBEAT, NULL, op.arena, NULL, &err);
    if (rc != PD_OK) {
        status = quiet ? pd_result_fail_quietly(line->json, &err) : pd_result_fail(line->json, &err);
    } else if (line->json) {
        status = pd_result_json(
            json_pack("{s:s, s:f}", "server", pd_client_welcome(op.client)->server, "ms", now_ms() - began));
    } else if (!quiet) {
        pd_print_line(stdout, "%s answers in %.2f ms", pd_client_welcome(op.client)->server, now_ms() - began);
    }
    pd_operator_close(&op);
    return status;
}

int pd_run_drop(pd_line *line)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    pd_operator op;
    pd_error err = { 0 };
    int status = PD_EXIT_OK;

    request.job = line->args[0];
    if (pd_operator_ask(line, &op, PD_DROP, &request.base, NULL, &err) != PD_OK)
        status = pd_result_fail(line->json, &err);
    else if (line->json)
        status = pd_result_json(json_pack("{s:b}", "ok", 1));
    else
        pd_print_line(stdout, "dropped %s", line->args[0]);
    pd_operator_close(&op);
    return status;
}

int pd_run_reset_state(pd_line *line)
{
    /* The server waits for so long for a moment at which no step is under way. */
    static const double rest_s = 10;
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;
    pd_operator op;
    pd_error err = { 0 };
    int rc = pd_operator_open(&op, line->server, line->timeout + rest_s, &err), status = PD_EXIT_OK;

    request.job = line->args[0];
    request.act = 5;
    request.param = line->args[1];
    request.partial = pd_line_has(line, "keep-counts");
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_IMPORT, &request.base, op.arena, NULL, &err);
    if (rc != PD_OK)
        status = pd_result_fail(line->json, &err);
    else if (line->json)
        status = pd_result_json(json_pack("{s:b}", "ok", 1));
    else
        pd_print_line(stdout, "the optimizer state of %s in job %s has its initial values", line->args[1],
                      line->args[0]);
    pd_operator_close(&op);
    return status;
}
