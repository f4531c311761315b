/* bench_team.h - runs the workers of one job, each with a thread and a client handle of its own, that push and pull all
 * their parameters step after step. Any error ends the program with a message and status 1. Gradients are small, finite
 * and different for each rank. */
#ifndef PD_BENCH_TEAM_H
#define PD_BENCH_TEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct team team;

typedef struct team_options {
    const char *url, *job;
    int workers;
    const int64_t *elements; /* number of elements of each parameter; the array is used only while team_start runs */
    size_t n;
    bool shuffled;              /* each worker pushes the parameters in an order of its own */
    bool square;                /* parameters are square matrices instead of vectors */
    const char *rule;           /* the optimizer's rule; NULL: sgd with momentum */
    const char *const *options; /* the job's options; NULL: none. Borrowed, as `rule` is, until the team has started */
    uint32_t window;            /* number of steps whose pushes the workers keep */
    double compute_ms;          /* time that a worker waits in each step, in place of an accelerator's computation */
} team_options;

/* Starts the workers' threads. Returns when all workers have joined and have the initial weights. */
team *team_start(const team_options *options);
/* Takes `steps` steps and waits for them. ms[i]: duration of step i on the first worker; `ms` may be NULL. Must not be
 * called between team_run_on and team_halt. */
void team_steps(team *t, int64_t steps, double *ms);
/* team_run_on lets the workers take steps until team_halt is called. team_halt waits for the steps under way and
 * returns the number of steps taken. */
void team_run_on(team *t);
int64_t team_halt(team *t);
/* Lets all workers leave the job, joins their threads and frees the team. */
void team_end(team *t);

#endif
