/* fairness.c - checks that the preconditioner pool lets tasks of other jobs overtake a waiting task no more than
 * precond_queue.h promises. */
#include "fairness.h"

#include "precond_queue.h"
#include "sim.h"

static sim_flow *find(sim_fairness *all, uint32_t job)
{
    for (int i = 0; i < SIM_FLOWS; i++)
        if (all->flow[i].job == job) return &all->flow[i];
    return NULL;
}

static sim_flow *find_or_add(sim_fairness *all, uint32_t job)
{
    sim_flow *flow = find(all, job);

    if (flow == NULL && (flow = find(all, 0)) == NULL)
        sim_fail("harness", "more jobs with roots than there is room for");
    flow->job = job;
    return flow;
}

static void begin_anew(sim_flow *flow)
{
    memset(flow->overtaken, 0, sizeof flow->overtaken);
}

void sim_fairness_wait(sim_fairness *all, uint32_t job, double cost)
{
    sim_flow *flow = find_or_add(all, job);

    if (flow->waiting++ == 0) begin_anew(flow);
    flow->largest = fmax(flow->largest, cost + PD_PRECOND_QUEUE_HANDOVER);
}

static void overtake(sim_flow *late, const sim_flow *taken, size_t i, double cost)
{
    late->overtaken[i] += cost + PD_PRECOND_QUEUE_HANDOVER;
    if (late->overtaken[i] > (late->largest + taken->largest) * (1 + 1e-9))
        sim_fail("liveness",
                 "a root of job %u waits while tasks of job %u that cost %.0f are taken, at most %.0f are allowed",
                 late->job, taken->job, late->overtaken[i], late->largest + taken->largest);
}

void sim_fairness_take(sim_fairness *all, uint32_t job, double cost, bool counts)
{
    sim_flow *taken = find_or_add(all, job);

    taken->waiting--;
    begin_anew(taken);
    for (int i = 0; i < SIM_FLOWS; i++)
        if (counts && all->flow[i].waiting > 0 && &all->flow[i] != taken)
            overtake(&all->flow[i], taken, (size_t)(taken - all->flow), cost);
}

void sim_fairness_forget(sim_fairness *all, uint32_t job)
{
    sim_flow *flow = find(all, job);

    if (flow == NULL) return;
    for (int i = 0; i < SIM_FLOWS; i++) all->flow[i].overtaken[flow - all->flow] = 0;
    memset(flow, 0, sizeof *flow);
}
