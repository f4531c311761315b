/* bench_team.c - runs the workers of a job in threads that push and pull step after step. */
#include "bench_team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "figure.h"
#include "paramd/client.h"

enum { DEADLINE_S = 120, MAX_WORKERS = 64 };

typedef struct member {
    team *team;
    pthread_t thread;
    int rank;
    pd_client *client;
    float *memory;  /* the worker's weights, followed by its gradients */
    pd_item *items; /* the parameters, in the order in which this worker pushes them */
} member;

struct team {
    team_options options;
    int64_t total;                /* number of elements of all parameters together */
    pthread_barrier_t ready;      /* all members and the caller wait here before and after a run */
    _Atomic int64_t begun, limit; /* begun: highest step that any member has begun; limit: last step to take */
    bool over;
    double *ms;
    int64_t first; /* number of steps that were taken before this run */
    member members[MAX_WORKERS];
};

static void check(int rc, const pd_error *err)
{
    if (rc != PD_OK) figure_stop("%s", err->text);
}

static pd_client_param *new_params(const team_options *o)
{
    pd_client_param *params = figure_alloc(o->n * sizeof *params);

    for (size_t i = 0; i < o->n; i++) {
        char *name = figure_alloc(48);
        snprintf(name, 48, "layer.%zu.weight", i);
        params[i] = (pd_client_param){ .name = name, .shape = { .rank = 1, .dim = { o->elements[i] } } };
        if (o->square)
            params[i].shape =
                (pd_shape){ .rank = 2,
                            .dim = { lround(sqrt((double)o->elements[i])), lround(sqrt((double)o->elements[i])) } };
    }
    return params;
}

static void free_params(pd_client_param *params, size_t n)
{
    for (size_t i = 0; i < n; i++) free((char *)params[i].name);
    free(params);
}

/* Shuffles the worker's list of parameters. The order depends only on the worker's rank. */
static void shuffle(pd_item *items, size_t n, int rank)
{
    uint64_t state = (uint64_t)rank + 1;

    for (size_t i = n; i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t k = (size_t)(state >> 33) % i;
        pd_item swap = items[i - 1];
        items[i - 1] = items[k];
        items[k] = swap;
    }
}

static void **prepare(member *m)
{
    const team *t = m->team;
    size_t n = t->options.n;
    void **weights = figure_alloc(n * sizeof *weights);
    uint64_t state = (uint64_t)m->rank + 1;
    int64_t at = 0;

    m->memory = figure_alloc(2 * (size_t)t->total * sizeof(float));
    m->items = figure_alloc(n * sizeof *m->items);
    for (int64_t i = 0; i < t->total; i++) {
        m->memory[i] = 1;
        state = state * 6364136223846793005u + 1442695040888963407u;
        m->memory[t->total + i] = ((float)(state >> 40) / (float)(1 << 24) - 0.5f) * 1e-3f;
    }
    for (size_t i = 0; i < n; at += t->options.elements[i++]) {
        weights[i] = m->memory + at;
        m->items[i] = (pd_item){ .param = i, .weights = m->memory + at, .gradient = m->memory + t->total + at };
    }
    if (t->options.shuffled) shuffle(m->items, n, m->rank);
    return weights;
}

static void join(member *m)
{
    const team_options *o = &m->team->options;
    const char *rules[] = { o->rule != NULL ? o->rule : "* sgd lr=0.01 momentum=0.9", NULL };
    pd_client_options open = { .urls = o->url,
                               .job = o->job,
                               .rank = m->rank,
                               .world_size = o->workers,
                               .rules = rules,
                               .deadline = DEADLINE_S,
                               .options = o->options,
                               .window = o->window,
                               .quiet = o->window > 0 };
    pd_client_param *params = new_params(o);
    void **weights = prepare(m);
    pd_error err = { 0 };

    check(pd_client_open(&m->client, &open, &err), &err);
    check(pd_client_declare(m->client, params, o->n, &err), &err);
    check(pd_client_init(m->client, weights, &err), &err);
    free(weights);
    free_params(params, o->n);
}

static void take_step(member *m, int64_t step)
{
    double began = figure_ms();
    double compute_ms = m->team->options.compute_ms;
    pd_ticket_id ticket;
    pd_error err = { 0 };

    if (compute_ms > 0)
        nanosleep(
            &(struct timespec){ .tv_sec = (time_t)(compute_ms / 1e3), .tv_nsec = (long)(fmod(compute_ms, 1e3) * 1e6) },
            NULL);
    check(pd_client_push_pull(m->client, m->items, m->team->options.n, NULL, &ticket, &err), &err);
    check(pd_client_wait(m->client, ticket, DEADLINE_S, &err), &err);
    if (m->rank == 0 && m->team->ms != NULL) m->team->ms[step - m->team->first - 1] = figure_ms() - began;
}

static void note_begun(team *t, int64_t step)
{
    int64_t seen = atomic_load(&t->begun);

    while (seen < step && !atomic_compare_exchange_weak(&t->begun, &seen, step)) {}
}

static void *run_member(void *arg)
{
    member *m = arg;
    team *t = m->team;
    int64_t step = 0;

    join(m);
    pthread_barrier_wait(&t->ready);
    for (;;) {
        pthread_barrier_wait(&t->ready); /* wait for the start of a run */
        if (t->over) break;
        while (step < atomic_load(&t->limit)) {
            note_begun(t, ++step);
            take_step(m, step);
        }
        pthread_barrier_wait(&t->ready); /* wait for all others at the end of a run */
    }
    pd_client_leave(m->client, NULL);
    pd_client_close(m->client);
    free(m->memory);
    free(m->items);
    return NULL;
}

team *team_start(const team_options *options)
{
    team *t = figure_alloc(sizeof *t);

    t->options = *options;
    for (size_t i = 0; i < options->n; i++) t->total += options->elements[i];
    if (options->workers > MAX_WORKERS || pthread_barrier_init(&t->ready, NULL, (unsigned)options->workers + 1) != 0)
        figure_stop("too many workers");
    for (int i = 0; i < options->workers; i++) {
        t->members[i] = (member){ .team = t, .rank = i };
        if (pthread_create(&t->members[i].thread, NULL, run_member, &t->members[i]) != 0)
            figure_stop("cannot start a thread");
    }
    pthread_barrier_wait(&t->ready);
    t->options.elements = NULL;
    return t;
}

static void begin(team *t, int64_t limit, double *ms)
{
    t->ms = ms;
    t->first = atomic_load(&t->begun);
    atomic_store(&t->limit, limit);
    pthread_barrier_wait(&t->ready);
}

void team_steps(team *t, int64_t steps, double *ms)
{
    begin(t, atomic_load(&t->begun) + steps, ms);
    pthread_barrier_wait(&t->ready);
}

void team_run_on(team *t)
{
    begin(t, INT64_MAX, NULL);
}

int64_t team_halt(team *t)
{
    /* Chooses the last step of the run. A step ends only when all members have contributed, so no member is two
     * steps ahead of another. So step begun + 2 lies ahead of all members, and all of them stop there. */
    atomic_store(&t->limit, atomic_load(&t->begun) + 2);
    pthread_barrier_wait(&t->ready);
    return atomic_load(&t->begun) - t->first;
}

void team_end(team *t)
{
    t->over = true;
    pthread_barrier_wait(&t->ready);
    for (int i = 0; i < t->options.workers; i++) pthread_join(t->members[i].thread, NULL);
    pthread_barrier_destroy(&t->ready);
    free(t);
}
