/* frames.c - counts a frame as long as contributions lie in it, then returns its buffer to
 * the loop thread. */
#include "frames.h"

#include <assert.h>

static void hold(pd_steps *steps, const pd_request *frame)
{
    uint64_t bytes = frame->u.data.buffer->charged;

    pd_quota_hold(steps->ingest, &steps->quotas[frame->rank], bytes);
    steps->held += bytes;
}

static void send_home(pd_steps *steps, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_effect *effect = pd_request_become(frame, PD_EFF_BUFFER, (pd_ticket){ buffer->conn, 0 }, steps->number);

    effect->u.buffer = buffer;
    pd_effects_add(steps->outbox, effect);
}

void pd_frame_let_go(pd_steps *steps, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_quota *quota = &steps->quotas[frame->rank];

    assert(buffer->refs > 0);
    if (--buffer->refs > 0) return;
    /* The buffer goes back to the connection on which the rank's frames are counted now. */
    if (quota->declared) buffer->conn = quota->conn;
    steps->held -= buffer->charged;
    pd_quota_let_go(steps->ingest, quota, buffer->charged);
    send_home(steps, frame);
}

void pd_frame_finish(pd_steps *steps, pd_request *frame)
{
    if (frame->u.data.buffer != NULL)
        send_home(steps, frame);
    else
        pd_request_free(frame);
}

void pd_frame_keep(pd_steps *steps, pd_request *frame)
{
    steps->chunks.look = true;
    if (frame->u.data.buffer != NULL && frame->u.data.buffer->refs > 0) {
        hold(steps, frame);
        pd_request_slim(frame);
    } else {
        pd_frame_finish(steps, frame);
    }
}
