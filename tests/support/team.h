/* team.h - the workers of one job as threads of a test, each with a handle of its own.
 *
 * Numbers are made from (rank, step, parameter, element) alone, so that a test can compute what the server must have. */
#ifndef TEAM_H
#define TEAM_H

#include "paramd/client.h"

enum { TEAM_MOST = 16 };

typedef struct model {
    size_t           n;
    pd_client_param *params;        /* p0, p1 … of rank 1 */
    int64_t         *elements;
} model;

model *model_new(const int64_t *elements, size_t n);
void   model_free(model *m);
float **model_buffers(const model *m);                              /* one tensor for each parameter, zero */
void    model_free_buffers(const model *m, float **buffers);
bool    model_same(const model *m, float *const *a, float *const *b);      /* bit for bit */

/* The first weights, the same on every rank; and gradients whose sums in another order differ in bits. */
void fill_weights(const model *m, float **weights);
void fill_gradient(float *at, int64_t n, int rank, uint64_t step, size_t param);

typedef struct worker worker;

typedef struct team {
    const char *url, *job;
    int         world;
    const char *const *options, *const *rules;
    const model *model;
    double      deadline;           /* of calls; 0: 10 s */
    bool        checksum, zero;     /* zero: weights begin as 0 */
    bool        ranks;              /* weights begin as the number of the rank */
    /* A worker's life between init and leave. False: it has failed (worker_fail says how). */
    bool      (*work)(worker *w);
    void       *arg;
} team;

struct worker {
    const team *team;
    int         rank;
    pd_client  *client;
    float     **weights, **gradients;
    pd_item    *items;              /* item i is parameter i, pointing to those */
    pd_client_stats stats;          /* at the end */
    char        failure[700];       /* "": none */
};

/* Opens, declares, initialises, works, leaves: `world` threads. The test fails with the first worker that failed. workers[rank] stay until team_free. */
void team_run(const team *t, worker workers[TEAM_MOST]);
void team_free(const team *t, worker workers[TEAM_MOST]);

/* The same by hand, for tests in which workers come and go. Returns false with w->failure set. */
bool worker_open(worker *w, const team *t, int rank);
bool worker_declare(worker *w);             /* with init */
bool worker_leave(worker *w);
void worker_free(worker *w);                /* closes without leaving */

/* Keeps the text and returns false. */
bool worker_fail(worker *w, const char *what, const pd_error *err);
/* Gradients of the parameter's next step into w->gradients, then a fused push-pull of all parameters in that order (NULL: 0, 1, 2 …). */
bool worker_step(worker *w, const size_t *order, const pd_push_options *options);
/* The same with gradients of all ones: with lr=1 and the mean, weights that began as 0 count the steps, exactly. */
bool worker_count(worker *w);
/* Every weight is -steps. */
bool worker_counted(const worker *w, int steps);
/* A permutation of 0 … n - 1 that depends on the seed. */
void shuffle(size_t *order, size_t n, uint64_t seed);

#endif
