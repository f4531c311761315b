/* optimizer.c - makes, fills, reads and frees one parameter's optimizer, and begins and ends its steps. */
#include "optimizer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu.h"
#include "hyperball.h"
#include "pages.h"
#include "plan_bytes.h"
#include "stored.h"

/* Rough speeds of one core, and a fixed time for each step, to estimate how long a step takes. */
#define BYTES_PER_NS 25.0
#define FLOPS_PER_NS 50.0
#define STEP_NS 500.0

static int make_tasks(pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    if (plan->n_tasks == 0) return PD_OK;
    optim->tasks.work = calloc(plan->n_tasks, sizeof *optim->tasks.work);
    optim->saved.roots = calloc(plan->n_tasks, sizeof *optim->saved.roots);
    return optim->tasks.work == NULL || optim->saved.roots == NULL ? PD_NO_MEMORY : PD_OK;
}

/* Estimates the time of one step of a parameter from its memory traffic and its arithmetic. A step reads the gradient,
 * and reads and writes the weights and the optimizer state. */
static double estimate_ns(const pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;
    double bytes = 3.0 * sizeof(float) * (double)plan->elements + 2.0 * (double)optim->memory.state_bytes +
                   2.0 * sizeof(float) * (double)optim->memory.temporary_floats;

    return STEP_NS + bytes / BYTES_PER_NS + plan->flops / FLOPS_PER_NS;
}

static void count_phases(pd_optim *optim)
{
    const pd_phase *phases = optim->ops->phases;
    const bool ball = optim->shared->plan.hyperball;

    while (optim->own_phases < PD_MAX_PHASES && phases[optim->own_phases].run != NULL) optim->own_phases++;
    optim->before = ball ? PD_HYPERBALL_BEFORE : 0;
    optim->n_phases = optim->own_phases + (ball ? PD_HYPERBALL_BEFORE + PD_HYPERBALL_AFTER : 0);
    optim->last_ranges = optim->n_phases - 1;
    while (!ball && optim->last_ranges >= 0 && phases[optim->last_ranges].kind != PD_RANGES) optim->last_ranges--;
    assert(optim->ops->capture_phase <= optim->own_phases && optim->ops->adopt_phase <= optim->own_phases);
}

static int build(pd_optim *optim, const pd_declaration *declaration, const double *stats, pd_plan *plan)
{
    optim->ops = declaration->hypers.row;
    snprintf(optim->name, sizeof optim->name, "%s", declaration->name);
    optim->hypers = declaration->hypers;
    if ((optim->shared = calloc(1, sizeof *optim->shared)) == NULL) return PD_NO_MEMORY;
    optim->shared->refs = 1;
    memcpy(optim->shared->stats, stats, sizeof optim->shared->stats);
    optim->shared->random = pd_random_stream(declaration->seed, declaration->name);
    optim->shared->random_of_all = pd_random_stream(declaration->seed, "");
    optim->saved.count = declaration->start_step;
    optim->shared->plan = *plan;
    *plan = (pd_plan){ 0 };
    count_phases(optim);
    optim->step.total = calloc((size_t)optim->n_phases, sizeof *optim->step.total);
    if (optim->step.total == NULL || make_tasks(optim) != PD_OK) return PD_NO_MEMORY;
    if (pd_slots_measure(optim) != PD_OK || pd_slots_make(optim) != PD_OK) return PD_NO_MEMORY;
    optim->most_units = pd_plan_most_units(&optim->shared->plan);
    optim->cost_ns = estimate_ns(optim);
    return PD_OK;
}

static int no_memory(const pd_declaration *declaration, pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: no memory for the optimizer's state", declaration->name);
}

int pd_optim_bare(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    pd_optim *optim = calloc(1, sizeof *optim);

    if (optim != NULL && build(optim, declaration, stats, plan) == PD_OK) {
        *out = optim;
        return PD_OK;
    }
    pd_optim_free(optim);
    return no_memory(declaration, err);
}

bool pd_optim_fill(pd_optim *optim, pd_fill *at, double *budget_ns, int *rc)
{
    *rc = PD_OK;
    while (*rc == PD_OK && at->slot < optim->shared->plan.n_slots) {
        if (!(*budget_ns > 0)) return false;
        *rc = pd_slot_fill(optim, at, budget_ns);
    }
    return *rc == PD_OK;
}

int pd_optim_planned(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_plan *plan,
                     pd_error *err)
{
    pd_optim *optim;
    pd_fill at = { 0 };
    double unlimited = INFINITY;
    int rc = pd_optim_bare(&optim, declaration, stats, plan, err);

    if (rc != PD_OK) return rc;
    if (!pd_optim_fill(optim, &at, &unlimited, &rc)) {
        pd_optim_free(optim);
        return no_memory(declaration, err);
    }
    *out = optim;
    return PD_OK;
}

int pd_optim_new(pd_optim **out, const pd_declaration *declaration, const double *stats, pd_error *err)
{
    pd_plan plan;
    int rc = pd_plan_make(&plan, declaration, stats, err);

    if (rc == PD_OK) rc = pd_optim_planned(out, declaration, stats, &plan, err);
    pd_plan_free(&plan);
    return rc;
}

void pd_optim_set_job_bytes(pd_optim *optim, int64_t bytes)
{
    optim->beyond_cache = bytes >= PD_BEYOND_CACHE;
}

void pd_optim_free(pd_optim *optim)
{
    if (optim == NULL) return;
    pd_tasks_free(optim);
    pd_shared_plan_drop(optim->shared);
    free(optim->slot);
    free(optim->saved.state);
    free(optim->memory.stored);
    free(optim->saved.roots);
    free(optim->memory.temporary);
    free(optim->step.total);
    free(optim->tasks.work);
    free(optim);
}

const pd_plan *pd_optim_plan(const pd_optim *optim)
{
    return &optim->shared->plan;
}
const pd_hypers *pd_optim_hypers(const pd_optim *optim)
{
    return &optim->hypers;
}
int64_t pd_optim_count(const pd_optim *optim)
{
    return optim->saved.count;
}
int64_t pd_optim_elements(const pd_optim *optim)
{
    return optim->shared->plan.elements;
}
int64_t pd_optim_state_bytes(const pd_optim *optim)
{
    return pd_plan_state_bytes(&optim->shared->plan);
}
double pd_optim_cost_ns(const pd_optim *optim)
{
    return optim->cost_ns;
}
pd_root_stats pd_optim_root_stats(const pd_optim *optim)
{
    return optim->saved.stats;
}
bool pd_optim_is_idle(const pd_optim *optim)
{
    return optim->step.stage == PD_STAGE_IDLE && optim->saved.oldest == NULL;
}
size_t pd_optim_tasks_left(const pd_optim *optim)
{
    size_t n = 0;

    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next) n++;
    return n;
}
bool pd_optim_done(const pd_optim *optim)
{
    return optim->step.stage == PD_STAGE_IDLE;
}
const pd_error *pd_optim_refused(const pd_optim *optim)
{
    return optim->step.refused && optim->step.stage == PD_STAGE_IDLE ? &optim->bond.own.why : NULL;
}

pd_tensor pd_optim_slot(const pd_optim *optim, size_t i)
{
    assert(i < optim->shared->plan.n_slots);
    return (pd_tensor){ optim->slot[i], optim->shared->plan.slots[i].shape };
}

pd_root_state pd_optim_root(const pd_optim *optim, size_t task)
{
    assert(task < optim->shared->plan.n_tasks);
    return optim->saved.roots[task];
}

bool pd_optim_is_quiesced(const pd_optim *optim)
{
    if (optim->step.stage != PD_STAGE_IDLE) return false;
    for (const pd_pending_task *pending = optim->saved.oldest; pending != NULL; pending = pending->next)
        if (!pending->back) return false;
    return true;
}

bool pd_optim_has_readout(const pd_optim *optim)
{
    const pd_optimizer_ops *ops = optim->ops;

    return ops->readout != NULL && (ops->reads_out == NULL || ops->reads_out(optim->hypers.value));
}

void pd_optim_read_out(const pd_optim *optim, const float *weights, float *out, int64_t first, int64_t n)
{
    assert(optim->step.stage == PD_STAGE_IDLE);
    optim->ops->readout(&(pd_readout){ .plan = &optim->shared->plan,
                                       .hyper = optim->hypers.value,
                                       .slot = optim->slot,
                                       .first = first,
                                       .n = n,
                                       .weights = weights,
                                       .out = out });
}

void pd_optim_forget_roots(pd_optim *optim)
{
    assert(pd_optim_is_quiesced(optim));
    optim->saved.stats.dropped += (int64_t)pd_optim_tasks_left(optim);
    pd_tasks_free(optim);
    for (size_t i = 0; i < optim->shared->plan.n_tasks; i++) {
        pd_root_state *root = &optim->saved.roots[i];
        *root = (pd_root_state){ .adopted = root->adopted, .failed = root->failed };
    }
}

void pd_optim_set_count(pd_optim *optim, int64_t count)
{
    assert(optim->step.stage == PD_STAGE_IDLE && count >= 0 &&
           (count >= optim->saved.count || pd_optim_is_idle(optim)));
    optim->saved.count = count;
}

/* Sets step.hyper, the hyperparameters of this step, and with hyperball step.own_hyper: the caller's value for this
 * step (io->hypers) if there is one, otherwise the declared or scheduled value. */
static void put_in_force(pd_optim *optim, const pd_step_io *io)
{
    pd_hypers_put(&optim->hypers, optim->saved.count, optim->step.hyper);
    for (uint64_t left = io->hypers != NULL ? io->hypers_mask : 0; left != 0; left &= left - 1) {
        int i = __builtin_ctzll(left);
        optim->step.hyper[i] = io->hypers[i];
    }
    if (!optim->shared->plan.hyperball) return;
    memcpy(optim->step.own_hyper, optim->step.hyper, sizeof optim->step.hyper);
    optim->step.own_hyper[optim->shared->plan.lr] = 1;
}

/* Makes the step the only member of its atomic group. pd_optim_bind may later put it into a larger group. */
static void unbind(pd_optim *optim)
{
    optim->bond.own.steps = optim->bond.own.first = 1;
    optim->bond.own.arrived = 0;
    optim->bond.group = &optim->bond.own;
    optim->bond.place = 0;
    optim->bond.settled = false;
    optim->bond.last = NULL;
}

int pd_optim_begin(pd_optim *optim, const pd_step_io *io)
{
    assert(optim->step.stage == PD_STAGE_IDLE && io->gradient != NULL &&
           (io->update == NULL || optim->ops->update_dtype != NULL));
    optim->step.io = *io;
    if (pd_slots_open(optim) != PD_OK) return PD_NO_MEMORY;
    unbind(optim);
    memset(optim->step.total, 0, (size_t)optim->n_phases * sizeof *optim->step.total);
    /* The step counter advances only after this function has read the schedules, because the first step uses their
     * values at count 0. */
    put_in_force(optim, io);
    optim->saved.count++;
    optim->step.phase = 0;
    optim->step.round = 0;
    optim->step.captured = optim->step.adopted = false;
    optim->step.parked = false;
    optim->tasks.taken = NULL;
    optim->step.guards = false;
    optim->step.spoils = false;
    optim->step.stage = PD_STAGE_OPEN;
    return PD_OK;
}

void pd_optim_guard(pd_optim *optim)
{
    assert(optim->step.stage == PD_STAGE_OPEN && optim->step.phase == 0);
    optim->step.guards = true;
}

/* Makes the step fail, because it has made finite weights infinite or NaN, and writes the error text. */
static void refuse_spoiled(pd_optim *optim)
{
    optim->step.refused = true;
    pd_fail(
        &optim->bond.own.why, PD_OUT_OF_RANGE,
        "%s: the gradient is finite, but the new weights are not, so the old ones stay: lower the learning rate. If "
        "later steps are refused, too, `paramctl reset-state` sets the optimizer's state back",
        optim->name);
}

void pd_optim_end(pd_optim *optim)
{
    if (optim->step.spoils) refuse_spoiled(optim);
    optim->step.stage = PD_STAGE_IDLE;
    pd_slots_close(optim);
}

void pd_optim_cancel(pd_optim *optim)
{
    assert(optim->step.stage == PD_STAGE_OPEN && optim->step.phase == 0);
    optim->saved.count--;
    pd_optim_end(optim);
}

/* Returns whether this step may still fail because a task fails. With root_delay 0 this is possible if the step itself
 * starts tasks. With another root_delay it is possible if the result of an earlier task is due in this step. */
static bool may_refuse(const pd_optim *optim)
{
    const pd_plan *plan = &optim->shared->plan;

    if (optim->ops->refusal == NULL || plan->n_tasks == 0) return false;
    if (plan->root_delay == PD_ROOT_READY) return optim->saved.oldest != NULL;
    if (optim->saved.oldest != NULL && optim->saved.oldest->count <= optim->saved.count - plan->root_delay) return true;
    return plan->root_delay == 0 && optim->ops->due(plan, optim->step.hyper, optim->saved.count, NULL);
}

void pd_optim_bind(pd_optim *const *steps, size_t n, pd_atomic_group *group)
{
    bool needed = false;

    *group = (pd_atomic_group){ .steps = n, .first = n };
    for (size_t i = 0; i < n; i++) {
        assert(steps[i]->step.stage == PD_STAGE_OPEN && steps[i]->step.phase == 0 &&
               steps[i]->bond.group == &steps[i]->bond.own);
        needed = needed || may_refuse(steps[i]);
    }
    for (size_t i = 0; needed && i < n; i++) {
        steps[i]->bond.group = group;
        steps[i]->bond.place = i;
    }
}

/* The steps of this process have the places 1 to n, so that a step of another process may come before all of them. */
void pd_optim_bind_with_others(pd_optim *const *steps, size_t n, pd_atomic_group *group)
{
    pd_optim_bind(steps, n, group);
    *group = (pd_atomic_group){ .steps = n + 1, .first = n + 1 };
    for (size_t i = 0; i < n; i++) {
        steps[i]->bond.group = group;
        steps[i]->bond.place = i + 1;
    }
}

bool pd_atomic_group_has_all(const pd_atomic_group *group)
{
    return group->arrived + 1 == group->steps;
}

bool pd_atomic_group_fails(const pd_atomic_group *group)
{
    return group->first < group->steps;
}

void pd_atomic_group_others(pd_atomic_group *group, bool fails, size_t before, const char *why)
{
    assert(before < group->steps);
    group->arrived++;
    if (!fails || before >= group->first) return;
    group->first = before;
    (void)pd_fail(&group->why, PD_ABORTED, "%.400s", why);
}
