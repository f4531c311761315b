/* call.h - the user's calls on the core. Each starts an operation and gives a ticket, the number by which the user
 * waits for its end. */
#ifndef PD_CALL_H
#define PD_CALL_H

#include "core.h"
#include "message.h"
#include "paramd/client.h"
#include "pieces.h"

/* Sends initial weights of the parameters for which the server has none yet and which this rank must send. */
int pd_core_init(pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Called when the server has answered Declare after a reconnect. If it asks this rank for initial weights now, since
 * the rank that was to send them is gone, those pd_core_fetch calls that are under way send them. If it asks for them
 * again, those pd_core_init calls that are under way send them all. */
void pd_core_give(pd_core *core);
/* Pulls the present weights of all parameters, without waiting for a step. `weights` holds this rank's initial weights:
 * see pd_core_give. */
int pd_core_fetch(pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err);
/* Pushes the gradients in the items. `method` is PD_PUSH, or PD_PUSH_PULL to get the new weights in the same call. */
int pd_core_push(pd_core *core, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                 pd_ticket_id *ticket, pd_error *err);

/* Returns whether the scalars of a push ride with parameter `a` rather than with `b`: with whole parameters rather than
 * with ranged ones, of these with one that is not cut, and then with the one whose name sorts first. So ranks that push
 * the same parameters choose the same one. */
bool pd_bears_before(const pd_param_record *a, const pd_param_record *b);

/* The scalars of one push as protobuf messages. Their names point to the caller's memory. */
typedef struct pd_scalar_load {
    Paramd__Scalar scalar[PD_PUSH_SCALARS], *list[PD_PUSH_SCALARS];
    size_t n;
} pd_scalar_load;

/* The hyperparameters of one push: read from texts such as "lr=0.05", and stored as protobuf messages. */
typedef struct pd_values {
    Paramd__Option option[64], *options[64];
    size_t n;
    char text[4096];
} pd_values;

/* Fills the error of a push with parameters of two fragments. Returns PD_INVALID_ARGUMENT. */
int pd_core_refuse_fragments(const char *name, uint32_t fragment, const char *other, uint32_t another, pd_error *err);

/* A push in three parts, so that gradients are quantized without the core's lock: pd_core_push_begin checks it and
 * marks its parameters as being pushed, pd_core_push_quantize needs no lock, and pd_core_push_end queues the frames.
 * After pd_core_push_begin has returned PD_OK, the other two must be called. pd_core_push does all three. */
typedef struct pd_pushing {
    pd_core *core;
    pd_op *op;
    unsigned method;
    const pd_push_options *options; /* NULL: none */
    bool quantizes;                 /* pd_core_push_quantize has something to do */
    pd_values values;
    pd_scalar_load load;
} pd_pushing;
int pd_core_push_begin(pd_pushing *push, pd_core *core, unsigned method, pd_item *items, size_t n,
                       const pd_push_options *options, pd_error *err);
void pd_core_push_quantize(const pd_pushing *push);
int pd_core_push_end(pd_pushing *push, pd_ticket_id *ticket, pd_error *err);
/* Takes a push back that pd_core_push_begin has begun, in place of pd_core_push_end. */
void pd_core_push_cancel(const pd_pushing *push);
/* Pulls the operation's items of a fragment, from step `min_step` on. */
int pd_core_pull_fragment(pd_core *core, pd_op *op, uint32_t fragment, uint64_t min_step);
/* Called when all frames of an operation are answered. If it pulls weights, and its answers do not fit together, pulls
 * items again: in a job with open sets those of a fragment whose answers are about different steps, else those that
 * have elements of several versions. Returns whether the operation waits for that. */
bool pd_core_level(pd_core *core, pd_op *op);
/* Returns the error with which pd_core_close_step would refuse to close a step, and closes nothing. */
int pd_core_may_close(const pd_core *core, uint64_t step, pd_error *err);
int pd_core_close_step(pd_core *core, uint64_t step, pd_ticket_id *ticket, pd_error *err);
/* Sends this rank's worker state of a step, without a push. */
int pd_core_put_worker_state(pd_core *core, uint64_t step, const void *state, size_t bytes, pd_ticket_id *ticket,
                             pd_error *err);
int pd_core_pull(pd_core *core, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form, pd_ticket_id *ticket,
                 pd_error *err);
int pd_core_barrier(pd_core *core, pd_ticket_id *ticket, pd_error *err);
int pd_core_leave(pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Asks for this rank's worker state. The answer's header is a RecallReply, its payload the worker state. */
int pd_core_get_worker_state(pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* What a worker tells a server that is to go back: the step, and what it has seen of the servers. */
typedef struct pd_back_to {
    uint64_t step;
    uint64_t life;           /* of the server's job */
    uint64_t durable;        /* the server's durable step */
    const uint64_t *tenures; /* of the owners of all shards, by number; borrowed */
    size_t n_tenures;        /* 0: no shard has an owner's number, since there is no engine */
} pd_back_to;
/* Asks the server to go back to one of its steps. */
int pd_core_ask_back(pd_core *core, const pd_back_to *to, pd_ticket_id *ticket, pd_error *err);
/* Asks for a checkpoint of `step` (0: the present step) or a later step. The server waits at most `wait_ms` for it. */
int pd_core_checkpoint(pd_core *core, uint64_t step, uint32_t wait_ms, pd_ticket_id *ticket, pd_error *err);
/* Sends an operator's request of any method. `payload` is copied; its length is 0 if the request has no payload.
 * `answer_bytes`: length of the payload that the answer must have. */
int pd_core_call(pd_core *core, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                 size_t answer_bytes, pd_ticket_id *ticket, pd_error *err);
/* Gives up a request of pd_core_call that has no answer yet: removes its frames and frees the ticket. */
void pd_core_give_up(pd_core *core, pd_ticket_id ticket);

enum { PD_WORKER_STATE_BYTES = 1 << 20 }; /* most bytes of a worker state */

/* Checks that the answer to a request for the worker state (Recall) has the payload that its header announces, and
 * notes the payload's length in the operation. */
int pd_worker_state_expect(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix,
                           const uint8_t *header);

/* Copies the scalars' means over all ranks to the caller. `outcome` is the server's answer about the item whose frame
 * carried the scalars. */
void pd_scalars_note(const pd_op *op, const Paramd__Outcome *outcome);

#endif
