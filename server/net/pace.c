/* pace.c - holds frames back when a turn of the loop has used up its time, and serves their connections in turn. */
#include "pace.h"

#include "conn.h"
#include "conn_io.h"
#include "plant.h"

#include <utlist.h>

enum { CHEAP_FRAMES = 16 }; /* one of so many cheap frames reads the clock */

static void defer(pd_conn *conn)
{
    pd_usage *usage = conn->usage;

    if (conn->deferred) return;
    conn->deferred = true;
    if (usage->deferred == NULL) DL_APPEND2(conn->daemon->pace.first, usage, prev_deferred, next_deferred);
    DL_APPEND2(usage->deferred, conn, prev_deferred, next_deferred);
}

void pd_pace_leave(pd_conn *conn)
{
    pd_usage *usage = conn->usage;

    if (!conn->deferred) return;
    conn->deferred = false;
    DL_DELETE2(usage->deferred, conn, prev_deferred, next_deferred);
    if (usage->deferred == NULL) DL_DELETE2(conn->daemon->pace.first, usage, prev_deferred, next_deferred);
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

/* Lets the first connection of the first identity go on for a slice of time. The identity's next turn comes after those
 * of the others. */
static void serve(pd_pace *pace, uint64_t until_ns)
{
    pd_usage *usage = pace->first;
    pd_conn *conn = usage->deferred;

    pd_pace_leave(conn);
    if (pace->first == usage) {
        DL_DELETE2(pace->first, usage, prev_deferred, next_deferred);
        DL_APPEND2(pace->first, usage, prev_deferred, next_deferred);
    }
    *pace = (pd_pace){ .first = pace->first, .until_ns = until_ns };
    pd_conn_resume(conn);
}

void pd_pace_begin_turn(pd_daemon *daemon)
{
    pd_pace *pace = &daemon->pace;
    uint64_t now, end;

    *pace = (pd_pace){ .first = pace->first };
    if (pace->first == NULL) return;
    now = pd_loop_clock_ns(daemon);
    end = now + PD_PACE_TURN_NS / 2; /* the other half is for frames that come now */
    while (pace->first != NULL && now < end) {
        serve(pace, now + PD_PACE_SLICE_NS < end ? now + PD_PACE_SLICE_NS : end);
        now = pd_loop_clock_ns(daemon);
    }
    *pace = (pd_pace){ .first = pace->first };
    if (pace->first != NULL) daemon->platform.wake(daemon->platform.arg);
}
