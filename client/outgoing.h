/* outgoing.h - the queue of outgoing frames, kept byte for byte until they are answered. No sockets, no clock.
 *
 * There are two lanes. Frames of one connection (Hello, Declare, Heartbeat) go first and are forgotten when the
 * connection breaks. Frames of the user's operations last: they are sent again, the identical bytes in the same order,
 * on the next connection. */
#ifndef PD_OUTGOING_H
#define PD_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_op;

/* Where the answer to one piece (or want) of a frame goes. */
typedef struct pd_part {
    size_t item;                /* index in the operation */
    void  *land;                /* the chunk's weights, in the caller's buffer */
    size_t bytes;               /* 0: the answer has none */
} pd_part;

typedef enum pd_lane { PD_LANE_CONNECTION, PD_LANE_LASTING, PD_LANES } pd_lane;

/* A frame in the queue. */
typedef struct pd_outgoing_frame {
    struct pd_outgoing_frame *prev, *next;      /* in its lane, oldest first */
    uint64_t       id;                  /* request id */
    unsigned       method;
    pd_lane        lane;
    struct pd_op  *op;                  /* its operation; NULL: none waits for the answer */
    uint8_t       *head;                /* prefix and header; owned */
    size_t         head_bytes;
    uint64_t       payload_bytes, reply_bytes;      /* reply_bytes: payload that its answer will have */
    bool           sent;
    bool           lent;                /* its bytes are gathered, and pd_outgoing_sent was not called since */
    bool           answered;            /* retired while its bytes were lent or half sent: freed when they have left */
    size_t         first, count;        /* Declare: the parameters in it */
    UT_hash_handle hh;
    size_t         n_parts, n_iov;
    pd_part       *parts;
    struct iovec  *iov;                 /* the payload, borrowed from the caller */
} pd_outgoing_frame;

typedef struct pd_outgoing {
    struct { pd_outgoing_frame *first, *last, *next; } lane[PD_LANES];      /* next: the first that is not sent */
    pd_outgoing_frame *by_id;
    pd_lane    current;                 /* lane that was gathered from last */
    size_t     gone;                    /* bytes already sent of lane[current].next */
    size_t     lent;                    /* frames gathered last, from lane[current].next on; 0 after pd_outgoing_sent */
    bool       open;                    /* frames of the lasting lane may be sent */
} pd_outgoing;

/* Makes a frame. Copies parts and iov. Takes `head`, also when it fails. NULL: out of memory. */
pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts,
                                         const struct iovec *iov, size_t n_iov);
/* Frees a frame that is in no queue. Accepts NULL. */
void pd_outgoing_frame_free(pd_outgoing_frame *frame);

/* Queues a frame, which has its id, and takes it. False: out of memory, the frame is still the caller's. */
bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane);
/* Returns the frame with that request id; NULL: it was not queued, or is answered. */
pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id);

/* ---- a frame's end ----
 * * Between pd_outgoing_gather and pd_outgoing_sent the gathered bytes are lent to the sender,
     without a lock. Lent frames,
 * and a frame of which a part is sent, stay in the queue and in memory. If such a frame is retired, it is freed later,
 * and `done` is called with it if it still has an operation. From that moment on its payload is the caller's again. */

typedef void pd_outgoing_done(void *arg, pd_outgoing_frame *frame);

/* Removes and frees a frame that was answered or needs no answer. False: its bytes are lent or half sent; `done` of
 * pd_outgoing_sent or pd_outgoing_rewind is called for it later. */
bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame);
/* Removes a frame whose operation needs no notice: `done` is not called. */
void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame);
/* Retires all frames. */
void pd_outgoing_retire_all(pd_outgoing *out);

/* Lends the next bytes to send, at most `max` entries and about `bytes` bytes. Returns the number of entries.
 * pd_outgoing_sent or pd_outgoing_rewind must follow before the next call. */
int  pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* Takes the lent bytes back; the first n of them are sent. Calls done() for frames that were retired in the
 * meantime. */
void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg);
/* Returns whether there are bytes to gather. */
bool pd_outgoing_pending(const pd_outgoing *out);
/* Handles the end of the connection, when no bytes are in use any more: frames of the connection are freed, lasting
 * ones will be sent again. Returns how many of these had been sent. Calls done() as pd_outgoing_sent does. */
size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg);
/* Frees all frames. No bytes may be lent. */
void pd_outgoing_clear(pd_outgoing *out);

#endif
