/* collect.c - plans and computes those aggregates that need all contributions at once: median, trimmed mean,
 * Adasum and radial mean. */
#include "collect.h"

#include "aggregate_fit.h"
#include "chunk_queues.h"
#include "grow.h"
#include "kernels.h"
#include "robust.h"
#include "round_ranges.h"
#include "step_group.h"
#include "sums.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

/* A unit of a median or trimmed mean has at most RANGE elements. In a job with more than MANY ranks the limit is lower,
 * but at least LEAST_RANGE. */
enum { RANGE = 1 << 16, LEAST_RANGE = 1 << 10, MANY = 8 };
#define NS_PER_COPY 0.1  /* ns of one core to copy one byte of a spilled contribution */
#define NS_PER_VALUE 0.5 /* ns of one core to read one element of one contribution */
/* ns of one core for each value in each round of the sort; to sort k contributions takes (log2 k)^2 / 2 rounds */
#define NS_PER_ROUND 0.1
/* Most passes, units and runs of a batch; the last unit may exceed the number of runs. They bound the memory of a batch
 * whose units are small. */
enum { MOST_UNITS = 4096, MOST_RUNS = 1 << 16 };
enum { KEPT_BYTES = 8192 };    /* larger arrays of a batch are freed when the work is done */
#define WORTH_SHARING_NS 20000 /* ns to wake another thread; a batch that takes less is not shared among threads */

/* A section: a common range (round_ranges.h), whose gradients are merged by an Adasum of their own, among the ranks
 * that contribute it and in their order. So weights that are cut into S shards (Trax's N_WEIGHTS_SHARDS) can be one
 * parameter: ranks s, s + S, s + 2 S, ... declare the range that is shard s, and gradients of different shards are
 * never mixed. */
typedef struct section {
    pd_range run;
    /* the gradients that the section merges; its arrays are `ends` and `at` below, which are freed with the section */
    pd_vectors vectors;
    int64_t *ends;
    pd_vector_run *at;
    pd_adasum *adasum;
    /* number of units of the section's present pass that were handed out */
    int64_t given;
} section;

/* The Adasum of a round, or its radial mean, which is computed in the same way. Each section is computed in passes, and
 * each pass in units. */
typedef struct pd_adasum_tree {
    pd_adasum_form form;
    section *sections; /* the sections of which some rank has a gradient */
    /* number of sections; index of the first section whose pass may have units left to hand out */
    size_t n, next;
    float **scratch; /* buffers for intermediate results, each of the parameter's size */
    size_t n_scratch;
    float largest;   /* largest magnitude of the sections that are finished */
    bool weightless; /* some section has no gradient that takes part */
} pd_adasum_tree;

/* Returns the rank's contribution to the first chunk of a section, whose weight counts for the section. */
static const pd_contribution *first_of(const pd_round *round, uint32_t rank, pd_range run)
{
    return &round->chunks[run.first / round->chunk_elements].contributions[rank];
}

/* Returns whether the rank has a gradient that takes part: in the radial mean one of weight 0 does not, since a mean
 * over no examples may be NaN. */
static bool has_gradient(const pd_adasum_tree *tree, const pd_round *round, uint32_t rank, pd_range run)
{
    const pd_contribution *given = first_of(round, rank, run);

    return pd_round_counts(round, rank) && pd_contribution_is_there(given) &&
           (tree->form != PD_RADIAL_MEAN_FORM || pd_contribution_weight(given) > 0);
}

/* Returns the number of ranks that have a gradient of the section. *all becomes the number of ranks that contribute the
 * section's elements, with those that have reported no gradient. */
static int count_given(const pd_adasum_tree *tree, const pd_round *round, pd_range run, int *all)
{
    int given = 0;

    *all = 0;
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        if (!pd_round_covers(round, rank, run) || !pd_round_counts(round, rank)) continue;
        ++*all;
        given += has_gradient(tree, round, rank, run);
    }
    return given;
}

/* Returns whether the Adasum of a section merges a vector of this rank. `given` is the number of ranks with gradients.
 * A rank without a gradient has a vector of zeros, but only in the tree form, and only if `given` is at least 2. */
static bool has_place(const pd_adasum_tree *tree, const pd_round *round, uint32_t rank, pd_range run, int given)
{
    return pd_round_covers(round, rank, run) && pd_round_counts(round, rank) &&
           (has_gradient(tree, round, rank, run) || (tree->form == PD_ADASUM_TREE && given > 1));
}

/* Returns where the rank's gradient of a chunk lies in memory, from element `first` of the parameter on. Without a
 * gradient returns NULL, which stands for zeros. */
static pd_vector_run source_of(const pd_round *round, const pd_chunk *chunk, uint32_t rank, int64_t first)
{
    const pd_contribution *given = &chunk->contributions[rank];
    pd_range range = pd_round_chunk_range(round, chunk, rank);

    if (!pd_contribution_is_there(given)) return (pd_vector_run){ .at = NULL, .dtype = PD_F32 };
    return pd_vector_run_of(given->u.at, (pd_dtype)given->dtype, first - range.first, range.n);
}

static void fill_sources(const pd_adasum_tree *tree, section *s, const pd_round *round, int given)
{
    int64_t end = s->run.first + s->run.n, chunk_end;
    size_t at = 0;

    for (int64_t first = s->run.first; first < end; first = chunk_end) {
        const pd_chunk *chunk = &round->chunks[first / round->chunk_elements];
        chunk_end = chunk->first + chunk->n < end ? chunk->first + chunk->n : end;
        s->ends[s->vectors.n_runs++] = chunk_end - s->run.first;
        for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
            if (has_place(tree, round, rank, s->run, given)) s->at[at++] = source_of(round, chunk, rank, first);
    }
    assert(at == s->vectors.n_runs * (size_t)s->vectors.k);
}

static int make_section(pd_adasum_tree *tree, const pd_round *round, pd_range run)
{
    section *s = &tree->sections[tree->n];
    int all, given = count_given(tree, round, run, &all);
    size_t chunks = (size_t)((run.first + run.n - 1) / round->chunk_elements - run.first / round->chunk_elements + 1);

    if (given == 0) {
        tree->weightless = true;
        return PD_OK;
    }
    s->run = run;
    s->vectors.k = tree->form == PD_ADASUM_TREE && given > 1 ? all : given;
    tree->n++;
    s->ends = malloc(chunks * sizeof *s->ends);
    s->at = malloc(chunks * (size_t)s->vectors.k * sizeof *s->at);
    if (s->ends == NULL || s->at == NULL) return PD_NO_MEMORY;
    s->vectors.ends = s->ends;
    s->vectors.at = s->at;
    fill_sources(tree, s, round, given);
    return PD_OK;
}

static size_t count_sections(const pd_round *round)
{
    size_t n = 0;

    for (pd_range run = { 0, 0 }; run.first + run.n < round->elements; n++)
        run = pd_round_common_range(round, run.first + run.n, round->elements);
    return n;
}

static int make_sections(pd_adasum_tree *tree, const pd_round *round)
{
    int rc = PD_OK;

    if ((tree->sections = calloc(count_sections(round), sizeof *tree->sections)) == NULL) return PD_NO_MEMORY;
    for (pd_range run = { 0, 0 }; rc == PD_OK && run.first + run.n < round->elements;) {
        run = pd_round_common_range(round, run.first + run.n, round->elements);
        rc = make_section(tree, round, run);
    }
    return rc;
}

/* Takes buffers of the parameter's size for intermediate results: as many as the section with the most ranks needs. */
static int take_scratch(pd_adasum_tree *tree, pd_buffer_pool *pool)
{
    size_t most = 0;

    for (size_t i = 0; i < tree->n; i++) {
        size_t want = (size_t)pd_adasum_scratch_vectors(tree->form, tree->sections[i].vectors.k);
        if (want > most) most = want;
    }
    if ((tree->scratch = calloc(most + 1, sizeof *tree->scratch)) == NULL) return PD_NO_MEMORY;
    for (; tree->n_scratch < most; tree->n_scratch++)
        if ((tree->scratch[tree->n_scratch] = pd_buffer_pool_take(pool)) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

static void weigh(const pd_adasum_tree *tree, const section *s, const pd_round *round)
{
    int r = 0;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        const pd_contribution *given = first_of(round, rank, s->run);
        if (!has_place(tree, round, rank, s->run, s->vectors.k)) continue;
        pd_adasum_weigh(s->adasum, r++,
                        (pd_vector_weight){ pd_contribution_weight(given), pd_round_damping(round, rank),
                                            pd_contribution_is_presummed(given) });
    }
    assert(r == s->vectors.k);
}

static int begin_sections(pd_adasum_tree *tree, const pd_round *round, float *to)
{
    float **scratch = malloc((tree->n_scratch + 1) * sizeof *scratch);
    int rc = scratch == NULL ? PD_NO_MEMORY : PD_OK;

    for (size_t i = 0; rc == PD_OK && i < tree->n; i++) {
        section *s = &tree->sections[i];
        for (size_t k = 0; k < tree->n_scratch; k++) scratch[k] = tree->scratch[k] + s->run.first;
        rc = pd_adasum_begin(&s->adasum, tree->form, &s->vectors, s->run.n, to + s->run.first, scratch);
        if (rc == PD_OK && tree->form == PD_RADIAL_MEAN_FORM) weigh(tree, s, round);
    }
    free(scratch);
    return rc;
}

static void end_adasum(pd_adasum_tree *tree, pd_buffer_pool *pool)
{
    if (tree == NULL) return;
    for (size_t i = 0; i < tree->n; i++) {
        pd_adasum_end(tree->sections[i].adasum);
        free(tree->sections[i].ends);
        free(tree->sections[i].at);
    }
    for (size_t k = 0; k < tree->n_scratch; k++) pd_buffer_pool_give(pool, tree->scratch[k]);
    free(tree->scratch);
    free(tree->sections);
    free(tree);
}

/* Begins the Adasum of a round, whose contributions must have come (HELD or SPILLED) and must stay until it ends. The
 * result is written to *accumulator; if that is NULL and some rank has a gradient, a buffer is taken from `pool`. Takes
 * further buffers for intermediate results of more than eight ranks. PD_NO_MEMORY: nothing has changed. */
static int begin_adasum(pd_adasum_tree **out, const pd_round *round, pd_adasum_form form, float **accumulator,
                        pd_buffer_pool *pool)
{
    pd_adasum_tree *tree = calloc(1, sizeof *tree);
    float *taken = NULL;
    int rc = PD_NO_MEMORY;

    if (tree == NULL) return PD_NO_MEMORY;
    tree->form = form;
    if (make_sections(tree, round) != PD_OK || take_scratch(tree, pool) != PD_OK) goto fail;
    if (tree->n > 0 && *accumulator == NULL && (*accumulator = taken = pd_buffer_pool_take(pool)) == NULL) goto fail;
    if ((rc = begin_sections(tree, round, *accumulator)) != PD_OK) goto fail;
    *out = tree;
    return PD_OK;

fail:
    if (taken != NULL) *accumulator = NULL;
    pd_buffer_pool_give(pool, taken);
    end_adasum(tree, pool);
    return rc;
}

/* Hands out a unit, which may run at the same time as all others since the last call of turn_adasum. Returns false if
 * there are no more until the next call. */
static bool next_unit(pd_adasum_tree *tree, pd_adasum **adasum, int64_t *unit)
{
    for (; tree->next < tree->n; tree->next++) {
        section *s = &tree->sections[tree->next];
        if (s->given >= pd_adasum_units(s->adasum)) continue;
        *adasum = s->adasum;
        *unit = s->given++;
        return true;
    }
    return false;
}

/* Moves each section whose pass is complete to its next pass, after all units that were handed out have run. Returns
 * true if the whole Adasum is complete. */
static bool turn_adasum(pd_adasum_tree *tree)
{
    bool done = true;

    for (size_t i = 0; i < tree->n; i++) {
        section *s = &tree->sections[i];
        int64_t units = pd_adasum_units(s->adasum);
        if (units > 0 && s->given == units) {
            pd_adasum_turn(s->adasum);
            s->given = 0;
            units = pd_adasum_units(s->adasum);
            if (units == 0) tree->largest = pd_larger(tree->largest, pd_adasum_largest(s->adasum));
        }
        done = done && units == 0;
    }
    tree->next = 0;
    return done;
}

void pd_collect_batch_free(pd_collect_batch *batch)
{
    free(batch->passes);
    free(batch->units);
    free(batch->runs);
    free(batch->scratch);
}

static void shrink(void **at, size_t *room, size_t size)
{
    if (*room * size <= KEPT_BYTES) return;
    free(*at);
    *at = NULL;
    *room = 0;
}

/* Frees large arrays of a batch that has run, because no job is charged for them. */
static void shrink_batch(pd_collect_batch *batch)
{
    shrink((void **)&batch->passes, &batch->passes_room, sizeof *batch->passes);
    shrink((void **)&batch->units, &batch->units_room, sizeof *batch->units);
    shrink((void **)&batch->runs, &batch->runs_room, sizeof *batch->runs);
    shrink((void **)&batch->scratch, &batch->scratch_room, 1);
}

/* Returns whether the planned units have used up the time budget, or are as many as a batch may have. At least one unit
 * is planned, however small the budget is. */
static bool is_full(const pd_collect_batch *batch, double budget_ns)
{
    if (batch->n_passes >= MOST_UNITS || batch->n_units >= MOST_UNITS || batch->n_runs >= MOST_RUNS) return true;
    return batch->cost_ns > 0 && batch->cost_ns >= budget_ns;
}

/* Makes room in the batch for one more pass, one more unit that reads k contributions, and the scratch memory. */
static int make_room(pd_collect_batch *batch, int k, int threads)
{
    size_t scratch = k > 1 ? (pd_trimmed_mean_scratch(k) + 63) / 64 * 64 : 0;

    if (scratch < batch->scratch_each) scratch = batch->scratch_each;
    if (pd_grow((void **)&batch->passes, &batch->passes_room, batch->n_passes + 1, sizeof *batch->passes) != PD_OK ||
        pd_grow((void **)&batch->units, &batch->units_room, batch->n_units + 1, sizeof *batch->units) != PD_OK ||
        pd_grow((void **)&batch->runs, &batch->runs_room, batch->n_runs + (size_t)k, sizeof *batch->runs) != PD_OK ||
        pd_grow((void **)&batch->scratch, &batch->scratch_room, scratch * (size_t)threads, 1) != PD_OK)
        return PD_NO_MEMORY;
    batch->scratch_each = scratch;
    return PD_OK;
}

static int plan_spill(pd_steps *steps, pd_collect_batch *batch, pd_chunk *chunk, uint32_t rank)
{
    pd_param *param = chunk->param;
    const pd_contribution *given = &chunk->contributions[rank];
    int64_t n =
        (int64_t)pd_dtype_bytes((pd_dtype)given->dtype, (uint64_t)pd_round_chunk_range(&param->round, chunk, rank).n);
    void *spill;

    if (make_room(batch, 0, steps->config->threads) != PD_OK ||
        (spill = pd_buffer_pool_take(param->buffers.spills)) == NULL)
        return PD_NO_MEMORY;
    batch->passes[batch->n_passes++] = (pd_collect_pass){ .chunk = chunk, .spill = spill, .rank = rank };
    batch->units[batch->n_units++] = (pd_collect_unit){ .to = spill, .copied = given->u.at, .n = n };
    batch->cost_ns += NS_PER_COPY * (double)n;
    return PD_OK;
}

/* Plans to spill contributions of ranks over quota to one waiting chunk. *finished becomes false if the batch is full
 * before. */
static int plan_chunk_spills(pd_steps *steps, pd_collect_batch *batch, pd_chunk *chunk, double budget_ns,
                             bool *finished)
{
    for (uint32_t rank = 0; rank < steps->members.ranks; rank++) {
        if (chunk->contributions[rank].state != PD_CONTRIBUTION_HELD || !pd_rank_is_over_quota(steps, rank)) continue;
        *finished = !is_full(batch, budget_ns);
        if (!*finished) return PD_OK;
        if (plan_spill(steps, batch, chunk, rank) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}

/* Plans to spill contributions of ranks over quota to waiting chunks. *relieve becomes false if none are left. */
static pd_param *plan_spills(pd_steps *steps, pd_collect_batch *batch, double budget_ns, bool *relieve)
{
    pd_chunk *chunk;
    bool finished = true;

    DL_FOREACH(steps->chunks.waiting, chunk)
    {
        if (!pd_param_spills(chunk->param)) continue;
        if (plan_chunk_spills(steps, batch, chunk, budget_ns, &finished) != PD_OK) return chunk->param;
        if (!finished) return NULL;
    }
    *relieve = false;
    return NULL;
}

static void note_spill(pd_steps *steps, const pd_collect_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    pd_contribution *given = &chunk->contributions[pass->rank];

    pd_request *frame = given->frame;

    given->presummed = frame->u.data.presummed;
    given->share = frame->u.data.weight;
    given->u.spill = pass->spill;
    given->state = PD_CONTRIBUTION_SPILLED;
    pd_frame_let_go(steps, frame);
    pd_chunk_let_go(steps, chunk);
}

static int trim_of(const pd_steps *steps, const pd_param *param, int k)
{
    uint64_t trim = steps->values.at[PD_JOB_KEY_TRIM];
    int most = pd_median_trim(k);

    return param->how == PD_MEDIAN || trim > (uint64_t)most ? most : (int)trim;
}

static int count_there(const pd_round *round, const pd_chunk *chunk, pd_range run)
{
    int k = 0;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
        k += pd_contribution_is_there(&chunk->contributions[rank]) && pd_round_covers(round, rank, run) &&
             pd_round_counts(round, rank);
    return k;
}

/* Plans the median or trimmed mean of the elements in `run`, which the same ranks contribute. */
static int plan_robust(pd_steps *steps, pd_collect_batch *batch, pd_chunk *chunk, pd_range run)
{
    pd_param *param = chunk->param;
    pd_round *round = &param->round;
    int k = count_there(round, chunk, run);
    double rounds = k > 1 ? log2(k) * log2(k) / 2 : 0;

    if (k == 0) return PD_OK;
    if (make_room(batch, k, steps->config->threads) != PD_OK) return PD_NO_MEMORY;
    if (param->buffers.accumulator == NULL &&
        (param->buffers.accumulator = pd_buffer_pool_take(param->buffers.pool[PD_F32])) == NULL)
        return PD_NO_MEMORY;
    batch->units[batch->n_units++] = (pd_collect_unit){ .to = param->buffers.accumulator + run.first,
                                                        .n = run.n,
                                                        .first_run = batch->n_runs,
                                                        .k = k,
                                                        .trim = trim_of(steps, param, k) };
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
        if (pd_contribution_is_there(&chunk->contributions[rank]) && pd_round_covers(round, rank, run) &&
            pd_round_counts(round, rank))
            batch->runs[batch->n_runs++] = source_of(round, chunk, rank, run.first);
    batch->cost_ns += (double)run.n * k * (NS_PER_VALUE + NS_PER_ROUND * rounds);
    return PD_OK;
}

static int64_t range_of(uint32_t world)
{
    int64_t range = world > MANY ? (int64_t)RANGE * MANY / world / 64 * 64 : RANGE;

    return range > LEAST_RANGE ? range : LEAST_RANGE;
}

/* Plans the median or trimmed mean of the next elements of the chunk, as many as the time budget allows. */
static int plan_chunk(pd_steps *steps, pd_collect_batch *batch, pd_chunk *chunk, double budget_ns)
{
    pd_collect_pass pass = { .chunk = chunk, .collected = chunk->collected, .first_unit = batch->n_units };
    int64_t most = range_of(steps->members.ranks);
    int rc = make_room(batch, 0, steps->config->threads);

    if (rc != PD_OK) return rc;
    while (rc == PD_OK && pass.collected < chunk->n && !is_full(batch, budget_ns)) {
        pd_range run =
            pd_round_common_range(&chunk->param->round, chunk->first + pass.collected, chunk->first + chunk->n);
        if (run.n > most) run.n = most;
        if ((rc = plan_robust(steps, batch, chunk, run)) == PD_OK) pass.collected += run.n;
    }
    pass.n_units = batch->n_units - pass.first_unit;
    batch->passes[batch->n_passes++] = pass;
    return rc;
}

/* Releases the contributions to a chunk whose aggregate is finished: those in frames, and those that were spilled. */
static void let_go(pd_steps *steps, pd_chunk *chunk)
{
    for (uint32_t rank = 0; rank < steps->members.ranks; rank++) {
        pd_contribution *given = &chunk->contributions[rank];
        if (!pd_contribution_is_there(given) || !pd_round_counts(&chunk->param->round, rank)) continue;
        if (given->state == PD_CONTRIBUTION_HELD)
            pd_frame_let_go(steps, given->frame);
        else
            pd_buffer_pool_give(chunk->param->buffers.spills, given->u.spill);
        given->frame = NULL;
        given->u.weight = 0;
        given->state = PD_CONTRIBUTION_SUMMED;
    }
    chunk->summed = steps->members.ranks;
    chunk->param->round.unsummed--;
}

static void note_largest(pd_round *round, float largest)
{
    if (!isfinite(largest)) round->finite = false;
    round->largest = pd_larger(round->largest, largest);
}

static void note_chunk(pd_steps *steps, const pd_collect_batch *batch, const pd_collect_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    pd_round *round = &chunk->param->round;

    for (size_t i = 0; i < pass->n_units; i++) note_largest(round, batch->units[pass->first_unit + i].largest);
    chunk->collected = pass->collected;
    if (chunk->collected < chunk->n) return;
    pd_chunk_unlist(steps, chunk);
    let_go(steps, chunk);
    if (round->unsummed == 0) pd_param_collected(steps, chunk->param);
}

static int plan_merge(pd_steps *steps, pd_collect_batch *batch, pd_param *param, double budget_ns)
{
    pd_collect_unit unit = { 0 };
    int rc = PD_OK;

    if (param->tree == NULL)
        rc = begin_adasum(&param->tree, &param->round, pd_adasum_form_of(param->how), &param->buffers.accumulator,
                          param->buffers.pool[PD_F32]);
    if (rc != PD_OK) return rc;
    while (!is_full(batch, budget_ns)) {
        if (make_room(batch, 0, steps->config->threads) != PD_OK) return PD_NO_MEMORY;
        if (!next_unit(param->tree, &unit.adasum, &unit.i)) return PD_OK;
        batch->units[batch->n_units++] = unit;
        batch->cost_ns += pd_adasum_unit_ns(unit.adasum);
    }
    return PD_OK;
}

/* Plans the aggregates of ready chunks. Returns the parameter for which memory was short; NULL: none. */
static pd_param *plan_ready(pd_steps *steps, pd_collect_batch *batch, double budget_ns)
{
    pd_chunk *chunk;

    DL_FOREACH(steps->chunks.ready, chunk)
    {
        pd_param *param = chunk->param;
        if (!pd_is_collected(pd_param_how(param))) continue;
        if (is_full(batch, budget_ns)) return NULL;
        if ((pd_is_merged(param->how) ? plan_merge(steps, batch, param, budget_ns)
                                      : plan_chunk(steps, batch, chunk, budget_ns)) != PD_OK)
            return param;
    }
    return NULL;
}

static void note_merge(pd_steps *steps, pd_param *param)
{
    note_largest(&param->round, param->tree->largest);
    param->round.weightless = param->round.weightless || param->tree->weightless;
    end_adasum(param->tree, param->buffers.pool[PD_F32]);
    param->tree = NULL;
    pd_chunk_unlist(steps, &param->round.chunks[0]);
    for (uint32_t c = 0; c < param->round.n_chunks; c++) let_go(steps, &param->round.chunks[c]);
    pd_param_collected(steps, param);
}

static void note_merges(pd_steps *steps)
{
    pd_chunk *chunk, *next;

    DL_FOREACH_SAFE(steps->chunks.ready, chunk, next)
    if (chunk->param->tree != NULL && turn_adasum(chunk->param->tree)) note_merge(steps, chunk->param);
}

static void run_unit(const pd_collect_batch *batch, pd_collect_unit *unit, int thread)
{
    /* A unit of an Adasum or of a spill has no list of contributions: the Adasum knows them, and a spill copies one. */
    const pd_vector_run *x = unit->k > 0 ? batch->runs + unit->first_run : NULL;

    if (unit->adasum != NULL) {
        pd_adasum_unit(unit->adasum, unit->i);
    } else if (unit->copied != NULL) {
        memcpy(unit->to, unit->copied, (size_t)unit->n);
    } else if (unit->k == 1) {
        pd_vector_run_read(unit->to, x, 0, unit->n);
        unit->largest = pd_largest(unit->to, unit->n);
    } else {
        unit->largest = pd_trimmed_mean(unit->to, unit->n, x, unit->k, unit->trim,
                                        batch->scratch + (size_t)thread * batch->scratch_each);
    }
}

static void run(const pd_collect_batch *batch, int threads)
{
    /* There are many small units, so each thread takes several at once. */
    size_t grab = batch->n_units / 64 + 1;
    (void)threads, (void)grab;
#pragma omp parallel for schedule(dynamic, grab) num_threads(threads) if (batch->cost_ns > WORTH_SHARING_NS)
    for (size_t i = 0; i < batch->n_units; i++) run_unit(batch, &batch->units[i], omp_get_thread_num());
}

/* Returns whether some ready chunk has an aggregate that needs all contributions at once. */
static bool has_ready(const pd_steps *steps)
{
    const pd_chunk *chunk;

    DL_FOREACH(steps->chunks.ready, chunk)
    if (pd_is_collected(pd_param_how(chunk->param))) return true;
    return false;
}

static pd_param *plan(pd_steps *steps, pd_collect_batch *batch, double budget_ns, bool *relieve)
{
    pd_param *starved = *relieve ? plan_spills(steps, batch, budget_ns, relieve) : NULL;

    return starved != NULL ? starved : plan_ready(steps, batch, budget_ns);
}

double pd_collect_work(pd_steps *steps, double budget_ns, bool *relieve, pd_param **starved)
{
    pd_collect_batch *batch = steps->batch.collect;
    double cost_ns = 0;

    *starved = NULL;
    while (*starved == NULL && (*relieve || has_ready(steps)) && (cost_ns == 0 || cost_ns < budget_ns)) {
        batch->n_passes = batch->n_units = batch->n_runs = batch->scratch_each = 0;
        batch->cost_ns = 0;
        *starved = plan(steps, batch, budget_ns - cost_ns, relieve);
        run(batch, steps->config->threads);
        for (size_t i = 0; i < batch->n_passes; i++) {
            if (batch->passes[i].spill != NULL)
                note_spill(steps, &batch->passes[i]);
            else
                note_chunk(steps, batch, &batch->passes[i]);
        }
        note_merges(steps);
        cost_ns += batch->cost_ns;
    }
    shrink_batch(batch);
    return cost_ns;
}

void pd_collect_release(pd_param *param)
{
    if (param->tree != NULL) end_adasum(param->tree, param->buffers.pool[PD_F32]);
    param->tree = NULL;
    for (uint32_t s = 0; s < param->round.n_chunks * pd_round_ranks(&param->round); s++) {
        pd_contribution *given = &param->round.chunks[0].contributions[s];
        if (given->state != PD_CONTRIBUTION_SPILLED) continue;
        pd_buffer_pool_give(param->buffers.spills, given->u.spill);
        *given = (pd_contribution){ .state = PD_CONTRIBUTION_EMPTY };
    }
}
