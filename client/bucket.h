/* bucket.h - cuts the tensors of a call into frames.
 *
 * Small tensors share a frame. Each chunk of a large tensor gets a frame of its own. The order of the items is kept.
 * The payload is the caller's own memory; nothing is copied. */
#ifndef PD_BUCKET_H
#define PD_BUCKET_H

#include "core_state.h"

/* The frames of one operation while they are being built. pd_bucket_post queues them when all are complete. */
typedef struct pd_bucket {
    pd_core *core;
    pd_op *op;
    unsigned method;          /* PD_INIT, PD_PUSH, PD_PULL or PD_PUSH_PULL */
    Paramd__PushRequest push; /* fields of the frame being filled, except its list of tensors or chunks; the first
                               * frame carries all scalars */
    Paramd__PullRequest pull;
    size_t n, n_iov;                 /* in the frame being filled: number of tensors or chunks, and number of payload
                                      * entries */
    uint64_t payload, reply;         /* payload bytes so far of the frame being filled, and payload bytes that its
                                      * answer will have */
    pd_outgoing_frame *first, *last; /* list of the complete frames, linked by their `next` */
} pd_bucket;

void pd_bucket_init(pd_bucket *bucket, pd_core *core, pd_op *op, unsigned method);
/* Adds the tensor of the operation's item number i, for the next step of its parameter. If a pushed item has no
 * gradient, the push gets an entry that says so, without data. */
int pd_bucket_item(pd_bucket *bucket, size_t i);
/* Completes the last frame and queues all frames. After an error here or in pd_bucket_item the bucket is empty, and
 * the queue has none of its frames.
 *
 * PD_OUT_OF_RANGE: scalars or hyperparameters make a frame's header too long. PD_NO_MEMORY: out of memory. */
int pd_bucket_post(pd_bucket *bucket);
/* Frees the bucket's frames that are not in the queue yet. */
void pd_bucket_drop(pd_bucket *bucket);
/* Removes the frames of an operation from the queue. */
void pd_bucket_unpost(pd_core *core, pd_op *op);

#endif
