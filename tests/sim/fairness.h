/* fairness.h - watches how the preconditioner pool divides its threads among jobs, and checks the bound that
 * precond_queue.h promises. */
#ifndef SIM_FAIRNESS_H
#define SIM_FAIRNESS_H

#include <stdbool.h>
#include <stdint.h>

enum { SIM_FLOWS = 32 };

typedef struct sim_flow {
    uint32_t job;     /* number of the job whose tasks these are; 0: this entry is free */
    uint64_t waiting; /* number of the job's waiting tasks */
    double largest;   /* largest cost of a task of the job so far, including its hand-over */
    /* overtaken[i]: cost of the tasks of entry i that were taken since a task of this job was taken last or began to
     * wait */
    double overtaken[SIM_FLOWS];
} sim_flow;

typedef struct sim_fairness {
    sim_flow flow[SIM_FLOWS];
} sim_fairness;

/* Notes that a task of the job waits from now on. */
void sim_fairness_wait(sim_fairness *all, uint32_t job, double cost);
/* Notes that a thread takes a task of the job. `counts` is true for a thread that takes all kinds of tasks: only
 * there the task overtakes waiting tasks of other jobs. Fails the run if one of these is overtaken too often. */
void sim_fairness_take(sim_fairness *all, uint32_t job, double cost, bool counts);
/* Forgets the job's waiting tasks. */
void sim_fairness_forget(sim_fairness *all, uint32_t job);

#endif
