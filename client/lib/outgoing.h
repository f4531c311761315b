/* outgoing.h - the queue of frames that the client sends. Each frame is kept byte for byte until it is answered.
 *
 * The queue uses no sockets and no clock. It has three lists. Frames that belong to one connection (Hello, Declare,
 * Heartbeat) are sent first, and are dropped when the connection breaks. Frames of the user's calls are lasting: they
 * are sent again on the next connection, with the same bytes in the same order. Held frames are not sent: after the
 * server has gone back to an earlier step, frames of later steps wait there until it is their turn. */
#ifndef PD_OUTGOING_H
#define PD_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "paramd/error.h"
#include "segment.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

struct pd_op;

/* One piece of a frame, and where its weights in the answer are received. */
typedef struct pd_frame_piece {
    size_t item;  /* index of the piece's item in pd_op.items */
    void *land;   /* place of the piece's weights in the caller's buffer */
    size_t bytes; /* length of the weights in bytes; 0: the answer brings no weights */
} pd_frame_piece;

/* Zeros that stand between two pieces of a payload, so that the second piece begins at a multiple of
 * PD_PAYLOAD_ALIGN. */
extern const uint8_t pd_outgoing_padding[];

/* The lists of the queue. A held frame waits for answers to earlier frames, then moves to the lasting frames. */
typedef enum pd_queue { PD_QUEUE_CONNECTION, PD_QUEUE_LASTING, PD_QUEUE_HELD, PD_QUEUES } pd_queue;

/* A frame in the queue of frames to send. */
typedef struct pd_outgoing_frame {
    struct pd_outgoing_frame *prev, *next; /* neighbours in the queue, oldest first (utlist) */
    uint64_t id;                           /* request id */
    unsigned method;
    pd_queue queue;
    struct pd_op *op; /* the user's call that the frame belongs to; NULL: no call waits for the answer */
    uint8_t *head;    /* the frame's prefix and header, head_bytes long; freed with the frame */
    size_t head_bytes;
    uint64_t payload_bytes, reply_bytes; /* reply_bytes: length of the payload that the server's answer will have */
    bool sent;
    bool lent; /* the sender is using the frame's bytes, from pd_outgoing_gather until pd_outgoing_sent */
    /* The frame was retired while its bytes were lent to the sender or half sent. It is freed when they are sent. */
    bool answered;
    size_t first, count; /* only in a Declare frame: index of its first parameter, and number of parameters */
    UT_hash_handle hh;
    size_t n_pieces, n_iov;
    pd_frame_piece *pieces;
    struct iovec *iov; /* the payload: memory of the user's call, not copied */

    uint64_t step; /* step of a push or worker state, or step that the frame closes; 0: the frame is another request */
    uint64_t mark; /* PushRequest.mark or InitRequest.mark in the header */
    struct pd_sent_frame
        *source; /* the kept frame of the window that this frame sends again; NULL: the frame is no resend */

    /* The next fields are for a push whose payload the server reads in the worker's segment. */
    bool shared;            /* on this connection the payload does not go through the socket */
    uint32_t place;         /* where the payload lies in the segment, in units of PD_PAYLOAD_ALIGN bytes */
    struct pd_block *block; /* the copy of the payload; NULL: there is none, or the payload itself lies there */
    bool filled;            /* the payload was copied to the block */
    bool exposed;           /* the server may read the payload in the segment: it was sent and is not answered */
} pd_outgoing_frame;

struct pd_outgoing_frame;

/* One piece of a frame in the window, and the server's answer about it. */
typedef struct pd_sent_piece {
    uint32_t param;   /* index of the parameter */
    uint32_t outcome; /* see pd_item */
    bool update;      /* the answer brought the change of the weights, not the weights */
    uint64_t version; /* version of the weights in the answer */
    size_t bytes;     /* length of these weights in bytes; 0: the answer brought none */
} pd_sent_piece;

/* The window's copy of an answered frame, which can be sent again, and what its answer brought. */
typedef struct pd_sent_frame {
    struct pd_sent_frame *prev, *next; /* neighbours in the list of their step (pd_window_step), by id */
    uint64_t id, step;                 /* request id; step that the frame belongs to */
    uint64_t mark;                     /* PushRequest.mark in the header */
    uint64_t settled; /* the step in which the push counted, in a job with open sets; otherwise `step` */
    unsigned method;
    bool closes;     /* the frame ends its step (pd_client_close_step) */
    bool comparable; /* a resend must get the same answer: it was about `step`, whose weights nobody has changed */
    bool hashed;     /* `hash` is known */
    bool dropped;    /* the window has dropped this copy, which is freed when `again` is */
    struct pd_outgoing_frame *again; /* the frame in the queue that sends this copy again; NULL: there is none */
    uint64_t hash;                   /* XXH3-64 of the weights that the answer brought */
    uint8_t *head, *payload;         /* prefix and header, then a worker state if the frame has one; gradients */
    size_t head_bytes;
    uint64_t payload_bytes;
    size_t n; /* number of pieces */
    pd_sent_piece pieces[];
} pd_sent_frame;

/* Makes a pd_sent_frame with n pieces and a copy of the head, but without a payload. NULL: out of memory. */
pd_sent_frame *pd_sent_frame_new(size_t n, const uint8_t *head, size_t head_bytes);
/* Frees the sent frame now, or with `again` if that frame in the queue still uses its memory. Accepts NULL. */
void pd_sent_frame_drop(pd_sent_frame *sent);

/* A taken section of the worker's segment: a copy of a frame's payload, or a buffer of the user. */
typedef struct pd_block {
    struct pd_block *prev, *next; /* neighbours, by offset */
    uint64_t at, bytes;           /* offset in the segment, and length, in bytes */
    bool buffer;                  /* a buffer of the user */
    bool given_up;                /* the client waits for no answer, but the server may still read the block */
    uint64_t step;                /* if `given_up`: the step of the last such push */
} pd_block;

/* The worker's segment, from which the server reads gradients, and its blocks. */
typedef struct pd_staging {
    pd_segment segment;
    uint64_t used;            /* bytes after this offset were never in a block */
    pd_block *first, *recent; /* list of blocks; the block taken last, after which the search for room begins */
    size_t given_up;          /* number of blocks that are given up */
} pd_staging;

/* Makes the segment, with at least `bytes` bytes. PD_UNAVAILABLE: the system gives none. */
int pd_staging_make(pd_staging *staging, uint64_t bytes, pd_error *err);
/* Frees the segment and all blocks. Does nothing if there is no segment. */
void pd_staging_free(pd_staging *staging);

/* Takes a block of `bytes` bytes for a buffer of the user, and zeroes it: at the offset `wanted` if there is room, else
 * elsewhere. Returns its memory. NULL: there is no room now, or no memory. */
void *pd_staging_take_buffer(pd_staging *staging, uint64_t wanted, uint64_t bytes);
/* Returns whether the server may still read a buffer of the user, from a push that was given up. */
bool pd_staging_is_read(const pd_staging *staging, const void *buffer);

/* Sets frame->place, the place of a frame's payload in the segment. If all gradients of the frame lie in the segment,
 * in the layout of the payload, it is their place. Else the function takes a block, sets frame->block, and the payload
 * must be copied there. Returns false if there is no room: the payload then travels through the socket. */
bool pd_staging_place(pd_staging *staging, pd_outgoing_frame *frame);
/* Copies a frame's payload to its block, unless that is done. Only the frame and the payload's memory are used. */
void pd_staging_fill(const pd_staging *staging, pd_outgoing_frame *frame);
/* Ends the frame's use of the segment. If `read` is set, the server no longer reads the payload there, and the frame's
 * block becomes free. Else the blocks where the payload lies are given up until pd_staging_reclaim. */
void pd_staging_end(pd_staging *staging, pd_outgoing_frame *frame, bool read);
/* Takes note that the server reads no payload any more that belongs to steps up to `step`: frees the blocks that were
 * given up. */
void pd_staging_reclaim(pd_staging *staging, uint64_t step);

/* The queue of a core, and the worker's segment. */
typedef struct pd_outgoing {
    struct {
        pd_outgoing_frame *first, *next;
    } queue[PD_QUEUES];       /* each list's first frame, and its first frame that is not sent completely */
    pd_outgoing_frame *by_id; /* hash table of all frames, by request id */
    pd_queue current;         /* the list from which pd_outgoing_gather last took frames */
    size_t gone;              /* number of bytes of queue[current].next that are sent already */
    /* Number of frames whose bytes the sender is using now: the frame queue[current].next and those that follow it. 0
     * after pd_outgoing_sent. */
    size_t lent;
    /* frames of the user's calls may be sent: the server has accepted Hello and the declared parameters, if there are
     * any */
    bool open;
    bool shares;           /* the server reads large payloads of pushes in the worker's segment of shared memory */
    uint64_t least_shared; /* bytes of the smallest payload that goes through the segment: pd_least_shared */
    uint64_t shared_bytes; /* number of payload bytes that went through the segment so far */
    pd_staging staging;
} pd_outgoing;

/* Makes a frame. Copies the arrays `pieces` and `iov`, and takes ownership of `head` (prefix and header), even on
 * failure. Returns NULL if out of memory. */
pd_outgoing_frame *pd_outgoing_frame_new(uint8_t *head, size_t head_bytes, const pd_frame_piece *pieces,
                                         size_t n_pieces, const struct iovec *iov, size_t n_iov);
/* Frees a frame that is not in the queue. Accepts NULL. */
void pd_outgoing_frame_free(pd_outgoing_frame *frame);

/* Puts a frame at the end of a queue, and takes ownership of it. Its id must be set. Returns false if out of memory:
 * then the caller still owns the frame. */
bool pd_outgoing_add(pd_outgoing *out, pd_outgoing_frame *frame, pd_queue queue);
/* Moves a frame to another list: to the end of the lasting frames, which are sent, or among the held frames, which are
 * in the order of their ids. Returns false, and moves nothing, if its bytes are lent to the sender or half sent. */
bool pd_outgoing_move(pd_outgoing *out, pd_outgoing_frame *frame, pd_queue queue);
/* Return the first lasting or held frame, and the lasting or held frame after `frame`. NULL: there is none. */
pd_outgoing_frame *pd_outgoing_first(const pd_outgoing *out);
pd_outgoing_frame *pd_outgoing_after(const pd_outgoing *out, const pd_outgoing_frame *frame);
/* Returns the frame with that request id; NULL: the queue has no such frame. */
pd_outgoing_frame *pd_outgoing_find(const pd_outgoing *out, uint64_t id);

/* From pd_outgoing_gather to pd_outgoing_sent the sender uses the bytes of some frames without a lock: these frames are
 * "lent". To retire a frame is to take it out of the queue because it needs no further answer. A frame that is lent or
 * half sent is retired later, when its bytes are sent. At that time the callback `done` is called, if the frame still
 * belongs to a call of the user. From then on the user may change the frame's payload. */

typedef void pd_outgoing_done(void *arg, pd_outgoing_frame *frame);

/* Removes and frees a frame that was answered or needs no answer. Returns false if its bytes are lent to the sender or
 * half sent: then pd_outgoing_sent or pd_outgoing_rewind frees it later and calls `done`. */
bool pd_outgoing_retire(pd_outgoing *out, pd_outgoing_frame *frame);
/* Removes a frame for which no call of the user waits any more; `done` is not called for it. */
void pd_outgoing_remove(pd_outgoing *out, pd_outgoing_frame *frame);
/* Retires all frames. */
void pd_outgoing_retire_all(pd_outgoing *out);

/* Lends the next bytes to the sender: at most `max` iovec entries and about `bytes` bytes. Returns the number of
 * entries. The caller must call pd_outgoing_sent or pd_outgoing_rewind before it calls this function again. */
int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* Copies to the worker's segment those payloads of the gathered frames that the server reads there. Called by the
 * sender before it sends the gathered bytes, without a lock. */
void pd_outgoing_fill(const pd_outgoing *out);
/* Ends the lending of bytes to the sender; the first n of them are sent. Calls done() for frames that were retired in
 * the meantime, unless they are half sent. */
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
