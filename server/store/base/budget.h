/* budget.h - counts the memory and the received frames of jobs against two budgets, in total and for each identity.
 * Step thread.
 *
 * Memory: all jobs together may use limits.max_total_bytes. The *owner* of a job is the identity that has created it;
 * the jobs of one owner may use its quota (roles.h). Only a server with roles has owners. A job that a restart restores
 * has the same owner as before. If its image names no owner, the first worker that returns to the job becomes its
 * owner.
 *
 * Ingest budget: payload bytes that were received and are not summed yet. A rank's *reserve* is the bytes of its
 * largest frame. The first rank of a job that declares takes the reserves of all ranks of the job, or none of them
 * (job/reserves.h). A rank's *share* is its reserve, plus an equal share of the bytes that nobody has reserved. The
 * second summand is at most PD_SPARE_MOST, so that a few fast ranks do not fill gigabytes of a large budget.
 *
 * The loop thread and the step thread both count reserves. The loop thread counts those of the connections whose ranks
 * have declared (net/payloads.h). The store counts these and often more: ranks that have not come yet, and ranks that
 * were lost a short time ago. The more reserves are counted, the smaller is each share, so the store never assumes a
 * larger share than the loop thread grants, and pd_quota_is_exceeded is true too early rather than too late. One
 * exception: the loop thread counts a rank that leaves until the loop thread has read the store's answer to Leave. Then
 * it checks all connections again that it had blocked in between.
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

/* A budget of memory, in bytes: that of all jobs together, or that of the jobs of one owner. */
typedef struct pd_budget {
    uint64_t limit, used;
    const char *whose; /* what error texts call those who share the budget: "all jobs" */
    const char *key;   /* where the limit is set: "limits.max_total_bytes" */
    /* Only in the budget of all jobs: makes room in the budget `tight` for `more` further bytes of `account`. Ends one
     * export of weights or one job that is over, and returns whether it has (store_state.h). NULL: nothing is ended. */
    bool (*relieve)(void *arg, const pd_account *account, const struct pd_budget *tight, uint64_t more);
    void *relieve_arg;
    /* only in the budget of all jobs: list of the ended jobs whose weights answers still send (published.h) */
    struct pd_unread *unread;
} pd_budget;

/* The bytes that one job uses. The creator sets `budget` to the budget that all jobs share, and the rest to zero. */
struct pd_account {
    pd_budget *budget;
    pd_budget *owner; /* budget of the job's owner; NULL: the job has no owner */
    uint64_t used;
};

/* Returns whether `more` further bytes fit into the budget beside those that are in use. */
static inline bool pd_budget_fits(const pd_budget *budget, uint64_t more)
{
    return budget->used <= budget->limit && more <= budget->limit - budget->used;
}

/* Returns the budget to check before a job takes `more` further bytes: the owner's budget if the bytes do not fit into
 * it, otherwise the budget of all jobs. To make the bytes fit, first ends exports of weights and jobs that are over. */
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
    /* reserves have grown or a connection was blocked, so the store must find out again which ranks are over quota */
    bool grown;
} pd_ingest;

/* What the jobs of one identity may reserve of the ingest budget, and what they have reserved. */
typedef struct pd_ingest_share {
    uint64_t limit, reserved; /* bytes */
} pd_ingest_share;

/* How much of the ingest budget one rank has reserved and uses. Initialize with zeros. */
typedef struct pd_quota {
    pd_ingest_share *share; /* the owner's share, which counts the reserve, too; NULL: the job has no owner */
    uint64_t conn;          /* number of the connection to which the loop thread charges the rank's frames */
    bool declared;          /* the rank has declared its parameters on the connection `conn` */
    /* the answer to that Declare, while it waits for the rank's first lease (step/leases.h); NULL: it does not */
    struct pd_effect *answer;
    uint64_t reserve;  /* bytes of the rank's largest frame; 0: no rank of the job has declared yet */
    uint64_t reserved; /* bytes reserved for the rank now: equal to `reserve`, or fewer once the rank has gone */
    bool released; /* the rank has gone, so only the bytes of its frames in memory stay reserved, at most `reserve` */
    uint64_t held; /* bytes of the rank's frames that are not summed yet */
    /* the loop thread has blocked the rank's connection, and some of the rank's frames are not summed yet */
    bool stalled;
} pd_quota;

/* Return how many more bytes can be reserved of the whole budget (pd_ingest_room) or of the share of an identity
 * (pd_ingest_share_room). */
uint64_t pd_ingest_room(const pd_ingest *ingest);
uint64_t pd_ingest_share_room(const pd_ingest_share *share);
/* Counts the rank's reserve, from now on, in `share` also: the share of the identity that owns its job. */
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

/* An identity that owns jobs: counts these jobs, their bytes and their reserves. */
typedef struct pd_owner pd_owner;

/* All owners of the server. */
typedef struct pd_owners {
    uint64_t hash_key[2];  /* secret key of the hash function for names: name_hash.h */
    pd_owner *table;       /* hash table of the owners by identity */
    uint64_t ingest_bytes; /* the ingest budget of the server, of which each owner has a share */
} pd_owners;

/* Checks that the quota of an identity has room for one more job. `job` is its name, for the error.
 * PD_RESOURCE_EXHAUSTED: it has no room. */
int pd_owner_may_create(const pd_owners *owners, const pd_roles *roles, const char *identity, const char *job,
                        pd_error *err);
/* Returns the owner with this identity; NULL: the identity owns no job. */
pd_owner *pd_owner_find(const pd_owners *owners, const char *identity);
/* Returns the owner with this identity, and makes it if necessary. Adds a reference. NULL: out of memory. */
pd_owner *pd_owner_of(pd_owners *owners, const pd_roles *roles, const char *identity);
/* Adds a reference to an owner, and returns it. */
pd_owner *pd_owner_ref(pd_owner *owner);
/* Drops a reference to an owner, which is freed with its last one. Accepts NULL. */
void pd_owner_let_go(pd_owner *owner);
/* Returns the budget in which the bytes of the owner's jobs count. */
const pd_budget *pd_owner_budget(const pd_owner *owner);
/* Returns the number of the store's batch in which a job of the owner last had its turn; 0: none has had one yet. */
uint64_t pd_owner_turn(const pd_owner *owner);
void pd_owner_set_turn(pd_owner *owner, uint64_t turn);
/* Returns the owner's share of the ingest budget, which counts the reserves of its jobs. Its limit is that of the
 * owner's quota; if the quota has none, half of the budget. */
pd_ingest_share *pd_owner_share(pd_owner *owner);
/* Counts a job, and from now on the bytes of its account, for the owner. */
void pd_owner_add(pd_owner *owner, pd_account *account);
/* Counts one job less for the owner, because the job has ended. The job's bytes count until its account gives them
 * back. Accepts NULL. */
void pd_owner_remove(pd_owner *owner);
/* Sets the limits of all owners to those of new roles. Jobs that exceed these limits stay, but get no more memory. */
void pd_owners_limit(pd_owners *owners, const pd_roles *roles);

#endif
