/* work.c - does one batch of a job: computes aggregates, clips gradients, runs optimizer steps, and closes the rounds
 * whose steps are finished.
 *
 * If memory is short, the batch ends. Contributions, sums and steps that have begun are kept, waiting workers are
 * notified once, and the work is tried again a second later. */
#include "work.h"

#include "batch.h"
#include "chunk_queues.h"
#include "collect.h"
#include "contribute.h"
#include "fragment.h"
#include "global_clip.h"
#include "mutant.h"
#include "pushed_hypers.h"
#include "readout.h"
#include "riders.h"
#include "root_report.h"
#include "round_ranges.h"
#include "round_scalars.h"
#include "step_group.h"
#include "sums.h"
#include "wal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define RETRY_NS 1000000000ull /* time from a shortage of memory to the next attempt */
#define BEGIN_NS 1000.0        /* estimated ns of one core to begin the step of one parameter */
/* estimated ns to take a parameter into a batch, to close its round and to report that; all on one thread */
#define CLOSE_NS 500.0
#define INITIAL_NS 0.5 /* estimated ns of one core to convert one element of initial weights */

void pd_initial_warn_not_finite(const pd_steps *steps, const pd_param *param, const char *why)
{
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name },
           "the initial weights of %.160s are not finite: %s", param->name, why);
}

/* Counts and logs a step that its optimizer has refused, and reports why. */
static void count_refusal(pd_steps *steps, pd_param *param, pd_closed *closed)
{
    const char *why = pd_optim_refused(param->optim)->text;

    closed->why = pd_reason_new(why);
    param->saved.refused++;
    if (pd_is_power_of_two(++steps->saved.refused_steps))
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
               "step %llu of %.60s is refused: %.200s (%llu so far); if all later steps are, reset the optimizer's "
               "state: `paramctl reset-state %.60s %.60s`",
               (unsigned long long)param->saved.step, param->name, why, (unsigned long long)steps->saved.refused_steps,
               steps->name, param->name);
}

static void count_outcome(pd_steps *steps, pd_param *param, pd_outcome outcome)
{
    char text[384];

    if (outcome == PD_STEPPED) steps->saved.steps++;
    if (outcome == PD_NO_GRADIENT) steps->figures.no_gradient++;
    if (outcome != PD_SKIPPED) return;
    steps->saved.skipped++;
    if (pd_is_power_of_two(++param->saved.skipped) && !pd_steps_are_whole(steps))
        pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
               "step %llu of %.60s is skipped: %s (%llu skipped so far)", (unsigned long long)param->saved.step,
               param->name, pd_param_why_skipped(param, text, sizeof text), (unsigned long long)param->saved.skipped);
}

/* Counts and logs a round in which some elements of the parameter had a gradient and others had none. Such a round
 * closes without a step: a step of only some elements would be worse. */
static void count_gap(pd_steps *steps, pd_param *param)
{
    pd_rank_range gap;

    if (pd_round_given(&param->round) != PD_GIVEN_PART || !pd_is_power_of_two(++param->saved.gaps)) return;
    pd_round_gap(&param->round, true, &gap);
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
           "step %llu of %s closes without a gradient: all ranks that have elements %lld to %lld were absent, others "
           "were not (%llu times so far)",
           (unsigned long long)param->saved.step, param->name, (long long)gap.start, (long long)gap.end,
           (unsigned long long)param->saved.gaps);
}

/* Stores the mean of a scalar and its step for operators, if its name is one of the first PD_MAX_SCALARS names. */
static void note_scalar(pd_step_figures *figures, const pd_scalar_mean *mean, uint64_t step)
{
    size_t i = 0;

    if (strcmp(mean->name, "loss") == 0 && step >= figures->loss_step) {
        figures->loss = mean->mean;
        figures->loss_step = step;
    }
    while (i < figures->n_scalars && strcmp(figures->scalars[i].name, mean->name) != 0) i++;
    if (i == PD_MAX_SCALARS || (i < figures->n_scalars && step < figures->scalars[i].step)) return;
    if (i == figures->n_scalars) memcpy(figures->scalars[figures->n_scalars++].name, mean->name, sizeof mean->name);
    figures->scalars[i].mean = mean->mean;
    figures->scalars[i].step = step;
}

static void reset_round(pd_steps *steps, pd_param *param, uint64_t now_ns)
{
    pd_buffer_pool_give(param->buffers.pool[PD_F32], param->buffers.accumulator);
    param->buffers.accumulator = NULL;
    param->stage = PD_COLLECTING;
    param->change.told.known = false;
    param->change.number = 0;
    param->next = NULL;
    pd_contribute_anew(steps, param, now_ns);
}

static void close_round(pd_steps *steps, pd_param *param, pd_closed *closed, uint64_t now_ns)
{
    if (param->current == NULL) {
        steps->progress.n_begun++;
        pd_param_publish(steps->unread, param, param->next, param->end.outcome, closed);
        reset_round(steps, param, now_ns);
        return;
    }
    param->saved.step++;
    if (param->saved.step > steps->progress.furthest) steps->progress.furthest = param->saved.step;
    pd_steps_closed(steps, param);
    param->saved.outcome = (uint32_t)param->end.outcome;
    pd_step_times_closed(&steps->times, param->saved.step, steps->n_params);
    count_outcome(steps, param, param->end.outcome);
    if (param->end.outcome == PD_NO_GRADIENT) count_gap(steps, param);
    pd_param_publish(steps->unread, param, param->next, param->end.outcome, closed);
    closed->scalars = pd_scalars_close(param);
    for (size_t i = 0; closed->scalars != NULL && i < closed->scalars->n; i++)
        note_scalar(&steps->figures, &closed->scalars->at[i], param->saved.step);
    pd_riders_closed(steps, param);
    if (param->end.outcome == PD_REFUSED) count_refusal(steps, param, closed);
    pd_pushed_close(param);
    reset_round(steps, param, now_ns);
    pd_fragment_closed(steps, param, now_ns);
    pd_param_moved_on(steps, param);
}

/* Makes the first weights from the mean of the ranks' initial weights, which is in the accumulator. Swaps the buffers
 * of both, which are from the same pool. */
static int take_initial_mean(const pd_steps *steps, pd_param *param)
{
    void *mean = param->buffers.accumulator;

    if ((param->next = pd_steps_new_version(steps, param, param->saved.step)) == NULL) return PD_NO_MEMORY;
    param->buffers.accumulator = param->next->at[PD_F32];
    param->next->at[PD_F32] = mean;
    if (!param->round.finite) pd_initial_warn_not_finite(steps, param, "those of a rank are not, or their sum is not");
    return PD_OK;
}

/* Drops weights that would replace those of the step before (job/replacement.h), and of which a part has come: this
 * step goes on without them. */
static void drop_staged(pd_param *param)
{
    if (param->current == NULL || param->next == NULL) return;
    pd_published_unref(param->next);
    param->next = NULL;
    param->unlanded = 0;
}

static int begin(pd_steps *steps, pd_param *param)
{
    double hypers[PD_MAX_HYPERS];
    pd_step_io io = { .gradient = param->buffers.accumulator, .before = param->current->at[PD_F32], .hypers = hypers };
    int64_t count;
    int rc;

    if (pd_unread_stops(steps->unread) > 0) return PD_NO_MEMORY;
    if (param->group != NULL) pd_optim_set_count(param->optim, pd_step_group_count(param));
    if (pd_riders_before(steps, param, hypers, &io.hypers_mask) != PD_OK) return PD_NO_MEMORY;
    if ((param->next = pd_steps_new_version(steps, param, param->saved.step + 1)) == NULL) return PD_NO_MEMORY;
    io.after = param->next->at[PD_F32];
    count = pd_optim_count(param->optim);
    rc = pd_param_begin_update(param, &io.update);
    if (rc == PD_OK) rc = pd_optim_begin(param->optim, &io);
    if (rc != PD_OK) {
        pd_param_end_update(param);
        pd_published_unref(param->next);
        param->next = NULL;
        return rc;
    }
    if (steps->values.at[PD_JOB_KEY_NONFINITE] != PD_APPLY) pd_optim_guard(param->optim);
    param->stage = PD_STEPPING;
    pd_riders_begun(steps, param, &io, count);
    return PD_OK;
}

/* Begins the step of a parameter in stage PD_READY, or makes its first weights. If the round closes without a step
 * there is nothing to begin. PD_NO_MEMORY. */
static int prepare(pd_steps *steps, pd_param *param)
{
    if (param->stage != PD_READY) return PD_OK;
    drop_staged(param);
    if (param->current == NULL) return param->next == NULL ? take_initial_mean(steps, param) : PD_OK;
    return param->end.outcome == PD_STEPPED ? begin(steps, param) : PD_OK;
}

/* Moves parameters from steps->queue.ready to steps->batch.params and begins their steps: as many as the time budget
 * allows, but at least one. A step of an atomic group begins, too, but waits until all steps of the group have begun.
 * Returns the number of parameters in the batch. *starved becomes the parameter for which memory was short; NULL:
 * none. */
static size_t take_batch(pd_steps *steps, double budget_ns, pd_param **starved)
{
    double cost_ns = 0;
    bool any = false;
    size_t n = 0;

    *starved = NULL;
    for (; steps->queue.ready != NULL && (!any || cost_ns < budget_ns); any = true) {
        pd_param *param = steps->queue.ready;
        bool begins = param->stage == PD_READY && param->end.outcome == PD_STEPPED;
        if (prepare(steps, param) != PD_OK) {
            *starved = param;
            break;
        }
        DL_DELETE2(steps->queue.ready, param, links.prev_ready, links.next_ready);
        if (begins && pd_param_is_bound(steps, param)) {
            pd_param_begun(steps, param);
            cost_ns += BEGIN_NS;
            continue;
        }
        cost_ns += CLOSE_NS * steps->config->threads;
        if (param->current == NULL) cost_ns += INITIAL_NS * (double)param->elements;
        if (param->stage == PD_STEPPING) cost_ns += pd_optim_cost_ns(param->optim);
        steps->batch.params[n++] = param;
    }
    return n;
}

static int run_steps(pd_steps *steps, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (steps->batch.params[i]->stage == PD_STEPPING) steps->batch.optims[k++] = steps->batch.params[i]->optim;
    return k > 0 ? pd_batch_run(steps->batch.optims, k, steps->config->threads) : PD_OK;
}

/* Captures the preconditioner tasks that the step makes due, and hands them to the preconditioner pool. PD_NO_MEMORY:
 * some tasks are left for a later batch. */
static int capture_tasks(pd_steps *steps, pd_param *param)
{
    struct pd_task *task;

    param->end.uncaptured = false;
    if (param->stage != PD_STEPPING || pd_optim_plan(param->optim)->n_tasks == 0) return PD_OK;
    for (;;) {
        pd_effect *effect = pd_effect_new(PD_EFF_TASK, (pd_ticket){ 0, 0 }, steps->number);
        if (effect == NULL) {
            param->end.uncaptured = true;
            return PD_NO_MEMORY;
        }
        if ((task = pd_optim_capture(param->optim)) == NULL) {
            pd_effect_free(effect);
            return PD_OK;
        }
        if (pd_wal_needs(steps, param, task)) pd_task_keep(task);
        effect->u.task.task = task;
        effect->u.task.param = param->index;
        steps->tasks_out++;
        pd_effects_add(steps->outbox, effect);
    }
}

/* Sets the outcome of those finished steps that their optimizers have refused, and frees the published versions for
 * their new weights, which were not written. */
static void note_refused(pd_param *const *params, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        pd_param *param = params[i];
        if (param->stage != PD_STEPPING || pd_optim_refused(param->optim) == NULL) continue;
        param->end.outcome = PD_REFUSED;
        pd_published_unref(param->next);
        param->next = NULL;
    }
}

/* Moves the parameters whose steps are finished to the front of the batch, and returns their number. The other steps
 * wait for a preconditioner task (PD_PARKED), or continue in the next batch. */
static size_t keep_finished(pd_steps *steps, size_t n, bool ran)
{
    size_t done = 0;

    for (size_t i = 0; i < n; i++) {
        pd_param *param = steps->batch.params[i];
        if (param->stage == PD_READY || (ran && pd_optim_done(param->optim)))
            steps->batch.params[done++] = param;
        else if (ran && !param->end.uncaptured && pd_optim_waits(param->optim))
            param->stage = PD_PARKED;
        else
            pd_steps_ready(steps, param, PD_STEPPING);
    }
    return done;
}

/* Stores in each entry of a report the set of ranks that its step has counted. `sets` is memory for one set of each
 * fragment, which entries share; those that are not used are freed. */
static void name_sets(const pd_steps *steps, pd_param *const *params, pd_closed *closed, size_t n, pd_counted **sets)
{
    for (size_t i = 0; i < n; i++) {
        pd_counted *set = sets[params[i]->fragment->number];
        closed[i].counted = closed[i].outcome != 0 ? set : NULL;
        if (closed[i].counted != NULL) set->refs++;
    }
    for (uint32_t f = 0; f < steps->n_fragments; f++) pd_counted_unref(sets[f]);
}

/* Notes in a report at which places its steps are. Initial weights are of no step. */
static void note_places(const pd_steps *steps, pd_effect *effect)
{
    for (size_t i = 0; steps->sets.open && i < effect->u.closed.n; i++) {
        const pd_closed *closed = &effect->u.closed.at[i];
        uint64_t place = pd_fragment_place_of(steps->params[closed->param].fragment, closed->step);
        if (closed->outcome == 0) continue;
        if (place > effect->u.closed.place) effect->u.closed.place = place;
        if (effect->u.closed.first == 0 || place < effect->u.closed.first) effect->u.closed.first = place;
    }
}

/* Runs a batch of n steps, and publishes the weights of those that are finished. Returns the parameter for which memory
 * was short; NULL: none. Takes ownership of `effect` and `closed`, the memory for the report to the loop thread, and of
 * the sets in `sets`. */
static pd_param *run_batch(pd_steps *steps, size_t n, pd_effect *effect, pd_closed *closed, pd_counted **sets,
                           uint64_t now_ns)
{
    bool ran = run_steps(steps, n) == PD_OK;
    pd_param *starved = ran ? NULL : steps->batch.params[0];
    size_t done;

    for (size_t i = 0; ran && i < n; i++) {
        if (capture_tasks(steps, steps->batch.params[i]) != PD_OK) starved = steps->batch.params[i];
        if (steps->batch.params[i]->stage == PD_STEPPING) pd_roots_watch(steps, steps->batch.params[i]);
    }
    done = keep_finished(steps, n, ran);
    pd_steps_spend(steps, PD_PHASE_STEP);
    pd_step_groups_look(steps);
    note_refused(steps->batch.params, done);
    pd_params_convert(steps->batch.params, done, steps->config->threads);
    for (size_t i = 0; i < done; i++) pd_param_end_update(steps->batch.params[i]);
    pd_riders_stepped(steps, steps->batch.params, done);
    for (size_t i = 0; i < done; i++) close_round(steps, steps->batch.params[i], &closed[i], now_ns);
    name_sets(steps, steps->batch.params, closed, done, sets);
    effect->u.closed.at = closed;
    effect->u.closed.n = done;
    note_places(steps, effect);
    if (done > 0)
        pd_withheld_send(&steps->withheld, steps->outbox, effect);
    else
        pd_effect_free(effect);
    for (size_t i = 0; i < done; i++) pd_readout_look(steps, steps->batch.params[i]);
    pd_steps_spend(steps, PD_PHASE_PUBLISH);
    return starved;
}

/* Copies the fixed sets of the fragments, for a report. PD_NO_MEMORY: `sets` has none. */
static int copy_sets(const pd_steps *steps, pd_counted **sets)
{
    bool all = true;

    for (uint32_t f = 0; f < steps->n_fragments; f++) {
        const pd_counted *set = steps->fragments[f].set;
        sets[f] = set != NULL ? pd_counted_copy(set) : NULL;
        all = all && (set == NULL || sets[f] != NULL);
    }
    for (uint32_t f = 0; !all && f < steps->n_fragments; f++) pd_counted_unref(sets[f]);
    return all ? PD_OK : PD_NO_MEMORY;
}

static void run(pd_steps *steps, double budget_ns, pd_param **out, uint64_t now_ns)
{
    pd_param *starved, *late;
    size_t n = take_batch(steps, budget_ns, &starved);
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, steps->number);
    pd_closed *closed = malloc((n + 1) * sizeof *closed);
    pd_counted *sets[PD_MAX_FRAGMENTS];

    if (effect == NULL || closed == NULL || copy_sets(steps, sets) != PD_OK) {
        if (n > 0) starved = steps->batch.params[0];
        for (size_t i = 0; i < n; i++) pd_steps_ready(steps, steps->batch.params[i], steps->batch.params[i]->stage);
        free(closed);
        pd_effect_free(effect);
    } else if ((late = run_batch(steps, n, effect, closed, sets, now_ns)) != NULL) {
        starved = late;
    }
    *out = starved;
}

/* Fills *err: out of memory for a parameter, or the unread weights of its job exceed a budget. */
static void explain(const pd_steps *steps, const pd_param *starved, pd_error *err)
{
    uint64_t held = pd_unread_stops(steps->unread);
    char what[48];

    pd_round_text(starved, what, sizeof what);
    if (held > 0)
        pd_fail(
            err, PD_RESOURCE_EXHAUSTED,
            "%s of %.160s waits: answers that workers have not read, or have read in shared memory and not released, "
            "hold %llu bytes of earlier weights, and limits.max_total_bytes or the owner's quota has no room for more; "
            "contributions are kept and the server tries again every second: push again to keep waiting",
            what, starved->name, (unsigned long long)held);
    else
        pd_fail(err, PD_RESOURCE_EXHAUSTED,
                "the server is out of memory for %s of %.160s; contributions are kept and it tries again every second: "
                "%s again to keep waiting",
                what, starved->name, starved->current != NULL ? "push" : "pull");
}

/* Stops the job's work for a second, because memory is missing for a parameter. Notifies workers that wait, once. */
static void pause(pd_steps *steps, const pd_param *starved, uint64_t now_ns)
{
    pd_effect *notice = steps->shortage.notice;

    steps->shortage.retry_ns = now_ns + RETRY_NS;
    if (notice == NULL) return;
    steps->shortage.notice = NULL;
    notice->u.timed_out.fragment = PD_ALL_FRAGMENTS;
    notice->u.timed_out.step = starved->saved.step + 1;
    explain(steps, starved, &notice->u.timed_out.error);
    pd_say(steps->outbox, PD_SAY_ERROR,
           (pd_log_facts){ .job = steps->name, .step = &notice->u.timed_out.step, .code = PD_RESOURCE_EXHAUSTED },
           "%.400s", notice->u.timed_out.error.text);
    pd_effects_add(steps->outbox, notice);
}

static double clip(pd_steps *steps, double budget_ns)
{
    double cost_ns;

    if (!pd_global_clip_has_work(steps)) return 0;
    if (pd_global_clip_run(steps, budget_ns, &cost_ns)) pd_step_groups_go_on(steps);
    return cost_ns;
}

/* Computes aggregates, and relieves ranks over quota. Returns the estimated time that it took. */
static double aggregate(pd_steps *steps, double budget_ns, uint64_t now_ns)
{
    bool relieve = pd_chunks_must_relieve(steps), sums = relieve, spills = relieve;
    pd_param *starved;
    double cost_ns = pd_chunks_sum(steps, &sums, &starved);

    if (starved != NULL) pause(steps, starved, now_ns);
    cost_ns += pd_collect_work(steps, budget_ns - cost_ns, &spills, &starved);
    if (starved != NULL) pause(steps, starved, now_ns);
    if (relieve) steps->chunks.look = sums || spills;
    return cost_ns;
}

/* If one kind of work is out of memory, the other kinds are still done in this batch. */
void pd_steps_work(pd_steps *steps, double budget_ns, uint64_t now_ns)
{
    pd_param *starved;

    steps->times.mark_ns = pd_steps_clock_ns(steps);
    if (pd_fragments_look(steps, now_ns) != PD_OK) pause(steps, &steps->params[0], now_ns);
    budget_ns -= aggregate(steps, budget_ns, now_ns);
    pd_steps_spend(steps, PD_PHASE_SUM);
    budget_ns -= clip(steps, budget_ns);
    if (steps->queue.ready != NULL) {
        run(steps, budget_ns, &starved, now_ns);
        if (starved != NULL) pause(steps, starved, now_ns);
    }
    pd_steps_spend(steps, PD_PHASE_STEP);
    pd_step_times_end(&steps->times);
    if (steps->shortage.retry_ns == 0 && steps->shortage.notice == NULL)
        steps->shortage.notice = pd_effect_new(PD_EFF_TIMED_OUT, (pd_ticket){ 0, 0 }, steps->number);
}

bool pd_steps_have_work(const pd_steps *steps)
{
    return pd_fragments_have_work(steps) || pd_global_clip_has_work(steps) || pd_chunks_have_work(steps) ||
           steps->queue.ready != NULL;
}

void pd_steps_task(pd_steps *steps, pd_param *param, struct pd_task *task, bool gone)
{
    assert(steps->tasks_out > 0);
    steps->tasks_out--;
    steps->changes++;
    if (pd_task_ms(task) > 0) pd_histogram_add(&steps->figures.root_times, (uint64_t)(pd_task_ms(task) * 1e6));
    pd_trace_root(steps, param, task);
    pd_optim_deliver(param->optim, task);
    if (gone) return;
    if (param->stage == PD_PARKED && !pd_param_awaits_group(param) && !pd_optim_waits(param->optim) &&
        !PD_MUTANT(parked_forever))
        pd_steps_ready(steps, param, PD_STEPPING);
    pd_step_group_look(steps, param->group);
}
