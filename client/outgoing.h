/* outgoing.h - what a client has to say: frames, kept byte for byte until they are answered. No sockets, no clock.
 *
 * There are two lanes. What belongs to one connection (Hello, Declare, Heartbeat) goes first and is forgotten when the connection
 * breaks; what the user asked for lasts, and is sent again, the identical bytes in the same order, on the next connection. */
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
typedef struct pd_parcel {
    struct pd_parcel *prev, *next;      /* in its lane, oldest first */
    uint64_t       id;                  /* request id */
    unsigned       method;
    pd_lane        lane;
    struct pd_op  *op;                  /* whose; NULL: nobody waits for the answer any more */
    uint8_t       *head;                /* prefix and header; owned */
    size_t         head_bytes;
    uint64_t       payload_bytes, reply_bytes;      /* reply_bytes: payload that its answer will have */
    bool           sent, answered;      /* answered: while it was still being sent */
    size_t         first, count;        /* Declare: the parameters in it */
    UT_hash_handle hh;
    size_t         n_parts, n_iov;
    pd_part       *parts;
    struct iovec  *iov;                 /* the payload, borrowed from the caller */
} pd_parcel;

typedef struct pd_outgoing {
    struct { pd_parcel *first, *last, *next; } lane[PD_LANES];      /* next: the first that is not sent */
    pd_parcel *by_id;
    pd_lane    current;                 /* lane that was gathered from last */
    size_t     gone;                    /* bytes already sent of lane[current].next */
    bool       open;                    /* the lasting lane may go */
} pd_outgoing;

/* With room for that many parts and iov entries, copied. Takes `head` (also when it fails). NULL: out of memory. */
pd_parcel *pd_parcel_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts, const struct iovec *iov, size_t n_iov);
void       pd_parcel_free(pd_parcel *parcel);                               /* accepts NULL; must be in no queue */

/* Takes the parcel, which has its id. False: out of memory, it is still the caller's. */
bool       pd_outgoing_add(pd_outgoing *out, pd_parcel *parcel, pd_lane lane);
pd_parcel *pd_outgoing_find(const pd_outgoing *out, uint64_t id);               /* NULL: not asked, or answered */
/* Takes it out and frees it; one that is just being sent goes when it has left. */
void       pd_outgoing_remove(pd_outgoing *out, pd_parcel *parcel);
bool       pd_outgoing_sending(const pd_outgoing *out, const pd_parcel *parcel);   /* some of its bytes have gone, not all */

/* The next bytes to send: at most `max` entries and about `bytes` bytes; returns how many entries. They stay valid until pd_outgoing_sent. */
int  pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes);
/* n of the bytes gathered last have gone. Calls done() for a parcel that was answered before it had wholly left. */
void pd_outgoing_sent(pd_outgoing *out, size_t n, void (*done)(void *arg, pd_parcel *parcel), void *arg);
bool pd_outgoing_pending(const pd_outgoing *out);                               /* there is something to gather */
/* The connection is gone: its own parcels are freed, the lasting ones stand to be sent anew. Returns how many of those had been sent.
 * Calls done() as pd_outgoing_sent does. */
size_t pd_outgoing_rewind(pd_outgoing *out, void (*done)(void *arg, pd_parcel *parcel), void *arg);
void pd_outgoing_clear(pd_outgoing *out);                                       /* frees all */

#endif
