/* Tests connections that break at every place: each contribution counts exactly once. Gradients are ones, so the
 * weights count the steps. */
#include <stdatomic.h>
#include <pthread.h>

#include "test.h"
#include "daemon_process.h"
#include "proxy.h"
#include "team.h"

static const char *const flags[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };
static const char *const rules[] = { "* sgd lr=1", NULL };
static const int64_t sizes[] = { 2500, 10, 600 };
enum { STEP_BYTES = (2500 + 10 + 600) * 4 + 700 }; /* bytes of a step's pushes, or of their answers */

typedef struct trouble {
    proxy *between; /* proxy between rank 1 and the daemon; rank 0 is connected directly */
    int steps;
    void (*before)(proxy *p, int step); /* called before each step, to disturb the connection */
    bool leaves_out;                    /* rank 1 pushes only its first parameter and sends close_step */
} trouble;

/* Takes a step in which rank 1 pushes only its first parameter. The mean of the other parameters is taken over rank
 * 0 alone, so it is ones, too. */
static bool count_and_close(worker *w)
{
    uint64_t step = pd_client_step(w->client, 0) + 1;
    size_t n = w->team->model->n;
    pd_ticket_id push, closing, pull;
    pd_error err;

    for (int64_t i = 0; i < w->team->model->elements[0]; i++) w->gradients[0][i] = 1;
    if (pd_client_push(w->client, w->items, 1, NULL, &push, &err) != PD_OK ||
        pd_client_close_step(w->client, step, &closing, &err) != PD_OK ||
        pd_client_wait(w->client, push, 0, &err) != PD_OK || pd_client_wait(w->client, closing, 0, &err) != PD_OK ||
        pd_client_pull(w->client, w->items, n, step, &pull, &err) != PD_OK ||
        pd_client_wait(w->client, pull, 0, &err) != PD_OK)
        return worker_fail(w, "a step that is closed", &err);
    return true;
}

static bool troubled_steps(worker *w)
{
    const trouble *what = w->team->arg;

    for (int step = 1; step <= what->steps; step++) {
        if (w->rank == 1) what->before(what->between, step);
        if (!(what->leaves_out && w->rank == 1 ? count_and_close(w) : worker_count(w))) return false;
        if (!worker_counted(w, step)) return worker_fail(w, "a contribution was counted twice, or not at all", NULL);
    }
    return true;
}

/* Runs rank 0, which is connected to the daemon directly, in a thread of its own. */
static void *direct_life(void *arg)
{
    worker *w = arg;
    if (worker_open(w, w->team, 0) && worker_declare(w) && troubled_steps(w)) worker_leave(w);
    return NULL;
}

/* Number of threads that are about to cut a connection of the proxy. */
static atomic_int cutters;

static bool no_cutter_is_left(void *arg)
{
    (void)arg;
    return cutters == 0;
}

static pd_client_stats run_so(const test_daemon *daemon, const char *job, trouble what)
{
    model *m = model_new(sizes, 3);
    char through[64];
    team t[2];
    worker w[2] = { { .team = &t[0] }, { .team = &t[1], .rank = 1 } };
    pd_client_stats stats;
    pthread_t thread;
    bool done;

    what.between = proxy_start(daemon->port);
    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", proxy_port(what.between));
    for (int r = 0; r < 2; r++)
        t[r] = (team){ .url = r == 0 ? daemon->url : through,
                       .job = job,
                       .world = 2,
                       .rules = rules,
                       .model = m,
                       .zero = true,
                       .arg = &what };
    assert_int_equal(pthread_create(&thread, NULL, direct_life, &w[0]), 0);
    done = worker_open(&w[1], &t[1], 1) && worker_declare(&w[1]) && troubled_steps(&w[1]);
    proxy_cut_after(what.between, 0, 0);
    proxy_swallow(what.between, false);
    if (done) worker_leave(&w[1]);
    pthread_join(thread, NULL);
    stats = w[1].stats;
    for (int r = 0; r < 2; r++)
        if (w[r].failure[0] != '\0') fail_msg("%s", w[r].failure);
    for (int r = 0; r < 2; r++) worker_free(&w[r]);
    assert_true(await(no_cutter_is_left, NULL, patient(5)));
    proxy_stop(what.between);
    model_free(m);
    return stats;
}

static pd_client_stats run(const test_daemon *daemon, const char *job, int steps, void (*before)(proxy *p, int step))
{
    return run_so(daemon, job, (trouble){ .steps = steps, .before = before });
}

static void cut_pushes(proxy *p, int step)
{
    proxy_cut_after(p, STEP_BYTES + (size_t)(step * 1237) % (2 * STEP_BYTES), 0);
}

TEST(cut_while_a_gradient_travels, void *given)
{
    pd_client_stats stats = run(given, "pushes", 12, cut_pushes);
    assert_true(stats.connects > 4);
    assert_true(stats.resent > 0);
}

static void cut_answers(proxy *p, int step)
{
    proxy_cut_after(p, 0, STEP_BYTES + (size_t)(step * 1237) % (2 * STEP_BYTES));
}

TEST(cut_while_weights_travel_back, void *given)
{
    pd_client_stats stats = run(given, "answers", 12, cut_answers);
    assert_true(stats.connects > 4);
    assert_true(stats.resent > 0);
}

static void cut_at_once(proxy *p, int step)
{
    if (step % 2 == 0) proxy_cut_now(p);
}

HOLDS_FOR(void *given, cut_between_steps, assert_true(run(given, "between", 10, cut_at_once).connects > 3));

static void cut_around_closes(proxy *p, int step)
{
    proxy_cut_after(p, 2500 * 4 + 700 + (size_t)(step * 137) % 400, 0); /* cuts after at least one step, before two */
}

TEST(a_step_that_is_closed_while_connections_break_is_closed_once, void *given)
{
    pd_client_stats stats =
        run_so(given, "closes", (trouble){ .steps = 12, .before = cut_around_closes, .leaves_out = true });

    assert_true(stats.connects > 4);
    assert_true(stats.resent > 0);
}

/* Number of swallowed bytes at which the answers of a step are lost. Without weights a step has three answers of 48
 * bytes, and an answer of 40 bytes to close_step. */
enum { LOST_BYTES = 3 * 48 + 1 };

/* Waits until the proxy has swallowed the answers of a step, then cuts its connections. */
static void *cut_soon(void *arg)
{
    proxy_await_swallowed(arg, LOST_BYTES, patient(5));
    proxy_swallow(arg, false);
    proxy_cut_now(arg);
    cutters--;
    return NULL;
}

/* Swallows the answers of every second step, whose pushes arrive and count. The client sends these pushes again on
 * the next connection. */
static void lose_answers(proxy *p, int step)
{
    pthread_t thread;

    if (step % 2 != 0) return;
    proxy_swallow(p, true);
    cutters++;
    assert_int_equal(pthread_create(&thread, NULL, cut_soon, p), 0);
    pthread_detach(thread);
}

TEST(a_push_whose_answer_was_lost_counts_once, void *given)
{
    pd_client_stats stats = run(given, "lost", 6, lose_answers);
    assert_true(stats.resent >= 3);
}

TEST(the_end_of_a_step_whose_answer_was_lost_counts_once, void *given)
{
    pd_client_stats stats =
        run_so(given, "lost-closes", (trouble){ .steps = 6, .before = lose_answers, .leaves_out = true });

    assert_true(stats.resent >= 3);
}

static void delay_a_little(proxy *p, int step)
{
    proxy_delay(p, step % 3 * 0.003);
}

HOLDS_FOR(void *given, a_slow_connection_is_only_slow,
          assert_int_equal(run(given, "slow", 6, delay_a_little).connects, 1));

static bool has_connected_again(void *arg)
{
    return proxy_connections(arg) >= 2;
}

/* Removes the proxy's byte limit as soon as a second connection is there, so that only the first one is cut. */
static void *mend_after_the_first(void *arg)
{
    proxy *p = arg;

    await(has_connected_again, p, patient(20));
    proxy_cut_after(p, 0, 0);
    return NULL;
}

static void initialise_through(const test_daemon *daemon, const model *m, size_t cut, const char *how)
{
    proxy *p = proxy_start(daemon->port);
    char through[64], job[32];
    const char *const options[] = { how, NULL };
    team t = { .url = through, .job = job, .world = 1, .options = options, .rules = rules, .model = m };
    float **first = model_buffers(m);
    pthread_t thread;
    worker w;

    snprintf(through, sizeof through, "tcp://127.0.0.1:%d", proxy_port(p));
    snprintf(job, sizeof job, "%s-%zu", strchr(how, '=') + 1, cut);
    fill_weights(m, first);
    proxy_cut_after(p, cut, 0);
    assert_int_equal(pthread_create(&thread, NULL, mend_after_the_first, p), 0);
    if (!worker_open(&w, &t, 0) || !worker_declare(&w)) fail_msg("cut after %zu bytes: %s", cut, w.failure);
    assert_true(model_same(m, w.weights, first));
    proxy_cut_now(p); /* ends the first connection, if the byte limit has not cut it */
    pthread_join(thread, NULL);
    assert_true(has_connected_again(p));
    if (!worker_leave(&w)) fail_msg("%s", w.failure);
    worker_free(&w);
    model_free_buffers(m, first);
    proxy_stop(p);
}

TEST(initial_weights_survive_a_cut_anywhere, void *given)
{
    model *m = model_new(sizes, 3);

    for (size_t cut = 50; cut < 14000; cut += cut < 500 ? 90 : 1531) {
        initialise_through(given, m, cut, "initial_weights=lowest");
        initialise_through(given, m, cut, "initial_weights=mean");
    }
    model_free(m);
}

GROUP_OBJECT(daemon_start(flags), daemon_end);
