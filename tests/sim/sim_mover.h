/* sim_mover.h - simulated movers: passes over lent directions of the server's connections, which move some of the bytes
 * at drawn times and come back later. Meanwhile the server must neither use the direction nor change the memory. */
#ifndef SIM_MOVER_H
#define SIM_MOVER_H

#include "sim.h"

typedef struct sim_pass sim_pass;

/* The functions of a transport's end by which a mover receives or sends. */
typedef ssize_t (*sim_move)(pd_transport *end, const struct iovec *iov, int n, pd_error *err);

/* Begins a pass over a direction of an end of `server`. */
sim_pass *sim_pass_new(struct sim_server *server, sim *s, pd_transport *end, unsigned direction, sim_move move,
                       const struct iovec *iov, int n);
/* Returns what the pass has moved, if it is back; NULL: the mover still has it. */
const pd_moved *sim_pass_result(const sim_pass *pass);
/* Makes the pass come back at once, as when the movers end. */
void sim_pass_finish(sim_pass *pass);
/* Frees the passes of a run that has ended. */
void sim_passes_free(void);

#endif
