/* leases.h - gives shares to the ranks of a job as its steps go on, and tells their workers. shares.h keeps the
 * account.
 *
 * Step thread. Fragment 0 leads. Everything follows from the order in which ranks join and are removed, and from the
 * sets of the steps; so a repeated step gives the same leases. Only jobs whose sets are open have leases: in others,
 * every rank takes every step, and a worker computes its share from its rank and the step.
 *
 * What does not follow from sets is a decision of the WAL (wal.h), whatever the durability: that a rank has joined, got
 * one lease more because it carries data over, or was removed. Workers learn of leases when the disk has these
 * decisions (withheld.h). While a restarted server repeats steps, each change is made again after the set that it had
 * followed, and no other change is made: a rank that declares then gets its first lease once all steps are repeated. If
 * the job takes another course (job/repeats.h), the changes after the last repeated step are forgotten.
 *
 * A push names the share that it is made of. A rank may be removed, and join again, while its push is under way: the
 * push is then of a share that is no longer leased to the rank, and does not count. */
#ifndef PD_LEASES_H
#define PD_LEASES_H

#include "fragment_ranks.h"

/* Checks that a worker asks shard 0 for shares, which has fragment 0: else shares of several shards would be the same.
 * PD_INVALID_ARGUMENT. */
int pd_leases_check(const pd_steps *steps, uint32_t wants, pd_error *err);
/* Gives the rank its first lease, of `wants` shares, when it has declared its parameters; does nothing if `wants` is 0
 * or the rank has leases. The first rank that wants shares gives all members their first leases, in ascending order: so
 * these do not depend on who declares first. PD_NO_MEMORY: nothing has changed. */
int pd_leases_declared(pd_steps *steps, uint32_t rank, uint32_t wants);
/* Sends the answer to a Declare (PD_EFF_DECLARED), which tells what is leased to the rank after the last step whose set
 * is fixed, once the disk has what that follows from. If `begins`, the process knows of no lease: while steps are
 * repeated and it has none, the answer waits. Takes ownership of the effect. */
void pd_leases_answer(pd_steps *steps, uint32_t rank, pd_effect *declared, bool begins);
/* Marks the leases of the ranks of a set that was just fixed as used, and gives them new ones: as many shares as the
 * push of each wanted. A rank whose push was too late and carries data gets one lease more; not one whose push is kept
 * for the next step, since this push has no data of it. `recorded`: the set is a decision from before a restart, and so
 * are the further leases. */
void pd_leases_fixed(pd_steps *steps, pd_fragment *fragment, bool recorded);
/* Takes the leases of a removed rank back: other ranks get their shares. Does nothing while steps are repeated: call it
 * again later (pd_members_look does). */
void pd_leases_removed(pd_steps *steps, uint32_t rank);
/* Gives leases to ranks that have declared while steps were repeated, answers them, and tells workers of leases of
 * which they could not be told for lack of memory. PD_NO_MEMORY: call it again later. */
int pd_leases_look(pd_steps *steps);
/* Returns whether a push is made of a share that is not leased to its rank. */
bool pd_leases_refuse(const pd_steps *steps, const pd_request *push);

/* ---- after a restart ---- */

/* Reserves memory for a change that was read back, so that it can be repeated without fail. PD_NO_MEMORY. */
int pd_leases_reserve(pd_steps *steps);
/* Makes the changes again that were read back and belong to steps that the job has taken. With durability = log, drops
 * the others: nobody was told of their leases. */
void pd_leases_read(pd_steps *steps);

#endif
