/* bucket.h - cuts the tensors of a call into frames.
 *
 * Small tensors travel together, each chunk of a large one in a frame of its own, in the order given. The payload is
 * the caller's own memory; nothing is copied. */
#ifndef PD_BUCKET_H
#define PD_BUCKET_H

#include "core_state.h"

/* Frames of one operation while they are made; none is queued before pd_bucket_post. */
typedef struct pd_bucket {
    pd_core *core;
    pd_op   *op;
    unsigned method;                    /* PD_INIT, PD_PUSH, PD_PULL or PD_PUSH_PULL */
    Paramd__PushRequest push;           /* of all frames, without pieces; `step` is that of the frame being filled, and
                                         * scalars go with the first frame */
    Paramd__PullRequest pull;
    size_t    n, n_iov;                 /* pieces (wants) and payload entries of the frame being filled */
    uint64_t  payload, reply;           /* bytes of its payload so far, and of its answer's */
    pd_outgoing_frame *first, *last;            /* frames that are full, linked by next */
} pd_bucket;

void pd_bucket_init(pd_bucket *bucket, pd_core *core, pd_op *op, unsigned method);
/* Adds the whole tensor of item i of the operation, for its parameter's next step, or a marker for "no gradient". */
int  pd_bucket_item(pd_bucket *bucket, size_t i);
/* Ends the last frame and queues all frames. PD_OUT_OF_RANGE: the fields beside the pieces are too long. PD_NO_MEMORY.
 * After an error here or above the bucket is empty and the queue is as before. */
int  pd_bucket_post(pd_bucket *bucket);
void pd_bucket_drop(pd_bucket *bucket);
/* Removes the frames of an operation from the queue. */
void pd_bucket_unpost(pd_core *core, pd_op *op);

#endif
