/* brief.c - lists of connections that may be closed for a newcomer. */
#include "brief.h"

#include "conn.h"
#include "name_hash.h"

#include <string.h>
#include <utlist.h>

enum { LOOKED_AT = 64 }; /* so many of the oldest connections without a Hello are compared */

/* Returns the index of the counter of a connection's identity, or of its address if it has proven none. The hash is
 * keyed, so that nobody can choose one that shares the counter of another. */
static uint16_t origin_of(const pd_conn *conn)
{
    const pd_daemon *daemon = conn->daemon;
    const uint64_t key[2] = { daemon->key, daemon->key };
    char host[PD_LOG_PEER];
    const char *name = conn->identity.text;

    pd_loop_host(host, conn->peer);
    if (conn->identity.kind == PD_IDENTITY_NONE) name = host;
    return (uint16_t)(pd_name_hash(key, name, strlen(name)) % PD_BRIEF_ORIGINS);
}

void pd_brief_enter(pd_conn *conn)
{
    pd_brief *brief = &conn->daemon->brief;

    conn->brief = PD_GREETS;
    conn->origin = origin_of(conn);
    brief->count[conn->origin]++;
    DL_APPEND2(brief->greeting, conn, prev_brief, next_brief);
}

void pd_brief_leave(pd_conn *conn)
{
    pd_brief *brief = &conn->daemon->brief;

    if (conn->brief == PD_GREETS) {
        brief->count[conn->origin]--;
        DL_DELETE2(brief->greeting, conn, prev_brief, next_brief);
    } else if (conn->brief == PD_ENDS) {
        DL_DELETE2(brief->ending, conn, prev_brief, next_brief);
    }
    conn->brief = PD_LASTS;
}

void pd_brief_end(pd_conn *conn)
{
    pd_brief_leave(conn);
    conn->brief = PD_ENDS;
    DL_APPEND2(conn->daemon->brief.ending, conn, prev_brief, next_brief);
}

/* Returns the oldest connection without a Hello of the origin that has most of them, among the oldest ones. */
static pd_conn *find_victim(const pd_brief *brief)
{
    pd_conn *victim = NULL;
    int looked = 0;

    for (pd_conn *conn = brief->greeting; conn != NULL && looked < LOOKED_AT; conn = conn->next_brief, looked++)
        if (victim == NULL || brief->count[conn->origin] > brief->count[victim->origin]) victim = conn;
    return victim;
}

void pd_brief_make_room(pd_daemon *daemon)
{
    pd_conn *victim = daemon->brief.ending != NULL ? daemon->brief.ending : find_victim(&daemon->brief);

    if (victim != NULL) pd_conn_close(victim, "it gave way to a new connection (server.max_connections)");
}
