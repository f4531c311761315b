/* call.h - the user's calls on the core: each starts an operation and gives a ticket, the number by which the user
 * waits for it. */
#ifndef PD_CALL_H
#define PD_CALL_H

#include "message.h"
#include "paramd/client.h"

struct pd_core;

/* Sends the initial weights of parameters that have none. */
int pd_core_init(struct pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Pulls the weights of all parameters without waiting for a round. */
int pd_core_fetch(struct pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Pushes gradients. `method` is PD_PUSH or PD_PUSH_PULL. */
int pd_core_push(struct pd_core *core, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                 pd_ticket_id *ticket, pd_error *err);
int pd_core_close_step(struct pd_core *core, uint64_t step, pd_ticket_id *ticket, pd_error *err);
int pd_core_pull(struct pd_core *core, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket,
                 pd_error *err);
int pd_core_barrier(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
int pd_core_leave(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Sends a request of any method. `payload` is copied; its length is 0 if there is none. `answer_bytes`: length of
 * the payload that the answer must have. */
int pd_core_call(struct pd_core *core, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                 size_t answer_bytes, pd_ticket_id *ticket, pd_error *err);
/* Gives up a pd_core_call that is not done. */
void pd_core_give_up(struct pd_core *core, pd_ticket_id ticket);

#endif
