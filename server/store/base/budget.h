/* budget.h - the two budgets, and the identities that share them. Step thread.
 *
 * Bytes: all jobs together may use limits.max_total_bytes, those of one identity its quota (roles.h). Only a server
 * with roles has owners. A job that a restart brings back belongs to the same identity as before; if its image names
 * none, to that of the first worker that returns to it.
 *
 * Ingest: frames that were received and are not summed yet. A rank's *reserve* is the bytes of its largest frame. The
 * first rank of a job that declares takes the reserves of all its ranks, or none of them (job/reserves.h). A rank's
 * *share* is its reserve and an equal part of the bytes that are not reserved, at most PD_SPARE_MOST: with a
 * large budget a few fast ranks would otherwise fill gigabytes with payloads.
 *
 * The loop thread and the step thread both count reserves. The loop thread counts those of the connections whose ranks
 * have declared (net/admission.h). The store counts these and often more: ranks that have not come yet, and ranks that
 * were lost a short time ago. The more reserves are counted, the smaller is each share, so the store never assumes a
 * larger share than the loop thread grants, and pd_quota_is_exceeded is true too early rather than too late. One
 * exception: the loop thread counts a rank that leaves until it has read the answer to Leave. Then it checks all
 * connections again that it had blocked in between.
 *
 * The frames of a rank that has gone stay reserved until they are summed, but not more than its reserve. Otherwise jobs
 * that start, fill the budget and end could use it several times over. */
#ifndef PD_BUDGET_H
#define PD_BUDGET_H

#include "paramd/error.h"
#include "roles.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pd_account pd_account;

typedef struct pd_budget {
    uint64_t limit, used;
    const char *whose; /* what error texts call those who share the budget: "all jobs" */
    const char *key;   /* where the limit is set: "limits.max_total_bytes" */
    /* Of the budget of all jobs: ends an export of weights or a job that is over, so that `more` bytes of `account` fit
     * into the budget `tight`. Returns whether it has ended one (store_state.h). NULL: it never does. */
    bool (*relieve)(void *arg, const pd_account *account, const struct pd_budget *tight, uint64_t more);
    void *relieve_arg;
    /* of the budget of all jobs: the records of jobs that have ended, whose weights answers still have (published.h) */
    struct pd_unread *unread;
} pd_budget;

/* The bytes that one job uses. The creator sets `budget` to the budget that all jobs share, and the rest to zero. */
struct pd_account {
    pd_budget *budget;
    pd_budget *owner; /* budget of the identity that has created the job; NULL: it has no quota */
    uint64_t used;
};

/* Returns whether `more` further bytes fit into the budget beside those that are in use. */
static inline bool pd_budget_fits(const pd_budget *budget, uint64_t more)
{
    return budget->used <= budget->limit && more <= budget->limit - budget->used;
}

/* Returns the budget that decides about `more` further bytes of a job: that of its owner if they do not fit there, else
 * the one of all jobs. Where they do not fit, exports of weights and jobs that are over end first. */
const pd_budget *pd_account_budget(const pd_account *account, uint64_t more);

static inline bool pd_account_fits(const pd_account *account, uint64_t more)
{
    return pd_budget_fits(pd_account_budget(account, more), more);
}

static inline void pd_account_take(pd_account *account, uint64_t bytes)
{
    account->used += bytes;
    account->budget->used += bytes;
    if (account->owner != NULL) account->owner->used += bytes;
}

static inline void pd_account_give(pd_account *account, uint64_t bytes)
{
    account->used -= bytes;
    account->budget->used -= bytes;
    if (account->owner != NULL) account->owner->used -= bytes;
}

/* The ingest budget of the whole server: what is reserved of it, and what is used. */
typedef struct pd_ingest {
    uint64_t limit;    /* bytes that may be used: limits.ingest_bytes of the configuration */
    uint64_t reserved; /* bytes reserved for all ranks: the sum of pd_quota.reserved over all jobs */
    uint64_t n_ranks;  /* number of ranks whose pd_quota.reserved is not 0 */
    uint64_t held;     /* bytes of frames that were received and are not summed yet */
    bool exhausted;    /* the loop thread has blocked a connection because the whole budget is used */
    /* set when reserves have grown or a connection was blocked: then the store looks again which ranks use up their
     * share */
    bool grown;
} pd_ingest;

/* What the jobs of one identity may reserve of the ingest budget, and what they have reserved. */
typedef struct pd_ingest_share {
    uint64_t limit, reserved; /* bytes */
} pd_ingest_share;

/* The part of the ingest budget that one rank uses. Initialize with zeros. */
typedef struct pd_quota {
    pd_ingest_share *share; /* in which the reserve counts, too; NULL: in none */
    uint64_t conn;          /* number of the connection to which the loop thread charges the rank's frames */
    bool declared;          /* the rank has declared its parameters on the connection `conn` */
    uint64_t reserve;       /* bytes of the rank's largest frame; 0: no rank of the job has declared yet */
    uint64_t reserved;      /* bytes reserved for the rank now: equal to `reserve`, or fewer once the rank has gone */
    bool released; /* the rank has gone, so only the bytes of its frames in memory stay reserved, at most `reserve` */
    uint64_t held; /* bytes of the rank's frames that are not summed yet */
    /* the loop thread has blocked the rank's connection, and some of the rank's frames are not summed yet */
    bool stalled;
} pd_quota;

/* Return how many more bytes can be reserved: of the whole budget, and of the share of an identity. */
uint64_t pd_ingest_room(const pd_ingest *ingest);
uint64_t pd_ingest_share_room(const pd_ingest_share *share);
/* Counts the reserve of a rank in the share of an identity, too, from now on. */
void pd_quota_join(pd_quota *quota, pd_ingest_share *share);
/* Reserves `bytes` of the ingest budget for a rank. With 0 bytes it ends the reservation. */
void pd_quota_take(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
/* Ends the reservation of a rank that has gone, except for the bytes of its frames that are not summed yet. */
void pd_quota_release(pd_ingest *ingest, pd_quota *quota);

/* Count a frame of `bytes` bytes for a rank: pd_quota_hold when the frame is received, pd_quota_let_go when it is
 * summed or dropped. */
void pd_quota_hold(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);
void pd_quota_let_go(pd_ingest *ingest, pd_quota *quota, uint64_t bytes);

/* Returns whether a rank is over quota: the bytes of its frames that are not summed yet nearly use up its share, so
 * its connection may be blocked. The contributions of a rank over quota must be summed as soon as those of all lower
 * ranks have come.
 *
 * The loop thread blocks a connection only if another frame might not fit into this share, or into the
 * whole budget. If this estimate is wrong, the loop thread reports the blocked connection (PD_REQ_STALLED). */
bool pd_quota_is_exceeded(const pd_ingest *ingest, const pd_quota *quota);

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
