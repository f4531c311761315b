/* sim_shares.c - follows which shares of the data were used, and compares the server's account with that. */
#include "sim_shares.h"

#include "fragment.h"
#include "shares.h"
#include "sim_sets.h"
#include "job.h"

typedef unsigned long long number;

static bool has(const sim_share_set *set, uint64_t share)
{
    return (set->bits[share / 64] >> share % 64 & 1) != 0;
}

static void add(sim_share_set *set, uint64_t share)
{
    if (share >= SIM_SHARES) sim_fail("harness", "share %llu is more than there is room for", (number)share);
    set->bits[share / 64] |= 1ull << share % 64;
}

static uint64_t count(const sim_share_set *set)
{
    uint64_t n = 0;

    for (int i = 0; i < SIM_SHARES / 64; i++) n += (uint64_t)__builtin_popcountll(set->bits[i]);
    return n;
}

/* Returns the shares of a process's push for a step, the last one if it has begun the step more than once. */
static sim_batch *batch_of(const sim_history *h, uint32_t rank, uint64_t nonce, uint64_t step)
{
    sim_batch *batch = h->account.batches;

    while (batch != NULL && (batch->rank != rank || batch->nonce != nonce || batch->step != step)) batch = batch->next;
    return batch;
}

void sim_shares_begin(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t nonce, uint64_t step)
{
    sim_history *h = sim_sets_history(s, job, creator);
    sim_batch *batch = sim_must(calloc(1, sizeof *batch));

    if (h == NULL) sim_fail("harness", "%s rank %u pushes before the job has weights", job->name, rank);
    *batch = (sim_batch){ .next = h->account.batches, .nonce = nonce, .step = step, .rank = rank };
    h->account.batches = batch;
}

void sim_shares_take(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t share)
{
    sim_history *h = sim_sets_history(s, job, creator);

    if (h->account.batches->rank != rank) sim_fail("harness", "two ranks take shares at once");
    add(&h->account.batches->shares, share);
}

void sim_shares_carry(sim *s, const sim_job *job, uint64_t creator)
{
    sim_batch *batch = sim_sets_history(s, job, creator)->account.batches;
    const sim_batch *before = batch->next;

    while (before != NULL && (before->rank != batch->rank || before->nonce != batch->nonce)) before = before->next;
    if (before == NULL) sim_fail("harness", "%s rank %u carries over what it has not pushed", job->name, batch->rank);
    for (uint64_t share = 0; share < SIM_SHARES; share++)
        if (has(&before->shares, share)) add(&batch->shares, share);
}

/* Adds the shares of a push that has counted to those that are used. */
static void use(sim_history *h, uint32_t rank, uint64_t of)
{
    const sim_batch *batch = batch_of(h, rank, h->account.by[rank][of], of);

    if (batch == NULL)
        sim_fail("shares", "%s: a push of rank %u for step %llu counts, but its process has not begun this step",
                 h->job->name, rank, (number)of);
    for (uint64_t share = 0; share < SIM_SHARES; share++) {
        if (!has(&batch->shares, share)) continue;
        if (has(&h->account.used, share))
            sim_fail("shares", "%s: share %llu is used twice, the second time by rank %u with its push for step %llu",
                     h->job->name, (number)share, rank, (number)of);
        add(&h->account.used, share);
    }
}

/* What counts was sent by the process that had the rank before the step thread ran: a process that has taken the rank
 * since cannot have pushed yet. */
void sim_shares_count(sim_history *h, uint32_t rank, uint64_t of)
{
    if (h->job->open.shares == 0 || h->account.by[rank][of] != 0) return;
    h->account.by[rank][of] = h->account.nonce[rank];
    use(h, rank, of);
}

/* Returns whether a server that was started anew still has to report a parameter. */
static bool is_awaited(const sim_history *h)
{
    bool awaited = false;

    for (uint32_t p = 0; p < h->job->n_params; p++) awaited = awaited || h->params[p].again;
    return awaited;
}

/* Returns whether the push counts in a step that the server has again after it was killed. */
static bool is_restored(const sim_history *h, uint32_t rank, uint64_t of)
{
    uint64_t step = h->fragments[0].pushes[rank].counted[of];

    return step > 0 && step <= h->params[0].step && sim_sets_push(h, 0, step, rank) == of;
}

/* Follows a server that was killed: what it had not on the disk has not counted. */
static void begin_life(sim_history *h, uint64_t life)
{
    sim_account *account = &h->account;

    account->life = life;
    account->blind = 0;
    account->used = (sim_share_set){ 0 };
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        for (uint64_t of = 1; of < VERSIONS; of++) {
            if (!is_restored(h, rank, of)) account->by[rank][of] = 0;
            if (account->by[rank][of] != 0) use(h, rank, of);
        }
}

/* Checks that no share is leased twice, or used and leased; and that the server counts as used what is used. */
static void check_account(const sim_history *h, const pd_job *job)
{
    pd_share_counts counts = pd_shares_counts(job->steps.shares);
    sim_share_set leased = { 0 };
    uint32_t n;

    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        const pd_lease *leases = pd_shares_of(job->steps.shares, rank, &n);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < leases[i].n; k++)
                for (uint64_t share = leases[i].ranges[k].first, left = leases[i].ranges[k].count; left > 0; left--) {
                    if (share >= counts.next || has(&h->account.used, share) || has(&leased, share))
                        sim_fail("shares", "%s: share %llu of %llu is leased to rank %u, and %s", h->job->name,
                                 (number)share, (number)counts.next, rank,
                                 has(&leased, share)            ? "leased already"
                                 : has(&h->account.used, share) ? "used"
                                                                : "was never given");
                    add(&leased, share++);
                }
    }
    if (counts.used != count(&h->account.used) || counts.leased != count(&leased))
        sim_fail("shares",
                 "%s: of %llu shares %llu are used and %llu leased, but for the server %llu are used, %llu leased and "
                 "%llu in the pool, after step %llu",
                 h->job->name, (number)counts.next, (number)count(&h->account.used), (number)count(&leased),
                 (number)counts.used, (number)counts.leased, (number)counts.pooled,
                 (number)job->steps.fragments[0].fixed);
}

void sim_shares_look(sim_history *h, const pd_job *job, uint64_t life)
{
    const pd_fragment *fragment = &job->steps.fragments[0];
    sim_account *account = &h->account;
    bool begins = account->life != life;

    if (h->job->open.shares == 0 || (begins && is_awaited(h))) return;
    if (begins) begin_life(h, life);
    /* Of several sets that were fixed at once only the last is seen here. */
    if (!begins && fragment->fixed > account->fixed + 1) account->blind = fragment->fixed;
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        const pd_fragment_rank_saved *saved = &fragment->ranks[rank].saved;
        if (!begins && saved->counted > account->counted[rank]) sim_shares_count(h, rank, saved->last);
        account->counted[rank] = saved->counted;
        account->nonce[rank] = job->ranks[rank].saved.nonce;
    }
    account->fixed = fragment->fixed;
    while (account->blind > 0 && h->fragments[0].sets[account->blind].known &&
           !h->fragments[0].sets[account->blind].open)
        account->blind--;
    if (account->blind == 0 && job->steps.shares != NULL) check_account(h, job);
}

void sim_shares_free(sim_history *h)
{
    while (h->account.batches != NULL) {
        sim_batch *next = h->account.batches->next;
        free(h->account.batches);
        h->account.batches = next;
    }
}
