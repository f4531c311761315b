/* owners.h - the identities that have created jobs: how many jobs and bytes each has, and how many its quota allows.
 * Step thread.
 *
 * Only a server with roles has owners. A job that a restart has brought back belongs to the same identity as before; if
 * its image knows none, to that of the first worker that comes back to it. */
#ifndef PD_OWNERS_H
#define PD_OWNERS_H

#include "budget.h"
#include "ingest.h"
#include "roles.h"

typedef struct pd_owner pd_owner;

typedef struct pd_owners {
    uint64_t hash_key[2];  /* secret key of the hash function for names: name_hash.h */
    pd_owner *table;       /* hash table of the owners by identity */
    uint64_t ingest_bytes; /* the ingest budget of the server, of which each owner has a share */
} pd_owners;

/* Checks that the quota of an identity has room for one more job. `job` is its name, for the error.
 * PD_RESOURCE_EXHAUSTED: it has no room. */
int pd_owner_may_create(const pd_owners *owners, const pd_roles *roles, const char *identity, const char *job,
                        pd_error *err);
/* Returns the owner of this identity; NULL: it has no jobs. */
pd_owner *pd_owner_find(const pd_owners *owners, const char *identity);
/* Returns the owner of this identity, with one reference more. NULL: out of memory. */
pd_owner *pd_owner_of(pd_owners *owners, const pd_roles *roles, const char *identity);
/* Adds a reference to an owner, and returns it. */
pd_owner *pd_owner_ref(pd_owner *owner);
/* Drops a reference to an owner, which is freed with its last one. Accepts NULL. */
void pd_owner_let_go(pd_owner *owner);
/* Returns the budget in which the bytes of the owner's jobs count. */
const pd_budget *pd_owner_budget(const pd_owner *owner);
/* Number of the store's batch of work in which a job of the owner worked last; 0: none did yet. */
uint64_t pd_owner_turn(const pd_owner *owner);
void pd_owner_set_turn(pd_owner *owner, uint64_t turn);
/* Returns the owner's share of the ingest budget, in which the reserves of its jobs count: what its quota says, else
 * half of the budget. */
pd_ingest_share *pd_owner_share(pd_owner *owner);
/* Counts a job as its owner's, with the bytes of its account from now on. */
void pd_owner_add(pd_owner *owner, pd_account *account);
/* Notes that a job of the owner has ended. Its bytes count until the account gives them back. Accepts NULL. */
void pd_owner_remove(pd_owner *owner);
/* Sets the limits of all owners to those of new roles. Jobs that exceed them stay, but get no more memory. */
void pd_owners_limit(pd_owners *owners, const pd_roles *roles);

#endif
