/* call.h - the user's calls on the core. Each starts an operation and gives a
 * ticket, the number by which the user waits for its end. */
#ifndef PD_CALL_H
#define PD_CALL_H

#include "message.h"
#include "paramd/client.h"

struct pd_core;

/* Sends initial weights of the parameters for which the server has none yet and which this rank has to send. */
int pd_core_init(struct pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Pulls the present weights of all parameters, without waiting for a step. */
int pd_core_fetch(struct pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Pushes the gradients in the items. `method` is PD_PUSH, or PD_PUSH_PULL to get the new weights in the same call. */
int pd_core_push(struct pd_core *core, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                 pd_ticket_id *ticket, pd_error *err);
int pd_core_close_step(struct pd_core *core, uint64_t step, pd_ticket_id *ticket, pd_error *err);
int pd_core_pull(struct pd_core *core, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket,
                 pd_error *err);
int pd_core_barrier(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
int pd_core_leave(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Asks for this rank's note. The answer has a RecallReply and the note as its payload. */
int pd_core_recall(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Asks for a checkpoint of this step or a later one, 0: the present step. The server waits `wait_ms` for it. */
int pd_core_checkpoint(struct pd_core *core, uint64_t step, uint32_t wait_ms, pd_ticket_id *ticket, pd_error *err);
/* Sends a request of any method, for paramctl. `payload` is copied; its length is 0 if the request has no payload.
 * `answer_bytes`: length of the payload that the answer must have. */
int pd_core_call(struct pd_core *core, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                 size_t answer_bytes, pd_ticket_id *ticket, pd_error *err);
/* Gives up a request of pd_core_call that has no answer yet: removes its frames and frees the ticket. */
void pd_core_give_up(struct pd_core *core, pd_ticket_id ticket);

#endif
