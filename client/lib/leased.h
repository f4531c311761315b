/* leased.h - which shares of the data the server has leased to this worker, and which of them the program has taken. */
#ifndef PD_LEASED_H
#define PD_LEASED_H

#include "core.h"

/* Notes the leases that the answer to a Declare brings. They replace what was known; if they are the same, what the
 * program has taken stays taken. An answer without leases changes nothing. If they are others, a push under way has
 * counted meanwhile, or other ranks may have got the shares that it was made of: pd_leased_are_lost. */
void pd_leased_declared(pd_core *core, Paramd__Lease *const *leases, size_t n, uint64_t least_unused);
/* Notes the leases that the answer to a push brings, or to the end of a step. `late`: the answer says that the push
 * came too late. If so, or if the leases are those that this process had when it pushed, nothing of the push has
 * counted: the program takes the same shares again. The end of a step to which nothing was given, and that comes too
 * late, brings the same leases. If the leases were extended, since the program carries the data of the late push over,
 * it takes the further ones. Of several answers to one push the first one decides: the program may have taken shares
 * since.
 *
 * Answers to pushes that are sent again, because the server has gone back, are not noted: they bring leases of steps
 * that this process has seen. */
void pd_leased_answered(pd_core *core, const pd_outgoing_frame *frame, bool late, const Paramd__DataReply *reply);
/* Returns whether a push, which was too late, was made of shares that others may have got since, because this rank was
 * removed while it was away: what it had must not be carried over. `id`: of its frame. `share`: PushRequest.share. */
bool pd_leased_are_lost(const pd_core *core, uint64_t id, uint64_t share, const Paramd__DataReply *reply);
/* Returns whether these leases, which the answer to a Declare brings, are others than those of which the program has
 * taken shares since its last push counted. */
bool pd_leased_has_lost(const pd_core *core, Paramd__Lease *const *leases, size_t n);
/* Returns what a queued push is made of, whose header says `share` (PushRequest.share): UINT64_MAX if a lease that this
 * worker has got since begins with this share, and is another one. `id`: of the push's frame. */
uint64_t pd_leased_restamp(const pd_core *core, uint64_t id, uint64_t share);
/* Forgets all leases: the server has gone back to an earlier step, or begins the job anew, and tells what it leases. */
void pd_leased_forget(pd_core_shares *shares);
/* Returns what a push that begins now is made of (PushRequest.share): 1 + the first share of the leases of which the
 * program has taken shares last, be they leased to it still or not; UINT64_MAX if the present leases begin with that
 * share and are others; 0 if it has taken none since its last push counted, or if the server leases none. */
uint64_t pd_leased_taken(const pd_core *core);
/* Returns the same for the push of an operation: that of the last push if it repeats it; 0 if it is none of fragment
 * 0. */
uint64_t pd_leased_name(const pd_core *core, const pd_op *op);
/* Returns the number of shares to ask the server for: of a cluster, shard 0 leases them. */
static inline uint32_t pd_leased_wants(const pd_core *core)
{
    return core->setup.shard > 0 ? 0 : core->setup.shares;
}
/* Returns the last step that all parameters of fragment 0 have taken of which this rank has elements on this server:
 * its steps use the shares. UINT64_MAX: there are none of them. */
uint64_t pd_leased_taken_step(const pd_core *core);
/* Returns the least share that no rank has used, as the last answer reported. `taken`: pd_leased_taken_step, in a
 * cluster the lowest one of all shards. */
uint64_t pd_core_least_unused(const pd_core *core, uint64_t taken);
/* Takes the next share. `taken`: see pd_core_least_unused. PD_FAILED_PRECONDITION: the worker uses no shares
 * (pd_client_options.shares). PD_UNAVAILABLE: all that are leased are taken. */
int pd_core_take_share(pd_core *core, uint64_t taken, uint64_t *share, pd_error *err);

#endif
