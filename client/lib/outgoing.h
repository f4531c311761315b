/* outgoing.h - the queue of frames that the client sends. Each is kept byte for byte until it is answered.
 *
 * The queue uses no sockets and no clock. It has three lanes. Frames that belong to one connection (Hello,
 * Declare, Heartbeat) are sent first, and are dropped when the connection breaks. Frames of the user's calls are
 * lasting: they are sent again on the next connection, with the same bytes in the same order. Held frames are not sent:
 * after the server has gone back to an earlier step, frames of later steps wait there until it is their turn. */
#ifndef PD_OUTGOING_H
#define PD_OUTGOING_H

#include "staging.h"

typedef struct pd_outgoing {
    struct {
        pd_outgoing_frame *first, *last, *next;
    } lane[PD_LANES]; /* next: the first frame of the lane of which bytes remain to be sent */
    pd_outgoing_frame *by_id;
    pd_lane current; /* the lane from which pd_outgoing_gather took the last frames to send */
    size_t gone;     /* of the frame to send next, lane[current].next: number of its bytes that are sent already */
    /* Number of frames whose bytes the sender is using now: the frame lane[current].next and those that follow it.
     * 0 after pd_outgoing_sent. */
    size_t lent;
    /* frames of the user's calls may be sent: the server has accepted Hello and the declared parameters, if there
     * are any */
    bool open;
    bool shares;           /* the server reads large payloads of pushes in the worker's segment of shared memory */
    uint64_t least_shared; /* bytes of the smallest payload that it reads there: pd_least_shared */
    uint64_t shared_bytes; /* payload bytes that the server reads there, so far */
    pd_staging staging;
} pd_outgoing;

/* Makes a frame. Copies the arrays `parts` and `iov`, and takes ownership of `head` (the fixed first bytes, and the
 * header), even on failure. Returns NULL if out of memory. */
pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts,
                                         const struct iovec *iov, size_t n_iov);
/* Frees a frame that is not in the queue. Accepts NULL. */
void pd_outgoing_frame_free(pd_outgoing_frame *frame);

/* Puts a frame at the end of a lane (list) of the queue, and takes ownership of it. Its id must be set. Returns false
 * if out of memory: then the caller still owns the frame. */
bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane);
/* Moves a frame to another lane: to the end of the lasting ones, to be sent (again), or to its place among the held
 * ones, which are in the order of their ids. Returns false if its bytes are lent to the sender or half sent. */
bool pd_outgoing_move(pd_outgoing *out, pd_outgoing_frame *frame, pd_lane lane);
/* Returns the first frame of the user's calls or of the window, lasting or held; and the one after a frame. NULL: there
 * is none. */
pd_outgoing_frame *pd_outgoing_first(const pd_outgoing *out);
pd_outgoing_frame *pd_outgoing_after(const pd_outgoing *out, const pd_outgoing_frame *frame);
/* Returns the frame with that request id; NULL: the queue has no such frame. */
pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id);

/* ---- a frame's end ---- */

/* From pd_outgoing_gather to pd_outgoing_sent the sender uses the bytes of some frames without a lock: these frames
 * are "lent". To retire a frame is to take it out of the queue because it needs no further answer. A frame that is
 * lent or half sent is retired later, when its bytes are sent. At that time the callback `done` is called, if the
 * frame still belongs to a call of the user. From then on the user may change the frame's payload. */

typedef void pd_outgoing_done(void *arg, pd_outgoing_frame *frame);

/* Removes and frees a frame that was answered or needs no answer. Returns false if its bytes are lent to the sender
 * or half sent: then pd_outgoing_sent or pd_outgoing_rewind frees it later and calls `done`. */
bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame);
/* Removes a frame for which no call of the user waits, or waits any more. So the callback `done` is not called. */
void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame);
/* Retires all frames. */
void pd_outgoing_retire_all(pd_outgoing *out);

/* Lends the next bytes to the sender: at most `max` iovec entries and about `bytes` bytes. Returns the number of
 * entries. The caller must call pd_outgoing_sent or pd_outgoing_rewind before it calls this function again. */
int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* Copies payloads of the gathered frames to the worker's segment, as far as the server reads them there. Called by the
 * sender before it sends the gathered bytes, without a lock. */
void pd_outgoing_fill(const pd_outgoing *out);
/* Ends the lending of bytes to the sender; the first n of them are sent. Calls done() for frames that were retired
 * (needed no further answer) in the meantime, unless they are half sent. */
void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_outgoing_done *done, void *arg);
/* Returns whether pd_outgoing_gather would find bytes to send. */
bool pd_outgoing_pending(const pd_outgoing *out);
/* Handles the end of the connection, when the sender no longer uses any bytes:
 * - Frames that belong to this connection are freed.
 * - Frames of the user's calls stay in the queue and will be sent again. Returns how many of them had been sent.
 * - Frames that were retired while the sender used them, or when they were half sent, are
 *   freed. done() is called for those that still belong to a call of the user. */
size_t pd_outgoing_rewind(pd_outgoing *out, pd_outgoing_done *done, void *arg);
/* Frees all frames of the queue. The sender must not be using any bytes. */
void pd_outgoing_clear(pd_outgoing *out);

#endif
