/* budget.h - counts the bytes that each job uses. All jobs together may use limits.max_total_bytes. Step thread. */
#ifndef PD_BUDGET_H
#define PD_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_budget {
    uint64_t limit, used;
} pd_budget;

/* The bytes that one job uses. The creator sets `budget` to the budget that all jobs share, and the rest to zero. */
typedef struct pd_account {
    pd_budget *budget;
    uint64_t used;
} pd_account;

/* Returns whether `more` further bytes fit into the budget beside those that are in use. */
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
