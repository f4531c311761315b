/* peers.h - the identities that have connections: what each uses, whose held-back frame comes next, and which
 * connection gives way to a newcomer. Loop thread.
 *
 * An identity is counted while it has a connection: its connections, and their open requests.
 *
 * A turn handles frames for PD_PACE_TURN_NS. The bytes of a flood are cheap to send, and each request costs the loop
 * thread some time. When a turn's time is used up, frames are held back, and their connections wait in a list of their
 * identity. Each later turn begins with these: every identity gets a slice of time for its first connection, in turn.
 * So a request waits for a slice of each other identity, and of each connection of its own, however many requests these
 * have sent.
 *
 * At server.max_connections the connections that have not said Hello, and those that end with an error, give way to
 * newcomers, so a flood of connections that say nothing, or nonsense, keeps no worker out. The first to go are those
 * that end, which have got their error. Then goes the oldest one without a Hello of the identity, or else the address,
 * that has most of them. */
#ifndef PD_PEERS_H
#define PD_PEERS_H

#include "roles.h"

#include <stdbool.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define PD_PACE_TURN_NS 4000000u /* time for frames in a turn of the loop */
#define PD_PACE_SLICE_NS 500000u /* time for a connection that was held back */

/* The place of a connection. Begins zeroed. */
typedef struct pd_pace_place {
    struct pd_pace_party *party; /* its identity, while a frame of it is held back; NULL: none is */
    struct pd_pace_place *prev, *next;
} pd_pace_place;

/* The place of an identity. Begins zeroed. */
typedef struct pd_pace_party {
    pd_pace_place *first; /* its connections whose frames are held back, in the order of their turns */
    struct pd_pace_party *prev, *next;
} pd_pace_party;

/* Begins zeroed. */
typedef struct pd_pace {
    pd_pace_party *first; /* identities with such connections, in the order of their turns */
    uint64_t until_ns;    /* time at which the turn, or the slice, ends; 0: not known yet */
    unsigned frames;      /* number of frames in this turn or slice */
    bool spent;           /* its time is used up */
} pd_pace;

/* Begins a turn or a slice that ends at this time; 0: its first frame finds that out. */
void pd_pace_begin(pd_pace *pace, uint64_t until_ns);
/* Counts a frame. `cheap`: of such frames, not every one reads the clock. Returns whether the clock has to be read to
 * know whether the time is used up. */
bool pd_pace_note(pd_pace *pace, bool cheap);
/* Lets a connection wait, whose frame is held back. */
void pd_pace_defer(pd_pace *pace, pd_pace_party *party, pd_pace_place *place);
/* Takes a connection out of the lists. */
void pd_pace_leave(pd_pace *pace, pd_pace_place *place);
/* Takes out the connection whose turn it is, which must exist. Its identity's next turn comes after those of others. */
pd_pace_place *pd_pace_take(pd_pace *pace);

/* How many connections beyond its quota an identity may have, which only read the error. */
#define PD_USAGE_ENDING 8

typedef struct pd_usage {
    uint64_t number;    /* of the identity, while it has a connection; never used again, never 0 */
    size_t connections; /* open connections of the identity, with those that end with an error */
    size_t requests;    /* requests without an answer on all of them */
    pd_allowance quota;
    pd_pace_party pace;
    UT_hash_handle hh;
    char identity[];
} pd_usage;

typedef struct pd_usages {
    uint64_t hash_key[2]; /* secret key of the hash function for names: name_hash.h */
    pd_usage *table;      /* hash table of the records by identity */
    uint64_t last_number; /* pd_usage.number of the newest record */
} pd_usages;

/* Counts one more connection of an identity. Returns its record, or NULL if out of memory. */
pd_usage *pd_usage_join(pd_usages *usages, const pd_roles *roles, const char *identity);
/* Counts one connection less, whose requests are all answered or dropped. */
void pd_usage_leave(pd_usages *usages, pd_usage *usage);
/* Returns whether the identity's newest connection is beyond its quota by `more` or more. */
bool pd_usage_is_over(const pd_usage *usage, size_t more);
/* Sets all quotas to those of new roles. */
void pd_usages_limit(pd_usages *usages, const pd_roles *roles);

/* Number of counters by the peer's identity or address, its origin. Those that share a counter count as one. */
enum { PD_BRIEF_ORIGINS = 1024 };

/* Whether a connection may be closed for a newcomer. */
typedef enum pd_brevity {
    PD_LASTS,  /* no: it has said Hello, or is closed */
    PD_GREETS, /* it has not said Hello yet */
    PD_ENDS,   /* it ends with an error */
} pd_brevity;

/* A connection's place in the lists. Begins zeroed. */
typedef struct pd_brief_place {
    pd_brevity is;
    uint16_t origin; /* index of the counter of its identity or address */
    struct pd_brief_place *prev, *next;
} pd_brief_place;

/* Begins zeroed. Lists are in the order of arrival. */
typedef struct pd_brief {
    pd_brief_place *greeting, *ending;
    uint32_t count[PD_BRIEF_ORIGINS]; /* number of connections in `greeting`, by origin */
} pd_brief;

/* Adds a new connection. `origin` is a hash of its identity or address. */
void pd_brief_enter(pd_brief *brief, pd_brief_place *place, uint64_t origin);
/* Takes out a connection that has said Hello, or is closed. */
void pd_brief_leave(pd_brief *brief, pd_brief_place *place);
/* Moves a connection that ends with an error. */
void pd_brief_end(pd_brief *brief, pd_brief_place *place);
/* Returns the place of the connection that gives way next; NULL: all have said Hello and none ends. */
pd_brief_place *pd_brief_first(const pd_brief *brief);

#endif
