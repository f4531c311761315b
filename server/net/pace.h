/* pace.h - bounds how long a turn of the loop handles frames, and lets identities take turns when there are too many.
 * Loop thread.
 *
 * The bytes of a flood are cheap to send, and each request costs the loop thread some time. When a turn's time is used
 * up, frames are held back, and their connections wait in a list of their identity. Each later turn begins with these:
 * every identity gets a slice of time for its first connection, in turn. So a request waits for a slice of each other
 * identity, and of each connection of its own, however many requests these have sent. */
#ifndef PD_PACE_H
#define PD_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PD_PACE_TURN_NS 4000000u /* time for frames in a turn of the loop */
#define PD_PACE_SLICE_NS 500000u /* time for a connection that was held back */

struct pd_conn;
struct pd_daemon;
struct pd_usage;

/* Begins zeroed. */
typedef struct pd_pace {
    struct pd_usage *first; /* identities with connections whose frames are held back, in the order of their turns */
    uint64_t until_ns;      /* time at which the turn, or the slice, ends */
    unsigned frames;        /* number of frames in this turn or slice */
    bool spent;             /* its time is used up */
} pd_pace;

/* Returns whether a connection's next frame may be handled in this turn. false: it must be held back, and the
 * connection is resumed in a later turn. `cheap`: of such frames, not every one reads the clock. */
bool pd_pace_admits(struct pd_conn *conn, bool cheap);
/* Begins a turn: resumes connections that were held back. If some are left, the loop does not sleep before the next
 * turn. */
void pd_pace_begin_turn(struct pd_daemon *daemon);
/* Takes a connection out of the list, because it closes. */
void pd_pace_leave(struct pd_conn *conn);

#endif
