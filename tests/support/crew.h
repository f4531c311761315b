/* crew.h - the workers of one job as processes, with gradients and weights by one of the ways that a worker on the
 * daemon's machine has.
 *
 * Every process trains the same model of CREW_PARAMS parameters, with gradients that depend only on (rank, step,
 * parameter, element), and tells its parent what it has got in memory that all of them share. */
#ifndef CREW_H
#define CREW_H

#include "paramd/client.h"

#include <sys/types.h>

enum { CREW_PARAMS = 4, CREW_MOST = 4 };

typedef enum crew_way {
    CREW_TCP,
    CREW_SOCKET, /* Unix socket, without shared memory */
    CREW_COPIED, /* shared memory; gradients are copied there */
    CREW_HOME,   /* shared memory; gradients are computed there (pd_client_buffer) */
    CREW_WAYS
} crew_way;

/* What the workers train. */
typedef struct crew_job {
    const char *rule, *option; /* option NULL: none */
    pd_dtype push, pull, update;
    bool ranged; /* every rank has its part of each parameter */
    int steps;
} crew_job;

/* What one process has got. Its parent reads it, while the process runs, too. */
typedef struct crew_result {
    volatile int step;    /* steps that it has taken */
    volatile bool at_end; /* it has taken all steps, and waits to leave */
    bool done;
    uint64_t weights[CREW_PARAMS]; /* hash of the weights after the last step */
    pd_client_stats stats;
    char failure[700]; /* "": none */
} crew_result;

typedef struct crew {
    const crew_job *job;
    const char *tcp, *local; /* addresses */
    int world;
    bool stays;            /* the workers do not leave before crew_let_go */
    volatile bool *let_go; /* shared with the processes */
    crew_result *results;  /* of each rank; shared with the processes */
    pid_t pids[CREW_MOST];
} crew;

/* Starts a process for each rank. */
crew crew_start(const crew_job *job, int world, crew_way way, const char *tcp, const char *local, bool stays);
/* Starts the process of one rank, again if it was killed. */
void crew_start_rank(crew *c, int rank, crew_way way);
/* Waits until a rank has taken this number of steps. */
void crew_await(const crew *c, int rank, int step);
/* Kills the process of a rank with SIGKILL when it has taken this number of steps. */
void crew_kill_after(crew *c, int rank, int step);
/* Waits until every rank has taken all its steps. */
void crew_await_steps(const crew *c);
void crew_let_go(const crew *c);
/* Waits for the processes. Fails the test if one has failed. */
void crew_join(crew *c);
void crew_free(crew *c);

#endif
