/* leased.c - keeps the leases of this worker, and hands their shares to the program. */
#include "leased.h"

#include "join.h"
#include "mutant.h"

/* Returns whether the leases begin with those that are known. */
static bool extend(const pd_core_shares *shares, Paramd__Lease *const *leases, size_t n)
{
    bool same = shares->n <= n;

    for (size_t i = 0; same && i < shares->n; i++)
        same = shares->ranges[i].first == leases[i]->first && shares->ranges[i].count == leases[i]->count;
    return same;
}

static bool is_same(const pd_core_shares *shares, Paramd__Lease *const *leases, size_t n)
{
    return shares->n == n && extend(shares, leases, n);
}

static uint64_t count(const pd_core_shares *shares)
{
    uint64_t n = 0;

    for (size_t i = 0; i < shares->n; i++) n += shares->ranges[i].count;
    return n;
}

/* Stores leases. The program takes what comes after the first `carried` of their shares. */
static void take_over(pd_core *core, Paramd__Lease *const *leases, size_t n, uint64_t carried)
{
    pd_core_shares *shares = &core->shares;

    for (size_t i = 0; i < n; i++)
        shares->ranges[i] = (pd_core_share_range){ .first = leases[i]->first, .count = leases[i]->count };
    shares->n = n;
    shares->taken = shares->carried = carried;
    shares->since = pd_core_begun(core, 0);
    shares->settled = core->calls.last_id;
}

static void note_unused(pd_core_shares *shares, uint64_t least_unused)
{
    if (least_unused > shares->least_unused) shares->least_unused = least_unused;
}

/* Returns whether the leases are news. */
static bool are_news(const pd_core_shares *shares, Paramd__Lease *const *leases, size_t n)
{
    return n > 0 && n <= sizeof shares->ranges / sizeof shares->ranges[0] && !is_same(shares, leases, n);
}

static void note(pd_core *core, Paramd__Lease *const *leases, size_t n)
{
    if (!are_news(&core->shares, leases, n)) return;
    if (core->shares.named == leases[0]->first + 1) core->shares.named = UINT64_MAX;
    if (core->shares.pushed == leases[0]->first + 1) core->shares.pushed = UINT64_MAX;
    take_over(core, leases, n, 0);
}

void pd_leased_declared(pd_core *core, Paramd__Lease *const *leases, size_t n, uint64_t least_unused)
{
    note_unused(&core->shares, least_unused);
    if (core->shares.n > 0 && are_news(&core->shares, leases, n)) core->shares.lost = core->calls.last_id;
    note(core, leases, n);
}

/* Lets the program take the shares again of which the push did not count, unless it carries their data. */
static void repeat(pd_core *core)
{
    core->shares.taken = core->shares.carried;
    core->shares.settled = core->calls.last_id;
}

void pd_leased_answered(pd_core *core, const pd_outgoing_frame *frame, bool late, const Paramd__DataReply *reply)
{
    pd_core_shares *shares = &core->shares;
    bool same = reply->n_leases > 0 && is_same(shares, reply->leases, reply->n_leases);

    note_unused(shares, reply->least_unused);
    if (late && shares->n > 0 && are_news(shares, reply->leases, reply->n_leases) &&
        extend(shares, reply->leases, reply->n_leases)) {
        take_over(core, reply->leases, reply->n_leases, count(shares));
        return;
    }
    note(core, reply->leases, reply->n_leases);
    if (reply->n_leases > 0 && !same && !late) shares->named = 0;
    if (late ? frame->id > shares->settled : same && frame->step > shares->since) repeat(core);
    if (same && frame->step > shares->since) shares->since = frame->step;
}

bool pd_leased_are_lost(const pd_core *core, uint64_t id, uint64_t share, const Paramd__DataReply *reply)
{
    bool others = share > 0 && reply->n_leases > 0 && reply->leases[0]->first + 1 != share;

    return !PD_MUTANT(lost_data_carried) && (others || id <= core->shares.lost);
}

bool pd_leased_has_lost(const pd_core *core, Paramd__Lease *const *leases, size_t n)
{
    return n > 0 && pd_leased_taken(core) != 0 && !is_same(&core->shares, leases, n);
}

uint64_t pd_leased_restamp(const pd_core *core, uint64_t id, uint64_t share)
{
    const pd_core_shares *shares = &core->shares;

    return id <= shares->lost && shares->n > 0 && share == shares->ranges[0].first + 1 ? UINT64_MAX : share;
}

void pd_leased_forget(pd_core_shares *shares)
{
    *shares = (pd_core_shares){ 0 };
}

uint64_t pd_leased_taken(const pd_core *core)
{
    return core->open_sets ? core->shares.named : 0;
}

uint64_t pd_leased_name(const pd_core *core, const pd_op *op)
{
    if (core->params[op->items[0].param].fragment > 0) return 0;
    return op->again ? core->shares.pushed : pd_leased_taken(core);
}

uint64_t pd_leased_taken_step(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment == 0 && pd_has_elements(&core->params[i]) && core->params[i].step < step)
            step = core->params[i].step;
    return step;
}

uint64_t pd_core_least_unused(const pd_core *core, uint64_t taken)
{
    if (core->open_sets) return core->shares.least_unused;
    return taken < UINT64_MAX ? taken * core->setup.world_size * core->setup.shares : 0;
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
