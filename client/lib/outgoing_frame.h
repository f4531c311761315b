/* outgoing_frame.h - a frame in the queue of outgoing frames. The header has types, no functions. */
#ifndef PD_OUTGOING_FRAME_H
#define PD_OUTGOING_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_op;

/* One tensor or chunk of a frame, and where the weights in the answer to it are received. */
typedef struct pd_part {
    size_t item;  /* index of the item (parameter of the user's call) in pd_op.items */
    void *land;   /* place of the chunk's weights in the caller's buffer */
    size_t bytes; /* length of the weights in bytes; 0: the answer brings no weights */
} pd_part;

/* Bytes that stand between two tensors of a payload, so that the second one begins at a multiple of
 * PD_PAYLOAD_ALIGN. */
extern const uint8_t pd_outgoing_padding[];

/* The lists of the queue. Frames that are held wait for answers to others before they are moved to the lasting ones. */
typedef enum pd_lane { PD_LANE_CONNECTION, PD_LANE_LASTING, PD_LANE_HELD, PD_LANES } pd_lane;

/* A frame in the queue of frames to send. */
typedef struct pd_outgoing_frame {
    /* neighbours in the frame's lane (one of the lists of the queue), oldest first */
    struct pd_outgoing_frame *prev, *next;
    uint64_t id; /* request id */
    unsigned method;
    pd_lane lane;
    struct pd_op *op; /* the user's call that the frame belongs to; NULL: no call waits for the answer */
    uint8_t *head;    /* the frame's prefix and header; freed with the frame */
    size_t head_bytes;
    uint64_t payload_bytes, reply_bytes; /* reply_bytes: length of the payload that the server's answer will have */
    bool sent;
    bool lent; /* the sender is using the frame's bytes, from pd_outgoing_gather until pd_outgoing_sent */
    /* The frame was retired while its bytes were lent to the sender or half sent. It is
     * freed when they are sent. */
    bool answered;
    size_t first, count; /* only in a Declare frame: index of its first parameter, and number of parameters */
    UT_hash_handle hh;
    size_t n_parts, n_iov;
    pd_part *parts;
    struct iovec *iov; /* the payload: memory of the user's call, not copied */

    uint64_t step;              /* step of a push, of a note, or that the frame ends; 0: the frame is another request */
    uint64_t mark;              /* PushRequest.mark or InitRequest.mark in the header */
    struct pd_sent_frame *past; /* the frame is sent again from the window, and no call waits for it; NULL: it is new */

    /* The next fields are for a push whose payload the server reads in the worker's segment (staging.h). */
    bool shared;            /* on this connection the payload does not go through the socket */
    uint32_t place;         /* where the payload lies in the segment, in units of PD_PAYLOAD_ALIGN bytes */
    struct pd_block *block; /* the copy of the payload; NULL: there is none, or the payload itself lies there */
    bool filled;            /* the payload is copied to the block */
    bool exposed;           /* the server may read the payload in the segment: it was sent and is not answered */
} pd_outgoing_frame;

#endif
