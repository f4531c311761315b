/* piece_wait.h - describes the pieces for which a push or a pull waits on the board. */
#ifndef PD_PIECE_WAIT_H
#define PD_PIECE_WAIT_H

#include "conn.h"

/* A run of elements of the parameter with that handle. `pulls`: the answer brings weights. `holds`: 1 + the version of
 * the weights that the worker has; 0: none. */
typedef struct pd_piece_wanted {
    uint32_t handle;
    uint64_t first, count, holds;
    bool     pulls;
} pd_piece_wanted;

/* Fills a waiter for one piece. */
void pd_piece_wait_fill(const pd_conn *conn, pd_waiter *waiter, pd_piece_wanted wanted);
/* Checks that the answer's payload will not exceed the limit. PD_RESOURCE_EXHAUSTED. */
int  pd_piece_wait_check(const pd_conn *conn, const pd_pending *pending, pd_error *err);

#endif
