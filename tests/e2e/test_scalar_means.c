/* Tests the scalars that workers send with their steps: they come back as weighted means, through the library and the
 * real daemon, also when connections break. */
#include <pthread.h>

#include "test.h"
#include "daemon_process.h"
#include "proxy.h"
#include "team.h"

enum { WORLD = 4, STEPS = 12 };
enum { STEP_BYTES = 2600 * 4 + 700 }; /* bytes of a step's pushes, or of their answers */

static const char *const flags[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };
static const char *const rules[] = { "* sgd lr=0.001", NULL };
/* the scalars travel with the first parameter, which has three frames */
static const int64_t sizes[] = { 2500, 10, 60 };

static double loss_of(int rank, uint64_t step)
{
    return 1.0 / (3 + rank) + (double)step;
}
static double weight_of(int rank, uint64_t step)
{
    return rank == (int)(step % WORLD) ? 0 : 1 + rank;
}
static double tokens_of(int rank)
{
    return 100 * rank;
}

/* Checks the means of the scalars that came back with a step. Computes them over the ranks in order, as the server
 * does, so that they are equal bit for bit. Only every second rank sends `tokens`. */
static bool came_back(worker *w, uint64_t step, const pd_scalar *loss, const pd_scalar *tokens)
{
    double losses = 0, weights = 0, counts = 0, counted = 0;

    for (int rank = 0; rank < w->team->world; rank++) {
        double weight = weight_of(rank, step);
        losses += weight * loss_of(rank, step);
        weights += weight;
        if (rank % 2 != 0) continue;
        counts += weight * tokens_of(rank);
        counted += weight;
    }
    if (loss->mean != losses / weights || loss->weight != weights)
        return worker_fail(w, "the loss is another one", NULL);
    if (tokens != NULL && (tokens->mean != counts / counted || tokens->weight != counted))
        return worker_fail(w, "the tokens are others", NULL);
    return true;
}

/* How a job is run. `between` is the proxy between rank 1 and the daemon; NULL: none. With `pushes_only` the workers
 * push and do not pull. */
typedef struct course {
    proxy *between;
    bool pushes_only;
} course;

static bool push_alone(worker *w, const pd_push_options *options)
{
    pd_ticket_id ticket;
    pd_error err;

    if (pd_client_push(w->client, w->items, w->team->model->n, options, &ticket, &err) != PD_OK ||
        pd_client_wait(w->client, ticket, 0, &err) != PD_OK)
        return worker_fail(w, "push", &err);
    return true;
}

/* Cuts the connection within this step or the next. A connection always lasts for at least one whole step. */
static void cut_somewhere(proxy *p, uint64_t step)
{
    size_t bytes = STEP_BYTES + (size_t)step * 1237 % STEP_BYTES;

    proxy_cut_after(p, step % 2 ? bytes : 0, step % 3 ? bytes : 0);
}

static bool steps(worker *w)
{
    const course *c = w->team->arg;

    for (uint64_t step = 1; step <= STEPS; step++) {
        static const size_t backwards[] = { 2, 1, 0 };
        pd_scalar scalars[] = { { .name = "loss", .value = loss_of(w->rank, step) },
                                { .name = "tokens", .value = tokens_of(w->rank) } };
        pd_push_options options = { .weight = weight_of(w->rank, step),
                                    .zero_weight = weight_of(w->rank, step) == 0,
                                    .scalars = scalars,
                                    .n_scalars = 2 - (size_t)w->rank % 2 };

        if (c->between != NULL && w->rank == 1) cut_somewhere(c->between, step);
        if (!(c->pushes_only ? push_alone(w, &options) : worker_step(w, step % 2 ? backwards : NULL, &options)))
            return false;
        if (!came_back(w, step, &scalars[0], w->rank % 2 == 0 ? &scalars[1] : NULL)) return false;
    }
    if (c->between != NULL && w->rank == 1) proxy_cut_after(c->between, 0, 0);
    return true;
}

static void *life(void *arg)
{
    worker *w = arg;

    if (worker_open(w, w->team, w->rank) && worker_declare(w) && steps(w)) worker_leave(w);
    return NULL;
}

static void train(const test_daemon *daemon, const char *job, course c)
{
    model *m = model_new(sizes, 3);
    char through[64] = "";
    team t[WORLD];
    worker workers[WORLD];
    pthread_t threads[WORLD];

    if (c.between != NULL) snprintf(through, sizeof through, "tcp://127.0.0.1:%d", proxy_port(c.between));
    for (int rank = 0; rank < WORLD; rank++) {
        t[rank] = (team){ .url = c.between != NULL && rank == 1 ? through : daemon->url,
                          .job = job,
                          .world = WORLD,
                          .rules = rules,
                          .model = m,
                          .arg = &c,
                          .work = steps };
        workers[rank] = (worker){ .team = &t[rank], .rank = rank };
    }
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, life, &workers[rank]), 0);
    for (int rank = 0; rank < WORLD; rank++) pthread_join(threads[rank], NULL);
    for (int rank = 0; rank < WORLD; rank++)
        if (workers[rank].failure[0] != '\0') fail_msg("rank %d: %s", rank, workers[rank].failure);
    if (c.between != NULL) assert_true(workers[1].stats.resent > 3);
    for (int rank = 0; rank < WORLD; rank++) worker_free(&workers[rank]);
    model_free(m);
}

OBJECT(daemon_start(flags), daemon_end);

HOLDS_FOR(void *given, four_workers_have_the_same_means, train(given, "means", (course){ 0 }));
HOLDS_FOR(void *given, a_push_without_pull_brings_them_too, train(given, "pushes", (course){ .pushes_only = true }));

TEST(a_worker_whose_connection_breaks_in_every_step_has_them_and_counts_once, const test_daemon *daemon)
{
    course c = { .between = proxy_start(daemon->port) };

    train(daemon, "cuts", c);
    proxy_stop(c.between);
}

TEST(a_rounds_scalars_come_back_when_all_its_answers_were_lost, const test_daemon *daemon)
{
    proxy *between = proxy_start(daemon->port);
    model *m = model_new(sizes, 3);
    char through[64];
    team t = { .url = through, .job = "lost", .world = 1, .rules = rules, .model = m };
    worker w;
    pd_ticket_id ticket;
    pd_error err;

    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", proxy_port(between));
    assert_true(worker_open(&w, &t, 0) && worker_declare(&w));
    for (int step = 0; step < 3; step++) {
        pd_scalar loss = { .name = "loss", .value = step };
        pd_push_options options = { .scalars = &loss, .n_scalars = 1 };
        proxy_swallow(between, true);
        assert_int_equal(pd_client_push(w.client, w.items, 3, &options, &ticket, &err), PD_OK);
        assert_true(proxy_await_swallowed(between, 1, patient(5))); /* the round has closed, the answer is lost */
        assert_false(pd_client_ready(w.client, ticket));
        proxy_swallow(between, false);
        proxy_cut_now(between);
        assert_int_equal(pd_client_wait(w.client, ticket, patient(10), &err), PD_OK);
        assert_true(loss.mean == step && loss.weight == 1);
    }
    assert_true(worker_leave(&w));
    worker_free(&w);
    proxy_stop(between);
    model_free(m);
}
