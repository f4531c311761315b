/* membership.h - who is a member of a job: ranks join, and are removed in whole units. Step thread.
 *
 * A job has `max_workers` slots. A slot's number is the rank of the worker that has it. In most jobs all ranks are
 * members for ever. If the sets of ranks are open (pd_set_rule.open), members come and go:
 *
 *     begin    the ranks below the world size of the Hello that creates the job are members; none is, if that Hello
 *              takes any rank
 *     join     another rank becomes a member when its Declare is accepted: open steps take it, later ones wait for it
 *     remove   with on_lost_worker = shrink: at once when it leaves for good, or an operator removes it; when it was
 *              lost for `reconnect_grace`. With `fail` the job ends instead, unless the rank has left. With `wait` it
 *              stays a member
 *
 * Each change of the members adds 1 to the epoch. The time of a lost rank does not run while no worker is connected:
 * nobody would take a step without it, and all are lost when the server starts anew.
 *
 * Ranks that name the same group are one unit: they count together, and are removed together. In a job with open sets
 * each unit has all elements of each ranged parameter. A unit joins when it has them, and as many ranks as ever. If it
 * is removed, its connected ranks are told to come again, and join when the unit is whole again. Until all members
 * have said which group they belong to, no step is taken. */
#ifndef PD_MEMBERSHIP_H
#define PD_MEMBERSHIP_H

#include "job.h"

/* Finds the slot for a worker that takes any rank: the one that this process has or had; else the lowest that is free,
 * since nobody has had it, or its last worker has left or was removed; else the lowest whose worker was lost for longer
 * than reconnect_grace. No slot at which another process has superseded this one. PD_UNAVAILABLE: all are taken.
 * PD_ABORTED: only such a slot could be had. */
int pd_members_find_slot(const pd_job *job, const pd_request *hello, uint64_t now_ns, uint32_t *rank, pd_error *err);

/* Returns the job's leader: rank 0, or in a job whose sets of ranks are open the lowest member whose worker is
 * connected. PD_MAX_WORLD: there is none now. */
uint32_t pd_members_leader(const pd_job *job);

/* Checks that the elements which the rank declares suit its unit, and lets the rank send the initial weights if nobody
 * else does. PD_FAILED_PRECONDITION: the unit lacks elements of a ranged parameter. PD_INVALID_ARGUMENT: ranks of its
 * group could wait for each other in different fragments. */
int pd_member_declares(pd_job *job, uint32_t rank, pd_error *err);
/* Lets the unit of a rank join whose Declare was accepted, if it is complete. If all members have declared, removes
 * those whose unit is not. */
void pd_member_declared(pd_job *job, uint32_t rank, uint64_t now_ns);

/* Sets the units of a job that was planned, or read from an image, or of which a process has named its group. */
void pd_members_settle(pd_job *job);
/* Removes members that have left for good or were lost for too long, if the job removes such members; lets a barrier
 * pass that waited for them. Returns false if the job must end instead, and says why in *err. */
bool pd_members_look(pd_job *job, uint64_t now_ns, pd_error *err);
/* Returns the time at which pd_members_look has something to do; UINT64_MAX: never. */
uint64_t pd_members_next(const pd_job *job);
/* Makes the members of a job that a later launch takes over: the ranks below `world`, or none, if its workers take any
 * rank. What the old members have given to the step that is collected is released. Does nothing if the sets of ranks
 * are not open. */
void pd_members_renew(pd_job *job, uint32_t world, bool any_rank);
/* Removes the unit of a rank; does nothing if the rank is no member. */
void pd_member_remove(pd_job *job, uint32_t rank, const char *why, uint64_t now_ns);
/* Tells the loop thread who the members are, and which of them leads, if the sets of ranks are open. */
void pd_members_tell(pd_job *job, uint64_t now_ns);

#endif
