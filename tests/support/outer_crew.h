/* outer_crew.h - workers that train with pd_diloco against a real daemon, all in the test's thread. */
#ifndef OUTER_CREW_H
#define OUTER_CREW_H

#include "daemon_process.h"
#include "paramd/diloco.h"

enum { OUTER_MOST = 3, OUTER_PARAMS = 4, OUTER_N = 6 };

typedef struct outer_worker {
    pd_client *client;
    pd_diloco *outer;
    float all[OUTER_PARAMS][OUTER_N], *weights[OUTER_PARAMS];
} outer_worker;

/* What the workers' job is. Fields that are 0 or NULL have the defaults of the client library. */
typedef struct outer_job {
    int world, params;          /* params: at most OUTER_PARAMS, vectors of OUTER_N elements, 0 at first */
    int fragments;              /* parameter p has fragment p % fragments; 0: 1 */
    bool shards;                /* two daemons share the job */
    const char *const *options; /* of the job */
    const char *rule;           /* NULL: "* sgd lr=1", which applies the mean difference as it is */
    double slice;               /* of calls that wait, in seconds; 0: as long as a test may take */
    pd_dtype push, pull;
    bool state; /* the last parameter is model state */
    bool split; /* rank 0 has all elements but those of the last parameter, which rank 1 has */
    pd_diloco_options how;
    void (*notice)(void *arg, const char *text); /* NULL: no notices */
    void *notice_arg;
} outer_job;

typedef struct outer_crew {
    outer_job job;
    char root[64]; /* folder of the daemons' state; "": they have none */
    char urls[140];
    test_daemon *daemon, *second; /* second: shard 1; NULL: there is none */
    outer_worker workers[OUTER_MOST];
} outer_crew;

/* Starts a daemon, and opens and begins all workers. `durable`: the daemon has a folder for checkpoints. */
void outer_begin(outer_crew *crew, const outer_job *job, bool durable);
/* Closes the workers and ends the daemon. */
void outer_end(outer_crew *crew);
/* Kill the daemon, or shard 1, and start it again on the same port. */
void outer_restart_daemon(outer_crew *crew);
void outer_restart_second(outer_crew *crew);
/* Opens, declares and initialises a worker, without a pd_diloco. One beyond the world size takes any rank. */
void outer_open(outer_crew *crew, int rank);
void outer_make(outer_crew *crew, int rank);

/* Adds a number to all weights of a worker's parameters, as an inner step does, and counts the step. */
pd_diloco_due outer_train(outer_worker *w, float by);
/* Send and take a fragment; they fail the test after an error. */
void outer_send(outer_worker *w, int64_t fragment);
void outer_take(outer_worker *w, int64_t fragment);
/* Fails the test if an element of a parameter of the worker, or of its global weights, is another number. */
void outer_expect(const outer_worker *w, size_t param, float local, float global);

#endif
