/* sums.c - plans the sums of chunks in units that one thread computes, and computes them. */
#include "sums.h"

#include "mutant.h"

#include "chunk_queues.h"
#include "grow.h"
#include "kernels.h"
#include "step_group.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <utlist.h>

#define PASS_NS 250.0 /* estimated ns to plan the sum of a chunk and to file it; all on one thread */
/* most elements of a unit: enough to read memory at full speed, few enough to share a sum among cores */
enum { RANGE = 1 << 16 };
/* most sums of a batch, and most contributions that they read: the last chunk may exceed both */
enum { MOST_SUMS = 1 << 14, MOST_ADDENDS = 1 << 17 };
/* estimated ns of one core to read one element that is added, or to write one element of the sum */
#define NS_PER_ELEMENT 0.25
/* ns to wake another thread; a batch of sums that takes less is not shared among threads */
#define WORTH_SHARING_NS 20000

void pd_sums_free(pd_sums *sums)
{
    free(sums->passes);
    free(sums->sums);
    free(sums->addends);
}

void pd_sums_clear(pd_sums *sums)
{
    sums->n_passes = sums->n_sums = sums->n_addends = 0;
    sums->cost_ns = 0;
}

double pd_round_damping(const pd_round *round, uint32_t rank)
{
    return round->damped != NULL ? round->damped[rank] : 1;
}

double pd_contribution_weight(const pd_contribution *given)
{
    if (given->state == PD_CONTRIBUTION_HELD) return given->frame->u.data.weight;
    return given->state == PD_CONTRIBUTION_SPILLED ? given->share : given->u.weight;
}

bool pd_contribution_is_presummed(const pd_contribution *given)
{
    return given->state == PD_CONTRIBUTION_HELD ? given->frame->u.data.presummed : given->presummed;
}

/* Returns whether a contribution takes part in the sum: its gradient is there, and in a weighted mean its weight is not
 * 0, since a mean over no examples may be NaN. */
static bool counts(const pd_contribution *given, pd_aggregation how)
{
    return pd_contribution_is_there(given) && (how != PD_WEIGHTED_MEAN || pd_contribution_weight(given) > 0);
}

/* Totals over those contributions to a common range that take part in the sum. They are counted rank by rank. */
typedef struct tally {
    uint32_t given; /* number of contributions that were counted */
    double weight;  /* sum of the weights of the contributions that were counted, in a plain mean 1 each, damped */
    float scale;    /* factor for the gradient of the contribution that was counted last */
    /* the contribution that was counted last is a sum over its examples, not a mean */
    bool presummed;
    /* if only one contribution was counted: factor for its gradient, and number by which it is divided */
    float only_scale, only_divisor;
} tally;

static void count_slot(tally *t, const pd_contribution *given, double damp, pd_aggregation how)
{
    bool weighted = how == PD_WEIGHTED_MEAN;
    double weight = weighted ? pd_contribution_weight(given) : 1;

    t->given++;
    t->weight += weight * damp;
    t->presummed = weighted && pd_contribution_is_presummed(given);
    /* If the gradient is a mean over `weight` examples, the factor turns it into the sum over them. */
    t->scale = (float)(t->presummed ? damp : weight * damp);
    t->only_scale = PD_MUTANT(damping_lost_for_single) ? 1.0f : (float)damp;
    t->only_divisor = t->presummed ? (float)weight : 1.0f;
}

static bool has_part(const pd_contribution *given, pd_aggregation how)
{
    return counts(given, how) || (given->state == PD_CONTRIBUTION_SUMMED && given->counted);
}

/* Counts contributions whose weights do not matter: all ranks count, with weight 1. */
static tally count_plain(const pd_sweep *sweep, const pd_chunk *chunk, uint32_t upto, pd_aggregation how)
{
    tally t = { .scale = 1.0f, .only_scale = 1.0f, .only_divisor = 1.0f };

    for (uint32_t i = 0; i < sweep->n && pd_sweep_rank(sweep, i) < upto; i++)
        t.given += has_part(&chunk->contributions[pd_sweep_rank(sweep, i)], how);
    t.weight = t.given;
    return t;
}

static tally count_upto(const pd_sweep *sweep, const pd_chunk *chunk, uint32_t upto, pd_aggregation how)
{
    tally t = { .scale = 1.0f, .only_scale = 1.0f };

    if (sweep->round->set == NULL && how != PD_WEIGHTED_MEAN) return count_plain(sweep, chunk, upto, how);
    for (uint32_t i = 0; i < sweep->n && pd_sweep_rank(sweep, i) < upto; i++) {
        uint32_t rank = pd_sweep_rank(sweep, i);
        const pd_contribution *given = &chunk->contributions[rank];
        if (PD_MUTANT(weight_of_excluded_in_divisor) && !pd_round_counts(sweep->round, rank) && has_part(given, how))
            t.weight += pd_contribution_weight(given);
        if (pd_round_counts(sweep->round, rank) && has_part(given, how))
            count_slot(&t, given, pd_round_damping(sweep->round, rank), how);
    }
    return t;
}

/* Returns the number by which the sum is divided. A single contribution, a mean over its examples, is not divided, and
 * only scaled if it is old, so that it keeps its bits. */
static float divisor_of(const tally *all, pd_aggregation how)
{
    if (how == PD_SUM) return 1.0f;
    return all->given > 1 ? (float)all->weight : all->only_divisor;
}

static int make_room(pd_sums *sums, size_t ranges, size_t k)
{
    if (pd_grow((void **)&sums->sums, &sums->sums_room, sums->n_sums + ranges, sizeof *sums->sums) != PD_OK ||
        pd_grow((void **)&sums->addends, &sums->addends_room, sums->n_addends + ranges * k, sizeof *sums->addends) !=
            PD_OK)
        return PD_NO_MEMORY;
    return PD_OK;
}

/* A pass over one chunk while it is being planned: which contributions are added to its sum. */
typedef struct planning {
    pd_sums *sums;
    pd_sweep sweep;
    pd_chunk *chunk;
    uint32_t upto;
    pd_aggregation how;
    float **accumulator;
    pd_buffer_pool *pool;
} planning;

/* Plans to add contributions to one unit, whose first element is `first`: those of ranks before p->upto that are not
 * summed yet. `several`: they are not the only one. */
static void add_slots(const planning *p, int64_t first, bool several)
{
    for (uint32_t i = 0; i < p->sweep.n && pd_sweep_rank(&p->sweep, i) < p->upto; i++) {
        uint32_t rank = pd_sweep_rank(&p->sweep, i);
        const pd_contribution *given = &p->chunk->contributions[rank];
        tally own = { 0 };
        pd_range range;
        if (rank < p->chunk->summed || !counts(given, p->how) || !pd_round_counts(p->sweep.round, rank)) continue;
        count_slot(&own, given, pd_round_damping(p->sweep.round, rank), p->how);
        range = pd_round_chunk_range(p->sweep.round, p->chunk, rank);
        p->sums->addends[p->sums->n_addends++] =
            (pd_addend){ pd_vector_run_of(given->u.at, (pd_dtype)given->dtype, first - range.first, range.n),
                         several ? own.scale : own.only_scale };
    }
}

/* Plans the sum of elements [first, first + n), which the same ranks contribute. The caller has made room for it.
 * `before` and `after` are the totals over the contributions that are in the sum before and after this pass over the
 * chunk.
 *
 * A single contribution is put into the accumulator unscaled. When a second one comes, the first is read from the
 * accumulator and scaled. Old contributions are never alone first: the ranks that count are known before. */
static void plan_range(const planning *p, const tally *before, const tally *after, int64_t first, int64_t n)
{
    pd_sums *sums = p->sums;
    pd_sum *sum = &sums->sums[sums->n_sums++];
    bool again = before->given == 1 && after->given > 1 && before->scale != 1.0f;

    assert(p->sweep.round->damped == NULL || before->given == 0);
    *sum = (pd_sum){ .to = *p->accumulator + first,
                     .n = n,
                     .first_addend = sums->n_addends,
                     .resume = before->given > 0 && !again,
                     .divisor = 1.0f };
    if (again) sums->addends[sums->n_addends++] = (pd_addend){ pd_vector_run_of(sum->to, PD_F32, 0, n), before->scale };
    add_slots(p, first, after->given > 1);
    sum->n_addends = (int)(sums->n_addends - sum->first_addend);
    if (pd_chunk_ends_at(p->sweep.round, p->upto) && after->given > 0) sum->divisor = divisor_of(after, p->how);
}

static int plan_common_range(const planning *p)
{
    tally before = count_upto(&p->sweep, p->chunk, p->chunk->summed, p->how),
          after = count_upto(&p->sweep, p->chunk, p->upto, p->how);
    pd_range s = p->sweep.range;
    size_t k = after.given - before.given;
    /* The last pass over a chunk looks at all sums: it divides them, and finds their largest magnitude. */
    bool ends = pd_chunk_ends_at(p->sweep.round, p->upto) && after.given > 0;

    if (k == 0 && !ends) return PD_OK;
    if (make_room(p->sums, (size_t)((s.n + RANGE - 1) / RANGE), k + 1) != PD_OK) return PD_NO_MEMORY;
    if (*p->accumulator == NULL && (*p->accumulator = pd_buffer_pool_take(p->pool)) == NULL) return PD_NO_MEMORY;
    for (int64_t first = s.first, end = s.first + s.n; first < end; first += RANGE)
        plan_range(p, &before, &after, first, end - first < RANGE ? end - first : RANGE);
    p->sums->cost_ns += NS_PER_ELEMENT * (double)s.n * (double)(k + 1);
    return PD_OK;
}

int pd_sums_plan(pd_sums *sums, pd_round *round, pd_chunk *chunk, uint32_t upto, pd_aggregation how,
                 float **accumulator, pd_buffer_pool *pool)
{
    planning p = { sums, pd_sweep_begin(round, chunk->first, chunk->first + chunk->n), chunk, upto, how, accumulator,
                   pool };
    size_t first_sum = sums->n_sums, first_addend = sums->n_addends;
    double cost_ns = sums->cost_ns;
    int rc = pd_grow((void **)&sums->passes, &sums->passes_room, sums->n_passes + 1, sizeof *sums->passes);

    while (rc == PD_OK && pd_sweep_next(&p.sweep)) rc = plan_common_range(&p);
    if (rc != PD_OK) {
        sums->n_sums = first_sum;
        sums->n_addends = first_addend;
        sums->cost_ns = cost_ns;
        return rc;
    }
    sums->passes[sums->n_passes++] = (pd_pass){ round, chunk, upto, first_sum, sums->n_sums - first_sum };
    return PD_OK;
}

void pd_sums_run(pd_sums *sums, int threads)
{
    /* There are many small sums, so each thread takes several at once. */
    size_t grab = sums->n_sums / 64 + 1;
    (void)threads, (void)grab;
#pragma omp parallel for schedule(dynamic, grab) num_threads(threads) if (sums->cost_ns > WORTH_SHARING_NS)
    for (size_t i = 0; i < sums->n_sums; i++) {
        pd_sum *sum = &sums->sums[i];
        sum->largest = pd_accumulate(sum->to, sum->n, sum->resume, sums->addends + sum->first_addend, sum->n_addends,
                                     sum->divisor);
    }
}

/* Returns the largest magnitude of what a pass has summed (pd_largest). */
static float largest_of(const pd_sums *sums, const pd_pass *pass)
{
    float largest = 0;

    for (size_t i = 0; i < pass->n_sums; i++) largest = pd_larger(largest, sums->sums[pass->first_sum + i].largest);
    return largest;
}

/* Returns whether some element of the chunk has no contribution that takes part in the sum, because all weights are 0
 * or no rank has given a gradient. */
static bool lacks_weight(pd_round *round, const pd_chunk *chunk, pd_aggregation how)
{
    pd_sweep sweep = pd_sweep_begin(round, chunk->first, chunk->first + chunk->n);

    while (pd_sweep_next(&sweep))
        if (count_upto(&sweep, chunk, pd_round_ranks(round), how).given == 0) return true;
    return false;
}

static void note_slot(pd_contribution *given, pd_aggregation how)
{
    double weight;

    if (!pd_contribution_is_there(given)) return;
    weight = pd_contribution_weight(given);
    given->counted = counts(given, how);
    given->presummed = pd_contribution_is_presummed(given);
    if (given->state == PD_CONTRIBUTION_SPILLED) given->frame = NULL;
    given->u.weight = weight;
    given->state = PD_CONTRIBUTION_SUMMED;
}

void pd_sums_note(const pd_sums *sums, const pd_pass *pass, pd_aggregation how)
{
    pd_round *round = pass->round;
    pd_chunk *chunk = pass->chunk;
    float largest;

    for (uint32_t rank = chunk->summed; rank < pass->upto; rank++)
        if (pd_round_counts(round, rank)) note_slot(&chunk->contributions[rank], how);
    chunk->summed = pass->upto;
    largest = largest_of(sums, pass);
    if (!isfinite(largest)) round->finite = false;
    if (!pd_chunk_ends_at(round, pass->upto)) return;
    round->largest = pd_larger(round->largest, largest);
    round->unsummed--;
    if (lacks_weight(round, chunk, how)) round->weightless = true;
}

/* Returns how many ranks, from rank 0 on, must be in the sum of a chunk now, although other contributions are missing:
 * up to the highest rank that is over quota and can be summed. Returns chunk->summed if there is no such rank. */
static uint32_t exceeded_prefix(const pd_steps *steps, const pd_chunk *chunk)
{
    for (uint32_t rank = chunk->prefix; rank > chunk->summed; rank--)
        if (chunk->contributions[rank - 1].state == PD_CONTRIBUTION_HELD && pd_rank_is_over_quota(steps, rank - 1))
            return rank;
    return chunk->summed;
}

static int plan(pd_steps *steps, pd_chunk *chunk, uint32_t upto)
{
    pd_param *param = chunk->param;

    return pd_sums_plan(steps->batch.sums, &param->round, chunk, upto, pd_param_how(param), &param->buffers.accumulator,
                        param->buffers.pool[PD_F32]);
}

/* Returns the estimated time to plan the sums and to file them, while all threads but one wait. */
static double noting_ns(const pd_steps *steps)
{
    return PASS_NS * (double)steps->batch.sums->n_passes * steps->config->threads;
}

/* Returns whether the planned sums have used up the time budget, or are as many as a batch may have. Their number is
 * bounded because no job is charged for the arrays of a batch. */
static bool is_full(const pd_steps *steps, double budget_ns)
{
    const pd_sums *sums = steps->batch.sums;

    return sums->cost_ns >= budget_ns - noting_ns(steps) || sums->n_passes >= MOST_SUMS || sums->n_sums >= MOST_SUMS ||
           sums->n_addends >= MOST_ADDENDS;
}

/* Plans the sums of ready chunks. Returns the parameter for which memory was short; NULL: none. */
static pd_param *plan_ready(pd_steps *steps, double budget_ns)
{
    pd_chunk *chunk;

    DL_FOREACH(steps->chunks.ready, chunk)
    {
        if (pd_is_collected(pd_param_how(chunk->param))) continue;
        if (is_full(steps, budget_ns)) return NULL;
        if (plan(steps, chunk, steps->members.ranks) != PD_OK) return chunk->param;
    }
    return NULL;
}

/* Plans sums of waiting chunks that have contributions of ranks over quota. *finished becomes true if all of these
 * chunks were looked at. */
static pd_param *plan_early(pd_steps *steps, double budget_ns, bool *finished)
{
    pd_chunk *chunk;

    DL_FOREACH(steps->chunks.waiting, chunk)
    {
        uint32_t upto = pd_param_spills(chunk->param) && !PD_MUTANT(early_sum_in_open_set)
                            ? chunk->summed
                            : exceeded_prefix(steps, chunk);
        if (is_full(steps, budget_ns)) return NULL;
        if (upto > chunk->summed && plan(steps, chunk, upto) != PD_OK) return chunk->param;
    }
    *finished = true;
    return NULL;
}

/* Releases the memory of spilled contributions that a pass has summed. */
static void release_spills(const pd_pass *pass)
{
    for (uint32_t rank = pass->chunk->summed; rank < pass->upto; rank++) {
        pd_contribution *given = &pass->chunk->contributions[rank];
        if (given->state == PD_CONTRIBUTION_SPILLED && pd_round_counts(pass->round, rank))
            pd_buffer_pool_give(pass->chunk->param->buffers.spills, given->u.spill);
    }
}

static void note_pass(pd_steps *steps, const pd_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    uint32_t from = chunk->summed;

    if (pass->round->together) release_spills(pass);
    pd_sums_note(steps->batch.sums, pass, pd_param_how(chunk->param));
    for (uint32_t rank = from; rank < pass->upto; rank++) {
        pd_contribution *given = &chunk->contributions[rank];
        if (!pd_round_counts(pass->round, rank)) continue; /* its slot belongs to the next round */
        if (given->frame != NULL) pd_frame_let_go(steps, given->frame);
        given->frame = NULL;
    }
    if (pd_chunk_ends_at(pass->round, pass->upto)) {
        pd_chunk_unlist(steps, chunk);
        if (pass->round->unsummed == 0) pd_param_collected(steps, chunk->param);
    } else {
        pd_chunk_let_go(steps, chunk);
    }
}

double pd_chunks_sum(pd_steps *steps, bool *relieve, pd_param **starved)
{
    pd_sums *sums = steps->batch.sums;
    int threads = steps->config->threads;
    double budget_ns = steps->config->batch_ns * threads;
    bool finished = false;

    pd_sums_clear(sums);
    *starved = plan_ready(steps, budget_ns);
    if (*relieve && *starved == NULL) *starved = plan_early(steps, budget_ns, &finished);
    *relieve = *relieve && !finished;
    pd_sums_run(sums, threads);
    for (size_t i = 0; i < sums->n_passes; i++) note_pass(steps, &sums->passes[i]);
    return steps->batch.sums->cost_ns + noting_ns(steps);
}
