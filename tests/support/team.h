/* team.h - the workers of one job as threads of a test, each with a client handle of its own.
 *
 * Gradients depend only on (rank, step, parameter, element), so that a test can compute the weights that the server
 * must have. */
#ifndef TEAM_H
#define TEAM_H

#include "paramd/client.h"

enum { TEAM_MOST = 16 };

typedef struct model {
    size_t n;
    pd_client_param *params; /* vectors p0, p1 … of the given sizes */
    int64_t *elements;
} model;

model *model_new(const int64_t *elements, size_t n);
void model_free(model *m);
float **model_buffers(const model *m); /* returns one tensor of zeros for each parameter */
void model_free_buffers(const model *m, float **buffers);
bool model_same(const model *m, float *const *a, float *const *b); /* compares the weights of two models bit for bit */

/* Fill the initial weights, which are equal on every rank; fill gradients whose sums depend on the order of
 * summation. */
void fill_weights(const model *m, float **weights);
void fill_gradient(float *at, int64_t n, int rank, uint64_t step, size_t param);

typedef struct worker worker;

typedef struct team {
    const char *url, *job;
    int world;
    const char *const *options, *const *rules;
    const model *model;
    double deadline;                                         /* deadline of client calls in seconds; 0: 10 s */
    const char *token_file, *ca_file, *cert_file, *key_file; /* of a tls:// url, as in pd_client_options */
    bool checksum, zero;                                     /* zero: all weights begin as 0 */
    bool ranks;                                              /* all weights begin as the worker's rank */
    /* The work of each worker, called between init and leave. Returns false if it has failed (worker_fail sets the
     * reason). */
    bool (*work)(worker *w);
    void *arg;
} team;

struct worker {
    const team *team;
    int rank;
    pd_client *client;
    float **weights, **gradients;
    pd_item *items;        /* item i is parameter i, with its weights and gradient */
    pd_client_stats stats; /* statistics of the client at its end */
    char failure[700];     /* reason why the worker failed; "": it did not fail */
};

/* Runs `world` threads that open, declare, initialise, work and leave. If workers fail, prints their reasons and fails
 * the test. workers[rank] stay valid until team_free. */
void team_run(const team *t, worker workers[TEAM_MOST]);
void team_free(const team *t, worker workers[TEAM_MOST]);

/* Open, declare, initialise and leave as one worker, for tests in which workers come and go. After an error they
 * return false, with the reason in w->failure. */
bool worker_open(worker *w, const team *t, int rank);
bool worker_declare(worker *w); /* declares and initialises */
bool worker_leave(worker *w);
void worker_free(worker *w); /* closes the client without leaving */

/* Sets w->failure and returns false. */
bool worker_fail(worker *w, const char *what, const pd_error *err);
/* Computes the gradients of the next step into w->gradients. Pushes and pulls all parameters in one call, in the
 * order `order` (NULL: 0, 1, 2 …). */
bool worker_step(worker *w, const size_t *order, const pd_push_options *options);
/* Takes a step with gradients of ones. With lr=1 and the mean, weights that began as 0 count the steps exactly. */
bool worker_count(worker *w);
/* Returns whether every weight equals -steps. */
bool worker_counted(const worker *w, int steps);
/* Writes a permutation of 0 … n - 1 that depends on the seed. */
void shuffle(size_t *order, size_t n, uint64_t seed);

#endif
