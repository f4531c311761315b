/* fleet.h - worker processes on this machine that train the quickstart's model through a daemon, at speeds that the
 * program chooses, and that it may kill, stop and start again.
 *
 * A worker of a job computes gradients of small batches. Then it sleeps until the time of the step is over, as if its
 * accelerator had needed that long: the speeds of workers do not depend on the machine, as long as the machine computes
 * a gradient much faster (about a millisecond here).
 *
 * Processes are forked, not executed: the images are there at once, and a worker that is started again takes part in a
 * few milliseconds. So the program itself must not open a client nor start threads. All that workers report is in
 * memory which the processes share. Any error ends the program with a message and status 1. */
#ifndef PD_BENCH_FLEET_H
#define PD_BENCH_FLEET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "classifier.h"

enum { FLEET_WORKERS = 4, FLEET_LOOKS = 32, FLEET_VALUES = 235146, FLEET_STEPS = 1 << 16 };
enum { FLEET_SPAN_MS = 10, FLEET_SPANS = 1 << 14, FLEET_PARTS = 4 };

/* How workers train by themselves between two syncs, as DiLoCo does (paramd/diloco.h). */
typedef struct fleet_sync {
    int every; /* number of local steps of AdamW between two syncs; 0: workers push gradients */
    /* The model is cut into so many equal runs of values, at most FLEET_PARTS. 0: each tensor is a parameter, and all
     * are in one fragment. */
    int fragments;
    int delay;    /* fragment_sync_delay */
    double alpha; /* fragment_update_alpha */
    bool dylu;    /* slow workers take fewer local steps */
} fleet_sync;

/* What a job is. Texts and lists are borrowed as long as the job runs. */
typedef struct fleet_options {
    const char *url;               /* where the daemon listens */
    const char *name;              /* the job's name */
    const char *rule;              /* the optimizer's rule */
    const char *const *options;    /* the job's options; the list ends with NULL. NULL: none */
    uint64_t seed;                 /* of the initial weights and of the batches */
    int batch;                     /* examples of a worker in a step, or in a local step */
    double step_ms[FLEET_WORKERS]; /* duration of a step of each worker, or of a local one */
    /* Part of a step, at its beginning, that needs no weights, as reading the next batch does not: the worker does
     * without the answer to its push for so long. tells_patience: it says so to the server. */
    double patience_ms;
    bool tells_patience;
    fleet_sync sync;
    pd_dtype push;           /* element type in which workers push; 0: float32 */
    bool forgets;            /* what quantizing rounds away is not added to the next push */
    double local_lr;         /* learning rate of the local AdamW at the beginning; falls to 0 along half a cosine */
    int64_t examples;        /* number of examples after which the job is over, counted as in fleet_state */
    const struct warm *warm; /* weights and moments to begin with; NULL: new weights */
} fleet_options;

/* A model under training on one process: weights, and the moments of AdamW after `steps` steps. */
typedef struct warm {
    float value[FLEET_VALUES], first[FLEET_VALUES], second[FLEET_VALUES];
    int64_t steps;
} warm;

/* Weights that a worker received when the job's counted examples passed a multiple of examples / FLEET_LOOKS. */
typedef struct fleet_look {
    atomic_bool there;
    double ms; /* time since the job began */
    int64_t examples;
    float value[FLEET_VALUES];
} fleet_look;

/* What the workers of a job report. */
typedef struct fleet_state {
    atomic_bool go; /* the workers may take steps */
    double began_ms;
    atomic_int ready;              /* workers that have joined since the job was started */
    _Atomic int64_t examples;      /* examples of contributions that counted */
    _Atomic uint64_t step;         /* the last step of which an answer came */
    double closed_ms[FLEET_STEPS]; /* when a step's first answer came, since the job began; 0: none did */
    struct {
        _Atomic int64_t counted, late;  /* contributions that counted, and that did not */
        _Atomic int64_t sent, received; /* bytes of contributions and of weights */
        atomic_bool gone;               /* the server does not know the process any more: it ended by itself */
    } workers[FLEET_WORKERS];
    /* Bytes that all workers have sent and received in each FLEET_SPAN_MS since the job began */
    _Atomic int64_t traffic[FLEET_SPANS];
    fleet_look looks[FLEET_LOOKS];
} fleet_state;

typedef struct fleet {
    fleet_options options;
    fleet_state *state;
    pid_t pids[FLEET_WORKERS]; /* 0: not running */
} fleet;

/* Reads the images. Must be called once, before all else. */
void fleet_load(void);
/* Starts a job's workers, and returns when all have joined. Free the fleet with fleet_end. */
fleet *fleet_start(const fleet_options *options);
/* Lets the workers take steps; the job's time begins. */
void fleet_go(fleet *f);
/* Looks after the processes: ends the program if a worker has failed. Returns whether the job is over. */
bool fleet_over(fleet *f);
/* Returns the time since fleet_go in milliseconds. */
double fleet_ms(const fleet *f);
/* Kills a worker, and starts it again. fleet_signal sends it another signal. */
void fleet_kill(fleet *f, int rank);
void fleet_revive(fleet *f, int rank);
void fleet_signal(const fleet *f, int rank, int number);
/* Kills the workers that run. The state stays. */
void fleet_halt(fleet *f);
void fleet_end(fleet *f);

/* Returns the loss on the test images of the weights of a look, and of any weights. */
double fleet_loss(const float *value);
/* Trains a model in this process: `steps` steps of AdamW, each with `batch` examples. Free it with free(). */
warm *fleet_warm(uint64_t seed, int steps, int batch, double lr);

/* Sleeps until this time of the monotonic clock, in ms (figure_ms). */
void fleet_sleep_until(double ms);

/* ---- for fleet_worker.c ---- */

/* The life of a worker's process. Does not return. */
_Noreturn void fleet_work(const fleet_options *options, fleet_state *state, int rank, int life);
/* Fills the network's batch with examples that follow from the seed, the rank and the number of the batch. */
void fleet_batch(mlp *net, const fleet_options *options, uint64_t seed, uint64_t number);
/* Takes a step of AdamW with the network's gradient. */
void fleet_adamw(float *value, const float *gradient, float *first, float *second, int64_t step, double lr);

#endif
