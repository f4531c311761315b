/* step_batch.c - begins optimizer steps, runs a batch of them at the same time, and publishes the weights of those
 * that are finished. */
#include "step_batch.h"

#include "batch.h"
#include "commit.h"
#include "initial_mean.h"
#include "riders.h"
#include "root_report.h"
#include "step_group.h"

#include <stdlib.h>
#include <utlist.h>

#define BEGIN_NS 1000.0 /* estimated ns of one core to begin the step of one parameter */
/* estimated ns to take a parameter into a batch, to close its round and to publish that; all on one thread */
#define CLOSE_NS 500.0
#define INITIAL_NS 0.5 /* estimated ns of one core to convert one element of initial weights */

static int begin(pd_steps *steps, pd_param *param)
{
    double hypers[PD_MAX_HYPERS];
    pd_step_io io = { .gradient = param->buffers.accumulator, .before = param->current->at[PD_F32], .hypers = hypers };
    int64_t count;
    int rc;

    if (pd_unread_stops(steps->unread) > 0) return PD_NO_MEMORY;
    if (param->group != NULL) pd_optim_set_count(param->optim, pd_step_group_count(param));
    if (pd_riders_before(steps, param, hypers, &io.hypers_mask) != PD_OK) return PD_NO_MEMORY;
    if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL) return PD_NO_MEMORY;
    param->next->job = steps->number;
    param->next->param = param->index;
    param->next->version = param->saved.step + 1;
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

/* Prepares a parameter in stage PD_READY (its aggregate is complete): begins its step; or makes its first weights, from
 * the mean of the initial weights. If the round closes without a step there is nothing to begin. PD_NO_MEMORY. */
static int prepare(pd_steps *steps, pd_param *param)
{
    if (param->stage != PD_READY) return PD_OK;
    if (param->end.counted == NULL && pd_round_counted(&param->round, &param->end.counted) != PD_OK)
        return PD_NO_MEMORY;
    if (param->current == NULL) return param->next == NULL ? pd_initial_mean_take(steps, param) : PD_OK;
    return param->end.outcome == PD_STEPPED ? begin(steps, param) : PD_OK;
}

/* Moves parameters from steps->queue.ready to steps->batch.params and begins their steps: as many as the time budget
 * allows, but at least one.
 *
 * If a step belongs to an atomic group, it begins, but the parameter is not put
 * into the batch: it waits until all steps of the group have begun.
 *
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

/* Copies the inputs of those preconditioner tasks that the step makes due, and hands the tasks
 * to the preconditioner pool. PD_NO_MEMORY: some tasks are left for a later batch. */
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

/* Moves the parameters whose steps are finished to the front of the batch, and returns their number. The steps of the
 * others wait for a preconditioner task, the computation of a matrix root (PD_PARKED), or go on in the next batch. */
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

static void publish(pd_steps *steps, size_t n, pd_effect *effect, pd_closed *closed)
{
    for (size_t i = 0; i < n; i++) pd_round_close(steps, steps->batch.params[i], &closed[i]);
    effect->u.closed.at = closed;
    effect->u.closed.n = n;
    if (n > 0)
        pd_effects_add(steps->outbox, effect);
    else
        pd_effect_free(effect);
}

static void put_back(pd_steps *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) pd_steps_ready(steps, steps->batch.params[i], steps->batch.params[i]->stage);
}

/* Runs a batch of n steps, and publishes the weights of those that are finished. Returns the parameter for which
 * memory was short; NULL: none. Takes ownership of `effect` and `closed`, the memory for the report to the loop
 * thread. */
static pd_param *run_batch(pd_steps *steps, size_t n, pd_effect *effect, pd_closed *closed)
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
    publish(steps, done, effect, closed);
    pd_steps_spend(steps, PD_PHASE_PUBLISH);
    return starved;
}

void pd_steps_run(pd_steps *steps, double budget_ns, pd_param **out)
{
    pd_param *starved, *late;
    size_t n = take_batch(steps, budget_ns, &starved);
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, steps->number);
    pd_closed *closed = malloc((n + 1) * sizeof *closed);

    if (effect == NULL || closed == NULL) {
        if (n > 0) starved = steps->batch.params[0];
        put_back(steps, n);
        free(closed);
        pd_effect_free(effect);
    } else if ((late = run_batch(steps, n, effect, closed)) != NULL) {
        starved = late;
    }
    *out = starved;
}
