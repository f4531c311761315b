/* budget.h - counts the bytes that each job uses. All jobs together may use limits.max_total_bytes, those of one
 * identity its quota (roles.h). Step thread. */
#ifndef PD_BUDGET_H
#define PD_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pd_account pd_account;

typedef struct pd_budget {
    uint64_t limit, used;
    const char *whose; /* what error texts call those who share the budget: "all jobs" */
    const char *key;   /* where the limit is set: "limits.max_total_bytes" */
    /* Of the budget of all jobs: ends an export of weights or a job that is over, so that `more` bytes of `account` fit
     * into the budget `tight`. Returns whether it has ended one (store_end.h). NULL: it never does. */
    bool (*relieve)(void *arg, const pd_account *account, const struct pd_budget *tight, uint64_t more);
    void *relieve_arg;
    /* of the budget of all jobs: the records of jobs that have ended, whose weights answers still have (unread.h) */
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

/* Counts the account's bytes in the budget of its job's owner, too, from now on. */
static inline void pd_account_join(pd_account *account, pd_budget *owner)
{
    account->owner = owner;
    owner->used += account->used;
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

#endif
