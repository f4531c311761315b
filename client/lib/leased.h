/* leased.h - which shares of the data the server has leased to this worker, and which of them the program has taken. */
#ifndef PD_LEASED_H
#define PD_LEASED_H

#include "core.h"

/* Notes the leases that an answer brings. They replace what was known; if they are the same, what the program has taken
 * stays taken. An answer without leases changes nothing. Answers to pushes that are sent again, because the server has
 * gone back, are not noted: they bring leases of steps that this process has seen. */
void pd_leased_note(pd_core_shares *shares, Paramd__Lease *const *leases, size_t n, uint64_t least_unused);
/* Gives back what the program has taken of the present leases, since its push did not count: it takes the same shares
 * again. */
void pd_leased_repeat(pd_core_shares *shares);
/* Forgets all leases: the server has gone back to an earlier step, or begins the job anew, and tells what it leases. */
void pd_leased_forget(pd_core_shares *shares);
/* Returns 1 + the first share of the present leases if the program has taken some, 0 otherwise, or if the server leases
 * none: what a push that begins now is made of (PushRequest.share). */
uint64_t pd_leased_taken(const pd_core *core);
/* Returns the least share that no rank has used, as the last answer reported. */
uint64_t pd_core_least_unused(const pd_core *core);
/* Takes the next share. PD_FAILED_PRECONDITION: the worker uses no shares (pd_client_options.shares).
 * PD_UNAVAILABLE: all that are leased are taken. */
int pd_core_take_share(pd_core *core, uint64_t *share, pd_error *err);

#endif
