/* set_warning.c - finds rules whose learning rate is too large for a small quorum. */
#include "set_warning.h"

#include "schedule.h"

/* With a quorum of K of n workers, one step is taken for each K contributions: n / K times as many as with all.
 * Nesterov momentum with DiLoCo's rate of 0.7 diverges then; a tenth of it does not. */
#define LARGE_RATE 0.1

/* Returns the largest value that a hyperparameter has at a corner of its schedule; 0: the optimizer does not have
 * it. */
static double largest(const pd_hypers *hypers, const char *name)
{
    int h = pd_hypers_find(hypers->row, name);
    const pd_schedule *schedule = hypers->schedules;
    double most = h >= 0 ? hypers->value[h] : 0;
    int64_t count;

    if (h < 0 || (hypers->scheduled >> h & 1) == 0) return most;
    while (schedule->index != h) schedule = schedule->next;
    for (size_t i = 0; pd_schedule_corner(schedule, i, &count); i++)
        if (pd_schedule_at(schedule, count) > most) most = pd_schedule_at(schedule, count);
    return most;
}

static bool is_hasty(const pd_hypers *hypers)
{
    return largest(hypers, "nesterov") > 0 && largest(hypers, "momentum") > 0 && largest(hypers, "lr") > LARGE_RATE;
}

void pd_set_warning_look(const pd_job *job)
{
    uint32_t n = job->steps.members.ranks, quorum = job->steps.sets.quorum;

    if (quorum > n / 2) return;
    for (size_t i = 0; i < job->steps.n_rules; i++) {
        const pd_hypers *hypers = &job->steps.rules[i].hypers;
        if (!is_hasty(hypers)) continue;
        pd_job_say(
            job, PD_SAY_WARNING,
            "a step takes %u contribution%s, so %u workers take up to %u times as many steps as together: %s with "
            "Nesterov momentum and lr = %g may diverge. Use delayed_nesterov with period=%u, lr=%g, or a quorum "
            "above %u",
            quorum, quorum > 1 ? "s" : "", n, n / quorum, pd_optimizer_name(hypers->row), largest(hypers, "lr"), n,
            largest(hypers, "lr") / 10, n / 2);
        return;
    }
}
