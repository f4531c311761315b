/* sent_frame.h - a frame of a step that this process has taken, kept so that it can be sent again.
 *
 * It has the bytes that were sent, and of the server's answer as much as is needed to compare a second answer. */
#ifndef PD_SENT_FRAME_H
#define PD_SENT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pd_outgoing_frame;

/* One tensor or chunk of the frame, and the server's answer about it. */
typedef struct pd_sent_frame_part {
    uint32_t param;   /* index of the parameter */
    uint32_t outcome; /* see pd_item */
    bool update;      /* the answer brought the change of the weights, not the weights */
    uint64_t version; /* of the weights in the answer */
    size_t bytes;     /* length of these weights; 0: the answer brought none */
} pd_sent_frame_part;

typedef struct pd_sent_frame {
    struct pd_sent_frame *prev, *next; /* neighbours in the window's list of the step, in the order of their ids */
    uint64_t id, step;                 /* request id; step of the push, or of the note */
    uint64_t mark;                     /* PushRequest.mark in the header */
    unsigned method;
    bool closes;                     /* the frame ends its step (pd_client_close_step) */
    bool comparable;                 /* the answer was about this step, not a later one */
    bool hashed;                     /* `hash` is known */
    bool dropped;                    /* the window has dropped it: it is freed when `again` is gone */
    struct pd_outgoing_frame *again; /* the frame in the queue that sends it again; NULL: there is none */
    uint64_t hash;                   /* XXH3-64 of the weights that the answer brought */
    uint8_t *head, *payload;         /* prefix and header (of a note with the note behind it); gradients */
    size_t head_bytes;
    uint64_t payload_bytes;
    size_t n;
    pd_sent_frame_part parts[];
} pd_sent_frame;

/* Makes the past of a frame with n tensors or chunks, with a copy of the head, and without room for the payload. NULL:
 * out of memory. */
pd_sent_frame *pd_sent_frame_new(size_t n, const uint8_t *head, size_t head_bytes);
/* Frees it, or, if a frame in the queue still uses its memory, lets that frame's end free it. Accepts NULL. */
void pd_sent_frame_drop(pd_sent_frame *past);
/* Notes that the frame which sends it again is gone. */
void pd_sent_frame_release(pd_sent_frame *past);

#endif
