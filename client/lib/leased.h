/* leased.h - which shares of the data the server has leased to this worker, and which of them the program has taken. */
#ifndef PD_LEASED_H
#define PD_LEASED_H

#include "core.h"

/* Notes the leases that an answer brings. They replace what was known; if they are the same, what the program has taken
 * stays taken. An answer without leases changes nothing. Answers to pushes that are sent again, because the server has
 * gone back, are not noted: they bring leases of steps that this process has seen. */
void pd_leased_note(pd_core *core, Paramd__Lease *const *leases, size_t n, uint64_t least_unused);
/* Notes the leases that the answer to a push for step `step` brings, or to the end of that step. `late`: the answer
 * says that the push came too late. If so, or if the leases are those that this process had when it pushed, nothing of
 * the push has counted: the program takes the same shares again. The end of a step to which nothing was given, and that
 * comes too late, brings the same leases. */
void pd_leased_answered(pd_core *core, uint64_t step, bool late, const Paramd__DataReply *reply);
/* Returns whether these leases, which the answer to a Declare brings, are others than those of which the program has
 * taken shares since its last push counted. */
bool pd_leased_has_lost(const pd_core *core, Paramd__Lease *const *leases, size_t n);
/* Gives back what the program has taken of the present leases, since its push did not count: it takes the same shares
 * again. */
void pd_leased_repeat(pd_core_shares *shares);
/* Forgets all leases: the server has gone back to an earlier step, or begins the job anew, and tells what it leases. */
void pd_leased_forget(pd_core_shares *shares);
/* Returns what a push that begins now is made of (PushRequest.share): 1 + the first share of the leases of which the
 * program has taken shares last, be they leased to it still or not; UINT64_MAX if the present leases begin with that
 * share and are others; 0 if it has taken none since its last push counted, or if the server leases none. */
uint64_t pd_leased_taken(const pd_core *core);
/* Returns the last step that all parameters of fragment 0 on this server have taken: its steps use the shares.
 * UINT64_MAX: the server has none of them. */
uint64_t pd_leased_taken_step(const pd_core *core);
/* Returns the least share that no rank has used, as the last answer reported. `taken`: pd_leased_taken_step, in a
 * cluster the lowest one of all shards. */
uint64_t pd_core_least_unused(const pd_core *core, uint64_t taken);
/* Takes the next share. `taken`: see pd_core_least_unused. PD_FAILED_PRECONDITION: the worker uses no shares
 * (pd_client_options.shares). PD_UNAVAILABLE: all that are leased are taken. */
int pd_core_take_share(pd_core *core, uint64_t taken, uint64_t *share, pd_error *err);

#endif
