/* checkpoint_command.c - the command checkpoint: asks a daemon for a checkpoint of a job, and waits until the disk has
 * it. */
#include "checkpoint_command.h"

#include <inttypes.h>

#include "connection.h"
#include "format.h"
#include "result.h"

#define MOST_WAIT 600.0 /* most seconds that the daemon waits for a checkpoint */

static int tell(const pd_line *line, const Paramd__CheckpointReply *reply)
{
    char bytes[PD_CELL], ms[PD_CELL];

    if (line->json)
        return pd_result_json(json_pack("{s:s, s:I, s:I, s:I}", "job", line->args[0], "step", (json_int_t)reply->step,
                                        "bytes", (json_int_t)reply->bytes, "ms", (json_int_t)reply->ms));
    if (reply->bytes == 0)
        pd_print_line(stdout, "%s: step %" PRIu64 " was on the disk already", line->args[0], reply->step);
    else
        pd_print_line(stdout, "%s: checkpoint of step %" PRIu64 ", %s written in %s", line->args[0], reply->step,
                      pd_bytes_text(bytes, reply->bytes), pd_duration_text(ms, reply->ms));
    return PD_EXIT_OK;
}

int pd_run_checkpoint_command(pd_line *line)
{
    Paramd__CheckpointRequest request = PARAMD__CHECKPOINT_REQUEST__INIT;
    double wait = pd_line_seconds(line, "wait") < MOST_WAIT ? pd_line_seconds(line, "wait") : MOST_WAIT;
    void *reply = NULL;
    pd_operator op = { 0 };
    pd_error err = { 0 };
    int rc = pd_operator_probe(line->server, line->timeout, &err), status;

    request.job = line->args[0];
    request.step = pd_line_has(line, "step") ? (uint64_t)pd_line_number(line, "step") : 0;
    request.wait_ms = wait < 0.001 ? 1 : (uint32_t)(wait * 1000);
    if (rc != PD_OK) return pd_result_fail(line->json, &err);
    rc = pd_operator_open(&op, line->server, line->timeout + wait, &err);
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_CHECKPOINT, &request.base, op.arena, &reply, &err);
    status = rc == PD_OK ? tell(line, reply) : pd_result_fail_reached(line->json, &err);
    pd_operator_close(&op);
    return status;
}
