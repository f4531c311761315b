/* pending.h - the requests of a connection that have no answer yet: found by their id on the wire, or by their serial number. Loop thread. */
#ifndef PD_PENDING_H
#define PD_PENDING_H

#include "board.h"
#include "frame.h"

/* What a request's answer waits for, which decides how many of them a connection may have. */
typedef enum pd_pending_kind {
    PD_AWAITS_ROUNDS,                   /* data, and declarations: what a training step takes */
    PD_AWAITS_STORE,                    /* the step thread answers it as soon as it gets there */
    PD_AWAITS_OTHERS,                   /* other connections have to do something first */
    PD_PENDING_KINDS
} pd_pending_kind;

/* One request under way. One that waits on the board brings its pieces along in the same memory. */
typedef struct pd_pending {
    struct pd_pending *next_id, *next_serial;   /* in their buckets */
    struct pd_pending *older, *newer;   /* of the connection's requests */
    struct pd_pending *next_reply;      /* in the connection's queue of data replies */
    struct pd_conn    *conn;            /* whose it is; it outlives its requests */
    uint64_t  id;                       /* on the wire: the peer uses it again once it is answered */
    uint64_t  serial;                   /* never used again on this connection: what the store answers to */
    uint16_t  method;
    uint16_t  kind;                     /* pd_pending_kind */
    bool      checksum;                 /* the request had one, so has the answer */
    uint32_t  start, count;             /* Declare: its first parameter, and how many */
    pd_wait   wait;                     /* Push, Pull, PushPull: must be last */
} pd_pending;

typedef struct pd_pendings {
    uint64_t     key;                   /* odd and secret: ids come from peers */
    uint64_t     last_serial;
    size_t       n, pieces;             /* requests and pieces in them */
    size_t       of_kind[PD_PENDING_KINDS];
    uint64_t     pulling;               /* bytes of those that only pull */
    unsigned     bits;                  /* each table has 1 << bits buckets; they grow with what is in them, and a stranger has none */
    pd_pending **by_id, **by_serial;
    pd_pending  *oldest, *newest;
} pd_pendings;

/* Makes the record of the request that has that prefix, with n pieces, and gives it its serial number. It goes into `table` later. NULL: out of memory. */
pd_pending *pd_pending_new(pd_pendings *table, struct pd_conn *conn, const pd_prefix *request, size_t n_pieces);
/* Returns a prefix with what the answer needs of the request's: method, id, and whether it had a checksum. */
pd_prefix   pd_pending_asked(const pd_pending *pending);
void        pd_pending_free(pd_pending *pending);                   /* accepts NULL */
/* Bytes of our own memory that a request of n pieces takes. */
size_t      pd_pending_bytes(size_t n_pieces);
pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id);/* NULL: none */
pd_pending *pd_pendings_find_serial(const pd_pendings *table, uint64_t serial);     /* NULL: none */
void        pd_pendings_add(pd_pendings *table, pd_pending *pending);       /* takes; made for this table, and the id must be new */
void        pd_pendings_remove(pd_pendings *table, pd_pending *pending);    /* gives */
pd_pending *pd_pendings_any(const pd_pendings *table);              /* the oldest; NULL: empty */
pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method);       /* the oldest of that method; NULL: none */
void        pd_pendings_free(pd_pendings *table);                   /* an empty one */
pd_pending *pd_pending_of(pd_wait *wait);

#endif
