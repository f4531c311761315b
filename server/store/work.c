/* work.c - one batch of a job: frames that need a look first, sums of chunks, optimizer steps, publication.
 *
 * When memory is short a batch stops where it is: contributions, sums and steps begun stand, those who wait are told once, and it goes
 * on a second later. */
#include "import.h"
#include "plant.h"
#include "round_scalars.h"
#include "training.h"

#include "global_clip.h"
#include "step_group.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

#define RETRY_NS 1000000000ull
#define BEGIN_NS 1000.0             /* of one core: beginning a step that does not run yet */
#define INITIAL_NS 0.5              /* and for each element of initial weights, converting them */

void pd_job_ready(pd_job *job, pd_param *param, pd_stage stage)
{
    param->stage = stage;
    DL_APPEND2(job->ready, param, prev_ready, next_ready);
}

static void unready(pd_job *job, pd_param *param)
{
    DL_DELETE2(job->ready, param, prev_ready, next_ready);
}

/* Memory is short: says so once, and has the batch tried again later. */
static void pause(pd_job *job, const pd_param *param, uint64_t now_ns)
{
    pd_effect *notice = job->notice;
    char what[48];

    job->retry_ns = now_ns + RETRY_NS;
    if (notice == NULL) return;
    job->notice = NULL;
    notice->u.timed_out.step = param->step + 1;
    pd_round_text(param, what, sizeof what);
    pd_fail(&notice->u.timed_out.error, PD_RESOURCE_EXHAUSTED, "the server is out of memory for %s of %.160s; contributions stand, and it is tried again every second: "
            "%s again to go on waiting", what, param->name, param->current != NULL ? "push" : "pull");
    pd_say(&job->store->outbox, PD_SAY_ERROR, "job %s: out of memory for %s of %s; trying again every second", job->name, what, param->name);
    pd_effects_add(&job->store->outbox, notice);
}

/* ---- sums ---- */

/* A rank whose share is nearly used may be waiting to send: what it holds is to be summed as soon as the ranks before it are there. The
 * loop thread lets a rank have its reserve and an equal part of what all reserves leave over; it is blocked at the earliest when
 * another frame might not fit into that, or into the whole. Where this estimate is wrong the loop thread says so (PD_REQ_STALLED). */
bool pd_rank_is_over_quota(const pd_job *job, const pd_rank *rank)
{
    const pd_store *store = job->store;
    uint64_t limit = store->config.ingest_bytes, n_ranks = store->n_ranks > 0 ? store->n_ranks : 1;
    uint64_t spare = limit > store->reserved ? (limit - store->reserved) / n_ranks : 0;
    uint64_t share = rank->reserve + spare, calm = share / 2 < spare ? share / 2 : spare;

    if (rank->held > 0 && (rank->stalled || store->short_of_budget)) return true;
    return rank->held > calm || (rank->held > 0 && store->held + rank->reserve > limit);
}

bool pd_job_is_over_quota(const pd_job *job)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (pd_rank_is_over_quota(job, &job->ranks[r])) return true;
    return false;
}

/* How far a partial chunk has to be summed: up to its last pressed rank. */
static uint32_t pressed_prefix(const pd_job *job, const pd_chunk *chunk)
{
    for (uint32_t rank = chunk->prefix; rank > chunk->summed; rank--)
        if (chunk->slots[rank - 1].state == PD_SLOT_HELD && pd_rank_is_over_quota(job, &job->ranks[rank - 1])) return rank;
    return chunk->summed;
}

static int plan(pd_job *job, pd_chunk *chunk, uint32_t upto)
{
    pd_param *param = chunk->param;

    return pd_sums_plan(&job->store->sums, &param->round, chunk, upto, pd_param_how(param), &param->accumulator, param->pool[PD_F32]);
}

/* What can be summed now, within the budget. NULL: everything was planned; else the parameter for which memory was short. */
static pd_param *plan_sums(pd_job *job, double budget_ns)
{
    pd_sums *sums = &job->store->sums;
    pd_chunk *chunk;

    DL_FOREACH(job->complete, chunk) {
        if (sums->cost_ns >= budget_ns) return NULL;
        if (plan(job, chunk, job->world) != PD_OK) return chunk->param;
    }
    if (!job->look || job->partial == NULL || !pd_job_is_over_quota(job)) return NULL;
    DL_FOREACH(job->partial, chunk) {
        uint32_t upto = pressed_prefix(job, chunk);
        if (sums->cost_ns >= budget_ns) return NULL;
        if (upto > chunk->summed && plan(job, chunk, upto) != PD_OK) return chunk->param;
    }
    job->look = false;
    return NULL;
}

static void let_go_of_summed(pd_job *job, pd_chunk *chunk, uint32_t from, uint32_t upto)
{
    for (uint32_t rank = from; rank < upto; rank++) {
        pd_slot *slot = &chunk->slots[rank];
        if (slot->frame != NULL) pd_job_let_go(job, slot->frame);
        slot->frame = NULL;
    }
}

static void note_pass(pd_job *job, const pd_pass *pass)
{
    pd_chunk *chunk = pass->chunk;
    uint32_t from = chunk->summed;

    pd_sums_note(&job->store->sums, pass, pd_param_how(chunk->param));
    let_go_of_summed(job, chunk, from, pass->upto);
    if (pass->upto == job->world) {
        pd_job_unlist_chunk(job, chunk);
        if (pass->round->unsummed == 0) pd_param_gathered(job, chunk->param);
    } else if (chunk->summed == chunk->prefix) {
        pd_job_unlist_chunk(job, chunk);
    }
}

static double sum_chunks(pd_job *job, uint64_t now_ns)
{
    pd_sums *sums = &job->store->sums;
    int threads = job->store->config.threads;
    pd_param *starved;

    pd_sums_clear(sums);
    starved = plan_sums(job, job->store->config.batch_ns * threads);
    pd_sums_run(sums, threads);
    for (size_t i = 0; i < sums->n_passes; i++) note_pass(job, &sums->passes[i]);
    if (starved != NULL) pause(job, starved, now_ns);
    return sums->cost_ns;
}

static double gather(pd_job *job, double budget_ns, uint64_t now_ns)
{
    pd_param *starved;
    double cost_ns = pd_collect_work(job, budget_ns, &starved);

    if (starved != NULL) pause(job, starved, now_ns);
    return cost_ns;
}

/* ---- steps ---- */

static int begin(pd_job *job, pd_param *param)
{
    double hypers[PD_MAX_HYPERS];
    pd_step_io io = { .gradient = param->accumulator, .before = param->current->at[PD_F32], .hypers = hypers };
    int rc;

    if ((param->next = pd_snapshot_new(param->pool, param->elements)) == NULL) return PD_NO_MEMORY;
    param->next->job = job->number;
    param->next->param = param->index;
    param->next->version = param->step + 1;
    io.after = param->next->at[PD_F32];
    if (param->group != NULL) pd_optim_set_count(param->optim, pd_step_group_count(param));
    io.hypers_mask = pd_overrides_begin(&job->store->outbox, job->name, param, hypers);       /* schedules follow the count */
    rc = pd_param_begin_update(param, &io.update);
    if (rc == PD_OK) rc = pd_optim_begin(param->optim, &io);
    if (rc != PD_OK) {
        pd_param_end_update(param);
        pd_snapshot_unref(param->next);
        param->next = NULL;
        return rc;
    }
    param->stage = PD_STEPPING;
    return PD_OK;
}

/* One that is ready: its step begins, or its mean is taken for its first weights; where a round closes without either, nothing. */
static int prepare(pd_job *job, pd_param *param)
{
    if (param->stage != PD_READY) return PD_OK;
    if (param->current == NULL) return param->next == NULL ? pd_job_take_mean(job, param) : PD_OK;
    return param->outcome == PD_STEPPED ? begin(job, param) : PD_OK;
}

/* Takes parameters out of job->ready, as many as the budget holds and at least one, into job->batch; those that step have begun. One that is bound to
 * others begins and waits for them to. */
static size_t gather_batch(pd_job *job, double budget_ns, pd_param **starved)
{
    double cost_ns = 0;
    bool any = false;
    size_t n = 0;

    *starved = NULL;
    for (; job->ready != NULL && (!any || cost_ns < budget_ns); any = true) {
        pd_param *param = job->ready;
        bool begins = param->stage == PD_READY && param->outcome == PD_STEPPED;
        if (prepare(job, param) != PD_OK) {
            *starved = param;
            break;
        }
        unready(job, param);
        if (begins && pd_param_is_bound(job, param)) {
            pd_param_begun(job, param);
            cost_ns += BEGIN_NS;
            continue;
        }
        if (param->current == NULL) cost_ns += INITIAL_NS * (double)param->elements;
        if (param->stage == PD_STEPPING) cost_ns += pd_optim_cost_ns(param->optim);
        job->batch[n++] = param;
    }
    return n;
}

static int run_steps(pd_job *job, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (job->batch[i]->stage == PD_STEPPING) job->optims[k++] = job->batch[i]->optim;
    return k > 0 ? pd_batch_run(job->optims, k, job->store->config.threads) : PD_OK;
}

/* Hands the tasks that a step has captured to the pool. PD_NO_MEMORY: some are left for later. */
static int capture_tasks(pd_job *job, pd_param *param)
{
    struct pd_task *task;

    param->uncaptured = false;
    if (param->stage != PD_STEPPING || pd_optim_plan(param->optim)->n_tasks == 0) return PD_OK;
    for (;;) {
        pd_effect *effect = pd_effect_new(PD_EFF_TASK, (pd_ticket){ 0, 0 }, job->number);
        if (effect == NULL) {
            param->uncaptured = true;
            return PD_NO_MEMORY;
        }
        if ((task = pd_optim_capture(param->optim)) == NULL) {
            pd_effect_free(effect);
            return PD_OK;
        }
        effect->u.task.task = task;
        effect->u.task.param = param->index;
        job->tasks_out++;
        pd_effects_add(&job->store->outbox, effect);
    }
}

static void count_refusal(pd_job *job, pd_param *param, const char *why)
{
    param->refused++;
    if (pd_is_power_of_two(++job->refused_steps))
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %.60s: step %llu of %.60s is refused: %.200s (%llu so far)", job->name,
               (unsigned long long)param->step, param->name, why, (unsigned long long)job->refused_steps);
}

static void count_outcome(pd_job *job, pd_param *param, pd_outcome outcome)
{
    if (outcome == PD_STEPPED) job->steps++;
    if (outcome != PD_SKIPPED) return;
    job->skipped++;
    if (pd_is_power_of_two(++param->skipped) && !pd_job_is_whole(job))
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: step %llu of %s is skipped, %s (%llu skipped so far)", job->name,
               (unsigned long long)param->step, param->name,
               param->round.weightless ? "all weights are 0" : "its gradient is not finite", (unsigned long long)param->skipped);
}

/* Some ranks gave a gradient, but elements that only others have had none: no step is better than half a one. */
static void count_gap(pd_job *job, pd_param *param)
{
    pd_range gap;

    if (pd_round_given(&param->round) != PD_GIVEN_PART || !pd_is_power_of_two(++param->gaps)) return;
    pd_round_gap(&param->round, true, &gap);
    pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: step %llu of %s closes without a gradient: all ranks that have elements %lld to %lld were absent, others "
           "were not (%llu times so far)", job->name, (unsigned long long)param->step, param->name, (long long)gap.start, (long long)gap.end,
           (unsigned long long)param->gaps);
}

static void tell_refusal(pd_job *job, pd_param *param, pd_closed *closed)
{
    const char *why = pd_optim_refused(param->optim)->text;

    count_refusal(job, param, why);
    closed->why = pd_reason_new(why);
}

/* A step that was run to its end, and refused there: the weights to come were not written. */
static void note_refused(pd_param *const *params, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        pd_param *param = params[i];
        if (param->stage != PD_STEPPING || pd_optim_refused(param->optim) == NULL) continue;
        param->outcome = PD_REFUSED;
        pd_snapshot_unref(param->next);
        param->next = NULL;
    }
}

static void reset_round(pd_job *job, pd_param *param)
{
    pd_round_reset(&param->round);
    param->stage = PD_GATHERING;
    job->n_open--;
}

/* What the round has left is published. */
static void publish_next(pd_param *param, pd_closed *closed)
{
    pd_buffer_pool_give(param->pool[PD_F32], param->accumulator);
    param->accumulator = NULL;
    pd_param_publish(param, param->next, param->outcome, closed);
    param->next = NULL;
}

/* The round is over: *closed says how; everything is ready for the next. */
static void close_round(pd_job *job, pd_param *param, pd_closed *closed)
{
    if (param->current == NULL) {
        publish_next(param, closed);
        job->n_begun++;
        reset_round(job, param);
        return;
    }
    param->step++;
    count_outcome(job, param, param->outcome);
    if (param->outcome == PD_NO_GRADIENT) count_gap(job, param);
    publish_next(param, closed);
    closed->scalars = pd_scalars_close(param);
    if (param->outcome == PD_REFUSED) tell_refusal(job, param, closed);
    if (param->pushed != NULL) param->pushed->mask = 0;
    pd_overrides_settle(&job->store->outbox, job->name, param);
    reset_round(job, param);
    pd_param_moved_on(job, param);
}

/* Steps that are under way but not over wait for a task, or go on in the next batch; the others are gathered at the front. */
static size_t keep_finished(pd_job *job, size_t n, bool ran)
{
    size_t done = 0;

    for (size_t i = 0; i < n; i++) {
        pd_param *param = job->batch[i];
        if (param->stage == PD_READY || (ran && pd_optim_done(param->optim))) job->batch[done++] = param;
        else if (ran && !param->uncaptured && pd_optim_waits(param->optim)) param->stage = PD_PARKED;
        else pd_job_ready(job, param, PD_STEPPING);
    }
    return done;
}

static void publish(pd_job *job, size_t n, pd_effect *effect, pd_closed *closed)
{
    for (size_t i = 0; i < n; i++) close_round(job, job->batch[i], &closed[i]);
    effect->u.closed.at = closed;
    effect->u.closed.n = n;
    if (n > 0) pd_effects_add(&job->store->outbox, effect);
    else pd_effect_free(effect);
}

static void put_back(pd_job *job, size_t n)
{
    for (size_t i = 0; i < n; i++) pd_job_ready(job, job->batch[i], job->batch[i]->stage);
}

/* Runs the batch and publishes what is finished. Gives the parameter for which memory was short, or NULL. Takes effect and closed. */
static pd_param *run_batch(pd_job *job, size_t n, pd_effect *effect, pd_closed *closed)
{
    bool ran = run_steps(job, n) == PD_OK;
    pd_param *starved = ran ? NULL : job->batch[0];
    size_t done;

    for (size_t i = 0; ran && i < n; i++) {
        if (capture_tasks(job, job->batch[i]) != PD_OK) starved = job->batch[i];
        if (job->batch[i]->stage == PD_STEPPING) pd_roots_watch(job, job->batch[i]);
    }
    done = keep_finished(job, n, ran);
    pd_step_groups_look(job);
    note_refused(job->batch, done);
    pd_params_convert(job->batch, done, job->store->config.threads);
    for (size_t i = 0; i < done; i++) pd_param_end_update(job->batch[i]);
    publish(job, done, effect, closed);
    return starved;
}

static void step_params(pd_job *job, double budget_ns, uint64_t now_ns)
{
    pd_param *starved, *late;
    size_t n = gather_batch(job, budget_ns, &starved);
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, job->number);
    pd_closed *closed = malloc((n + 1) * sizeof *closed);

    if (effect == NULL || closed == NULL) {
        if (n > 0) starved = job->batch[0];
        put_back(job, n);
        free(closed);
        pd_effect_free(effect);
    } else if ((late = run_batch(job, n, effect, closed)) != NULL) {
        starved = late;
    }
    if (starved != NULL) pause(job, starved, now_ns);
}

/* ---- a batch ---- */

bool pd_job_has_work(const pd_job *job, uint64_t now_ns)
{
    if (job->declares != NULL && !job->gone) return true;
    if (job->gone || now_ns < job->retry_ns) return false;
    if (pd_import_writes(job) || pd_global_clip_runs(job)) return true;
    return job->inbox != NULL || job->complete != NULL || job->ready != NULL || (job->look && job->partial != NULL && pd_job_is_over_quota(job)) ||
           pd_collect_has_work(job);
}

void pd_job_work(pd_job *job, uint64_t now_ns)
{
    double budget_ns = job->store->config.batch_ns * job->store->config.threads;

    job->changes++;
    if (job->declares != NULL) {
        pd_job_declare_some(job, job->store->config.batch_ns / 2, now_ns);      /* of one thread; rounds of the job go on beside */
        if (now_ns < job->retry_ns) return;
    }
    if (pd_import_writes(job)) {
        pd_import_write_some(job, now_ns);
        return;
    }
    job->retry_ns = 0;
    pd_job_take_inbox(job, now_ns);
    budget_ns -= sum_chunks(job, now_ns);
    budget_ns -= gather(job, budget_ns, now_ns);
    if (pd_global_clip_runs(job)) budget_ns -= pd_global_clip_run(job, budget_ns);
    if (job->ready != NULL) step_params(job, budget_ns, now_ns);
    if (job->retry_ns == 0 && job->notice == NULL)
        job->notice = pd_effect_new(PD_EFF_TIMED_OUT, (pd_ticket){ 0, 0 }, job->number);
}

void pd_job_task(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_param *param = &job->params[request->u.task.param];

    assert(request->u.task.param < job->n_params && job->tasks_out > 0);
    job->tasks_out--;
    job->changes++;
    pd_optim_deliver(param->optim, request->u.task.task);
    if (!job->gone) {
        if (param->stage == PD_PARKED && !pd_optim_waits(param->optim) && !PD_PLANTED(parked_forever)) pd_job_ready(job, param, PD_STEPPING);
        pd_step_group_look(job, param->group);
    }
    pd_store_touch(job->store, job, now_ns);
    pd_request_free(request);
}
