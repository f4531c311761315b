/* bucket.h - cuts the tensors of a call (push, pull or init) into frames.
 *
 * Small tensors share a frame. Each chunk of a tensor that has several gets a frame of its own. Frames have the order
 * in which the caller gave the tensors. The payload is the caller's own memory; nothing is copied. */
#ifndef PD_BUCKET_H
#define PD_BUCKET_H

#include "core.h"

/* The frames of one operation while they are built. When all are complete, pd_bucket_post queues them. */
typedef struct pd_bucket {
    pd_core *core;
    pd_op *op;
    unsigned method; /* request that the frames carry: PD_INIT, PD_PUSH, PD_PULL or PD_PUSH_PULL */
    /* Fields of the frame being filled. Its list of tensors or chunks is kept elsewhere (pd_frame_scratch). The scalars
     * are sent in the first frame only. */
    Paramd__PushRequest push;
    Paramd__PullRequest pull;
    uint64_t replaces; /* pd_push_options.replaces of the call; 0: the caller gave none */
    /* Of the frame being filled: n is the number of tensors or chunks, n_iov the number of iovec entries of the
     * payload. */
    size_t n, n_iov;
    /* Of the frame being filled: payload bytes so far, and payload bytes that the server's answer to it will have. */
    uint64_t payload, reply;
    /* List of the complete frames, which pd_bucket_post moves to the queue; linked by their `next`. */
    pd_outgoing_frame *first;
} pd_bucket;

void pd_bucket_init(pd_bucket *bucket, pd_core *core, pd_op *op, unsigned method);
/* Adds the tensor of item number i. A push is for the next step of the parameter. If a pushed item has no gradient, the
 * frame gets a piece without payload, which tells the server that this rank has no gradient. */
int pd_bucket_item(pd_bucket *bucket, size_t i);
/* Completes the last frame and moves all frames of the bucket to the queue. If pd_bucket_post or pd_bucket_item fails,
 * the bucket is empty afterwards, and none of its frames is in the queue. PD_OUT_OF_RANGE: scalars or hyperparameters
 * make a frame's header too long. PD_NO_MEMORY: out of memory. */
int pd_bucket_post(pd_bucket *bucket);
/* Removes all frames of an operation from the queue of frames to send. */
void pd_bucket_unpost(pd_core *core, pd_op *op);

#endif
