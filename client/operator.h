/* operator.h - an operator's requests over a client's connection: one message out, one message back.
 *
 * For paramctl and tests; not installed. The handle is opened with job "", which joins no job. */
#ifndef PD_OPERATOR_H
#define PD_OPERATOR_H

#include "message.h"
#include "paramd/client.h"

/* Sends the request of `method` (PD_STATUS to PD_IMPORT; NULL: an empty message) and waits for its reply, at most the
 * handle's deadline. `arena` is reset; *reply (StatusReply for PD_STATUS, see paramd.proto) lives in it until the
 * caller resets it. `reply` may be NULL. The server's own error is returned as it came. PD_DEADLINE_EXCEEDED: no answer
 * in time; the request is given up. */
int pd_client_call(pd_client *client, unsigned method, const ProtobufCMessage *request, pd_arena *arena, void **reply,
                   pd_error *err);
/* Sends a request with a payload, which is borrowed until the call returns. The answer has no payload. */
int pd_client_call_with(pd_client *client, unsigned method, const ProtobufCMessage *request, const void *payload,
                        size_t payload_bytes, pd_arena *arena, void **reply, pd_error *err);

#endif
