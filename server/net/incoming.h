/* incoming.h - receives the frames of a connection: checks each frame, gets memory for its payload, and runs its
 * method. */
#ifndef PD_INCOMING_H
#define PD_INCOMING_H

#include "frame.h"

/* How many unanswered requests a connection may have: this many, and 2 more for each piece that its
 * parameters are split into. */
#define PD_MAX_PENDING 16384
/* How many pieces the unanswered requests of a connection may have: this many, and 2 more for each
 * piece that its parameters are split into. Each takes about 128 bytes, which are in no account. */
#define PD_MAX_WAITING (64 * 1024)

/* The functions that a connection's framer calls; their `arg` is the connection. */
extern const pd_framer_user pd_incoming_frames;

#endif
