/* sim_shares.h - checks that each share of the data is used once in jobs with open sets (server/store/step/leases.h):
 * it knows of which shares each push was made, and which pushes have counted. */
#ifndef SIM_SHARES_H
#define SIM_SHARES_H

#include "sim_history.h"

struct pd_job;

/* Notes that a process of the rank begins to make its push for a step; then, one by one, of which shares it is made. */
void sim_shares_begin(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t nonce, uint64_t step);
void sim_shares_take(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t share);
/* Notes that the push which the process of the rank has just begun has the data of the one before, too. */
void sim_shares_carry(sim *s, const sim_job *job, uint64_t creator);
/* Notes that the rank's push for step `of` counts: the shares that it was made of are used. */
void sim_shares_count(sim_history *h, uint32_t rank, uint64_t of);
/* Compares the server's account of shares with what follows from the pushes, after the step thread has run. `life`:
 * how often the server was killed. */
void sim_shares_look(sim_history *h, const struct pd_job *job, uint64_t life);
void sim_shares_free(sim_history *h);

#endif
