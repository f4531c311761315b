/* pace.h - how long a turn of the loop handles frames, and the identities and connections whose frames wait for a later
 * turn. Loop thread.
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
/* Notes a frame. `cheap`: of such frames, not every one reads the clock. Returns whether the clock has to be read to
 * know whether the time is used up. */
bool pd_pace_note(pd_pace *pace, bool cheap);
/* Lets a connection wait, whose frame is held back. */
void pd_pace_defer(pd_pace *pace, pd_pace_party *party, pd_pace_place *place);
/* Takes a connection out of the lists. */
void pd_pace_leave(pd_pace *pace, pd_pace_place *place);
/* Takes out the connection whose turn it is, which must exist. Its identity's next turn comes after those of others. */
pd_pace_place *pd_pace_take(pd_pace *pace);

#endif
