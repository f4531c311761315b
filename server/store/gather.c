#include "collect.h"

#include "convert.h"
#include "grow.h"
#include "kernels.h"
#include "robust.h"
#include "step_group.h"
#include "training.h"

#include <math.h>
#include <stdlib.h>
#include <utlist.h>
#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

enum { RANGE = 1 << 16, LEAST_RANGE = 1 << 10, MANY = 8 };      /* elements of a unit: fewer where more than MANY ranks contribute */
#define NS_PER_COPY 0.25                /* to convert an element, of one core */
#define NS_PER_VALUE 0.5                /* to read a value and put it in order with k - 1 others, of one core: this, */
#define NS_PER_ROUND 0.1                /* and this for each round of the sort: there are (log2 k)^2 / 2 */
#define WORTH_SHARING_NS 20000          /* waking another thread takes about as long */

/* ---- does it suit? ---- */

static bool wants_power_of_two(const pd_job_values *values)
{
    return values->at[PD_JOB_KEY_AGGREGATE] == PD_ADASUM && values->at[PD_JOB_KEY_ADASUM_FOLD] == 0;
}

int pd_aggregate_fits(const pd_job_values *values, uint32_t world, pd_error *err)
{
    uint64_t trim = values->at[PD_JOB_KEY_TRIM];

    if (values->at[PD_JOB_KEY_AGGREGATE] == PD_TRIMMED_MEAN && (trim >= world || 2 * trim >= world))
        return pd_fail(err, PD_INVALID_ARGUMENT, "aggregate = trimmed_mean leaves out the trim = %llu smallest and as many largest of %u contributions, and nothing "
                       "is left: trim is less than half of the workers (aggregate = median leaves the middle)", (unsigned long long)trim, world);
    return PD_OK;
}

int pd_aggregate_fits_whole(const pd_job_values *values, uint32_t world, pd_aggregation how, const char *name, pd_error *err)
{
    if (how != PD_ADASUM || !wants_power_of_two(values) || pd_is_power_of_two(world)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: aggregate = adasum merges workers in pairs and wants a power of two of them, not %u: set adasum_fold = yes "
                   "(the surplus is merged into the first ones before), take aggregate = adasum_vdot (any number), or another number of workers", name, world);
}

int pd_aggregate_fits_ranges(const pd_job *job, const pd_param *param, pd_error *err)
{
    const pd_round *round = &param->round;

    if (param->how != PD_ADASUM || !wants_power_of_two(&job->values)) return PD_OK;
    for (pd_run run = { 0, 0 }; run.first + run.n < round->elements;) {
        uint32_t n;
        run = pd_round_stretch(round, run.first + run.n, round->elements);
        n = pd_round_count_covering(round, run);
        if (pd_is_power_of_two(n)) continue;
        return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.160s: %u ranks contribute elements %lld to %lld, and aggregate = adasum wants a power of two of "
                       "them: set adasum_fold = yes, or declare such ranges", param->name, n, (long long)run.first, (long long)(run.first + run.n));
    }
    return PD_OK;
}

static pd_adasum_form form_of(pd_aggregation how) { return how == PD_ADASUM ? PD_ADASUM_TREE : PD_ADASUM_VDOT; }

pd_contributors pd_contributors_whole(int64_t elements, uint64_t chunk_elements, uint32_t world)
{
    uint64_t slots;

    return (pd_contributors){ __builtin_mul_overflow(pd_count_chunks(elements, chunk_elements), world, &slots) ? UINT64_MAX : slots, world };
}

static pd_contributors crowd_of(const pd_job *job, const pd_param *param)
{
    pd_contributors all = { 0, 0 };

    if (!param->ranged) return pd_contributors_whole(param->elements, job->store->config.chunk_elements, job->world);
    for (uint32_t c = 0; c < param->round.n_chunks; c++) {
        uint32_t ranks = pd_round_count_ranks(&param->round, &param->round.chunks[c]);
        all.slots += ranks;
        if (ranks > all.most) all.most = ranks;
    }
    return all;
}

uint64_t pd_contributors_bytes(pd_contributors crowd, pd_aggregation how, int64_t elements, uint64_t chunk_elements)
{
    uint64_t n = (uint64_t)elements, chunk = n < chunk_elements ? n : chunk_elements, bytes, more = 0;

    if (!pd_is_collected(how)) return 0;
    if (pd_is_adasum(how) && crowd.most > 0) more = pd_adasum_tree_bytes(form_of(how), elements, crowd.slots, crowd.most);
    if (__builtin_mul_overflow(chunk * sizeof(float), crowd.slots, &bytes) || __builtin_add_overflow(bytes, more, &bytes)) return UINT64_MAX;
    return bytes;
}

uint64_t pd_collect_bytes(const pd_job *job, const pd_param *param)
{
    return pd_is_collected(param->how) ? pd_contributors_bytes(crowd_of(job, param), param->how, param->elements, job->store->config.chunk_elements) : 0;
}

/* ---- lists ---- */

static void unlist(pd_job *job, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_LOOSE) DL_DELETE(job->loose, chunk);
    if (chunk->list == PD_CHUNK_FULL) DL_DELETE(job->full, chunk);
    chunk->list = PD_CHUNK_NOWHERE;
}

static bool holds_frames(const pd_round *round, const pd_chunk *chunk)
{
    for (uint32_t rank = 0; rank < round->world; rank++)
        if (chunk->slots[rank].state == PD_SLOT_HELD) return true;
    return false;
}

static void list_loose(pd_job *job, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_LOOSE || !holds_frames(&chunk->param->round, chunk)) return;
    DL_APPEND(job->loose, chunk);
    chunk->list = PD_CHUNK_LOOSE;
}

/* Everybody has been heard of: nothing of it is spilled any more. */
static void list_merge(pd_job *job, pd_param *param)
{
    for (uint32_t c = 0; c < param->round.n_chunks; c++) unlist(job, &param->round.chunks[c]);
    DL_APPEND2(job->merging, param, prev_ready, next_ready);
}

void pd_collect_file(pd_job *job, pd_chunk *chunk)
{
    pd_param *param = chunk->param;

    job->look_loose = true;
    if (pd_is_robust(param->how) && chunk->came == job->world) {
        unlist(job, chunk);
        DL_APPEND(job->full, chunk);
        chunk->list = PD_CHUNK_FULL;
    } else {
        list_loose(job, chunk);
    }
    if (pd_is_adasum(param->how) && param->round.missing == 0) list_merge(job, param);
}

static bool may_spill(const pd_job *job) { return job->look_loose && job->loose != NULL && pd_job_is_over_quota(job); }

bool pd_collect_has_work(const pd_job *job) { return job->full != NULL || job->merging != NULL || may_spill(job); }

/* ---- planning ---- */

void pd_collect_batch_free(pd_collect_batch *batch)
{
    free(batch->passes);
    free(batch->units);
    free(batch->sources);
    free(batch->scratch);
}

static void clear(pd_collect_batch *batch)
{
    batch->n_passes = batch->n_units = batch->n_sources = batch->scratch_each = 0;
    batch->cost_ns = 0;
}

/* At least something is planned, whatever the budget. */
static bool is_full(const pd_collect_batch *batch, double budget_ns) { return batch->cost_ns > 0 && batch->cost_ns >= budget_ns; }

/* For one pass more, with one unit more of k sources on each of these threads. */
static int make_room(pd_collect_batch *batch, int k, int threads)
{
    size_t scratch = k > 1 ? (pd_trimmed_mean_scratch(k) + 63) / 64 * 64 : 0;

    if (scratch < batch->scratch_each) scratch = batch->scratch_each;
    if (pd_grow((void **)&batch->passes, &batch->passes_room, batch->n_passes + 1, sizeof *batch->passes) != PD_OK ||
        pd_grow((void **)&batch->units, &batch->units_room, batch->n_units + 1, sizeof *batch->units) != PD_OK ||
        pd_grow((void **)&batch->sources, &batch->sources_room, batch->n_sources + (size_t)k, sizeof *batch->sources) != PD_OK ||
        pd_grow((void **)&batch->scratch, &batch->scratch_room, scratch * (size_t)threads, 1) != PD_OK)
        return PD_NO_MEMORY;
    batch->scratch_each = scratch;
    return PD_OK;
}

static pd_source source_from(const pd_slot *slot, int64_t skip)
{
    return (pd_source){ (const char *)slot->u.at + (size_t)skip * pd_dtype_size((pd_dtype)slot->dtype), (pd_dtype)slot->dtype };
}

/* ---- spilling ---- */

static int plan_spill(pd_job *job, pd_collect_batch *batch, pd_chunk *chunk, uint32_t rank)
{
    pd_param *param = chunk->param;
    int64_t n = pd_round_run(&param->round, chunk, rank).n;
    float *spill;

    if (make_room(batch, 1, job->store->config.threads) != PD_OK || (spill = pd_buffer_pool_take(param->spills)) == NULL) return PD_NO_MEMORY;
    batch->passes[batch->n_passes++] = (pd_collect_pass){ .chunk = chunk, .spill = spill, .rank = rank };
    batch->units[batch->n_units++] = (pd_collect_unit){ .to = spill, .n = n, .first_source = batch->n_sources, .k = 1 };
    batch->sources[batch->n_sources++] = source_from(&chunk->slots[rank], 0);
    batch->cost_ns += NS_PER_COPY * (double)n;
    return PD_OK;
}

/* What pressed ranks hold of chunks that miss somebody. */
static pd_param *plan_spills(pd_job *job, pd_collect_batch *batch, double budget_ns)
{
    pd_chunk *chunk;

    if (!may_spill(job)) return NULL;
    DL_FOREACH(job->loose, chunk)
        for (uint32_t rank = 0; rank < job->world; rank++) {
            if (chunk->slots[rank].state != PD_SLOT_HELD || !pd_rank_is_over_quota(job, &job->ranks[rank])) continue;
            if (is_full(batch, budget_ns)) return NULL;
            if (plan_spill(job, batch, chunk, rank) != PD_OK) return chunk->param;
        }
    job->look_loose = false;
    return NULL;
}

static void note_spill(pd_job *job, const pd_collect_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    pd_slot *slot = &chunk->slots[pass->rank];

    pd_job_let_go(job, slot->frame);
    slot->frame = NULL;
    slot->u.spill = pass->spill;
    slot->dtype = PD_F32;
    slot->state = PD_SLOT_SPILLED;
    if (!holds_frames(&chunk->param->round, chunk)) unlist(job, chunk);
}

/* ---- median and trimmed mean ---- */

static int trim_of(const pd_job *job, const pd_param *param, int k)
{
    uint64_t trim = job->values.at[PD_JOB_KEY_TRIM];
    int most = pd_median_trim(k);

    return param->how == PD_MEDIAN || trim > (uint64_t)most ? most : (int)trim;
}

static bool is_there(const pd_slot *slot) { return slot->state == PD_SLOT_HELD || slot->state == PD_SLOT_SPILLED; }

static int count_there(const pd_round *round, const pd_chunk *chunk, pd_run run)
{
    int k = 0;

    for (uint32_t rank = 0; rank < round->world; rank++) k += is_there(&chunk->slots[rank]) && pd_round_covers(round, rank, run);
    return k;
}

/* Elements that the same ranks contribute. */
static int plan_robust(pd_job *job, pd_collect_batch *batch, pd_chunk *chunk, pd_run run)
{
    pd_param *param = chunk->param;
    pd_round *round = &param->round;
    int k = count_there(round, chunk, run);
    double rounds = k > 1 ? log2(k) * log2(k) / 2 : 0;

    if (k == 0) return PD_OK;
    if (make_room(batch, k, job->store->config.threads) != PD_OK) return PD_NO_MEMORY;
    if (param->accumulator == NULL && (param->accumulator = pd_buffer_pool_take(param->pool[PD_F32])) == NULL) return PD_NO_MEMORY;
    batch->units[batch->n_units++] = (pd_collect_unit){ .to = param->accumulator + run.first, .n = run.n, .first_source = batch->n_sources, .k = k,
                                                       .trim = trim_of(job, param, k) };
    for (uint32_t rank = 0; rank < round->world; rank++)
        if (is_there(&chunk->slots[rank]) && pd_round_covers(round, rank, run))
            batch->sources[batch->n_sources++] = source_from(&chunk->slots[rank], run.first - pd_round_run(round, chunk, rank).first);
    batch->cost_ns += (double)run.n * k * (NS_PER_VALUE + NS_PER_ROUND * rounds);
    return PD_OK;
}

static int64_t range_of(uint32_t world)
{
    int64_t range = world > MANY ? (int64_t)RANGE * MANY / world / 64 * 64 : RANGE;

    return range > LEAST_RANGE ? range : LEAST_RANGE;
}

/* As much of the chunk as the budget allows. */
static int plan_chunk(pd_job *job, pd_collect_batch *batch, pd_chunk *chunk, double budget_ns)
{
    pd_collect_pass pass = { .chunk = chunk, .gathered = chunk->gathered, .first_unit = batch->n_units };
    int64_t most = range_of(job->world);
    int rc = make_room(batch, 0, job->store->config.threads);

    if (rc != PD_OK) return rc;
    while (rc == PD_OK && pass.gathered < chunk->n && !is_full(batch, budget_ns)) {
        pd_run run = pd_round_stretch(&chunk->param->round, chunk->first + pass.gathered, chunk->first + chunk->n);
        if (run.n > most) run.n = most;
        if ((rc = plan_robust(job, batch, chunk, run)) == PD_OK) pass.gathered += run.n;
    }
    pass.n_units = batch->n_units - pass.first_unit;
    batch->passes[batch->n_passes++] = pass;
    return rc;
}

static pd_param *plan_full(pd_job *job, pd_collect_batch *batch, double budget_ns)
{
    pd_chunk *chunk;

    DL_FOREACH(job->full, chunk) {
        if (is_full(batch, budget_ns)) return NULL;
        if (plan_chunk(job, batch, chunk, budget_ns) != PD_OK) return chunk->param;
    }
    return NULL;
}

/* The aggregate of the chunk is made. */
static void let_go(pd_job *job, pd_chunk *chunk)
{
    for (uint32_t rank = 0; rank < job->world; rank++) {
        pd_slot *slot = &chunk->slots[rank];
        if (!is_there(slot)) continue;
        if (slot->state == PD_SLOT_HELD) pd_job_let_go(job, slot->frame);
        else pd_buffer_pool_give(chunk->param->spills, slot->u.spill);
        slot->frame = NULL;
        slot->u.weight = 0;
        slot->state = PD_SLOT_SUMMED;
    }
    chunk->summed = job->world;
    chunk->param->round.unsummed--;
}

static void note_chunk(pd_job *job, const pd_collect_batch *batch, const pd_collect_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    pd_round *round = &chunk->param->round;

    for (size_t i = 0; i < pass->n_units; i++)
        if (!batch->units[pass->first_unit + i].finite) round->finite = false;
    chunk->gathered = pass->gathered;
    if (chunk->gathered < chunk->n) return;
    unlist(job, chunk);
    let_go(job, chunk);
    if (round->unsummed == 0) pd_param_gathered(job, chunk->param);
}

/* ---- Adasum ---- */

static int plan_merge(pd_job *job, pd_collect_batch *batch, pd_param *param, double budget_ns)
{
    pd_collect_unit unit = { 0 };
    int rc = PD_OK;

    if (param->tree == NULL) rc = pd_adasum_tree_begin(&param->tree, &param->round, form_of(param->how), &param->accumulator, param->pool[PD_F32]);
    if (rc != PD_OK) return rc;
    while (!is_full(batch, budget_ns)) {
        if (make_room(batch, 0, job->store->config.threads) != PD_OK) return PD_NO_MEMORY;
        if (!pd_adasum_tree_next(param->tree, &unit.adasum, &unit.i)) return PD_OK;
        batch->units[batch->n_units++] = unit;
        batch->cost_ns += pd_adasum_unit_ns(unit.adasum);
    }
    return PD_OK;
}

static pd_param *plan_merges(pd_job *job, pd_collect_batch *batch, double budget_ns)
{
    pd_param *param;

    DL_FOREACH2(job->merging, param, next_ready) {
        if (is_full(batch, budget_ns)) return NULL;
        if (plan_merge(job, batch, param, budget_ns) != PD_OK) return param;
    }
    return NULL;
}

static void note_merges(pd_job *job)
{
    pd_param *param, *next;

    DL_FOREACH_SAFE2(job->merging, param, next, next_ready) {
        if (param->tree == NULL || !pd_adasum_tree_turn(param->tree)) continue;
        if (!pd_adasum_tree_finite(param->tree)) param->round.finite = false;
        pd_adasum_tree_end(param->tree, param->pool[PD_F32]);
        param->tree = NULL;
        for (uint32_t c = 0; c < param->round.n_chunks; c++) let_go(job, &param->round.chunks[c]);
        DL_DELETE2(job->merging, param, prev_ready, next_ready);
        pd_param_gathered(job, param);
    }
}

/* ---- running ---- */

static void run_unit(const pd_collect_batch *batch, pd_collect_unit *unit, int thread)
{
    const pd_source *x = unit->adasum == NULL ? batch->sources + unit->first_source : NULL;      /* there may be no array yet */

    if (unit->adasum != NULL) {
        pd_adasum_unit(unit->adasum, unit->i);
    } else if (unit->k == 1) {
        pd_convert(unit->to, PD_F32, x->at, x->dtype, unit->n);
        unit->finite = pd_all_finite(unit->to, PD_F32, unit->n);
    } else {
        unit->finite = pd_trimmed_mean(unit->to, unit->n, x, unit->k, unit->trim, batch->scratch + (size_t)thread * batch->scratch_each);
    }
}

static void run(const pd_collect_batch *batch, int threads)
{
    size_t grab = batch->n_units / 64 + 1;      /* many small units: taken by the handful */
    (void)threads, (void)grab;
    #pragma omp parallel for schedule(dynamic, grab) num_threads(threads) if(batch->cost_ns > WORTH_SHARING_NS)
    for (size_t i = 0; i < batch->n_units; i++) run_unit(batch, &batch->units[i], omp_get_thread_num());
}

static pd_param *plan(pd_job *job, pd_collect_batch *batch, double budget_ns)
{
    pd_param *starved = plan_spills(job, batch, budget_ns);

    if (starved == NULL) starved = plan_full(job, batch, budget_ns);
    return starved != NULL ? starved : plan_merges(job, batch, budget_ns);
}

double pd_collect_work(pd_job *job, double budget_ns, pd_param **starved)
{
    pd_collect_batch *batch = &job->store->gathering;
    double cost_ns = 0;

    *starved = NULL;
    while (*starved == NULL && pd_collect_has_work(job) && (cost_ns == 0 || cost_ns < budget_ns)) {
        clear(batch);
        *starved = plan(job, batch, budget_ns - cost_ns);
        run(batch, job->store->config.threads);
        for (size_t i = 0; i < batch->n_passes; i++) {
            if (batch->passes[i].spill != NULL) note_spill(job, &batch->passes[i]);
            else note_chunk(job, batch, &batch->passes[i]);
        }
        note_merges(job);
        cost_ns += batch->cost_ns;
    }
    return cost_ns;
}

/* ---- the end ---- */

void pd_collect_release(pd_param *param)
{
    if (param->tree != NULL) pd_adasum_tree_end(param->tree, param->pool[PD_F32]);
    param->tree = NULL;
    for (uint32_t s = 0; s < param->round.n_chunks * param->round.world; s++) {
        pd_slot *slot = &param->round.chunks[0].slots[s];
        if (slot->state != PD_SLOT_SPILLED) continue;
        pd_buffer_pool_give(param->spills, slot->u.spill);
        *slot = (pd_slot){ .state = PD_SLOT_EMPTY };
    }
}
