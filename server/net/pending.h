/* pending.h - the requests of a connection that have no answer yet, found by their id. Loop thread. */
#ifndef PD_PENDING_H
#define PD_PENDING_H

#include "board.h"
#include "frame.h"

#define PD_PENDING_BUCKETS 256

/* One request under way. One that waits on the board brings its pieces along in the same memory. */
typedef struct pd_pending {
    struct pd_pending *next;            /* in its bucket */
    struct pd_pending *next_reply;      /* in the connection's queue of data replies */
    struct pd_conn    *conn;            /* whose it is; it outlives its requests */
    uint64_t  id;
    uint16_t  method;
    bool      checksum;                 /* the request had one, so has the answer */
    uint32_t  start, count;             /* Declare: its first parameter, and how many */
    pd_wait   wait;                     /* Push, Pull, PushPull: must be last */
} pd_pending;

typedef struct pd_pendings {
    uint64_t    key;                    /* odd and secret: ids come from peers */
    size_t      n, pieces;              /* requests and pieces in them */
    pd_pending *bucket[PD_PENDING_BUCKETS];
} pd_pendings;

/* Of the request that has that prefix, with room for n pieces, not yet in any table. NULL: out of memory. */
pd_pending *pd_pending_new(struct pd_conn *conn, const pd_prefix *request, size_t n_pieces);
/* What of the request's prefix its answer needs: method, id, whether there is a checksum. */
pd_prefix   pd_pending_asked(const pd_pending *pending);
void        pd_pending_free(pd_pending *pending);                   /* accepts NULL */
pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id);/* NULL: none */
void        pd_pendings_add(pd_pendings *table, pd_pending *pending);       /* takes; the id must be new */
void        pd_pendings_remove(pd_pendings *table, pd_pending *pending);    /* gives */
pd_pending *pd_pendings_any(const pd_pendings *table);              /* NULL: empty */
pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method);       /* any of that method; NULL: none */
pd_pending *pd_pending_of(pd_wait *wait);

#endif
