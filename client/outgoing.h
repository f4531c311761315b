/* outgoing.h - what a client has to say: frames, kept byte for byte until they are answered. No sockets, no clock.
 *
 * There are two lanes. What belongs to one connection (Hello, Declare, Heartbeat) goes first and is forgotten when
 * the connection breaks; what the user asked for lasts, and is sent again, the identical bytes in the same order,
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
    size_t item;                /* of the operation */
    void  *land;                /* the chunk's weights, in the caller's buffer */
    size_t bytes;               /* 0: none come */
} pd_part;

typedef enum pd_lane { PD_LANE_CONNECTION, PD_LANE_LASTING, PD_LANES } pd_lane;

/* One frame. */
typedef struct pd_outgoing_frame {
    struct pd_outgoing_frame *prev, *next;      /* in its lane, oldest first */
    uint64_t       id;                  /* request id */
    unsigned       method;
    pd_lane        lane;
    struct pd_op  *op;                  /* whose; NULL: nobody waits for the answer any more */
    uint8_t       *head;                /* prefix and header; owned */
    size_t         head_bytes;
    uint64_t       payload_bytes, reply_bytes;      /* reply_bytes: payload that its answer will have */
    bool           sent;
    bool           lent;                /* its bytes were gathered, and pd_outgoing_sent has not been called since */
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
    size_t     lent;                    /* frames that were gathered last, from lane[current].next on; 0 after pd_outgoing_sent */
    bool       open;                    /* the lasting lane may go */
} pd_outgoing;

/* With room for that many parts and iov entries, copied. Takes `head` (also when it fails). NULL: out of memory. */
pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts, const struct iovec *iov, size_t n_iov);
void       pd_outgoing_frame_free(pd_outgoing_frame *frame);                               /* accepts NULL; must be in no queue */

/* Takes the frame, which has its id. False: out of memory, it is still the caller's. */
bool       pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane);
pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id);               /* NULL: not asked, or answered */

/* ---- a frame's end ----
 *
 * Between pd_outgoing_gather and pd_outgoing_sent the gathered bytes are lent to whoever sends them, without a
 * lock: the frames stay in the queue and in memory whatever happens in between, and so does a frame of which a
 * part has gone. A frame that is retired then is freed later. Its operation, if it still has one, is passed to
 * `done` then: its payload is the caller's again from that moment on, not before. */

typedef void pd_outgoing_done(void *arg, pd_outgoing_frame *frame);

/* Takes the frame out and frees it, for it was answered or needs no answer. False: its bytes are lent or half
 * sent; `done` of pd_outgoing_sent or pd_outgoing_rewind is called for it later. */
bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame);
/* The same for a frame whose operation nobody waits for: `done` is not called. */
void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame);
/* Removes all frames. Those that are lent keep their operation: retired. */
void pd_outgoing_retire_all(pd_outgoing *out);

/* Lends the next bytes to send: at most `max` entries and about `bytes` bytes; returns how many entries.
 * pd_outgoing_sent or pd_outgoing_rewind must follow before it is called again. */
int  pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* Takes the lent bytes back; the first n of them have gone. Calls done() for frames that were retired in the
 * meantime. */
void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg);
bool pd_outgoing_pending(const pd_outgoing *out);                               /* there is something to gather */
/* The connection is gone, nobody uses lent bytes any more: its own frames are freed, the lasting ones stand to be
 * sent anew. Returns how many of those had been sent. Calls done() as pd_outgoing_sent does. */
size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg);
void pd_outgoing_clear(pd_outgoing *out);                                       /* frees all frames; call it when no bytes are lent */

#endif
