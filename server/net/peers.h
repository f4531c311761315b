/* peers.h - counts what each identity uses, and chooses whose held-back frame is handled next and which connection is
 * closed for a new one. Loop thread.
 *
 * **Usage.** While an identity has a connection, its connections and their open requests are counted.
 *
 * **Pace.** In each turn, the loop handles frames for at most PD_PACE_TURN_NS, so that a peer which sends many requests
 * does not slow down the others. When this time is used up, further frames are held back, and their connections wait in
 * a list of their identity. Later turns begin with these connections: each identity in turn gets a time slice for its
 * first connection. So a request waits for one time slice of each other identity, and of each other connection of its
 * own identity, however many requests these have sent.
 *
 * **Brief.** The connections that may be closed for a new one: those that have not said Hello, or that end with an
 * error. If there are server.max_connections, a new connection replaces one of them. So a flood of connections that
 * send nothing, or nonsense, does not keep workers out. Connections that end are closed first, because they have got
 * their error. Then comes a connection without Hello: the oldest of the identity that has most of them. Peers that have
 * not proven an identity are told apart by their addresses. */
#ifndef PD_PEERS_H
#define PD_PEERS_H

#include "roles.h"

#include <stdbool.h>
#include <stdint.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define PD_PACE_TURN_NS 4000000u /* time for the frames of one turn of the loop */
#define PD_PACE_SLICE_NS 500000u /* time slice of a connection whose frame was held back */

/* A connection's place in its identity's list of connections with held-back frames. Begins zeroed. */
typedef struct pd_pace_place {
    struct pd_pace_party *party; /* its identity, while a frame of the connection is held back; NULL: none is */
    struct pd_pace_place *prev, *next;
} pd_pace_place;

/* An identity's place in the list of identities with held-back frames. Begins zeroed. */
typedef struct pd_pace_party {
    pd_pace_place *first; /* the identity's connections whose frames are held back, in the order of their turns */
    struct pd_pace_party *prev, *next;
} pd_pace_party;

/* The time for frames in the present turn of the loop, and the identities whose frames are held back. Begins zeroed. */
typedef struct pd_pace {
    pd_pace_party *first; /* identities with held-back frames, in the order of their turns */
    uint64_t until_ns;    /* time at which the turn or time slice ends; 0: not set yet */
    unsigned frames;      /* number of frames in this turn or time slice */
    bool spent;           /* the time is used up */
} pd_pace;

/* Begins a turn or a time slice that ends at until_ns. 0: the caller sets the end at the first frame. */
void pd_pace_begin(pd_pace *pace, uint64_t until_ns);
/* Counts a frame. Returns whether the caller must read the clock to find out whether the time is used up. `cheap`: the
 * frame is of a kind that is sent often; for these, the result is true only once in 16 frames. */
bool pd_pace_note(pd_pace *pace, bool cheap);
/* Adds a connection whose frame is held back to the list of its identity, unless it is already there. */
void pd_pace_defer(pd_pace *pace, pd_pace_party *party, pd_pace_place *place);
/* Removes a connection from the list of its identity, if it is there. */
void pd_pace_leave(pd_pace *pace, pd_pace_place *place);
/* Removes the connection whose turn it is from its list, and returns it. There must be one. The next turn of its
 * identity comes after those of all others. */
pd_pace_place *pd_pace_take(pd_pace *pace);

/* Most connections that an identity may have beyond its quota. These connections only get an error, and end. */
#define PD_USAGE_ENDING 8

/* What one identity uses. Exists while the identity has a connection. */
typedef struct pd_usage {
    uint64_t number;    /* number of the identity; never 0, and never used again for another struct */
    size_t connections; /* number of the identity's connections, including those that end with an error */
    size_t requests;    /* number of open requests on all these connections */
    pd_allowance quota;
    pd_pace_party pace;
    UT_hash_handle hh;
    char identity[];
} pd_usage;

typedef struct pd_usages {
    uint64_t hash_key[2]; /* secret key of the hash function for names: name_hash.h */
    pd_usage *table;      /* hash table of all pd_usage; the key is `identity` */
    uint64_t last_number; /* number of the newest pd_usage */
} pd_usages;

/* Counts a new connection of an identity. Returns the identity's usage, or NULL if out of memory. */
pd_usage *pd_usage_join(pd_usages *usages, const pd_roles *roles, const char *identity);
/* Counts the end of a connection, which must have no open requests. Frees `usage` if it was the identity's last one. */
void pd_usage_leave(pd_usages *usages, pd_usage *usage);
/* Returns whether the identity has more than `more` connections beyond its quota. */
bool pd_usage_is_over(const pd_usage *usage, size_t more);
/* Sets the quotas of all identities to those of new roles. */
void pd_usages_limit(pd_usages *usages, const pd_roles *roles);

/* Number of counters of connections without Hello. A peer's counter is selected by its origin, a hash of its identity
 * or address. Peers with the same counter are treated as one. */
enum { PD_BRIEF_ORIGINS = 1024 };

/* Whether a connection may be closed for a new one. */
typedef enum pd_brevity {
    PD_LASTS,  /* no: it has said Hello, or is closed */
    PD_GREETS, /* it has not said Hello yet */
    PD_ENDS,   /* it ends with an error */
} pd_brevity;

/* A connection's place in the lists of pd_brief. Begins zeroed. */
typedef struct pd_brief_place {
    pd_brevity is;
    uint16_t origin; /* index of its peer's counter in pd_brief.count */
    struct pd_brief_place *prev, *next;
} pd_brief_place;

/* The connections that may be closed for a new one, by pd_brevity; the oldest is first in each list. Begins zeroed. */
typedef struct pd_brief {
    pd_brief_place *greeting, *ending;
    uint32_t count[PD_BRIEF_ORIGINS]; /* number of connections in `greeting`, by origin */
} pd_brief;

/* Adds a new connection, which has not said Hello. `origin` is a hash of the peer's identity or address. */
void pd_brief_enter(pd_brief *brief, pd_brief_place *place, uint64_t origin);
/* Removes a connection that has said Hello or is closed from the list that it is in. */
void pd_brief_leave(pd_brief *brief, pd_brief_place *place);
/* Moves a connection that now ends with an error to the list `ending`. */
void pd_brief_end(pd_brief *brief, pd_brief_place *place);
/* Returns the place of the connection to close for a new one; NULL: there is none. */
pd_brief_place *pd_brief_first(const pd_brief *brief);

#endif
