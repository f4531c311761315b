/* pending.h - the open requests of a connection, found by request id or by serial number. Loop thread. */
#ifndef PD_PENDING_H
#define PD_PENDING_H

#include "version_table.h"
#include "frame.h"

/* What the answer to a request waits for. The number of open requests of each kind is limited per connection. */
typedef enum pd_pending_kind {
    PD_AWAITS_ROUNDS, /* all requests that training needs: Hello, Declare, Initialise, pushes and pulls */
    PD_AWAITS_STORE,  /* the step thread answers the request as soon as it reads it */
    PD_AWAITS_OTHERS, /* the answer depends on what other connections do, as for a barrier */
    PD_PENDING_KINDS
} pd_pending_kind;

/* An open request. For a push or a pull it includes the pieces that wait on the version table. */
typedef struct pd_pending {
    struct pd_pending *next_id, *next_serial; /* next_id: next request in the same bucket of the hash table by id.
                                               * next_serial: the same for the hash table by serial number */
    struct pd_pending *prev, *next;           /* neighbours in the list of the connection's open requests, the oldest
                                               * first */
    struct pd_pending *next_reply;            /* next request in a list of data replies: queued, or outstanding */
    struct pd_conn *conn; /* connection that the request came on; it exists longer than the request */
    uint64_t id;          /* request id that the peer chose; the peer may use it again after the answer */
    uint64_t serial;      /* serial number, which no other request of this connection has; the store's answer carries
                           * it */
    uint16_t method;
    uint16_t kind;         /* pd_pending_kind: what the answer waits for */
    bool checksum;         /* the request's frame had a checksum, so the answer gets one, too */
    uint32_t start, count; /* of a Declare: index of the first parameter that it declares on this connection, and number
                            * of its parameters */
    const pd_rank_leases *leases; /* of a push: what its answer says of the worker's leases; borrowed from the
                                   * connection. NULL: nothing */
    uint64_t until_ms;            /* of a Checkpoint: time until which its peer waits */
    pd_effect *withheld; /* of a Checkpoint: its answer, which the daemon may not tell yet; NULL: the store has not
                          * answered */
    double fastest;      /* of a push or pull: greatest speed of the job's workers, which its answer tells */
    pd_wait wait; /* of Push, Pull and PushPull: the pieces that wait on the version table; must be the last member */
} pd_pending;

/* The open requests of one connection, in two hash tables and a list. */
typedef struct pd_pendings {
    uint64_t key; /* secret factor of the hash of request ids, because peers choose the ids; odd */
    uint64_t last_serial;
    size_t n, pieces;                 /* n: number of open requests. pieces: number of the pieces in them */
    size_t of_kind[PD_PENDING_KINDS]; /* number of open requests of each kind */
    uint64_t pulling;                 /* bytes of memory that the open Pull requests take */
    size_t *under_way; /* points to the number of open requests of the peer's identity, on all its connections; NULL:
                        * they are not counted */
    unsigned bits; /* each hash table has 2 to the power of `bits` buckets; 0: no request has come yet, and there are no
                    * tables */
    pd_pending **by_id, **by_serial;
    pd_pending *oldest;
} pd_pendings;

/* Makes an open request with n_pieces pieces for the frame with the prefix `request`. It gets the next serial number of
 * `table`, but is not in the table until the caller adds it. Returns NULL if out of memory. */
pd_pending *pd_pending_new(pd_pendings *table, struct pd_conn *conn, const pd_prefix *request, size_t n_pieces);
/* Returns a prefix with the fields of the request that its answer needs: method, request id, and whether it had a
 * checksum. */
pd_prefix pd_pending_asked(const pd_pending *pending);
void pd_pending_free(pd_pending *pending); /* accepts NULL */
/* Returns how many bytes of memory an open request with n_pieces pieces takes. */
size_t pd_pending_bytes(size_t n_pieces);
/* Return the open request with an id, or with a serial number; NULL: there is none. */
pd_pending *pd_pendings_find(const pd_pendings *table, uint64_t id);
pd_pending *pd_pendings_find_serial(const pd_pendings *table, uint64_t serial);
/* Adds an open request to the table for which it was made. The table then owns it. No other request in the table may
 * have the same id. */
void pd_pendings_add(pd_pendings *table, pd_pending *pending);
/* Removes a request from the table of open requests. The request then belongs to the caller. */
void pd_pendings_remove(pd_pendings *table, pd_pending *pending);
/* Return the oldest open request of a connection, or its oldest open request with a method; NULL: there is none. */
pd_pending *pd_pendings_any(const pd_pendings *table);
pd_pending *pd_pendings_of_method(const pd_pendings *table, unsigned method);
/* Frees the hash tables of open requests, which must be empty. */
void pd_pendings_free(pd_pendings *table);
/* Returns the open request whose member `wait` is at the given address. */
pd_pending *pd_pending_of(pd_wait *wait);

#endif
