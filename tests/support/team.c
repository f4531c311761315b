/* team.c - runs the workers of a job in threads. */
#include "team.h"

#include <pthread.h>

#include "daemon_process.h"
#include "test.h"

model *model_new(const int64_t *elements, size_t n)
{
    model *m = calloc(1, sizeof *m);

    m->n = n;
    m->params = calloc(n, sizeof *m->params);
    m->elements = calloc(n, sizeof *m->elements);
    for (size_t i = 0; i < n; i++) {
        char *name = malloc(24);

        snprintf(name, 24, "p%zu", i);
        m->elements[i] = elements[i];
        m->params[i] = (pd_client_param){ .name = name, .shape = { .rank = 1, .dim = { elements[i] } } };
    }
    return m;
}

void model_free(model *m)
{
    for (size_t i = 0; i < m->n; i++) free((char *)m->params[i].name);
    free(m->params);
    free(m->elements);
    free(m);
}

float **model_buffers(const model *m)
{
    float **buffers = calloc(m->n, sizeof *buffers);
    for (size_t i = 0; i < m->n; i++) buffers[i] = calloc((size_t)m->elements[i] + 1, sizeof **buffers);
    return buffers;
}

void model_free_buffers(const model *m, float **buffers)
{
    if (buffers == NULL) return;
    for (size_t i = 0; i < m->n; i++) free(buffers[i]);
    free(buffers);
}

bool model_same(const model *m, float *const *a, float *const *b)
{
    for (size_t i = 0; i < m->n; i++)
        if (memcmp(a[i], b[i], (size_t)m->elements[i] * sizeof **a) != 0) return false;
    return true;
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns a pseudorandom number from -2^s to 2^s, where s is pseudorandom, from -8 to 7. Float32 sums of such
 * numbers are rounded. */
static float number(uint64_t key)
{
    uint64_t bits = mix(key);
    float whole = (float)((int64_t)(bits >> 40) - (1 << 23)) / (1 << 23);
    int scale = (int)(bits & 15) - 8;
    return scale < 0 ? whole / (float)(1 << -scale) : whole * (float)(1 << scale);
}

void fill_gradient(float *at, int64_t n, int rank, uint64_t step, size_t param)
{
    uint64_t key = mix(((uint64_t)rank << 48) ^ (step << 24) ^ param);
    for (int64_t i = 0; i < n; i++) at[i] = number(key + (uint64_t)i * 0x9e3779b97f4a7c15u);
}

void fill_weights(const model *m, float **weights)
{
    for (size_t i = 0; i < m->n; i++) fill_gradient(weights[i], m->elements[i], 999, 0, i);
}

void shuffle(size_t *order, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) order[i] = i;
    for (size_t i = n; i > 1; i--) {
        size_t k = mix(seed + i * 0x9e3779b97f4a7c15u) % i, held = order[i - 1];
        order[i - 1] = order[k];
        order[k] = held;
    }
}

bool worker_fail(worker *w, const char *what, const pd_error *err)
{
    if (w->failure[0] == '\0')
        snprintf(w->failure, sizeof w->failure, "rank %d: %s%s%s%s%s", w->rank, what, err != NULL ? ": " : "",
                 err != NULL ? pd_code_name(err->code) : "", err != NULL ? ": " : "", err != NULL ? err->text : "");
    return false;
}

bool worker_open(worker *w, const team *t, int rank)
{
    pd_error err = { 0 };
    pd_client_options options = {
        .urls = t->url,
        .job = t->job,
        .rank = rank,
        .world_size = t->world,
        .options = t->options,
        .rules = t->rules,
        .deadline = t->deadline > 0 ? t->deadline : patient(10),
        .checksum = t->checksum,
        .token_file = t->token_file,
        .ca_file = t->ca_file,
        .cert_file = t->cert_file,
        .key_file = t->key_file,
    };

    memset(w, 0, sizeof *w);
    w->team = t;
    w->rank = rank;
    w->weights = model_buffers(t->model);
    w->gradients = model_buffers(t->model);
    w->items = calloc(t->model->n, sizeof *w->items);
    for (size_t i = 0; i < t->model->n; i++)
        w->items[i] = (pd_item){ .param = i, .gradient = w->gradients[i], .weights = w->weights[i] };
    return pd_client_open(&w->client, &options, &err) == PD_OK || worker_fail(w, "open", &err);
}

bool worker_declare(worker *w)
{
    pd_error err = { 0 };
    const model *m = w->team->model;

    if (pd_client_declare(w->client, m->params, m->n, &err) != PD_OK) return worker_fail(w, "declare", &err);
    if (!w->team->zero) fill_weights(m, w->weights);
    for (size_t p = 0; w->team->ranks && p < m->n; p++)
        for (int64_t i = 0; i < m->elements[p]; i++) w->weights[p][i] = (float)w->rank;
    return pd_client_init(w->client, (void *const *)w->weights, &err) == PD_OK || worker_fail(w, "init", &err);
}

bool worker_leave(worker *w)
{
    pd_error err = { 0 };

    w->stats = pd_client_count(w->client);
    return pd_client_leave(w->client, &err) == PD_OK || worker_fail(w, "leave", &err);
}

void worker_free(worker *w)
{
    pd_client_close(w->client);
    if (w->team != NULL) {
        model_free_buffers(w->team->model, w->weights);
        model_free_buffers(w->team->model, w->gradients);
    }
    free(w->items);
    memset(w, 0, sizeof *w);
}

/* Pushes the gradients in w->gradients and pulls the new weights in one call. */
static bool push_pull(worker *w, const size_t *order, const pd_push_options *options)
{
    const model *m = w->team->model;
    pd_item *items = calloc(m->n, sizeof *items);
    pd_ticket_id ticket;
    pd_error err = { 0 };
    int rc;

    for (size_t i = 0; i < m->n; i++) items[i] = w->items[order != NULL ? order[i] : i];
    rc = pd_client_push_pull(w->client, items, m->n, options, &ticket, &err);
    if (rc == PD_OK) rc = pd_client_wait(w->client, ticket, 0, &err);
    for (size_t i = 0; i < m->n; i++) w->items[items[i].param] = items[i];
    free(items);
    return rc == PD_OK || worker_fail(w, "push_pull", &err);
}

bool worker_step(worker *w, const size_t *order, const pd_push_options *options)
{
    const model *m = w->team->model;

    for (size_t p = 0; p < m->n; p++)
        if (w->items[p].gradient != NULL)
            fill_gradient(w->gradients[p], m->elements[p], w->rank, pd_client_step(w->client, p) + 1, p);
    return push_pull(w, order, options);
}

bool worker_count(worker *w)
{
    const model *m = w->team->model;

    for (size_t p = 0; p < m->n; p++)
        for (int64_t i = 0; i < m->elements[p]; i++) w->gradients[p][i] = 1;
    return push_pull(w, NULL, NULL);
}

bool worker_counted(const worker *w, int steps)
{
    const model *m = w->team->model;

    for (size_t p = 0; p < m->n; p++)
        for (int64_t i = 0; i < m->elements[p]; i++)
            if (w->weights[p][i] != (float)-steps) return false;
    return true;
}

static void *life(void *arg)
{
    worker *w = arg;

    if (worker_open(w, w->team, w->rank) && worker_declare(w) && w->team->work(w)) worker_leave(w);
    return NULL;
}

void team_run(const team *t, worker workers[TEAM_MOST])
{
    pthread_t threads[TEAM_MOST];
    bool failed = false;

    assert_in_range(t->world, 1, TEAM_MOST);
    for (int r = 0; r < t->world; r++) {
        workers[r] = (worker){ .team = t, .rank = r };
        assert_int_equal(pthread_create(&threads[r], NULL, life, &workers[r]), 0);
    }
    for (int r = 0; r < t->world; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < t->world; r++)
        if (workers[r].failure[0] != '\0') fprintf(stderr, "%s\n", workers[r].failure), failed = true;
    if (failed) fail_msg("a worker failed");
}

void team_free(const team *t, worker workers[TEAM_MOST])
{
    for (int r = 0; r < t->world; r++) worker_free(&workers[r]);
}
