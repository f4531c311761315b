/* batch.c - runs many steps in waves. A wave takes one piece of work from each step, and runs the units of all pieces
 * in one parallel region. A unit is the part of a piece that one thread computes. */
#include "batch.h"

#include <assert.h>
#include <math.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#else
#define omp_get_thread_num() 0
#endif

#include "blascore.h"
#include "hyperball.h"
#include "kernels.h"
#include "optimizer.h"
#include "pages.h"
#include "stored.h"
#include "zeroed.h"

/* A wave that is estimated to take less than this runs on one thread: to wake the other threads would take longer. The
 * number of threads does not change the results. */
#define WORTH_SHARING_NS 50000.0

/* A step's next piece of work: one phase, or a stage of the step that copies slots or tasks, or checks weights. A wave
 * runs one piece of each step. */
typedef struct piece {
    pd_optim *optim;
    int64_t first; /* index of the piece's first unit among all units of the wave */
    int64_t n_units;
} piece;

struct pd_batch {
    int threads;
    int64_t scratch_floats; /* scratch memory of each thread, in floats */
    float *scratch;         /* NULL: no optimizer of the batch needs any */
    piece *pieces;
    /* partial[u]: numbers that unit number u of the wave reports (pd_unit.partial) */
    double (*partial)[PD_MAX_PARTIALS];
    /* spoils[u]: whether unit number u of the wave has found finite weights that the step made infinite or NaN */
    bool *spoils;
};

pd_batch *pd_batch_new(pd_optim *const *optims, size_t n, int threads)
{
    pd_batch *batch = pd_zeroed(sizeof *batch);
    int64_t units = 0, scratch = 1; /* never 0: units add offsets to their scratch memory */

    assert(threads >= 1);
    if (batch == NULL) return NULL;
    for (size_t i = 0; i < n; i++) {
        int64_t floats =
            pd_floats_padded((int64_t)optims[i]->shared->plan.scratch_floats) + optims[i]->memory.view_floats;
        units += optims[i]->most_units;
        if (floats > scratch) scratch = floats;
    }
    batch->threads = threads;
    batch->scratch_floats = pd_floats_padded(scratch);
    batch->pieces = malloc((n + 1) * sizeof *batch->pieces);
    batch->partial = malloc((size_t)(units + 1) * sizeof *batch->partial);
    batch->scratch = pd_floats_new(batch->scratch_floats * threads);
    batch->spoils = malloc((size_t)units + 1);
    if (batch->pieces != NULL && batch->partial != NULL && batch->spoils != NULL && batch->scratch != NULL)
        return batch;
    pd_batch_free(batch);
    return NULL;
}

void pd_batch_free(pd_batch *batch)
{
    if (batch == NULL) return;
    free(batch->scratch);
    free(batch->pieces);
    free(batch->partial);
    free(batch->spoils);
    free(batch);
}

int pd_batch_threads(const pd_batch *batch)
{
    return batch->threads;
}

/* Returns whether the step is at a phase of the optimizer's own, not at one of hyperball around them. */
static bool is_own(const pd_optim *optim)
{
    return optim->step.phase >= optim->before && optim->step.phase < optim->before + optim->own_phases;
}

/* Returns the place of the phase that the step is at: among the optimizer's own, or among those of hyperball. */
static int place_of(const pd_optim *optim)
{
    if (is_own(optim)) return optim->step.phase - optim->before;
    return optim->step.phase < optim->before ? optim->step.phase : optim->step.phase - optim->own_phases;
}

static const pd_phase *phase_of(const pd_optim *optim)
{
    return (is_own(optim) ? optim->ops->phases : pd_hyperball_phases) + place_of(optim);
}

/* Returns the totals that the phase of the step sees: those of the optimizer's own phases, which come first in
 * step.total, or those of hyperball's. */
static double (*totals_of(const pd_optim *optim))[PD_MAX_PARTIALS]
{
    return is_own(optim) ? optim->step.total : optim->step.total + optim->own_phases;
}

static bool skipped(const pd_optim *optim)
{
    const pd_phase *phase = phase_of(optim);
    return phase->skip != NULL && phase->skip(&optim->shared->plan, optim->step.hyper, optim->saved.count);
}

/* Returns the index of the phase before which the step must stop to capture or adopt tasks. Returns the number of
 * phases if neither is left to do. */
static int next_stop(const pd_optim *optim)
{
    const int capture = optim->before + optim->ops->capture_phase, adopt = optim->before + optim->ops->adopt_phase;
    int stop = optim->n_phases;

    if (!optim->step.captured && capture < stop) stop = capture;
    if (!optim->step.adopted && adopt < stop) stop = adopt;
    return stop;
}

/* Moves step.phase past phases that this step skips, at most to phase `end`. Returns true if a phase before `end` is
 * left to run. */
static bool next_phase(pd_optim *optim, int end)
{
    while (optim->step.phase < end && skipped(optim)) optim->step.phase++;
    return optim->step.phase < end;
}

/* Sets the next stage of a step that has run its phases up to the next stop: capture tasks, wait for the tasks to
 * adopt, or end the step. Before a capture it also makes the step's tasks. If both stops are before the same phase,
 * capture comes first, unless the plan says otherwise. */
static void leave_phases(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;
    bool adopts = plan->adopts_first && plan->root_delay != 0 && !optim->step.adopted &&
                  optim->step.phase == optim->before + optim->ops->adopt_phase;

    if (!adopts && !optim->step.captured && optim->step.phase == optim->before + optim->ops->capture_phase) {
        optim->step.captured = true;
        optim->step.stage = PD_STAGE_CAPTURE;
        pd_tasks_prepare(optim);
    } else if (!optim->step.adopted) {
        optim->step.adopted = true;
        optim->step.stage = PD_STAGE_WAIT;
    } else {
        optim->step.stage = optim->step.guards && optim->last_ranges < 0 ? PD_STAGE_CHECK : PD_STAGE_CLOSE;
    }
}

/* Advances a step through its stages to its next piece of work. Returns true if there is one; false if the step is done
 * or has to wait. */
static bool has_work(pd_optim *optim)
{
    for (;;) switch (optim->step.stage) {
        case PD_STAGE_IDLE: return false;
        case PD_STAGE_OPEN:
            if (optim->memory.n_whole > 0 && !optim->step.opened) return true;
            optim->step.stage = PD_STAGE_PHASES;
            break;
        case PD_STAGE_PHASES:
            if (next_phase(optim, next_stop(optim))) return true;
            leave_phases(optim);
            break;
        case PD_STAGE_CAPTURE:
            if (optim->tasks.n_work > 0) return true;
            optim->step.stage = PD_STAGE_PHASES;
            break;
        case PD_STAGE_WAIT:
            pd_step_settle(optim);
            if (!pd_step_is_decided(optim)) return false;
            pd_step_decide(optim);
            pd_tasks_collect(optim);
            optim->step.stage = PD_STAGE_ADOPT;
            break;
        case PD_STAGE_ADOPT:
            if (optim->tasks.n_work > 0) return true;
            optim->step.stage = optim->step.refused ? PD_STAGE_CLOSE : PD_STAGE_PHASES;
            break;
        case PD_STAGE_CHECK: return true;
        case PD_STAGE_CLOSE:
            if (optim->memory.n_whole > 0 && optim->step.opened) return true;
            pd_optim_end(optim);
            return false;
        }
}

static int64_t count_ranges(const pd_plan *plan)
{
    return plan->elements / plan->range_elements + (plan->elements % plan->range_elements != 0);
}

static int64_t count_units(const pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    if (optim->step.stage == PD_STAGE_OPEN || optim->step.stage == PD_STAGE_CLOSE)
        return (int64_t)optim->memory.n_whole;
    if (optim->step.stage == PD_STAGE_CHECK) return count_ranges(plan);
    if (optim->step.stage != PD_STAGE_PHASES) return (int64_t)optim->tasks.n_work;
    switch (phase_of(optim)->kind) {
    case PD_RANGES: return count_ranges(plan);
    case PD_BLOCKS: return (int64_t)plan->n_blocks;
    case PD_STRIPES: return (int64_t)plan->n_blocks * plan->stripes;
    case PD_WHOLE: return 1;
    }
    return 0;
}

/* Combines the partial results of a phase's units in the order of the units. So the total does not depend on which
 * thread ran which unit. */
static void fold_partials(pd_optim *optim, const double (*partial)[PD_MAX_PARTIALS], int64_t n)
{
    const pd_phase *phase = phase_of(optim);
    double *total = totals_of(optim)[place_of(optim)];

    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < PD_MAX_PARTIALS; k++)
            total[k] = i == 0 ? partial[i][k] : pd_folded(phase->fold[k], total[k], partial[i][k]);
}

static void end_round(pd_optim *optim)
{
    const pd_phase *phase = phase_of(optim);

    optim->step.round++;
    if (phase->rounds != NULL && optim->step.round < phase->rounds(&optim->shared->plan, optim->step.hyper)) return;
    optim->step.phase++;
    optim->step.round = 0;
}

/* Returns whether the step is at the phase that writes the new weights, and must check them. */
static bool is_guarded(const pd_optim *optim)
{
    return optim->step.guards && optim->step.phase == optim->last_ranges;
}

static void note_spoils(const pd_batch *batch, const piece *p)
{
    for (int64_t i = 0; i < p->n_units; i++)
        p->optim->step.spoils = p->optim->step.spoils || batch->spoils[p->first + i];
}

static void finish_work(const pd_batch *batch, const piece *p)
{
    pd_optim *optim = p->optim;

    if (optim->step.stage == PD_STAGE_OPEN || optim->step.stage == PD_STAGE_CLOSE) {
        optim->step.opened = optim->step.stage == PD_STAGE_OPEN;
    } else if (optim->step.stage == PD_STAGE_CHECK) {
        note_spoils(batch, p);
        optim->step.stage = PD_STAGE_CLOSE;
    } else if (optim->step.stage == PD_STAGE_CAPTURE) {
        pd_tasks_captured(optim);
    } else if (optim->step.stage == PD_STAGE_ADOPT) {
        pd_tasks_adopted(optim);
        pd_tasks_collect(optim);
    } else {
        if (is_guarded(optim)) note_spoils(batch, p);
        fold_partials(optim, batch->partial + p->first, p->n_units);
        end_round(optim);
    }
}

/* Returns whether the step has made a finite weight infinite or NaN, among n weights. */
static bool spoils_weights(const float *before, const float *after, int64_t n)
{
    if (pd_all_finite(after, PD_F32, n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(before[i]) && !isfinite(after[i])) return true;
    return false;
}

/* Returns the result of spoils_weights for the weights of range number `index` of the parameter's elements. */
static bool spoils_range(const pd_optim *optim, int64_t index)
{
    const pd_plan *plan = &optim->shared->plan;
    int64_t first = index * plan->range_elements, left = plan->elements - first;

    return spoils_weights(optim->step.io.before + first, optim->step.io.after + first,
                          left < plan->range_elements ? left : plan->range_elements);
}

/* Returns whether the step is at the phase that writes the new weights, and the phase writes them past the cache. It
 * does not where it overwrites the old weights, or has kept a slot in the memory of the new ones: then the cache has
 * the lines already. */
static bool writes_past_cache(const pd_optim *optim)
{
    return optim->beyond_cache && optim->step.phase == optim->last_ranges &&
           optim->step.io.after != optim->step.io.before && optim->memory.after_floats == 0;
}

/* Runs the phase that writes the new weights on one unit, tile by tile. A tile's new weights are computed in the cache,
 * and then written past it. Returns whether the unit has spoiled weights, if the step is guarded. */
static bool run_past_cache(const pd_optim *optim, const pd_phase *phase, const pd_unit *whole)
{
    enum { TILE = 512 };
    alignas(64) float after[TILE];
    pd_unit unit = *whole;
    bool spoils = false;

    for (int64_t end = whole->first + whole->n; unit.first < end; unit.first += TILE) {
        unit.n = end - unit.first < TILE ? end - unit.first : TILE;
        /* the phase adds the index of an element, so that its weights begin at `after` */
        unit.after = (float *)((uintptr_t)after - (uintptr_t)unit.first * sizeof *after);
        phase->run(&unit);
        spoils = spoils || (is_guarded(optim) && spoils_weights(unit.before + unit.first, after, unit.n));
        pd_past_cache(whole->after + unit.first, after, (size_t)unit.n * sizeof *after);
    }
    pd_past_cache_end();
    return spoils;
}

/* Runs the phase of the step on one unit, and notes whether it has spoiled weights. */
static void run_unit_of_phase(const pd_batch *batch, const piece *p, int64_t index, const pd_unit *unit)
{
    const pd_optim *optim = p->optim;
    bool spoils;

    if (writes_past_cache(optim)) {
        spoils = run_past_cache(optim, phase_of(optim), unit);
    } else {
        phase_of(optim)->run(unit);
        spoils = is_guarded(optim) &&
                 spoils_weights(optim->step.io.before + unit->first, optim->step.io.after + unit->first, unit->n);
    }
    if (is_guarded(optim)) batch->spoils[p->first + index] = spoils;
}

static void run_phase(const pd_batch *batch, const piece *p, int64_t index, int thread)
{
    const pd_optim *optim = p->optim;
    const pd_plan *plan = &optim->shared->plan;
    const pd_phase *phase = phase_of(optim);
    const bool turns = is_own(optim) && plan->hyperball; /* the phase sees weights of 0, and writes -U */
    pd_unit unit = {
        .plan = plan,
        .hyper = turns ? optim->step.own_hyper : optim->step.hyper,
        .stats = optim->shared->stats,
        .random = optim->shared->random,
        .random_of_all = optim->shared->random_of_all,
        .draws = optim->step.io.draws,
        .count = optim->saved.count,
        .index = index,
        .n_units = p->n_units,
        .gradient = optim->step.io.gradient,
        .before = turns ? optim->slot[plan->turn] : optim->step.io.before,
        .after = turns ? optim->slot[plan->turn] : optim->step.io.after,
        .update = turns ? NULL : optim->step.io.update,
        .slot = optim->slot,
        .partial = batch->partial[p->first + index],
        .total = (const double(*)[PD_MAX_PARTIALS])totals_of(optim),
        .scratch = batch->scratch + thread * batch->scratch_floats,
    };

    memset(unit.partial, 0, sizeof batch->partial[0]);
    unit.round = optim->step.round;
    if (phase->kind == PD_BLOCKS) {
        unit.block = &plan->blocks[index];
        if (optim->memory.view_floats > 0) {
            pd_block_open(optim, index, unit.scratch);
            unit.scratch += optim->memory.view_floats;
        }
    }
    if (phase->kind == PD_STRIPES) {
        unit.block = &plan->blocks[index / plan->stripes];
        unit.stripe = index % plan->stripes;
    }
    if (phase->kind == PD_RANGES) {
        unit.first = index * plan->range_elements;
        unit.n =
            plan->elements - unit.first < plan->range_elements ? plan->elements - unit.first : plan->range_elements;
    }
    run_unit_of_phase(batch, p, index, &unit);
    if (phase->kind == PD_BLOCKS && optim->memory.view_floats > 0) pd_block_close(optim, index);
}

/* Returns the piece that contains unit number u of the wave. */
static const piece *piece_of(const piece *pieces, size_t n, int64_t u)
{
    size_t low = 0;

    while (n > 1) {
        size_t half = n / 2;
        if (pieces[low + half].first <= u) low += half;
        n -= half;
    }
    return &pieces[low];
}

static void run_unit(const pd_batch *batch, size_t n_pieces, int64_t u, int thread)
{
    const piece *p = piece_of(batch->pieces, n_pieces, u);

    switch (p->optim->step.stage) {
    case PD_STAGE_OPEN: pd_stored_open(p->optim, (size_t)(u - p->first)); break;
    case PD_STAGE_CHECK: batch->spoils[u] = spoils_range(p->optim, u - p->first); break;
    case PD_STAGE_CLOSE: pd_stored_close(p->optim, (size_t)(u - p->first)); break;
    case PD_STAGE_CAPTURE: pd_tasks_copy(p->optim, (size_t)(u - p->first)); break;
    case PD_STAGE_ADOPT: pd_tasks_adopt(p->optim, (size_t)(u - p->first)); break;
    default: run_phase(batch, p, u - p->first, thread);
    }
}

/* Returns whether threads can share a single unit of the step's next piece of work, since it has large products or
 * copies large matrices. */
static bool can_be_shared(const pd_optim *optim)
{
    bool has_products = optim->step.stage == PD_STAGE_PHASES &&
                        (phase_of(optim)->kind == PD_BLOCKS || phase_of(optim)->kind == PD_WHOLE);

    return optim->shared->plan.large_products &&
           (has_products || optim->step.stage == PD_STAGE_CAPTURE || optim->step.stage == PD_STAGE_ADOPT);
}

/* Runs the next piece of each step that has one. Returns false if no step has one. */
static bool run_wave(pd_batch *batch, pd_optim *const *steps, size_t n)
{
    size_t n_pieces = 0;
    int64_t units = 0;
    double ns = 0;
    bool shared = false;
    int64_t grab;
    int team;

    for (size_t i = 0; i < n; i++) {
        int64_t n_units;
        if (!has_work(steps[i])) continue;
        n_units = count_units(steps[i]);
        batch->pieces[n_pieces++] = (piece){ steps[i], units, n_units };
        units += n_units;
        ns += steps[i]->cost_ns;
        shared = shared || can_be_shared(steps[i]);
    }
    if (n_pieces == 0) return false;
    team = (units > 1 || shared) && ns > WORTH_SHARING_NS ? batch->threads : 1;
    grab = units / (64 * team) + 1; /* there may be many small units: each thread takes several at once */
    (void)grab;                     /* used only with OpenMP: without it the compiler ignores the pragma */
#pragma omp parallel num_threads(team)
    {
        pd_blas_one_thread();
#pragma omp for schedule(dynamic, grab)
        for (int64_t u = 0; u < units; u++) run_unit(batch, n_pieces, u, omp_get_thread_num());
    }
    for (size_t i = 0; i < n_pieces; i++) finish_work(batch, &batch->pieces[i]);
    return true;
}

/* Returns whether some step that was waiting when run_wave came to it can continue now. This happens if its atomic
 * group waited only for a step that is later in the list. */
static bool any_goes_on(pd_optim *const *steps, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!pd_optim_done(steps[i]) && !pd_optim_waits(steps[i])) return true;
    return false;
}

static void note_parked(pd_optim *optim)
{
    if (optim->step.parked || !pd_optim_waits(optim)) return;
    optim->step.parked = true;
    optim->saved.stats.waits++;
}

void pd_batch_run_steps(pd_batch *batch, pd_optim *const *steps, size_t n)
{
    do
        while (run_wave(batch, steps, n)) continue;
    while (any_goes_on(steps, n));
    for (size_t i = 0; i < n; i++) note_parked(steps[i]);
}

void pd_batch_run_tasks(const pd_batch *batch, pd_task *const *tasks, size_t n)
{
    (void)batch; /* used only with OpenMP: without it the compiler ignores the pragma */
#pragma omp parallel num_threads(batch->threads)
    {
        pd_blas_one_thread();
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < n; i++) pd_task_run(tasks[i]);
    }
}

int pd_batch_run(pd_optim *const *steps, size_t n, int threads)
{
    pd_batch *batch = pd_batch_new(steps, n, threads);

    if (batch == NULL) return PD_NO_MEMORY;
    pd_batch_run_steps(batch, steps, n);
    pd_batch_free(batch);
    return PD_OK;
}
