/* incoming.h - receives the frames of a connection: checks each frame, gets memory for its payload, and runs its
 * method. */
#ifndef PD_INCOMING_H
#define PD_INCOMING_H

#include "frame.h"

#define PD_MAX_PENDING 16384         /* unanswered requests of a connection: at most this + 2 * its pieces */
#define PD_MAX_WAITING (1024 * 1024) /* pieces (tensors or chunks) in them: at most this + 2 * its pieces */

/* The callbacks of a connection's framer; their `arg` is the connection. */
extern const pd_framer_user pd_incoming_frames;

#endif
