/* Tests workers that train with DiLoCo in four fragments while their daemon is killed again and again: with a log of
 * its steps, the final weights are those of a run in which nothing happened, bit for bit. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "paramd/diloco.h"

enum { WORLD = 2, PARAMS = 4, N = 33, CYCLES = 12, EVERY = 8, KILLS = 8 };
/* STEPS_BETWEEN: inner steps between two kills. OVERSHOOT: inner steps that the workers may take while the daemon is
 * killed. */
enum { STEPS_BETWEEN = EVERY + 3, OVERSHOOT = 2 };

typedef struct run run;

typedef struct worker {
    run *run;
    int rank;
    pthread_t thread;
    pd_client_stats stats;
    float all[PARAMS][N], global[PARAMS][N];
    char failure[600];
} worker;

struct run {
    const char *const *options; /* of the job */
    char root[64], url[64];
    test_daemon *daemon;
    /* steps: inner steps that rank 0 has taken. limit: workers wait after so many, until the next kill is over. */
    _Atomic int steps, limit;
    worker workers[WORLD];
};

static bool check(worker *w, const char *what, int rc, const pd_error *err)
{
    if (rc == PD_OK) return true;
    if (w->failure[0] == '\0') snprintf(w->failure, sizeof w->failure, "rank %d: %s: %s", w->rank, what, err->text);
    return false;
}

/* An inner step: moves each weight towards a target that depends on rank and step. */
static void train(worker *w, int t)
{
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < N; i++) {
            float target = (float)((t * 7 + i * 13 + p * 3 + w->rank * 29) % 64) / 17.0f;
            w->all[p][i] -= 0.1f * (w->all[p][i] - target);
        }
}

static bool open_worker(worker *w, pd_client **client)
{
    static const char *const rules[] = { "* sgd lr=0.7 momentum=0.9 nesterov=true", NULL };
    pd_client_options how = { .urls = w->run->url,
                              .job = "d",
                              .rank = w->rank,
                              .world_size = WORLD,
                              .rules = rules,
                              .options = w->run->options,
                              .deadline = patient(60),
                              .window = 8,
                              .quiet = true };
    pd_client_param params[PARAMS];
    void *weights[PARAMS];
    pd_error err;

    for (int p = 0; p < PARAMS; p++) {
        static const char *const names[PARAMS] = { "a", "b", "c", "d" };
        params[p] = (pd_client_param){ .name = names[p], .shape = { 1, { N } }, .fragment = (uint32_t)p };
        weights[p] = w->all[p];
    }
    return check(w, "open", pd_client_open(client, &how, &err), &err) &&
           check(w, "declare", pd_client_declare(*client, params, PARAMS, &err), &err) &&
           check(w, "init", pd_client_init(*client, weights, &err), &err);
}

/* A number of inner steps that a run is to reach. */
typedef struct goal {
    run *run;
    int steps;
} goal;

static bool is_allowed(void *arg)
{
    const goal *g = arg;

    return g->run->limit >= g->steps;
}

static void train_all(worker *w, pd_client *client)
{
    const pd_diloco_options how = { .sync_every = EVERY, .fragment_sync_delay = 1, .fragment_update_alpha = 0.5 };
    float *weights[PARAMS] = { w->all[0], w->all[1], w->all[2], w->all[3] };
    pd_diloco *outer = NULL;
    pd_error err;

    if (!check(w, "make", pd_diloco_make(&outer, client, weights, &how, &err), &err)) return;
    for (int t = 1; t <= CYCLES * EVERY; t++) {
        if (!await(is_allowed, &(goal){ w->run, t }, patient(60))) break;
        train(w, t);
        if (!check(w, "step", pd_diloco_step(outer, weights, 0, &err), &err)) break;
        if (t == EVERY && w->rank == 0 && !check(w, "sync", pd_client_sync(client, 0, &err), &err)) break;
        if (w->rank == 0) w->run->steps = t;
    }
    check(w, "finish", pd_diloco_finish(outer, weights, &err), &err);
    for (int p = 0; p < PARAMS; p++) memcpy(w->global[p], pd_diloco_global(outer, (size_t)p), sizeof w->global[p]);
    w->stats = pd_client_count(client);
    pd_diloco_free(outer);
}

static void *work(void *arg)
{
    worker *w = arg;
    pd_client *client = NULL;
    pd_error err;

    if (open_worker(w, &client)) {
        train_all(w, client);
        if (w->failure[0] == '\0') check(w, "leave", pd_client_leave(client, &err), &err);
    }
    pd_client_close(client);
    return NULL;
}

static void start_daemon(run *r)
{
    char listen[64], state[100];
    const char *const flags[] = { listen, state, NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", r->daemon != NULL ? r->daemon->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/state", r->root);
    if (r->daemon != NULL) daemon_kill(r->daemon);
    r->daemon = daemon_start(flags);
    snprintf(r->url, sizeof r->url, "%s", r->daemon->url);
}

static bool is_reached(void *arg)
{
    const goal *g = arg;
    bool failed = false;

    for (int i = 0; i < WORLD; i++) failed = failed || g->run->workers[i].failure[0] != '\0';
    return failed || g->run->steps >= g->steps;
}

static void train_with_kills(run *r, const char *const *options, int kills)
{
    char command[120];

    memset(r, 0, sizeof *r);
    r->options = options;
    strcpy(r->root, "/tmp/paramd-diloco.XXXXXX");
    assert_non_null(mkdtemp(r->root));
    start_daemon(r);
    r->limit = kills > 0 ? STEPS_BETWEEN + OVERSHOOT : CYCLES * EVERY;
    for (int i = 0; i < WORLD; i++) {
        r->workers[i].run = r;
        r->workers[i].rank = i;
        assert_int_equal(pthread_create(&r->workers[i].thread, NULL, work, &r->workers[i]), 0);
    }
    for (int i = 1; i <= kills; i++) { /* at another fragment of a cycle each time */
        assert_true(await(is_reached, &(goal){ r, i * STEPS_BETWEEN }, patient(60)));
        start_daemon(r);
        r->limit = i < kills ? (i + 1) * STEPS_BETWEEN + OVERSHOOT : CYCLES * EVERY;
    }
    for (int i = 0; i < WORLD; i++) pthread_join(r->workers[i].thread, NULL);
    for (int i = 0; i < WORLD; i++)
        if (r->workers[i].failure[0] != '\0') fail_msg("%s", r->workers[i].failure);
    daemon_stop(r->daemon, patient(20));
    snprintf(command, sizeof command, "rm -rf %s", r->root);
    assert_int_equal(system(command), 0);
}

static void kills_change_no_bit(const char *const *options)
{
    static run calm, killed;

    train_with_kills(&calm, options, 0);
    train_with_kills(&killed, options, KILLS);
    for (int i = 0; i < WORLD; i++) {
        assert_true(killed.workers[i].stats.connects > KILLS);
        assert_memory_equal(killed.workers[i].all, calm.workers[i].all, sizeof calm.workers[i].all);
        assert_memory_equal(killed.workers[i].global, calm.workers[0].global, sizeof calm.workers[0].global);
    }
    assert_true(memcmp(calm.workers[0].all, calm.workers[1].all, sizeof calm.workers[0].all) != 0);
}

TEST(a_daemon_that_is_killed_with_a_log_changes_no_bit_of_the_final_weights)
{
    static const char *const options[] = { "durability=log", NULL };

    kills_change_no_bit(options);
}

TEST(a_daemon_that_is_killed_with_a_log_changes_no_bit_where_workers_may_leave)
{
    static const char *const options[] = { "durability=log", "on_lost_worker=shrink", "reconnect_grace=60s", NULL };

    kills_change_no_bit(options);
}
