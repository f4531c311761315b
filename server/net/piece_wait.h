/* piece_wait.h - fills in the version table's records (version_table.h) of the pieces that a push or a pull waits
 * for. */
#ifndef PD_PIECE_WAIT_H
#define PD_PIECE_WAIT_H

#include "conn.h"

/* A piece that a worker asks for: `count` elements, from index `first` on, of the parameter with this handle (its index
 * in the worker's Declare). `pulls`: the answer contains weights. `holds`: 1 + the version of the weights that the
 * worker has; 0: it has none. */
typedef struct pd_piece_wanted {
    uint32_t handle;
    uint64_t first, count, holds;
    bool pulls;
} pd_piece_wanted;

/* Fills in the version table's record of one piece that a request waits for. */
void pd_piece_wait_fill(const pd_conn *conn, pd_waiter *waiter, pd_piece_wanted wanted);
/* Checks that the weights that a request asks for fit into one frame (max_payload). Fails with
 * PD_RESOURCE_EXHAUSTED. */
int pd_piece_wait_check(const pd_conn *conn, const pd_pending *pending, pd_error *err);

#endif
