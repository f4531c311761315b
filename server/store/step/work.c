/* work.c - one batch of work on a job's rounds and steps: sums of chunks, aggregates that need all contributions,
 * clipping, optimizer steps.
 *
 * If out of memory, work stops where it is. Contributions, sums and steps that have begun are kept, waiting workers
 * are notified once, and the work goes on a second later. */
#include "work.h"

#include "chunk_queue.h"
#include "collect.h"
#include "global_clip.h"
#include "mutant.h"
#include "step_batch.h"
#include "step_group.h"
#include "riders.h"

#include <assert.h>

#define RETRY_NS 1000000000ull

/* Says in *err that out of memory for a parameter, or that its job's readers hold too much. */
static void explain(const pd_steps *steps, const pd_param *starved, pd_error *err)
{
    uint64_t held = pd_unread_stops(steps->unread);
    char what[48];

    pd_round_text(starved, what, sizeof what);
    if (held > 0)
        pd_fail(err, PD_RESOURCE_EXHAUSTED,
                "%s of %.160s waits: answers that workers have not read, or have read in shared memory and not "
                "released, hold %llu bytes of earlier weights, and limits.max_total_bytes or the owner's quota has no "
                "room for them; contributions stand, and it is tried again every second: push again to go on waiting",
                what, starved->name, (unsigned long long)held);
    else
        pd_fail(err, PD_RESOURCE_EXHAUSTED,
                "the server is out of memory for %s of %.160s; "
                "contributions stand, and it is tried again every second: %s again to go on waiting",
                what, starved->name, starved->current != NULL ? "push" : "pull");
}

/* Stops the job's work for a second, because out of memory for a parameter. If workers were not notified yet since
 * memory became short, notifies those that wait. */
static void pause(pd_steps *steps, const pd_param *starved, uint64_t now_ns)
{
    pd_effect *notice = steps->shortage.notice;

    steps->shortage.retry_ns = now_ns + RETRY_NS;
    if (notice == NULL) return;
    steps->shortage.notice = NULL;
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

    if (!pd_global_clip_runs(steps)) return 0;
    if (pd_global_clip_run(steps, budget_ns, &cost_ns)) pd_step_groups_go_on(steps);
    return cost_ns;
}

/* Does each kind of work in turn, within the time budget. If out of memory for one kind, the other kinds are still
 * done in this batch, and the job pauses afterwards. */
void pd_steps_work(pd_steps *steps, double budget_ns, uint64_t now_ns)
{
    pd_param *starved;

    pd_step_times_begin(&steps->times, pd_steps_clock_ns(steps));
    budget_ns -= pd_chunks_sum(steps, &starved);
    if (starved != NULL) pause(steps, starved, now_ns);
    budget_ns -= pd_collect_work(steps, budget_ns, &starved);
    if (starved != NULL) pause(steps, starved, now_ns);
    pd_steps_spend(steps, PD_PHASE_SUM);
    budget_ns -= clip(steps, budget_ns);
    if (steps->queue.ready != NULL) {
        pd_steps_run(steps, budget_ns, &starved);
        if (starved != NULL) pause(steps, starved, now_ns);
    }
    pd_steps_spend(steps, PD_PHASE_STEP);
    pd_step_times_end(&steps->times);
    if (steps->shortage.retry_ns == 0 && steps->shortage.notice == NULL)
        steps->shortage.notice = pd_effect_new(PD_EFF_TIMED_OUT, (pd_ticket){ 0, 0 }, steps->number);
}

bool pd_steps_have_work(const pd_steps *steps)
{
    return pd_global_clip_runs(steps) || pd_chunks_have_work(steps) || pd_collect_has_work(steps) ||
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
