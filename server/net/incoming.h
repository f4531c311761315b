/* incoming.h - takes in the frames of a connection: checks each one, finds memory for its payload, runs its method. */
#ifndef PD_INCOMING_H
#define PD_INCOMING_H

#include "frame.h"

#define PD_MAX_PENDING 16384                    /* open requests of a connection */
#define PD_MAX_WAITING (1024 * 1024)            /* pieces of them */

/* The framer's callbacks; `arg` is the connection. */
extern const pd_framer_user pd_incoming_frames;

#endif
