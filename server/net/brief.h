/* brief.h - connections that have not said Hello yet, and those that end with an error: they give way to newcomers when
 * server.max_connections is reached. Loop thread.
 *
 * So a flood of connections that say nothing, or nonsense, keeps no worker out. The first to go are those that end,
 * which have got their error. Then goes the oldest one without a Hello of the identity, or else the address, that has
 * most of them. */
#ifndef PD_BRIEF_H
#define PD_BRIEF_H

#include <stdint.h>

/* Number of counters by the peer's identity or address. Those that share a counter count as one. */
enum { PD_BRIEF_ORIGINS = 1024 };

struct pd_conn;
struct pd_daemon;

/* Begins zeroed. Lists are in the order in which connections came to them. */
typedef struct pd_brief {
    struct pd_conn *greeting, *ending;
    uint32_t count[PD_BRIEF_ORIGINS]; /* number of connections in `greeting`, by the hash of the origin */
} pd_brief;

/* Adds a new connection, whose transport is attached. */
void pd_brief_enter(struct pd_conn *conn);
/* Notes that a connection has said Hello, or is closed. */
void pd_brief_leave(struct pd_conn *conn);
/* Notes that a connection ends with an error. */
void pd_brief_end(struct pd_conn *conn);
/* Closes a connection for a newcomer. Does nothing if all have said Hello and none ends. */
void pd_brief_make_room(struct pd_daemon *daemon);

#endif
