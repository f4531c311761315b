/* pending.h - the open requests (not answered yet) of a connection, found by request id or by serial number. Loop
 * thread. */
#ifndef PD_PENDING_H
#define PD_PENDING_H

#include "board.h"
#include "frame.h"

/* Tells which event answers a request. Each kind has its own limit of open requests per connection. */
typedef enum pd_pending_kind {
    PD_AWAITS_ROUNDS, /* pushes, pulls and declarations: the requests that a training step needs */
    PD_AWAITS_STORE,  /* the step thread answers the request as soon as it reads it */
    PD_AWAITS_OTHERS, /* the answer waits for other connections, as for a barrier */
    PD_PENDING_KINDS
} pd_pending_kind;

/* An open request. It includes the pieces (tensors or chunks) that a push or pull waits for on the board (board.h). */
typedef struct pd_pending {
    struct pd_pending *next_id, *next_serial; /* next request in the bucket of the id, and in the bucket of the
                                               * serial number */
    struct pd_pending *older, *newer;         /* neighbours in the list of the connection's open requests */
    struct pd_pending *next_reply;            /* next request in the connection's queue of data replies */
    struct pd_conn *conn;                     /* the request's connection, which exists longer than the request */
    uint64_t id;                              /* request id in the frames; the peer may use it again after the answer */
    uint64_t serial;                          /* serial number, never used again on this connection; the store's
                                               * answer names it */
    uint16_t method;
    uint16_t kind;         /* pd_pending_kind */
    bool checksum;         /* the request had a checksum, so the answer gets one */
    uint32_t start, count; /* for Declare: index of its first parameter, and number of its parameters */
    pd_wait wait;          /* for Push, Pull and PushPull: their pieces on the board; must be the last member */
} pd_pending;

typedef struct pd_pendings {
    uint64_t key; /* key of the hash function; odd, and secret because peers choose the ids */
    uint64_t last_serial;
    size_t n, pieces; /* number of open requests, and of the pieces in them */
    size_t of_kind[PD_PENDING_KINDS];
    uint64_t pulling; /* bytes of memory of the open Pull requests */
    unsigned bits;    /* each hash table has 2 to the power of `bits` buckets; 0: no request has come yet, and there
                       * are no tables */
    pd_pending **by_id, **by_serial;
    pd_pending *oldest, *newest;
} pd_pendings;

/* Makes an open request of n pieces for the frame with the prefix `request`. The request gets the next serial number
 * of `table`. The caller adds the request to the table later. Returns NULL if memory is out. */
pd_pending *pd_pending_new(pd_pendings *table, struct pd_conn *conn, const pd_prefix *request, size_t n_pieces);
/* Returns a prefix with the fields that the answer needs: the request's method, its id, and whether it had a
 * checksum. */
pd_prefix pd_pending_asked(const pd_pending *pending);
void pd_pending_free(pd_pending *pending); /* accepts NULL */
/* Returns how many bytes of memory a request of n pieces takes. */
size_t pd_pending_bytes(size_t n_pieces);
/* Find the request with an id, or the request with a serial number. Return NULL if there is none. */
pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id);
pd_pending *pd_pendings_find_serial(const pd_pendings *table, uint64_t serial);
/* Adds a request to the table for which it was made, and becomes its owner. No other request in the table may have
 * the same id. */
void pd_pendings_add(pd_pendings *table, pd_pending *pending);
/* Removes a request from the table. The request then belongs to the caller. */
void pd_pendings_remove(pd_pendings *table, pd_pending *pending);
/* Return the oldest request, and the oldest request of a method. Return NULL if there is none. */
pd_pending *pd_pendings_any(const pd_pendings *table);
pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method);
/* Frees the hash tables, which must be empty. */
void pd_pendings_free(pd_pendings *table);
/* Returns the request that contains the given `wait`, its member of that name. */
pd_pending *pd_pending_of(pd_wait *wait);

#endif
