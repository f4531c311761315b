/* budget.c - finds the budget that decides about further bytes of a job, and has jobs ended that nobody needs. */
#include "budget.h"

static const pd_budget *decides(const pd_account *account, uint64_t more)
{
    return account->owner != NULL && !pd_budget_fits(account->owner, more) ? account->owner : account->budget;
}

const pd_budget *pd_account_budget(const pd_account *account, uint64_t more)
{
    const pd_budget *all = account->budget, *tight = decides(account, more);

    while (!pd_budget_fits(tight, more) && all->relieve != NULL && all->relieve(all->relieve_arg, account, tight, more))
        tight = decides(account, more);
    return tight;
}
