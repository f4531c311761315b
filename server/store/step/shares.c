/* shares.c - leases shares to ranks, so that each share of a job is used once although ranks join, are late and
 * leave. */
#include "shares.h"

#include "grow.h"
#include "store_config.h"

#include <assert.h>
#include <string.h>

/* What a rank has. */
typedef struct holder {
    bool joined; /* false: the rank has no leases */
    uint32_t n;  /* number of leases */
    pd_lease leases[PD_LEASES];
} holder;

/* No call but pd_shares_join allocates memory for the pool, because its capacity is at least
 *
 *     the ranges in the pool + for each joined rank (the ranges of its leases + the leases that it may still get).
 *
 * A new lease does not increase this sum: of its k ranges at least k - 1 are taken from the pool as a whole, and the
 * rank may get one lease less. A counted rank has at least one range for each lease. A removed rank brings its ranges
 * to the pool. */
struct pd_shares {
    uint64_t next;        /* least share that was never given */
    uint64_t changes;     /* number of changes that do not follow from sets (pd_lease_change) */
    pd_share_range *pool; /* descending, so that the least range is the last; none adjacent to another */
    size_t n_pool, room;  /* number of ranges in the pool; its capacity in ranges */
    uint32_t n_ranks;
    holder ranks[];
};

int pd_shares_make(pd_shares **out, uint32_t ranks)
{
    pd_shares *shares = calloc(1, sizeof *shares + ranks * sizeof shares->ranks[0]);

    *out = shares;
    if (shares == NULL) return PD_NO_MEMORY;
    shares->n_ranks = ranks;
    return PD_OK;
}

void pd_shares_free(pd_shares *shares)
{
    if (shares != NULL) free(shares->pool);
    free(shares);
}

static uint64_t end_of(pd_share_range range)
{
    return range.first + range.count;
}

static size_t ranges_of(const holder *rank)
{
    size_t n = 0;

    for (uint32_t i = 0; i < rank->n; i++) n += rank->leases[i].n;
    return n;
}

/* Returns the capacity that the pool needs: see struct pd_shares. */
static size_t room_needed(const pd_shares *shares)
{
    size_t room = shares->n_pool;

    for (uint32_t r = 0; r < shares->n_ranks; r++)
        if (shares->ranks[r].joined) room += ranges_of(&shares->ranks[r]) + PD_LEASES - shares->ranks[r].n;
    return room;
}

static int reserve(pd_shares *shares, size_t room)
{
    void *at = shares->pool;
    int rc = pd_grow(&at, &shares->room, room, sizeof *shares->pool);

    shares->pool = at;
    return rc;
}

int pd_shares_join(pd_shares *shares, uint32_t rank, uint32_t want)
{
    assert(rank < shares->n_ranks);
    if (shares->ranks[rank].joined) return PD_OK;
    if (reserve(shares, room_needed(shares) + PD_LEASES) != PD_OK) return PD_NO_MEMORY;
    shares->ranks[rank].joined = true;
    (void)pd_shares_give(shares, rank, want);
    return PD_OK;
}

/* Returns whether a lease may get the shares from `first` on: it has room for one more range, or its last range ends
 * there. */
static bool may_extend(const pd_lease *lease, uint64_t first)
{
    return lease->n < PD_LEASE_RANGES || end_of(lease->ranges[lease->n - 1]) == first;
}

static void extend(pd_lease *lease, uint64_t first, uint64_t count)
{
    if (lease->n > 0 && end_of(lease->ranges[lease->n - 1]) == first)
        lease->ranges[lease->n - 1].count += count;
    else
        lease->ranges[lease->n++] = (pd_share_range){ first, count };
}

/* Moves up to `most` shares of the pool's least range to a lease. Returns their number. */
static uint64_t take_pooled(pd_shares *shares, pd_lease *lease, uint64_t most)
{
    pd_share_range *least = &shares->pool[shares->n_pool - 1];
    uint64_t count = least->count < most ? least->count : most;

    extend(lease, least->first, count);
    least->first += count;
    least->count -= count;
    shares->n_pool -= least->count == 0;
    return count;
}

const pd_lease *pd_shares_give(pd_shares *shares, uint32_t rank, uint32_t want)
{
    holder *to = &shares->ranks[rank];
    uint64_t left = want < PD_SHARES_WANT_MOST ? want : PD_SHARES_WANT_MOST;
    pd_lease lease = { 0 };

    assert(rank < shares->n_ranks && to->joined);
    if (want == 0 || to->n == PD_LEASES) return NULL;
    while (left > 0 && shares->n_pool > 0 && may_extend(&lease, shares->pool[shares->n_pool - 1].first))
        left -= take_pooled(shares, &lease, left);
    if (left > 0 && shares->n_pool == 0 && may_extend(&lease, shares->next)) {
        extend(&lease, shares->next, left);
        shares->next += left;
    }
    to->leases[to->n] = lease;
    return &to->leases[to->n++];
}

void pd_shares_count(pd_shares *shares, uint32_t rank)
{
    assert(rank < shares->n_ranks);
    shares->ranks[rank].n = 0;
}

/* Returns the index of the pool's first range that lies below `share`. */
static size_t place_of(const pd_shares *shares, uint64_t share)
{
    size_t low = 0, high = shares->n_pool;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shares->pool[middle].first > share)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds a range to the pool, and joins it with adjacent ones. */
static void pool_add(pd_shares *shares, pd_share_range range)
{
    size_t at = place_of(shares, range.first);
    pd_share_range *pool = shares->pool;
    bool above = at > 0 && end_of(range) == pool[at - 1].first;
    bool below = at < shares->n_pool && end_of(pool[at]) == range.first;

    if (above) range.count += pool[at - 1].count;
    if (below) range.first = pool[at].first, range.count += pool[at].count;
    assert(above || below || shares->n_pool < shares->room);
    /* The range takes the place of those that it was joined with. */
    at -= above;
    memmove(pool + at + 1, pool + at + above + below, (shares->n_pool - at - above - below) * sizeof *pool);
    pool[at] = range;
    shares->n_pool = shares->n_pool + 1 - above - below;
}

void pd_shares_remove(pd_shares *shares, uint32_t rank)
{
    holder *from = &shares->ranks[rank];

    assert(rank < shares->n_ranks);
    for (uint32_t i = 0; i < from->n; i++)
        for (uint32_t k = 0; k < from->leases[i].n; k++) pool_add(shares, from->leases[i].ranges[k]);
    from->n = 0;
    from->joined = false;
}

uint64_t pd_shares_changes(const pd_shares *shares)
{
    return shares->changes;
}

uint64_t pd_shares_changed(pd_shares *shares)
{
    return ++shares->changes;
}

int pd_shares_reserve(pd_shares *shares, size_t joins)
{
    return reserve(shares, room_needed(shares) + joins * PD_LEASES);
}

void pd_shares_repeat(pd_shares *shares, const pd_lease_change *change)
{
    assert(change->rank < shares->n_ranks);
    if (change->number <= shares->changes) return;
    shares->changes = change->number;
    switch (change->act) {
    case PD_LEASE_JOIN: (void)pd_shares_join(shares, change->rank, change->wants); break;
    case PD_LEASE_MORE:
        if (shares->ranks[change->rank].joined) (void)pd_shares_give(shares, change->rank, change->wants);
        break;
    case PD_LEASE_END: pd_shares_remove(shares, change->rank); break;
    }
}

const pd_lease *pd_shares_of(const pd_shares *shares, uint32_t rank, uint32_t *n)
{
    assert(rank < shares->n_ranks);
    *n = shares->ranks[rank].n;
    return shares->ranks[rank].leases;
}

bool pd_shares_has(const pd_shares *shares, uint32_t rank)
{
    return shares->ranks[rank].joined;
}

void pd_shares_fill(const pd_shares *shares, uint32_t rank, pd_rank_leases *out)
{
    const holder *from = &shares->ranks[rank];

    out->least_unused = pd_shares_least_unused(shares);
    out->n = 0;
    for (uint32_t i = 0; i < from->n; i++)
        for (uint32_t k = 0; k < from->leases[i].n; k++) out->ranges[out->n++] = from->leases[i].ranges[k];
}

uint64_t pd_shares_least_unused(const pd_shares *shares)
{
    uint64_t least = shares->n_pool > 0 ? shares->pool[shares->n_pool - 1].first : shares->next;

    for (uint32_t r = 0; r < shares->n_ranks; r++)
        for (uint32_t i = 0; i < shares->ranks[r].n; i++)
            if (shares->ranks[r].leases[i].ranges[0].first < least) least = shares->ranks[r].leases[i].ranges[0].first;
    return least;
}

static uint64_t leased_by(const holder *rank)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < rank->n; i++)
        for (uint32_t k = 0; k < rank->leases[i].n; k++) n += rank->leases[i].ranges[k].count;
    return n;
}

pd_share_counts pd_shares_counts(const pd_shares *shares)
{
    pd_share_counts counts = { .next = shares->next, .pool_ranges = shares->n_pool };

    for (size_t i = 0; i < shares->n_pool; i++) counts.pooled += shares->pool[i].count;
    for (uint32_t r = 0; r < shares->n_ranks; r++) counts.leased += leased_by(&shares->ranks[r]);
    counts.used = counts.next - counts.pooled - counts.leased;
    return counts;
}

/* The image. The bound of `next` leaves room for more leases than a job can have. */
static const pd_field shares_fields[] = { PD_FIELD_IN(pd_shares, next, 0, INT64_MAX / 2), { 0 } };
static const pd_table shares_table = { "pd_shares", sizeof(pd_shares), shares_fields };
static const pd_field range_fields[] = { PD_FIELD_IN(pd_share_range, first, 0, INT64_MAX / 2),
                                         PD_FIELD_IN(pd_share_range, count, 1, INT64_MAX / 2),
                                         { 0 } };
static const pd_table share_range_table = { "pd_share_range", sizeof(pd_share_range), range_fields };
static const pd_field holder_fields[] = { PD_FIELD(holder, joined), PD_FIELD_IN(holder, n, 0, PD_LEASES), { 0 } };
static const pd_table holder_table = { "holder", sizeof(holder), holder_fields };
static const pd_field lease_fields[] = { PD_FIELD_IN(pd_lease, n, 1, PD_LEASE_RANGES), { 0 } };
static const pd_table lease_table = { "pd_lease", sizeof(pd_lease), lease_fields };

static void visit_rank(pd_archive *archive, holder *rank)
{
    pd_archive_fields(archive, &holder_table, rank);
    for (uint32_t i = 0; pd_archive_status(archive) == PD_OK && i < rank->n; i++) {
        pd_archive_fields(archive, &lease_table, &rank->leases[i]);
        if (pd_archive_status(archive) == PD_OK)
            pd_archive_records(archive, &share_range_table, rank->leases[i].ranges, rank->leases[i].n);
    }
}

/* Writes or reads all but the number of ranks. Images from before there was one lack the number of changes. */
static void visit_state(pd_archive *archive, pd_shares *shares)
{
    size_t n = shares->n_pool;

    pd_archive_fields(archive, &shares_table, shares);
    pd_archive_count(archive, &n, SIZE_MAX / sizeof *shares->pool, 2 * sizeof(uint64_t));
    if (pd_archive_is_reading(archive) && reserve(shares, n) != PD_OK) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for %zu ranges of shares", n);
        return;
    }
    pd_archive_records(archive, &share_range_table, shares->pool, n);
    if (pd_archive_status(archive) == PD_OK) shares->n_pool = n;
    for (uint32_t r = 0; pd_archive_status(archive) == PD_OK && r < shares->n_ranks; r++)
        visit_rank(archive, &shares->ranks[r]);
    if (pd_archive_status(archive) == PD_OK && (!pd_archive_is_reading(archive) || pd_archive_has_more(archive)))
        pd_archive_value(archive, &shares->changes);
}

static int by_first(const void *a, const void *b)
{
    const pd_share_range *one = a, *other = b;

    return (one->first > other->first) - (one->first < other->first);
}

/* Sorts n ranges. Returns whether they are disjoint and below `next`. */
static bool are_disjoint(pd_share_range *all, size_t n, uint64_t next)
{
    uint64_t end = 0;

    if (n > 0) qsort(all, n, sizeof *all, by_first);
    for (size_t i = 0; i < n; i++) {
        if (all[i].first < end || all[i].count > next || all[i].first > next - all[i].count) return false;
        end = end_of(all[i]);
    }
    return true;
}

/* Checks that the pool is in order, that a rank which has not joined has no leases, and that each lease is ascending.
 * The ranges themselves are in bounds and disjoint. */
static bool is_in_order(const pd_shares *shares)
{
    for (size_t i = 1; i < shares->n_pool; i++)
        if (end_of(shares->pool[i]) >= shares->pool[i - 1].first) return false;
    for (uint32_t r = 0; r < shares->n_ranks; r++) {
        const holder *rank = &shares->ranks[r];
        if (!rank->joined && rank->n > 0) return false;
        for (uint32_t i = 0; i < rank->n; i++)
            for (uint32_t k = 1; k < rank->leases[i].n; k++)
                if (end_of(rank->leases[i].ranges[k - 1]) >= rank->leases[i].ranges[k].first) return false;
    }
    return true;
}

/* Checks that no share is at two places and that all are below `next`. PD_DATA_LOSS. PD_NO_MEMORY. */
static int check_places(const pd_shares *shares)
{
    size_t n = shares->n_pool;
    pd_share_range *all = malloc((room_needed(shares) + 1) * sizeof *all);
    bool disjoint;

    if (all == NULL) return PD_NO_MEMORY;
    if (n > 0) memcpy(all, shares->pool, n * sizeof *all);
    for (uint32_t r = 0; r < shares->n_ranks; r++) {
        for (uint32_t i = 0; i < shares->ranks[r].n; i++) {
            const pd_lease *lease = &shares->ranks[r].leases[i];
            memcpy(all + n, lease->ranges, lease->n * sizeof *all);
            n += lease->n;
        }
    }
    disjoint = are_disjoint(all, n, shares->next);
    free(all);
    return disjoint ? PD_OK : PD_DATA_LOSS;
}

/* Checks shares that were read from an image, and reserves the pool's capacity. PD_DATA_LOSS. PD_NO_MEMORY. */
static int settle(pd_shares *shares)
{
    int rc = is_in_order(shares) ? check_places(shares) : PD_DATA_LOSS;

    return rc == PD_OK ? reserve(shares, room_needed(shares)) : rc;
}

/* Replaces the state by that of `from`, whose leases are moved to the pool if it has another number of ranks. */
static void adopt(pd_shares *shares, pd_shares *from)
{
    pd_share_range *pool = shares->pool;

    for (uint32_t r = 0; from->n_ranks != shares->n_ranks && r < from->n_ranks; r++) pd_shares_remove(from, r);
    for (uint32_t r = 0; r < shares->n_ranks; r++)
        shares->ranks[r] = from->n_ranks == shares->n_ranks ? from->ranks[r] : (holder){ 0 };
    shares->next = from->next;
    shares->changes = from->changes;
    shares->pool = from->pool;
    shares->n_pool = from->n_pool;
    shares->room = from->room;
    from->pool = pool;
}

static void read_state(pd_archive *archive, pd_shares *shares, uint32_t ranks)
{
    pd_shares *found;
    int rc = pd_shares_make(&found, ranks);

    if (rc == PD_OK) visit_state(archive, found);
    if (rc == PD_OK && pd_archive_status(archive) == PD_OK) rc = settle(found);
    if (rc == PD_NO_MEMORY) pd_archive_fail(archive, rc, "out of memory for the shares of %u ranks", ranks);
    if (rc == PD_DATA_LOSS) pd_archive_fail(archive, rc, "the shares are not disjoint or not in order");
    if (pd_archive_status(archive) == PD_OK) adopt(shares, found);
    pd_shares_free(found);
}

void pd_shares_visit(pd_archive *archive, pd_shares *shares)
{
    size_t ranks = shares->n_ranks;

    pd_archive_enter(archive, "shares");
    pd_archive_count(archive, &ranks, PD_MAX_WORLD, sizeof(uint64_t) + sizeof(bool) + sizeof(uint32_t));
    if (!pd_archive_is_reading(archive))
        visit_state(archive, shares);
    else if (pd_archive_status(archive) == PD_OK)
        read_state(archive, shares, (uint32_t)ranks);
    pd_archive_leave(archive);
}
