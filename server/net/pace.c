/* pace.c - holds frames back when a turn of the loop has used up its time, and serves their connections in turn. */
#include "pace.h"

#include "conn.h"
#include "conn_io.h"
#include "plant.h"

#include <utlist.h>

enum { CHEAP_FRAMES = 16 }; /* one of so many cheap frames reads the clock */

static void defer(pd_conn *conn)
{
    pd_pace *pace = &conn->daemon->pace;

    if (conn->deferred) return;
    conn->deferred = true;
    DL_APPEND2(pace->first, conn, prev_deferred, next_deferred);
}

void pd_pace_leave(pd_conn *conn)
{
    if (!conn->deferred) return;
    conn->deferred = false;
    DL_DELETE2(conn->daemon->pace.first, conn, prev_deferred, next_deferred);
}

bool pd_pace_admits(pd_conn *conn, bool cheap)
{
    pd_pace *pace = &conn->daemon->pace;

    if (pace->frames++ == 0) { /* one frame is always handled, so there is progress */
        if (pace->until_ns == 0) pace->until_ns = pd_loop_clock_ns(conn->daemon) + PD_PACE_TURN_NS;
        return true;
    }
    if (!pace->spent && (!cheap || pace->frames % CHEAP_FRAMES == 0))
        pace->spent = pd_loop_clock_ns(conn->daemon) > pace->until_ns;
    if (!pace->spent) return true;
    if (!PD_PLANTED(deferred_forever)) defer(conn);
    return false;
}

/* Lets one connection go on for a slice of time. */
static void serve(pd_conn *conn, uint64_t until_ns)
{
    pd_pace *pace = &conn->daemon->pace;

    pd_pace_leave(conn);
    *pace = (pd_pace){ .first = pace->first, .until_ns = until_ns };
    pd_conn_resume(conn);
}

void pd_pace_begin_turn(pd_daemon *daemon)
{
    pd_pace *pace = &daemon->pace;
    const pd_conn *last = pace->first != NULL ? pace->first->prev_deferred : NULL, *conn = NULL;
    uint64_t now, end;

    *pace = (pd_pace){ .first = pace->first };
    if (last == NULL) return;
    now = pd_loop_clock_ns(daemon);
    end = now + PD_PACE_TURN_NS;
    while (pace->first != NULL && conn != last && now < end) {
        conn = pace->first;
        serve(pace->first, now + PD_PACE_SLICE_NS < end ? now + PD_PACE_SLICE_NS : end);
        now = pd_loop_clock_ns(daemon);
    }
    *pace = (pd_pace){ .first = pace->first, .until_ns = end, .frames = 1, .spent = now >= end };
    if (pace->first != NULL) daemon->platform.wake(daemon->platform.arg);
}
