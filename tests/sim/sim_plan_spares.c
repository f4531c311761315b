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

void sim_plan_add_spares(sim_plan *plan)
{
    uint64_t r = sim_mix(plan->seed, 23, 5, 41), n = 1 + sim_below(&r, 4);

    plan->spares = 1 + (uint32_t)sim_below(&r, SIM_SPARES);
    plan->lease_ms = 200 + sim_below(&r, 600);
    plan->calm_ns += 6 * SIM_S;
    while (n-- > 0 && plan->n_faults < SIM_FAULTS) add_trouble(plan, &r);
    if (sim_once_in(&r, 4) && plan->n_faults < SIM_FAULTS) add_fault(plan, SIM_ENGINE_AWAY, draw_long(plan, &r), &r);
}
