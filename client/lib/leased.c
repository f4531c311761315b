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

void pd_leased_note(pd_core *core, Paramd__Lease *const *leases, size_t n, uint64_t least_unused)
{
    pd_core_shares *shares = &core->shares;

    if (least_unused > shares->least_unused) shares->least_unused = least_unused;
    if (n == 0 || n > sizeof shares->ranges / sizeof shares->ranges[0] || is_same(shares, leases, n)) return;
    if (shares->named == leases[0]->first + 1) shares->named = UINT64_MAX;
    for (size_t i = 0; i < n; i++)
        shares->ranges[i] = (pd_core_share_range){ .first = leases[i]->first, .count = leases[i]->count };
    shares->n = n;
    shares->taken = 0;
    shares->since = pd_core_begun(core, 0);
}

void pd_leased_answered(pd_core *core, uint64_t step, bool late, const Paramd__DataReply *reply)
{
    bool same = reply->n_leases > 0 && is_same(&core->shares, reply->leases, reply->n_leases);

    pd_leased_note(core, reply->leases, reply->n_leases, reply->least_unused);
    if (reply->n_leases > 0 && !same && !late) core->shares.named = 0;
    if (late || (same && step > core->shares.since)) pd_leased_repeat(&core->shares);
    if (same && step > core->shares.since) core->shares.since = step;
}

bool pd_leased_has_lost(const pd_core *core, Paramd__Lease *const *leases, size_t n)
{
    return n > 0 && pd_leased_taken(core) != 0 && !is_same(&core->shares, leases, n);
}

void pd_leased_repeat(pd_core_shares *shares)
{
    shares->taken = 0;
}

void pd_leased_forget(pd_core_shares *shares)
{
    *shares = (pd_core_shares){ 0 };
}

uint64_t pd_leased_taken(const pd_core *core)
{
    return core->open_sets ? core->shares.named : 0;
}

uint64_t pd_leased_taken_step(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment == 0 && !core->params[i].elsewhere && core->params[i].step < step)
            step = core->params[i].step;
    return core->n_params > 0 ? step : 0;
}

uint64_t pd_core_least_unused(const pd_core *core, uint64_t taken)
{
    if (core->open_sets) return core->shares.least_unused;
    return taken * core->setup.world_size * core->setup.shares;
}

/* Makes the lease of the coming step in a job in which every rank takes every step: the server leases none there, since
 * each step uses `setup.shares` shares of each rank. */
static void lease_step(pd_core *core, uint64_t taken)
{
    pd_core_shares *shares = &core->shares;
    uint64_t count = core->setup.shares, first = pd_core_least_unused(core, taken) + core->setup.rank * count;

    if (shares->n == 0 || shares->ranges[0].first != first) shares->taken = 0;
    shares->ranges[0] = (pd_core_share_range){ .first = first, .count = count };
    shares->n = 1;
}

int pd_core_take_share(pd_core *core, uint64_t taken, uint64_t *share, pd_error *err)
{
    pd_core_shares *shares = &core->shares;
    uint64_t skip;

    if (core->setup.shares == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "this worker uses no shares of the data: open the handle with shares = 1 or more");
    if (!core->open_sets) lease_step(core, taken);
    skip = shares->taken;
    for (size_t i = 0; i < shares->n; i++) {
        if (skip < shares->ranges[i].count) {
            *share = shares->ranges[i].first + skip;
            shares->taken++;
            shares->named = shares->ranges[0].first + 1;
            return PD_OK;
        }
        skip -= shares->ranges[i].count;
    }
    return pd_fail(err, PD_UNAVAILABLE,
                   "all %llu shares that are leased to this worker are taken: others come with the answer to its push",
                   (unsigned long long)shares->taken);
}
