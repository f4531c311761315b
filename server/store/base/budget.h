/* budget.h - bytes counted against limits.max_total_bytes: the sum over all jobs, and each job's part. Step thread. */
#ifndef PD_BUDGET_H
#define PD_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_budget { uint64_t limit, used; } pd_budget;

/* One job's part. Begins with `budget` set and nothing used. */
typedef struct pd_account {
    pd_budget *budget;
    uint64_t   used;
} pd_account;

/* Returns whether so many more bytes fit. */
static inline bool pd_budget_fits(const pd_budget *budget, uint64_t more)
{
    return budget->used <= budget->limit && more <= budget->limit - budget->used;
}

static inline void pd_account_take(pd_account *account, uint64_t bytes)
{
    account->used += bytes;
    account->budget->used += bytes;
}

static inline void pd_account_give(pd_account *account, uint64_t bytes)
{
    account->used -= bytes;
    account->budget->used -= bytes;
}

#endif
