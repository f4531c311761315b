/* inquiry.c - asks a daemon one thing. */
#include "inquiry.h"

int pd_inquire(const pd_line *line, pd_operator *op, unsigned method, const ProtobufCMessage *request, void **reply, pd_error *err)
{
    int rc = pd_operator_open(op, line->server, line->timeout, err);

    return rc == PD_OK ? pd_client_call(op->client, method, request, op->arena, reply, err) : rc;
}
