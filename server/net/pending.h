/* pending.h - the open requests of a connection, found by id on the wire or by serial number. Loop thread. */
#ifndef PD_PENDING_H
#define PD_PENDING_H

#include "board.h"
#include "frame.h"

/* Who answers a request. It decides how many such requests a connection may have open. */
typedef enum pd_pending_kind {
    PD_AWAITS_ROUNDS,                   /* data and declarations: the requests of a training step */
    PD_AWAITS_STORE,                    /* the step thread answers it when it reads it */
    PD_AWAITS_OTHERS,                   /* the answer waits for other connections */
    PD_PENDING_KINDS
} pd_pending_kind;

/* An open request. The pieces of a request that waits on the board are part of the same memory. */
typedef struct pd_pending {
    struct pd_pending *next_id, *next_serial;   /* in the bucket of the id, and of the serial number */
    struct pd_pending *older, *newer;   /* of the connection's requests */
    struct pd_pending *next_reply;      /* in the connection's queue of data replies */
    struct pd_conn    *conn;            /* outlives its requests */
    uint64_t  id;                       /* on the wire; the peer may use it again after the answer */
    uint64_t  serial;                   /* never used again on this connection; the store answers to it */
    uint16_t  method;
    uint16_t  kind;                     /* pd_pending_kind */
    bool      checksum;                 /* the request had a checksum, so the answer gets one */
    uint32_t  start, count;             /* Declare: its first parameter, and their number */
    pd_wait   wait;                     /* Push, Pull, PushPull: must be last */
} pd_pending;

typedef struct pd_pendings {
    uint64_t     key;                   /* odd and secret: ids come from peers */
    uint64_t     last_serial;
    size_t       n, pieces;             /* requests and pieces in them */
    size_t       of_kind[PD_PENDING_KINDS];
    uint64_t     pulling;               /* bytes of the requests that only pull */
    unsigned     bits;                  /* 1 << bits buckets in each table; 0: no tables before the first request */
    pd_pending **by_id, **by_serial;
    pd_pending  *oldest, *newest;
} pd_pendings;

/* Makes an open request of n pieces for the frame with that prefix, with the next serial number of `table`. The caller
 * adds the request to the table later. NULL: out of memory. */
pd_pending *pd_pending_new(pd_pendings *table, struct pd_conn *conn, const pd_prefix *request, size_t n_pieces);
/* Returns a prefix with the fields that the answer needs: method, id, and whether there is a checksum. */
pd_prefix   pd_pending_asked(const pd_pending *pending);
void        pd_pending_free(pd_pending *pending);                   /* accepts NULL */
/* Returns the bytes of memory of a request of n pieces. */
size_t      pd_pending_bytes(size_t n_pieces);
/* Find the request with an id, or with a serial number. NULL: none. */
pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id);
pd_pending *pd_pendings_find_serial(const pd_pendings *table, uint64_t serial);
/* Adds a request that was made for this table, and takes it. The table may have no other request of its id. */
void        pd_pendings_add(pd_pendings *table, pd_pending *pending);
/* Removes a request from the table and gives it. */
void        pd_pendings_remove(pd_pendings *table, pd_pending *pending);
/* Return the oldest request, and the oldest of a method. NULL: none. */
pd_pending *pd_pendings_any(const pd_pendings *table);
pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method);
/* Frees the buckets of an empty table. */
void        pd_pendings_free(pd_pendings *table);
/* Returns the request to which a wait belongs. */
pd_pending *pd_pending_of(pd_wait *wait);

#endif
