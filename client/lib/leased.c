/* leased.c - keeps the leases of this worker, and hands their shares to the program. */
#include "leased.h"

#include "join.h"

static bool is_same(const pd_core_shares *shares, Paramd__Lease *const *leases, size_t n)
{
    bool same = shares->n == n;

    for (size_t i = 0; same && i < n; i++)
        same = shares->ranges[i].first == leases[i]->first && shares->ranges[i].count == leases[i]->count;
    return same;
}

void pd_leased_note(pd_core_shares *shares, Paramd__Lease *const *leases, size_t n, uint64_t least_unused)
{
    if (least_unused > shares->least_unused) shares->least_unused = least_unused;
    if (n == 0 || n > sizeof shares->ranges / sizeof shares->ranges[0] || is_same(shares, leases, n)) return;
    for (size_t i = 0; i < n; i++)
        shares->ranges[i] = (pd_core_share_range){ .first = leases[i]->first, .count = leases[i]->count };
    shares->n = n;
    shares->taken = 0;
}

void pd_leased_repeat(pd_core_shares *shares)
{
    shares->taken = 0;
}

/* Returns the share of a job in which every rank takes every step: each step uses one share of each rank. */
static uint64_t share_of_step(const pd_core *core)
{
    return pd_core_lowest_step(core) * core->setup.world_size + core->setup.rank;
}

int pd_core_take_share(pd_core *core, uint64_t *share, pd_error *err)
{
    pd_core_shares *shares = &core->shares;
    uint64_t skip = shares->taken;

    if (core->setup.shares == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "this worker uses no shares of the data: open the handle with shares = 1 or more");
    if (!core->open_sets) {
        *share = share_of_step(core);
        return PD_OK;
    }
    for (size_t i = 0; i < shares->n; i++) {
        if (skip < shares->ranges[i].count) {
            *share = shares->ranges[i].first + skip;
            shares->taken++;
            return PD_OK;
        }
        skip -= shares->ranges[i].count;
    }
    return pd_fail(err, PD_UNAVAILABLE,
                   "all %llu shares that are leased to this worker are taken: others come with the answer to its push",
                   (unsigned long long)shares->taken);
}
