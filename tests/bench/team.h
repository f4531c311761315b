/* team.h - the workers of one job, a thread and a client handle each, that push and pull all their parameters step after step.
 *
 * For the figures: whatever goes wrong ends the program with a sentence and status 1. Gradients are small, finite and different for each rank. */
#ifndef PD_TEAM_H
#define PD_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct team team;

typedef struct team_options {
    const char    *url, *job;
    int            workers;
    const int64_t *elements;        /* of each parameter; borrowed while team_start runs */
    size_t         n;
    bool           shuffled;        /* every worker has an order of its own */
    bool           square;          /* each parameter is a matrix of as many rows as columns, else a vector */
    const char    *rule;            /* NULL: sgd with momentum */
    double         compute_ms;      /* a worker waits so long in each step, in place of an accelerator's computing */
} team_options;

/* Starts the threads; returns when all workers have joined and hold the initial weights. */
team *team_start(const team_options *options);
/* Takes `steps` steps and waits for them. ms[i] (or NULL): how long the first worker took for step i. Not while it runs on. */
void  team_steps(team *t, int64_t steps, double *ms);
/* Takes step after step until team_halt, which waits for the one under way and returns how many were taken. */
void    team_run_on(team *t);
int64_t team_halt(team *t);
/* Leaves the job, joins the threads, frees. */
void  team_end(team *t);

#endif
