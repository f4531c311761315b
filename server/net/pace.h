/* pace.h - bounds how long a turn of the loop handles frames, and lets connections take turns when there are too many.
 * Loop thread.
 *
 * The first bytes of a flood are cheap to send, and each request costs the loop thread some time. When a turn's time is
 * used up, frames are held back, and their connections wait in a list. Each later turn begins with this list: every
 * connection gets a slice of time, and then goes to its end if it has more. So a connection with one request waits for
 * a slice of each of the others, however many requests these have sent. */
#ifndef PD_PACE_H
#define PD_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PD_PACE_TURN_NS 4000000u /* time for frames in a turn of the loop */
#define PD_PACE_SLICE_NS 500000u /* time for a connection that was held back */

struct pd_conn;
struct pd_daemon;

/* Begins zeroed. */
typedef struct pd_pace {
    struct pd_conn *first; /* connections whose frames are held back, in the order in which they are served */
    uint64_t until_ns;     /* time at which the turn, or the slice, ends */
    unsigned frames;       /* number of frames in this turn or slice */
    bool spent;            /* its time is used up */
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
