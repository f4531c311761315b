/* bucket.h - how a call's tensors are cut into frames: small ones travel together, large ones a chunk a frame, in the order given.
 * The payload is the caller's own memory; nothing is copied. */
#ifndef PD_BUCKET_H
#define PD_BUCKET_H

#include "core_state.h"

/* Frames of one operation while they are made; none is queued before pd_bucket_post. */
typedef struct pd_bucket {
    pd_core *core;
    pd_op   *op;
    unsigned method;                    /* PD_INIT, PD_PUSH, PD_PULL or PD_PUSH_PULL */
    Paramd__PushRequest push;           /* what all frames say, without the pieces; `step` is that of the frame being filled, scalars go with the first */
    Paramd__PullRequest pull;
    size_t    n, n_iov;                 /* pieces (wants) and payload entries of the frame being filled */
    uint64_t  payload, reply;           /* its bytes so far, and its answer's */
    pd_outgoing_frame *first, *last;            /* frames that are full, linked by next */
} pd_bucket;

void pd_bucket_init(pd_bucket *bucket, pd_core *core, pd_op *op, unsigned method);
/* The whole tensor of item i of the operation, as its parameter's next step; or a marker that there is no gradient. */
int  pd_bucket_item(pd_bucket *bucket, size_t i);
/* Ends the last frame and queues all. PD_OUT_OF_RANGE: what stands beside the pieces is too long. PD_NO_MEMORY.
 * After an error here or above the bucket is empty and the queue as before. */
int  pd_bucket_post(pd_bucket *bucket);
void pd_bucket_drop(pd_bucket *bucket);
/* Takes an operation's frames back out of the queue. */
void pd_bucket_unpost(pd_core *core, pd_op *op);

#endif
