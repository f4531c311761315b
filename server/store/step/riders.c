/* riders.c - calls the riders of a job's steps in a fixed order, stops parameters whose step a rider holds back, and
 * writes events for the trace file. */
#include "riders.h"

#include "wal.h"
#include "fragment_ranks.h"
#include "consistent_cut.h"
#include "override.h"
#include "task.h"

#include <utlist.h>

static bool is_traced(const pd_steps *steps)
{
    return steps->config->trace != NULL;
}

static void pass_on(const pd_steps *steps, pd_traced event)
{
    event.job = steps->name;
    steps->config->trace(steps->config->trace_arg, &event);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void pd_steps_spend(pd_steps *steps, pd_step_phase phase)
{
    uint64_t begin = steps->times.mark_ns, end = pd_steps_clock_ns(steps);

    pd_step_times_spend(&steps->times, phase, end);
    if (!is_traced(steps) || end <= begin) return;
    pass_on(steps, (pd_traced){ .kind = PD_TRACED_WORK, .phase = phase, .begin = begin, .end = end });
}

void pd_riders_collected(const pd_steps *steps, pd_param *param)
{
    if (!is_traced(steps)) return;
    param->end.traced.summing = later(steps->times.mark_ns, param->round.last_ns);
    param->end.traced.summed = later(pd_steps_clock_ns(steps), param->end.traced.summing);
}

void pd_riders_stepped(const pd_steps *steps, pd_param *const *params, size_t n)
{
    uint64_t now = is_traced(steps) ? pd_steps_clock_ns(steps) : 0;

    for (size_t i = 0; now > 0 && i < n; i++)
        if (params[i]->end.traced.begun > 0) params[i]->end.traced.stepped = now;
}

static void trace_closed(const pd_steps *steps, pd_param *param)
{
    if (!is_traced(steps)) return;
    param->end.traced.first = param->round.started_ns;
    param->end.traced.last = param->round.last_ns;
    param->end.traced.published = pd_steps_clock_ns(steps);
    pass_on(steps, (pd_traced){ .kind = PD_TRACED_ROUND,
                                .param = param->name,
                                .index = param->index,
                                .step = param->saved.step,
                                .outcome = (int)param->end.outcome,
                                .round = param->end.traced });
    param->end.traced = (pd_traced_round){ 0 };
}

void pd_trace_root(const pd_steps *steps, const pd_param *param, const struct pd_task *task)
{
    uint64_t now, took;

    if (!is_traced(steps)) return;
    now = pd_steps_clock_ns(steps);
    took = (uint64_t)(pd_task_ms(task) * 1e6);
    pass_on(steps, (pd_traced){ .kind = PD_TRACED_ROOT,
                                .begin = took < now ? now - took : 0,
                                .end = now,
                                .param = param->name,
                                .index = param->index,
                                .step = param->saved.step });
}

static bool is_stopped(const pd_steps *steps, const pd_param *param)
{
    return pd_cut_stops(steps, param) || pd_wal_stops(steps, param);
}

static void let_begin(pd_steps *steps, pd_param *param)
{
    if (steps->wal != NULL) pd_wal_enter(steps, param->fragment);
    pd_steps_ready(steps, param, PD_READY);
}

/* Releases the parameters of a fragment that have waited for each other. */
static void release_gathered(pd_steps *steps, const pd_fragment *fragment)
{
    pd_param *param, *next;

    if (fragment->n_stopped < fragment->n_params) return;
    DL_FOREACH_SAFE2(steps->queue.stopped, param, next, links.next_ready)
    if (param->fragment == fragment) pd_riders_release_one(steps, param);
}

void pd_riders_admit(pd_steps *steps, pd_param *param)
{
    if (!is_stopped(steps, param)) {
        let_begin(steps, param);
        return;
    }
    param->stage = PD_STOPPED;
    param->fragment->n_stopped++;
    DL_APPEND2(steps->queue.stopped, param, links.prev_ready, links.next_ready);
    if (pd_wal_gathers(steps)) release_gathered(steps, param->fragment);
}

void pd_riders_release_one(pd_steps *steps, pd_param *param)
{
    if (param->stage != PD_STOPPED || is_stopped(steps, param)) return;
    DL_DELETE2(steps->queue.stopped, param, links.prev_ready, links.next_ready);
    param->fragment->n_stopped--;
    let_begin(steps, param);
}

void pd_riders_release(pd_steps *steps)
{
    pd_param *param, *next;

    DL_FOREACH_SAFE2(steps->queue.stopped, param, next, links.next_ready) pd_riders_release_one(steps, param);
    pd_fragments_wake(steps);
}

int pd_riders_before(pd_steps *steps, pd_param *param, double *value, uint64_t *mask)
{
    if (pd_wal_before(steps, param) != PD_OK) return PD_NO_MEMORY;
    *mask = pd_overrides_begin(steps->outbox, steps->name, param, value);
    return PD_OK;
}

void pd_riders_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count)
{
    pd_wal_begun(steps, param, io, count);
    if (is_traced(steps)) param->end.traced.begun = pd_steps_clock_ns(steps);
}

void pd_riders_closed(pd_steps *steps, pd_param *param)
{
    pd_wal_closed(steps, param);
    pd_overrides_settle(steps->outbox, steps->name, param);
    pd_cut_closed(steps, param);
    trace_closed(steps, param);
}
