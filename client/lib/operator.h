/* operator.h - sends an operator's request over a client handle's connection, and waits for the reply.
 *
 * For paramctl and tests; not installed. The handle is opened with job "", so that it joins no job. */
#ifndef PD_OPERATOR_H
#define PD_OPERATOR_H

#include "message.h"
#include "paramd/client.h"

/* Sends an operator's request of `method` (PD_STATUS to PD_EXPORT) and waits for the reply, at most until the handle's
 * deadline. If `request` is NULL, an empty message is sent.
 *
 * Sets *reply to the message of the reply, for instance a StatusReply (paramd.proto) for PD_STATUS; `reply` may be
 * NULL. The call resets `arena`. The message lives there until the caller resets it.
 *
 * An error of the server is returned unchanged. PD_DEADLINE_EXCEEDED: no answer came in time, and the request is given
 * up. */
int pd_client_call(pd_client *client, unsigned method, const ProtobufCMessage *request, pd_arena *arena, void **reply,
                   pd_error *err);
/* Works as pd_client_call, and sends a payload of `payload_bytes` bytes with the request. The payload must stay in
 * place until the call returns. The reply has no payload. */
int pd_client_call_with(pd_client *client, unsigned method, const ProtobufCMessage *request, const void *payload,
                        size_t payload_bytes, pd_arena *arena, void **reply, pd_error *err);
/* Works as pd_client_call, for a request whose reply has a payload of exactly `bytes` bytes, and copies the payload to
 * `into`. */
int pd_client_call_into(pd_client *client, unsigned method, const ProtobufCMessage *request, void *into, size_t bytes,
                        pd_arena *arena, void **reply, pd_error *err);

/* Returns the number of shards in the server's table of shards (HelloReply.shards_known); 0: it has none. */
uint32_t pd_client_shards_known(pd_client *client);

#endif
