/* Tests workers whose daemon is killed again and again while they train: with windows they do not notice, without one
 * they rewind, and the final weights have the bytes of an undisturbed run. */
#include <stdatomic.h>
#include <pthread.h>

#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"
#include "team.h"

enum { WORLD = 2, TENSORS = 3, STEPS = 40, EVERY = 4, KILLS = 4, LARGEST = 30000 };
static const int64_t sizes[TENSORS] = { LARGEST, 10, 600 };
static const uint64_t kill_at[KILLS] = { 6, 15, 16, 29 };

/* How the workers of a run are set up. */
typedef struct manner {
    uint32_t window[WORLD];
    bool shared;      /* over a Unix socket, with shared memory */
    pd_dtype updates; /* pd_client_param.update_dtype */
    bool separate;    /* pushes and pulls are separate calls, and each step is ended */
    const char *rule;
} manner;

typedef struct run {
    const manner *manner;
    const char *job;
    char root[64], url[128];
    test_daemon *daemon;
    pthread_t threads[WORLD];
    struct rank {
        struct run *run;
        int rank;
        _Atomic uint64_t step;
        uint64_t notes[2]; /* the last recalled note, and its step */
        pd_client_stats stats;
        float *weights[TENSORS];
        char failure[600];
    } ranks[WORLD];
} run;

static bool check(struct rank *r, const char *what, int rc, const pd_error *err)
{
    return rank_check(r->failure, sizeof r->failure, r->rank, what, rc, err);
}

static pd_client *begin(struct rank *r, pd_error *err)
{
    const manner *m = r->run->manner;
    pd_client_options options = {
        .urls = r->run->url,
        .job = r->run->job,
        .rank = r->rank,
        .world_size = WORLD,
        .rules = (const char *[]){ m->rule, NULL },
        .options = (const char *[]){ "durability=checkpoint", "checkpoint_every=4", NULL },
        .deadline = patient(60),
        .window = m->window[r->rank],
        .quiet = true,
    };
    pd_client_param params[TENSORS];
    char names[TENSORS][16];

    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i] = (pd_client_param){ .name = names[i], .shape = { 1, { sizes[i] } }, .update_dtype = m->updates };
    }
    return rank_begin(r->failure, sizeof r->failure, &options, params, TENSORS, r->weights, err);
}

/* Takes a step. Its note is its number. */
static int take_step(struct rank *r, pd_client *client, float *const *gradients, pd_error *err)
{
    uint64_t step = pd_client_step(client, 0) + 1;
    const manner *m = r->run->manner;
    pd_push_options options = { .note = &step, .note_bytes = sizeof step };
    pd_item items[TENSORS];
    pd_ticket_id ticket, ends = 0;
    int rc;

    for (size_t i = 0; i < TENSORS; i++) {
        fill_gradient(gradients[i], sizes[i], r->rank, step, i);
        items[i] = (pd_item){ .param = i, .gradient = gradients[i], .weights = r->weights[i] };
    }
    if (!m->separate) {
        rc = pd_client_push_pull(client, items, TENSORS, &options, &ticket, err);
        return rc == PD_OK ? pd_client_wait(client, ticket, 0, err) : rc;
    }
    rc = pd_client_push(client, items, TENSORS - 1, &options, &ticket, err); /* the last one has no gradient */
    if (rc == PD_OK) rc = pd_client_close_step(client, step, &ends, err);
    if (rc == PD_OK) rc = pd_client_wait(client, ticket, 0, err);
    if (ends != 0 && rc == PD_OK) rc = pd_client_wait(client, ends, 0, err);
    if (rc == PD_OK) rc = pd_client_pull(client, items, TENSORS, step, &ticket, err);
    return rc == PD_OK ? pd_client_wait(client, ticket, 0, err) : rc;
}

static void go_back(struct rank *r, pd_client *client, pd_error *err)
{
    size_t bytes = 0;

    while (pd_client_rewind(client, (void *const *)r->weights, err) == PD_REWIND) continue;
    if (pd_client_recall(client, &r->notes[0], sizeof r->notes[0], &bytes, &r->notes[1], err) == PD_OK &&
        (bytes != sizeof r->notes[0] || r->notes[0] != r->notes[1] || r->notes[1] != pd_client_step(client, 0)))
        snprintf(r->failure, sizeof r->failure, "rank %d: note %d of step %d at step %d", r->rank, (int)r->notes[0],
                 (int)r->notes[1], (int)pd_client_step(client, 0));
}

static void *work(void *arg)
{
    struct rank *r = arg;
    float *gradients[TENSORS];
    pd_error err = { 0 };
    pd_client *client = begin(r, &err);

    for (int i = 0; i < TENSORS; i++) gradients[i] = calloc((size_t)sizes[i], sizeof(float));
    while (client != NULL && r->failure[0] == '\0' && pd_client_step(client, 0) < STEPS) {
        int rc = take_step(r, client, gradients, &err);
        /* no disk is so slow that the window is too short: rank 0 waits for each checkpoint */
        if (rc == PD_OK && r->rank == 0 && pd_client_step(client, 0) % EVERY == 0) rc = pd_client_sync(client, 0, &err);
        if (rc == PD_REWIND)
            go_back(r, client, &err);
        else
            check(r, "step", rc, &err);
        r->step = pd_client_step(client, 0);
    }
    r->step = STEPS;
    if (client != NULL) r->stats = pd_client_count(client);
    if (client != NULL) check(r, "leave", pd_client_leave(client, &err), &err);
    pd_client_close(client);
    for (int i = 0; i < TENSORS; i++) free(gradients[i]);
    return NULL;
}

static void start_daemon(run *r)
{
    char listen[128], local[128], state[128];
    const char *const flags[] = { listen, local, state, "--chunk-bytes=32KiB", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d,unix://%s/socket", r->daemon != NULL ? r->daemon->port : 0,
             r->root);
    snprintf(local, sizeof local, "--log-level=info");
    snprintf(state, sizeof state, "--state-dir=%s/state", r->root);
    if (r->daemon != NULL) daemon_kill(r->daemon);
    r->daemon = daemon_start(flags);
}

static void begin_run(run *r, const manner *m)
{
    memset(r, 0, sizeof *r);
    r->manner = m;
    r->job = "j";
    strcpy(r->root, "/tmp/paramd-windows.XXXXXX");
    assert_non_null(mkdtemp(r->root));
    start_daemon(r);
    if (m->shared)
        snprintf(r->url, sizeof r->url, "unix://%s/socket", r->root);
    else
        snprintf(r->url, sizeof r->url, "%s", r->daemon->url);
    for (int i = 0; i < WORLD; i++) {
        r->ranks[i].run = r;
        r->ranks[i].rank = i;
        for (int p = 0; p < TENSORS; p++) {
            r->ranks[i].weights[p] = calloc((size_t)sizes[p], sizeof(float));
            for (int64_t k = 0; k < sizes[p]; k++) r->ranks[i].weights[p][k] = 1.0f + (float)(k % 7) / 8;
        }
        assert_int_equal(pthread_create(&r->threads[i], NULL, work, &r->ranks[i]), 0);
    }
}

static void finish_run(run *r)
{
    char command[120];

    for (int i = 0; i < WORLD; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < WORLD; i++)
        if (r->ranks[i].failure[0] != '\0') fail_msg("%s", r->ranks[i].failure);
    daemon_stop(r->daemon, patient(20));
    snprintf(command, sizeof command, "rm -rf %s", r->root);
    assert_int_equal(system(command), 0);
}

static void free_run(run *r)
{
    for (int i = 0; i < WORLD; i++)
        for (int p = 0; p < TENSORS; p++) free(r->ranks[i].weights[p]);
}

typedef struct milestone {
    const struct rank *rank;
    uint64_t step;
} milestone;

static bool has_reached(void *arg)
{
    const milestone *m = arg;

    return m->rank->step >= m->step;
}

/* Kills the daemon whenever rank 0 has taken certain steps. */
static void run_with_kills(run *r, const manner *m)
{
    begin_run(r, m);
    for (int i = 0; i < KILLS; i++) {
        assert_true(await(has_reached, &(milestone){ &r->ranks[0], kill_at[i] }, patient(60)));
        start_daemon(r);
    }
    finish_run(r);
}

static void expect_bytes_of_an_undisturbed_run(const run *killed, const manner *m)
{
    run quiet;

    begin_run(&quiet, m);
    finish_run(&quiet);
    for (int i = 0; i < WORLD; i++)
        for (int p = 0; p < TENSORS; p++)
            assert_memory_equal(killed->ranks[i].weights[p], quiet.ranks[0].weights[p],
                                (size_t)sizes[p] * sizeof(float));
    free_run(&quiet);
}

static void try_manner(const manner *m, run *r)
{
    run_with_kills(r, m);
    expect_bytes_of_an_undisturbed_run(r, m);
}

static const char adamw[] = "* adamw lr=0.01";

TEST(workers_with_windows_do_not_notice_a_daemon_that_is_killed)
{
    static const manner m = { .window = { 8, 8 }, .rule = adamw };
    run r;

    try_manner(&m, &r);
    for (int i = 0; i < WORLD; i++) {
        assert_true(r.ranks[i].stats.connects > KILLS);
        assert_int_equal(r.ranks[i].notes[1], 0); /* it never rewound */
    }
    free_run(&r);
}

TEST(workers_without_windows_rewind)
{
    static const manner m = { .rule = adamw };
    run r;

    try_manner(&m, &r);
    assert_true(r.ranks[0].stats.rewinds > 0);
    assert_int_equal(r.ranks[0].stats.replayed, 0);
    free_run(&r);
}

TEST(a_worker_with_a_window_goes_along_with_one_that_rewinds)
{
    static const manner m = { .window = { 8, 0 }, .rule = adamw };
    run r;

    try_manner(&m, &r);
    free_run(&r);
}

TEST(windows_work_in_shared_memory)
{
    static const manner m = { .window = { 8, 8 }, .shared = true, .rule = adamw };
    run r;

    try_manner(&m, &r);
    assert_true(r.ranks[0].stats.shared_out > 0);
    free_run(&r);
}

TEST(windows_work_with_steps_that_are_ended_and_pulls_of_their_own)
{
    static const manner m = { .window = { 8, 8 }, .separate = true, .rule = adamw };
    run r;

    try_manner(&m, &r);
    free_run(&r);
}

TEST(windows_work_with_updates)
{
    static const manner m = { .window = { 8, 8 },
                              .updates = PD_BF16,
                              .rule = "* shampoo lr=0.05 epsilon=1e-4 max_preconditioner_dim=16 "
                                      "precondition_frequency=20 communication_dtype=BF16 grafting_config=SGD" };
    run r;

    try_manner(&m, &r);
    free_run(&r);
}
