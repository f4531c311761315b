/* piece_wait.h - tells the board (board.h) for which pieces of parameters a push or a pull waits. */
#ifndef PD_PIECE_WAIT_H
#define PD_PIECE_WAIT_H

#include "conn.h"

/* A piece that a worker asks for: `count` elements of the parameter with this handle, from index `first` on.
 * `pulls`: the answer contains weights. `holds`: 1 + the version of the weights that the worker has; 0: it has none. */
typedef struct pd_piece_wanted {
    uint32_t handle;
    uint64_t first, count, holds;
    bool pulls;
} pd_piece_wanted;

/* Fills in one waiter: the board's entry for a piece that is waited for. */
void pd_piece_wait_fill(const pd_conn *conn, pd_waiter *waiter, pd_piece_wanted wanted);
/* Checks that the answer's payload will not exceed max_payload. Fails with PD_RESOURCE_EXHAUSTED. */
int pd_piece_wait_check(const pd_conn *conn, const pd_pending *pending, pd_error *err);

#endif
