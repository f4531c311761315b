/* step_traces.c - reads the clock between the phases of a batch of work, notes when the rounds of a traced job go from
 * one stage to the next, and passes these events on to the trace file. */
#include "step_traces.h"

#include "task.h"

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

void pd_trace_summed(const pd_steps *steps, pd_param *param)
{
    if (!is_traced(steps)) return;
    param->traced.summing = later(steps->times.mark_ns, param->round.last_ns);
    param->traced.summed = later(pd_steps_clock_ns(steps), param->traced.summing);
}

void pd_trace_begun(const pd_steps *steps, pd_param *param)
{
    if (is_traced(steps)) param->traced.begun = pd_steps_clock_ns(steps);
}

void pd_trace_stepped(const pd_steps *steps, pd_param *const *params, size_t n)
{
    uint64_t now = is_traced(steps) ? pd_steps_clock_ns(steps) : 0;

    for (size_t i = 0; now > 0 && i < n; i++)
        if (params[i]->traced.begun > 0) params[i]->traced.stepped = now;
}

void pd_trace_closed(const pd_steps *steps, pd_param *param)
{
    if (!is_traced(steps)) return;
    param->traced.first = param->round.started_ns;
    param->traced.last = param->round.last_ns;
    param->traced.published = pd_steps_clock_ns(steps);
    pass_on(steps, (pd_traced){ .kind = PD_TRACED_ROUND,
                                .param = param->name,
                                .index = param->index,
                                .step = param->saved.step,
                                .outcome = (int)param->outcome,
                                .round = param->traced });
    param->traced = (pd_traced_round){ 0 };
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
