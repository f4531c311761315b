/* sim_plan_spares.c - adds an engine and spares to a plan with several servers, and faults after which a spare takes a
 * shard. */
#include "sim_plan.h"

/* Adds a fault that hits the owner of a shard, most often while the first steps are taken. */
static void add_fault(sim_plan *plan, sim_fault_kind kind, uint64_t amount, uint64_t *r)
{
    sim_fault *fault = &plan->faults[plan->n_faults++];
    uint64_t room_ns = sim_once_in(r, 3) ? plan->calm_ns / 3 : 500 * SIM_MS;

    *fault = (sim_fault){ .kind = kind, .shard = (uint32_t)sim_below(r, plan->shards), .amount = amount };
    fault->at_ns = 20 * SIM_MS + sim_below(r, room_ns);
}

/* Returns a time that is often longer than a lease and the time in which a spare takes a shard. */
static uint64_t draw_long(const sim_plan *plan, uint64_t *r)
{
    uint64_t lease_ns = plan->lease_ms * SIM_MS;

    return lease_ns / 2 + sim_below(r, 3 * lease_ns + SIM_S);
}

static void add_trouble(sim_plan *plan, uint64_t *r)
{
    static const sim_fault_kind kinds[] = { SIM_SLEEP, SIM_SLEEP, SIM_KILL, SIM_CUT_OFF, SIM_CUT_OFF };
    sim_fault_kind kind = kinds[sim_below(r, sizeof kinds / sizeof kinds[0])];

    add_fault(plan, kind, kind == SIM_KILL ? sim_next(r) : draw_long(plan, r), r);
    if (kind == SIM_KILL) plan->faults[plan->n_faults - 1].down_ns = draw_long(plan, r);
}

/* Lets processes of the jobs die: sim_plan_cluster.c says what such jobs may not have. */
static void let_processes_die(sim_plan *plan)
{
    for (uint32_t j = 0; j < plan->n_jobs; j++) {
        plan->jobs[j].barriers = false;
        for (uint32_t p = 0; p < SIM_PARAMS; p++) plan->jobs[j].params[p].model_state = false;
    }
}

/* Cuts the owner of a shard off from the engine and from other daemons while the jobs begin, and lets another shard
 * keep them waiting until a spare may have taken the first one. */
static void keep_two_owners(sim_plan *plan, uint64_t *r)
{
    uint64_t lease_ns = plan->lease_ms * SIM_MS, at_ns = 200 * SIM_MS + sim_below(r, 200 * SIM_MS);
    uint32_t shard = (uint32_t)sim_below(r, plan->shards);

    if (plan->shards < 2 || plan->n_faults + 2 > SIM_FAULTS) return;
    plan->two_owners = true;
    let_processes_die(plan);
    plan->faults[plan->n_faults++] =
        (sim_fault){ .kind = SIM_CUT_OFF, .shard = shard, .at_ns = at_ns, .amount = (3 * lease_ns + 2 * SIM_S) | 1 };
    plan->faults[plan->n_faults++] = (sim_fault){ .kind = SIM_STALL_STEP,
                                                  .shard = (shard + 1) % plan->shards,
                                                  .at_ns = at_ns + sim_below(r, 100 * SIM_MS),
                                                  .amount = 2 * lease_ns + sim_below(r, SIM_S) };
}

/* Returns whether a spare may take a shard because of a fault. */
static bool makes_room(const sim_fault *fault)
{
    return fault->kind == SIM_SLEEP || fault->kind == SIM_KILL || fault->kind == SIM_CUT_OFF;
}

/* Returns the first fault after which a spare may take a shard; NULL: there is none. */
static const sim_fault *find_first(const sim_plan *plan)
{
    const sim_fault *first = NULL;

    for (uint32_t i = 0; i < plan->n_faults; i++)
        if (makes_room(&plan->faults[i]) && (first == NULL || plan->faults[i].at_ns < first->at_ns))
            first = &plan->faults[i];
    return first;
}

/* Returns a fault: the watch of a daemon reports nothing for half a lease to two leases. After more the daemon itself
 * would end the watch. */
static sim_fault draw_late_watch(const sim_plan *plan, uint32_t daemon, uint64_t at_ns, uint64_t *r)
{
    uint64_t lease_ns = plan->lease_ms * SIM_MS;

    return (sim_fault){
        .kind = SIM_LATE_WATCH, .shard = daemon, .at_ns = at_ns, .amount = lease_ns / 2 + sim_below(r, 3 * lease_ns / 2)
    };
}

/* Lets the watches of two daemons be late at the same time, in one plan of four without mirrors. The first one begins
 * within a lease after the first fault that hits an owner. If there is a third daemon, that owner is not one of the
 * two. The draws have a random state of their own, so that the other plans stay as they are. */
static void add_late_watches(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 30, 11, 26);
    uint32_t daemons = plan->shards + plan->spares, one = 1, two = 0; /* one, two: counted from the owner's number on */
    const sim_fault *first = find_first(plan);
    sim_fault late;

    if (plan->mirrors || !sim_once_in(&r, 4) || first == NULL || plan->n_faults + 2 > SIM_FAULTS) return;
    if (daemons > 2) one = 1 + (uint32_t)sim_below(&r, daemons - 1);
    if (daemons > 2) two = 1 + (one + (uint32_t)sim_below(&r, daemons - 2)) % (daemons - 1);
    late = draw_late_watch(plan, (first->shard + one) % daemons, first->at_ns + sim_below(&r, plan->lease_ms * SIM_MS),
                           &r);
    plan->faults[plan->n_faults++] = late;
    plan->faults[plan->n_faults++] =
        draw_late_watch(plan, (first->shard + two) % daemons, late.at_ns + sim_below(&r, late.amount / 2), &r);
}

void sim_plan_add_spares(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 23, 5, 41), n = 1 + sim_below(&r, 4);

    plan->spares = 1 + (uint32_t)sim_below(&r, SIM_SPARES);
    plan->lease_ms = 200 + sim_below(&r, 600);
    plan->calm_ns += 6 * SIM_S;
    while (n-- > 0 && plan->n_faults < SIM_FAULTS) add_trouble(plan, &r);
    if (sim_once_in(&r, 4) && plan->n_faults < SIM_FAULTS) add_fault(plan, SIM_ENGINE_AWAY, draw_long(plan, &r), &r);
    if (sim_once_in(&r, 6)) keep_two_owners(plan, &r);
    add_late_watches(plan);
}
