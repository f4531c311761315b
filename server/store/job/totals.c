/* totals.c - sums over the parameters of a job: elements, bytes, steps, roots and optimizers. */
#include "totals.h"

#include <math.h>
#include <stdio.h>

/* Estimates of how long it takes to count a parameter, and one of its roots. */
#define PARAM_NS 60.0
#define ROOT_NS 4.0

static bool is_valid(const pd_job *job)
{
    const pd_job_totals *totals = &job->totals;

    return totals->params == job->steps.params && totals->n == job->steps.n_params &&
           totals->changes == job->steps.changes;
}

static void begin(pd_totals_count *count, const pd_job *job)
{
    *count = (pd_totals_count){ .job = job->steps.number };
    count->sofar = (pd_job_totals){ .params = job->steps.params,
                                    .n = job->steps.n_params,
                                    .changes = job->steps.changes,
                                    .step_least = job->steps.n_params > 0 ? UINT64_MAX : 0 };
}

static bool is_of(const pd_totals_count *count, const pd_job *job)
{
    return count->job == job->steps.number && count->sofar.params == job->steps.params &&
           count->sofar.n == job->steps.n_params;
}

/* ---- one parameter ---- */

static void add_elements(pd_totals_count *count, const pd_param *param)
{
    size_t i = 0;

    while (i < count->n_optimizers && count->optimizers[i].rule->hypers.row != param->rule->hypers.row) i++;
    if (i == PD_TOTALS_OPTIMIZERS) return; /* more optimizers than there are names for in the sums */
    if (i == count->n_optimizers) {
        count->n_optimizers++;
        count->optimizers[i].rule = param->rule;
    }
    if (param->rule < count->optimizers[i].rule) count->optimizers[i].rule = param->rule;
    count->optimizers[i].elements += (uint64_t)param->elements;
}

static void add_param(pd_totals_count *count, const pd_param *param)
{
    pd_job_totals *totals = &count->sofar;
    pd_root_stats stats = pd_optim_root_stats(param->optim);

    totals->elements += (uint64_t)param->elements;
    totals->state_bytes += (uint64_t)pd_optim_state_bytes(param->optim);
    if (param->saved.step < totals->step_least) totals->step_least = param->saved.step;
    if (param->saved.step > totals->step_most) totals->step_most = param->saved.step;
    totals->roots_due += (uint64_t)stats.due;
    totals->roots_adopted += (uint64_t)stats.adopted;
    totals->roots_failed += (uint64_t)stats.failed;
    totals->roots_unused += (uint64_t)stats.replaced;
    totals->root_waits += (uint64_t)stats.waits;
    add_elements(count, param);
}

static void add_root(pd_job_totals *totals, const pd_param *param, size_t i)
{
    pd_root_state root = pd_optim_root(param->optim, i);
    uint64_t age = root.adopted > 0 ? (uint64_t)(pd_optim_count(param->optim) - root.count) : 0;

    totals->roots_failing += root.failing;
    if (age > totals->root_age) totals->root_age = age;
}

/* Adds the roots of a parameter, as far as the time allows, but one at least. Returns whether it has added all. */
static bool add_roots(pd_totals_count *count, const pd_param *param, double *budget_ns)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);
    size_t n = stats.failed == 0 && stats.adopted == 0 ? 0 : pd_optim_plan(param->optim)->n_tasks;

    while (count->root < n) {
        add_root(&count->sofar, param, count->root++);
        if ((*budget_ns -= ROOT_NS) <= 0) break;
    }
    return count->root >= n;
}

/* ---- the end ---- */

/* Writes the names of the optimizers in use, the one of most elements first. */
static void name_optimizers(pd_totals_count *count)
{
    pd_job_totals *totals = &count->sofar;
    size_t used = 0;

    while (used < sizeof totals->optimizers) {
        size_t most = 0;
        for (size_t i = 1; i < count->n_optimizers; i++)
            if (count->optimizers[i].elements > count->optimizers[most].elements ||
                (count->optimizers[i].elements == count->optimizers[most].elements &&
                 count->optimizers[i].rule < count->optimizers[most].rule))
                most = i;
        if (count->optimizers[most].elements == 0) return;
        used += (size_t)snprintf(totals->optimizers + used, sizeof totals->optimizers - used, "%s%s",
                                 used > 0 ? "," : "", pd_optimizer_name(count->optimizers[most].rule->hypers.row));
        count->optimizers[most].elements = 0;
    }
}

bool pd_totals_some(pd_totals_count *count, pd_job *job, double *budget_ns)
{
    if (!is_of(count, job)) {
        if (is_valid(job)) return true;
        begin(count, job);
    }
    while (count->at < job->steps.n_params) {
        const pd_param *param = &job->steps.params[count->at];
        *budget_ns -= PARAM_NS;
        if (count->root == 0) add_param(count, param);
        if (!add_roots(count, param, budget_ns)) return false;
        count->root = 0;
        if (++count->at < job->steps.n_params && !(*budget_ns > 0)) return false;
    }
    name_optimizers(count);
    job->totals = count->sofar;
    *count = (pd_totals_count){ 0 };
    return true;
}
