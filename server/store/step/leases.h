/* leases.h - gives shares to the ranks of a job as its steps go on, and tells their workers. shares.h keeps the
 * account.
 *
 * Step thread. Fragment 0 leads. Everything follows from the order in which ranks join and are removed, and from the
 * sets of the steps; so a repeated step gives the same leases. Only jobs whose sets are open have leases: in others,
 * every rank takes every step, and a worker computes its share from its rank and the step.
 *
 * Unless durability is log, no record says which leases were given at a Declare, or taken back at a removal, after the
 * last checkpoint. After a crash of the daemon, other ranks may then get these shares: some shares of the steps since
 * the checkpoint are used twice, and as many are left out. */
#ifndef PD_LEASES_H
#define PD_LEASES_H

#include "fragment_ranks.h"

/* Gives the rank its first lease, of `wants` shares, when it has declared its parameters; does nothing if `wants` is 0
 * or the rank has leases. The first rank that wants shares gives all members their first leases, in ascending order: so
 * these do not depend on who declares first. PD_NO_MEMORY: nothing has changed. */
int pd_leases_declared(pd_steps *steps, uint32_t rank, uint32_t wants);
/* Marks the leases of the ranks of a set that was just fixed as used, and gives them new ones: as many shares as the
 * push of each wanted. A rank whose push was too late and carries data gets one lease more; not one whose push is kept
 * for the next step, since this push has no data of it. */
void pd_leases_fixed(pd_steps *steps, pd_fragment *fragment);
/* Takes the leases of a removed rank back: other ranks get their shares. */
void pd_leases_removed(pd_steps *steps, uint32_t rank);
/* Tells workers of leases of which they could not be told for lack of memory. Returns whether all are told. */
bool pd_leases_tell(pd_steps *steps);

#endif
