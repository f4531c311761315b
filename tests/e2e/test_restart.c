/* Tests a daemon that is killed in the middle of a run and started again. Workers learn that the job is lost, create it
 * again from the weights that they have, and training continues. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "proxy.h"
#include "team.h"

static const char *const counting[] = { "* sgd lr=1", NULL };
static const int64_t sizes[] = { 2500, 10, 600 };
enum { TENSORS = 3 };

/* Starts a daemon at the port of the killed daemon; 0: at any port. */
static test_daemon *start_at(int port)
{
    char listen[64];
    const char *const flags[] = { "--chunk-bytes=4KiB", listen, NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", port);
    return daemon_start(flags);
}

static test_daemon *killed_and_started(test_daemon *daemon)
{
    int port = daemon->port;

    daemon_kill(daemon);
    return start_at(port);
}

static int restart(worker *w, pd_error *err)
{
    return pd_client_restart(w->client, (void *const *)w->weights, err);
}

enum { WORLD = 4, STEPS = 60, KILLED_AT = 20 };

typedef struct course {
    atomic_int step;        /* number of steps that rank 0 has taken */
    atomic_int restarts;    /* number of restarts, of all ranks together */
    double loss[3 * STEPS]; /* losses of rank 0, in the order in which it computed them */
    int n;
    int awaited; /* number of steps of rank 0 that the test waits for */
} course;

static bool is_reached(void *arg)
{
    course *c = arg;

    return atomic_load(&c->step) >= c->awaited;
}

/* Computes gradients. The loss of each rank is least where all weights equal its rank number, so the loss of all
 * ranks is least at (WORLD - 1) / 2. Returns the squared distance of the weights from that minimum. */
static double differentiate(worker *w)
{
    const model *m = w->team->model;
    double loss = 0;

    for (size_t p = 0; p < m->n; p++) {
        for (int64_t i = 0; i < m->elements[p]; i++) {
            double away = w->weights[p][i] - (WORLD - 1) / 2.0;
            w->gradients[p][i] = w->weights[p][i] - (float)w->rank;
            loss += away * away;
        }
    }
    return loss;
}

/* Pushes the parameters that have not taken this step yet. */
static int push_step(worker *w, uint64_t step, pd_error *err)
{
    pd_item items[TENSORS];
    pd_ticket_id ticket;
    size_t n = 0;
    int rc;

    for (size_t p = 0; p < TENSORS; p++)
        if (pd_client_step(w->client, p) == step) items[n++] = w->items[p];
    rc = pd_client_push_pull(w->client, items, n, NULL, &ticket, err);
    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, err) : rc;
}

static bool train(worker *w)
{
    course *c = w->team->arg;
    uint64_t step = 0;
    pd_error err = { 0 };

    while (step < STEPS) {
        double loss = differentiate(w);
        int rc = push_step(w, step, &err);

        if (rc == PD_DATA_LOSS) {
            atomic_fetch_add(&c->restarts, 1);
            if ((rc = restart(w, &err)) == PD_OK) step = pd_client_step(w->client, 0);
        } else {
            step++;
            if (w->rank == 0) c->loss[c->n++] = loss;
            if (w->rank == 0) atomic_store(&c->step, (int)step);
        }
        if (rc != PD_OK) return worker_fail(w, "step", &err);
        sleep_for(0.002);
    }
    return pd_client_barrier(w->client, &err) == PD_OK || worker_fail(w, "barrier", &err);
}

typedef struct scene {
    test_daemon *daemon;
    const team *team;
    worker workers[TEAM_MOST];
} scene;

static void *run_team(void *arg)
{
    scene *s = arg;

    team_run(s->team, s->workers);
    return NULL;
}

static void expect_descent(const course *c)
{
    assert_true(c->n >= STEPS);
    for (int i = 1; i < c->n; i++)
        if (c->loss[i] > c->loss[i - 1])
            fail_msg("loss %d is %g after %g: the model was not kept", i, c->loss[i], c->loss[i - 1]);
    assert_true(c->loss[c->n - 1] < 0.05 * c->loss[0]);
}

TEST(training_goes_on_from_the_weights_held)
{
    static const char *const rules[] = { "* sgd lr=0.05", NULL };
    model *m = model_new(sizes, TENSORS);
    course c = { 0 };
    scene s = { .daemon = start_at(0) };
    team t = { .url = s.daemon->url,
               .job = "held",
               .world = WORLD,
               .rules = rules,
               .model = m,
               .work = train,
               .arg = &c,
               .deadline = patient(20) };
    pthread_t thread;
    char url[64];

    snprintf(url, sizeof url, "%s", s.daemon->url);
    t.url = url;
    s.team = &t;
    assert_int_equal(pthread_create(&thread, NULL, run_team, &s), 0);
    for (int kills = 1; kills <= 2; kills++) {
        c.awaited = kills * KILLED_AT;
        assert_true(await(is_reached, &c, patient(30)));
        s.daemon = killed_and_started(s.daemon);
    }
    pthread_join(thread, NULL);
    assert_true(atomic_load(&c.restarts) >= WORLD);
    for (int r = 1; r < WORLD; r++) assert_true(model_same(m, s.workers[0].weights, s.workers[r].weights));
    expect_descent(&c);
    team_free(&t, s.workers);
    model_free(m);
    assert_int_equal(daemon_stop(s.daemon, patient(10)), 0);
}

/* Two ranks at different steps: one is behind a proxy that swallows the answers of the last step. */

enum { BEFORE = 3 };

typedef struct pair {
    test_daemon *daemon;
    proxy *between;
    model *m;
    char direct[64], through[64];
    team t[2];
    worker w[2];
} pair;

static int try_push(worker *w, pd_ticket_id *ticket, pd_error *err)
{
    for (size_t p = 0; p < TENSORS; p++)
        for (int64_t i = 0; i < sizes[p]; i++) w->gradients[p][i] = 1;
    return pd_client_push_pull(w->client, w->items, TENSORS, NULL, ticket, err);
}

static void begin_push(worker *w, pd_ticket_id *ticket)
{
    pd_error err;

    if (try_push(w, ticket, &err) != PD_OK) fail_msg("rank %d: %s", w->rank, err.text);
}

static void step_both(pair *s)
{
    pd_ticket_id ticket[2];
    pd_error err;

    for (int r = 0; r < 2; r++) begin_push(&s->w[r], &ticket[r]);
    for (int r = 0; r < 2; r++)
        if (pd_client_wait(s->w[r].client, ticket[r], 0, &err) != PD_OK) fail_msg("rank %d: %s", r, err.text);
}

static void start_pair(pair *s, int behind, double deadline)
{
    memset(s, 0, sizeof *s);
    s->daemon = start_at(0);
    s->between = proxy_start(s->daemon->port);
    s->m = model_new(sizes, TENSORS);
    snprintf(s->direct, sizeof s->direct, "%s", s->daemon->url);
    snprintf(s->through, sizeof s->through, "tcp://127.0.0.1:%d", proxy_port(s->between));
    for (int r = 0; r < 2; r++) {
        s->t[r] = (team){ .url = r == behind ? s->through : s->direct,
                          .job = "pair",
                          .world = 2,
                          .rules = counting,
                          .model = s->m,
                          .zero = true,
                          .deadline = deadline };
        if (!worker_open(&s->w[r], &s->t[r], r)) fail_msg("%s", s->w[r].failure);
    }
    for (int r = 0; r < 2; r++)
        if (!worker_declare(&s->w[r])) fail_msg("%s", s->w[r].failure);
    for (int i = 0; i < BEFORE; i++) step_both(s);
}

static void expect_lost(worker *w, int rc, const pd_error *err)
{
    pd_error again;

    if (rc != PD_DATA_LOSS) fail_msg("rank %d: %s", w->rank, rc != PD_OK ? err->text : "no error");
    assert_non_null(strstr(err->text, "no longer has job pair"));
    assert_int_equal(pd_client_barrier(w->client, &again), PD_DATA_LOSS);
}

/* Takes step BEFORE + 1, whose answer does not reach rank `behind`. Then kills the daemon and starts an empty one.
 * Checks that both ranks learn that the job is lost. */
static void lose_the_job(pair *s, int behind)
{
    worker *ahead = &s->w[1 - behind];
    pd_ticket_id ticket[2];
    pd_error err;
    int rc;

    proxy_swallow(s->between, true);
    for (int r = 0; r < 2; r++) begin_push(&s->w[r], &ticket[r]);
    assert_int_equal(pd_client_wait(ahead->client, ticket[1 - behind], 0, &err), PD_OK);
    s->daemon = killed_and_started(s->daemon);
    proxy_swallow(s->between, false);
    proxy_cut_now(s->between);
    rc = pd_client_wait(s->w[behind].client, ticket[behind], patient(20), &err);
    expect_lost(&s->w[behind], rc, &err);
    rc = try_push(ahead, &ticket[1 - behind], &err); /* the push fails if the rank knows already that the job is lost */
    if (rc == PD_OK) rc = pd_client_wait(ahead->client, ticket[1 - behind], patient(20), &err);
    expect_lost(ahead, rc, &err);
}

static void expect_steps(pair *s, int steps)
{
    for (int r = 0; r < 2; r++) {
        for (size_t p = 0; p < TENSORS; p++) assert_int_equal(pd_client_step(s->w[r].client, p), steps);
        assert_true(worker_counted(&s->w[r], steps));
    }
}

static void end_pair(pair *s)
{
    for (int r = 0; r < 2; r++)
        if (!worker_leave(&s->w[r])) fail_msg("%s", s->w[r].failure);
    for (int r = 0; r < 2; r++) worker_free(&s->w[r]);
    model_free(s->m);
    proxy_stop(s->between);
    assert_int_equal(daemon_stop(s->daemon, patient(10)), 0);
}

/* Calls restart until it succeeds. A call that times out does not end the restart: the next call continues to wait. */
static void restart_at_last(worker *w)
{
    double until = seconds_now() + patient(20);
    pd_error err;
    int rc;

    do rc = restart(w, &err);
    while (rc == PD_DEADLINE_EXCEEDED && seconds_now() < until);
    if (rc != PD_OK) fail_msg("rank %d: %s", w->rank, err.text);
}

/* Loses the job while rank `behind` has not heard of its last step, and restarts it. Rank 0 decides: both ranks go
 * on from its step with its weights. */
static void start_anew(int behind, int steps)
{
    pair s;
    pd_error err;

    start_pair(&s, behind, patient(2));
    lose_the_job(&s, behind);
    assert_int_equal(restart(&s.w[1], &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "rank 0 creates it again"));
    for (int r = 0; r < 2; r++) restart_at_last(&s.w[r]);
    expect_steps(&s, steps);
    step_both(&s);
    step_both(&s);
    expect_steps(&s, steps + 2);
    end_pair(&s);
}

HOLDS(a_rank_that_had_not_heard_of_the_last_step_gets_its_weights, start_anew(1, BEFORE + 1));

HOLDS(a_rank_that_is_further_than_rank_0_goes_back, start_anew(0, BEFORE));

TEST(a_new_process_takes_the_place_of_one_that_was_lost_too)
{
    pair s;

    start_pair(&s, 1, patient(5));
    lose_the_job(&s, 1);
    worker_free(&s.w[1]);
    restart_at_last(&s.w[0]);
    if (!worker_open(&s.w[1], &s.t[1], 1) || !worker_declare(&s.w[1])) fail_msg("%s", s.w[1].failure);
    expect_steps(&s, BEFORE + 1);
    step_both(&s);
    expect_steps(&s, BEFORE + 2);
    end_pair(&s);
}

TEST(a_job_that_is_not_lost_is_not_started_anew)
{
    pair s;
    pd_error err;

    start_pair(&s, 1, patient(5));
    assert_int_equal(restart(&s.w[0], &err), PD_FAILED_PRECONDITION);
    expect_steps(&s, BEFORE);
    end_pair(&s);
}
