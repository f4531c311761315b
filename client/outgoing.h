/* outgoing.h - the queue of outgoing frames, kept byte for byte until they are answered. It uses no sockets and no
 * clock.
 *
 * There are two lanes. Frames that belong to one connection (Hello, Declare, Heartbeat) go first, and are dropped
 * when the connection breaks. Frames of the user's operations are lasting: they are sent again on the next
 * connection, with the same bytes in the same order. */
#ifndef PD_OUTGOING_H
#define PD_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_op;

/* Where the answer for one tensor or chunk of a frame goes. */
typedef struct pd_part {
    size_t item;  /* index of the item in the operation */
    void *land;   /* place of the chunk's weights in the caller's buffer */
    size_t bytes; /* length of the weights; 0: the answer brings none */
} pd_part;

typedef enum pd_lane { PD_LANE_CONNECTION, PD_LANE_LASTING, PD_LANES } pd_lane;

/* A frame in the queue. */
typedef struct pd_outgoing_frame {
    struct pd_outgoing_frame *prev, *next; /* neighbours in the frame's lane, oldest first */
    uint64_t id;                           /* request id */
    unsigned method;
    pd_lane lane;
    struct pd_op *op; /* operation of this frame; NULL: no operation waits for the answer */
    uint8_t *head;    /* the frame's prefix and header; owned */
    size_t head_bytes;
    uint64_t payload_bytes, reply_bytes; /* reply_bytes: length of the payload that the answer will have */
    bool sent;
    bool lent;           /* the sender is using the frame's bytes: since pd_outgoing_gather, until pd_outgoing_sent */
    bool answered;       /* the frame was retired while its bytes were lent or half sent; it is freed when they are
                          * sent */
    size_t first, count; /* of a Declare frame: index of its first parameter, and number of parameters */
    UT_hash_handle hh;
    size_t n_parts, n_iov;
    pd_part *parts;
    struct iovec *iov; /* the payload, borrowed from the caller */
} pd_outgoing_frame;

typedef struct pd_outgoing {
    struct {
        pd_outgoing_frame *first, *last, *next;
    } lane[PD_LANES]; /* next: the first frame of the lane that is not sent completely */
    pd_outgoing_frame *by_id;
    pd_lane current; /* lane of the bytes that were gathered last */
    size_t gone;     /* bytes of the frame lane[current].next that are already sent */
    size_t lent;     /* number of frames that the sender is using now, from lane[current].next on; 0 after
                      * pd_outgoing_sent */
    bool open;       /* the connection is ready for frames of the lasting lane */
} pd_outgoing;

/* Makes a frame. Copies `parts` and `iov`, and takes ownership of `head`, even on failure. Returns NULL if out of
 * memory. */
pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts,
                                         const struct iovec *iov, size_t n_iov);
/* Frees a frame that is not queued. Accepts NULL. */
void pd_outgoing_frame_free(pd_outgoing_frame *frame);

/* Queues a frame whose id is set, and takes ownership of it. Returns false if out of memory: then the caller still
 * owns the frame. */
bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane);
/* Returns the frame with that request id; NULL: no such frame is in the queue (it may have been answered). */
pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id);

/* ---- a frame's end ---- */

/* From pd_outgoing_gather to pd_outgoing_sent the sender uses the gathered bytes without a lock. In this time the
 * frames are "lent". A frame that is lent or half sent stays in the queue and in memory. If it is retired in this
 * time, it is freed later. Then the callback `done` is called for it if it still belongs to an operation, and the
 * caller may use the frame's payload again. */

typedef void pd_outgoing_done(void *arg, pd_outgoing_frame *frame);

/* Removes and frees a frame that was answered or needs no answer. Returns false if its bytes are lent or half sent:
 * then pd_outgoing_sent or pd_outgoing_rewind calls `done` for it later. */
bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame);
/* Removes a frame whose operation does not wait for it: `done` is not called. */
void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame);
/* Retires all frames. */
void pd_outgoing_retire_all(pd_outgoing *out);

/* Lends the next bytes to send, at most `max` entries and about `bytes` bytes. Returns the number of entries.
 * pd_outgoing_sent or pd_outgoing_rewind must follow before the next call. */
int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* Ends the lending of bytes; the first n of them are sent. Calls done() for frames that were retired in the meantime
 * and are not half sent. */
void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg);
/* Returns whether there are bytes to gather. */
bool pd_outgoing_pending(const pd_outgoing *out);
/* Handles the end of the connection, when the sender no longer uses any bytes. Frees the frames of the connection.
 * The lasting frames will be sent again; returns how many of them had already been sent. Calls done() for lasting
 * frames that were retired while they were lent or half sent. */
size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg);
/* Frees all frames. The sender must not be using any bytes. */
void pd_outgoing_clear(pd_outgoing *out);

#endif
