/* brief.h - the connections that have not said Hello yet, and those that end with an error: they give way to newcomers
 * when server.max_connections is reached. Loop thread.
 *
 * So a flood of connections that say nothing, or nonsense, keeps no worker out. The first to go are those that end,
 * which have got their error. Then goes the oldest one without a Hello of the identity, or else the address, that has
 * most of them. */
#ifndef PD_BRIEF_H
#define PD_BRIEF_H

#include <stdint.h>

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

/* Begins zeroed. Lists are in the order in which connections came to them. */
typedef struct pd_brief {
    pd_brief_place *greeting, *ending;
    uint32_t count[PD_BRIEF_ORIGINS]; /* number of connections in `greeting`, by origin */
} pd_brief;

/* Adds a new connection. `origin` is a hash of its identity or address. */
void pd_brief_enter(pd_brief *brief, pd_brief_place *place, uint64_t origin);
/* Notes that a connection has said Hello, or is closed. */
void pd_brief_leave(pd_brief *brief, pd_brief_place *place);
/* Notes that a connection ends with an error. */
void pd_brief_end(pd_brief *brief, pd_brief_place *place);
/* Returns the place of the connection that gives way next; NULL: all have said Hello and none ends. */
pd_brief_place *pd_brief_first(const pd_brief *brief);

#endif
