/* fairness.h - watches how the root pool divides its threads among jobs, and checks the bound that rootqueue.h promises. */
#ifndef SIM_FAIRNESS_H
#define SIM_FAIRNESS_H

#include <stdbool.h>
#include <stdint.h>

enum { SIM_FLOWS = 32 };

typedef struct sim_flow {
    uint32_t job;                       /* 0: this place is free */
    uint64_t waiting;                   /* tasks */
    double   largest;                   /* cost of a task so far, hand-over included */
    double   overtaken[SIM_FLOWS];      /* by each other flow, since this one waits or was served last: cost of its tasks */
} sim_flow;

typedef struct sim_fairness { sim_flow flow[SIM_FLOWS]; } sim_fairness;

/* A task of the job waits from now on. */
void sim_fairness_wait(sim_fairness *all, uint32_t job, double cost);
/* A thread takes a task of the job; `counts`: it is one of those that take all tasks. Fails where it overtakes another job's too often. */
void sim_fairness_take(sim_fairness *all, uint32_t job, double cost, bool counts);
/* The job's waiting tasks are forgotten. */
void sim_fairness_forget(sim_fairness *all, uint32_t job);

#endif
