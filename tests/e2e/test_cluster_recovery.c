/* Tests jobs on one to three daemons that are killed, or taken back to a checkpoint, while they train: workers with
 * windows send a lost shard its steps again, others go back with all shards to a common step, and the final weights
 * have the bytes of an undisturbed run on one daemon. Each gradient depends on the weights of all parameters, so that
 * weights of different steps would be seen. */
#include <pthread.h>
#include <stdatomic.h>

#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"
#include "team.h"

enum { WORLD = 2, TENSORS = 5, STEPS = 48, EVERY = 4, EVENTS = 4, MOST_SHARDS = 3 };
static const int64_t sizes[TENSORS] = { 9000, 8000, 600, 7000, 10 };
static const uint64_t event_at[EVENTS] = { 6, 15, 16, 29 };

/* What happens to the daemons. */
typedef enum event { NOTHING, KILL_ONE, KILL_ALL, OPERATOR, KILL_WORKER, KILL_BOTH } event;

typedef struct manner {
    uint32_t window[WORLD];
    size_t shards;
    event event;
    bool alone;    /* there is one rank; checkpoints are made when it asks for them */
    bool halves;   /* a step is pushed in two calls, of which the second one has the note */
    bool barriers; /* all ranks meet at a barrier after every third step */
    bool whole;    /* all parameters take their steps together, clipped by their norm: the shards need verdicts */
    bool log;      /* the job has a WAL */
    const char *rule;
} manner;

typedef struct run {
    const manner *manner;
    const char *job;
    char root[64], urls[256];
    test_daemon *daemons[MOST_SHARDS];
    pthread_t threads[WORLD];
    struct rank {
        struct run *run;
        int rank;
        _Atomic uint64_t step;
        uint64_t durable; /* largest durable step that was reported */
        atomic_bool dies; /* it is to die in the midst of a step */
        unsigned rewound; /* number of calls of pd_client_rewind that succeeded */
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
        .urls = r->run->urls,
        .job = r->run->job,
        .rank = r->rank,
        .world_size = m->alone ? 1 : WORLD,
        .rules = (const char *[]){ m->rule, NULL },
        .options = (const char *[]){ m->log ? "durability=log" : "durability=checkpoint",
                                     m->alone ? "checkpoint_every=0" : "checkpoint_every=4", "checkpoint_keep=1",
                                     m->whole ? "clip_global_norm=30" : NULL, NULL },
        .deadline = patient(30),
        .window = m->window[r->rank],
        .quiet = true,
    };
    pd_client_param params[TENSORS];
    char names[TENSORS][16];

    for (int i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "p%d", i);
        params[i] = (pd_client_param){ .name = names[i], .shape = { 1, { sizes[i] } } };
    }
    return rank_begin(r->failure, sizeof r->failure, &options, params, TENSORS, r->weights, err);
}

/* Fills the gradients of a step: they depend on weights of all parameters. */
static void fill_gradients(const struct rank *r, uint64_t step, float *const *gradients)
{
    float mixed = 0;

    for (int i = 0; i < TENSORS; i++) mixed += r->weights[i][step % 10] * (float)(i + 1);
    for (size_t i = 0; i < TENSORS; i++) {
        fill_gradient(gradients[i], sizes[i], r->rank, step, i);
        for (int64_t k = 0; k < sizes[i]; k++) gradients[i][k] += mixed / 64;
    }
}

static int take_step(struct rank *r, pd_client *client, float *const *gradients, pd_error *err)
{
    uint64_t step = pd_client_step(client, 0) + 1;
    pd_push_options options = { .note = &step, .note_bytes = sizeof step };
    size_t first = r->run->manner->halves ? TENSORS - 1 : 0;
    pd_item items[TENSORS];
    pd_ticket_id half = 0, ticket;
    int rc = PD_OK;

    fill_gradients(r, step, gradients);
    for (size_t i = 0; i < TENSORS; i++)
        items[i] = (pd_item){ .param = i, .gradient = gradients[i], .weights = r->weights[i] };
    if (first > 0) rc = pd_client_push_pull(client, items, first, NULL, &half, err);
    if (rc == PD_OK) rc = pd_client_push_pull(client, items + first, TENSORS - first, &options, &ticket, err);
    if (rc == PD_OK && first > 0) rc = pd_client_wait(client, half, 0, err);
    return rc == PD_OK ? pd_client_wait(client, ticket, 0, err) : rc;
}

/* Checks that the durable step has not fallen. It is 0 until a shard that was killed has answered. */
static void look_durable(struct rank *r, const pd_client *client)
{
    uint64_t durable = pd_client_durable(client);

    if (durable == 0) return;
    if (durable < r->durable)
        snprintf(r->failure, sizeof r->failure, "rank %d: the durable step fell from %d to %d", r->rank,
                 (int)r->durable, (int)durable);
    r->durable = durable;
}

/* Goes back, and checks that all parameters are at one step, whose note shard 0 has. */
static void go_back(struct rank *r, pd_client *client, pd_error *err)
{
    uint64_t note = 0, of = 0;
    size_t bytes = 0;
    int rc;

    do rc = pd_client_rewind(client, (void *const *)r->weights, err);
    while (rc == PD_REWIND);
    if (!check(r, "rewind", rc, err)) return;
    r->rewound++;
    for (size_t i = 1; i < TENSORS; i++)
        if (pd_client_step(client, i) != pd_client_step(client, 0))
            snprintf(r->failure, sizeof r->failure, "rank %d: went back to steps %d and %d", r->rank,
                     (int)pd_client_step(client, 0), (int)pd_client_step(client, i));
    rc = pd_client_recall(client, &note, sizeof note, &bytes, &of, err);
    if (rc == PD_OK && (note != of || of != pd_client_step(client, 0)))
        snprintf(r->failure, sizeof r->failure, "rank %d: note %d of step %d at step %d", r->rank, (int)note, (int)of,
                 (int)pd_client_step(client, 0));
}

/* Pushes, and closes the handle without a word, as if the process was killed. Then begins as a new process. */
static pd_client *die(struct rank *r, pd_client *client, float *const *gradients, pd_error *err)
{
    uint64_t step = pd_client_step(client, 0) + 1;
    pd_item items[TENSORS];
    pd_ticket_id ticket;

    fill_gradients(r, step, gradients);
    for (size_t i = 0; i < TENSORS; i++) items[i] = (pd_item){ .param = i, .gradient = gradients[i] };
    (void)pd_client_push(client, items, TENSORS, NULL, &ticket, err);
    pd_client_close(client);
    r->dies = false;
    return begin(r, err);
}

static void *work(void *arg)
{
    struct rank *r = arg;
    float *gradients[TENSORS];
    pd_error err = { 0 };
    pd_client *client = begin(r, &err);
    bool durable = false;

    for (int i = 0; i < TENSORS; i++) gradients[i] = calloc((size_t)sizes[i], sizeof(float));
    /* A rank leaves when the last step is durable: until then a shard may need its steps again. */
    while (client != NULL && r->failure[0] == '\0' && !(durable && pd_client_step(client, 0) == STEPS)) {
        int rc = PD_OK;

        if (r->dies) {
            client = die(r, client, gradients, &err);
            continue;
        }
        if (pd_client_step(client, 0) < STEPS) rc = take_step(r, client, gradients, &err);
        if (rc == PD_OK && pd_client_step(client, 0) == STEPS) {
            rc = pd_client_sync(client, 0, &err);
            durable = rc == PD_OK;
        } else if (rc == PD_OK && r->rank == 0 && pd_client_step(client, 0) % EVERY == 0)
            rc = pd_client_sync(client, 0, &err);
        if (rc == PD_OK && r->run->manner->barriers && pd_client_step(client, 0) % 3 == 0)
            rc = pd_client_barrier(client, &err);
        if (rc == PD_REWIND)
            go_back(r, client, &err);
        else
            check(r, "step", rc, &err);
        look_durable(r, client);
        r->step = pd_client_step(client, 0);
    }
    r->step = STEPS;
    if (client != NULL) r->stats = pd_client_count(client);
    if (client != NULL) check(r, "leave", pd_client_leave(client, &err), &err);
    pd_client_close(client);
    for (int i = 0; i < TENSORS; i++) free(gradients[i]);
    return NULL;
}

/* Starts daemon i, or kills it and starts it anew on its port and its directory. */
static void start_daemon(run *r, size_t i)
{
    char listen[64], state[128];
    const char *const flags[] = { listen, state, "--chunk-bytes=8KiB", "--log-level=info", NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", r->daemons[i] != NULL ? r->daemons[i]->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/state%zu", r->root, i);
    if (r->daemons[i] != NULL) daemon_kill(r->daemons[i]);
    r->daemons[i] = daemon_start(flags);
}

static void begin_weights(run *r)
{
    for (int i = 0; i < WORLD; i++)
        for (int p = 0; p < TENSORS; p++) {
            r->ranks[i].weights[p] = calloc((size_t)sizes[p], sizeof(float));
            for (int64_t k = 0; k < sizes[p]; k++) r->ranks[i].weights[p][k] = 1.0f + (float)(k % 7) / 8;
        }
}

static void start_workers(run *r, const char *job)
{
    r->job = job;
    begin_weights(r);
    for (int i = 0; i < WORLD; i++) {
        r->ranks[i].run = r;
        r->ranks[i].rank = i;
        assert_int_equal(pthread_create(&r->threads[i], NULL, work, &r->ranks[i]), 0);
    }
}

static void begin_daemons(run *r, const manner *m)
{
    size_t at = 0;

    memset(r, 0, sizeof *r);
    r->manner = m;
    r->job = "j";
    for (int i = 0; i < WORLD; i++) r->ranks[i].run = r;
    strcpy(r->root, "/tmp/paramd-recovery.XXXXXX");
    assert_non_null(mkdtemp(r->root));
    for (size_t i = 0; i < m->shards; i++) {
        start_daemon(r, i);
        at += (size_t)snprintf(r->urls + at, sizeof r->urls - at, "%s%s", i > 0 ? " " : "", r->daemons[i]->url);
    }
}

static void begin_run(run *r, const manner *m)
{
    begin_daemons(r, m);
    start_workers(r, "j");
}

static void join_workers(run *r)
{
    for (int i = 0; i < WORLD; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < WORLD; i++)
        if (r->ranks[i].failure[0] != '\0') print_error("%s\n", r->ranks[i].failure);
    for (int i = 0; i < WORLD; i++) assert_string_equal(r->ranks[i].failure, "");
}

static void free_weights(const run *r)
{
    for (int i = 0; i < WORLD; i++)
        for (int p = 0; p < TENSORS; p++) free(r->ranks[i].weights[p]);
}

static void end_run(run *r)
{
    char command[120];

    for (size_t i = 0; i < r->manner->shards; i++) daemon_stop(r->daemons[i], patient(20));
    snprintf(command, sizeof command, "rm -rf %s", r->root);
    assert_int_equal(system(command), 0);
    free_weights(r);
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

static void let_happen(run *r, int number)
{
    switch (r->manner->event) {
    case NOTHING: break;
    case KILL_ONE: start_daemon(r, (size_t)number % r->manner->shards); break;
    case KILL_ALL:
        for (size_t i = 0; i < r->manner->shards; i++) start_daemon(r, i);
        break;
    case KILL_WORKER: r->ranks[number % WORLD].dies = true; break;
    case KILL_BOTH:
        r->ranks[number % WORLD].dies = true;
        start_daemon(r, (size_t)number % r->manner->shards);
        break;
    case OPERATOR:
        paramctl_ask(r->daemons[0]->url);
        if (paramctl("go-back j") != 0) fail_msg("%s", paramctl_output);
        assert_says("j has gone back to its newest checkpoint");
        break;
    }
}

/* Waits until rank 0 has taken the steps up to an event. Says where all ranks and daemons are if it does not. */
static void await_step(const run *r, uint64_t step)
{
    if (await(has_reached, &(milestone){ &r->ranks[0], step }, patient(60))) return;
    for (int i = 0; i < WORLD; i++)
        print_error("rank %d: step %d, went back %u times%s%s\n", i, (int)r->ranks[i].step, r->ranks[i].rewound,
                    r->ranks[i].failure[0] != '\0' ? ": " : "", r->ranks[i].failure);
    for (size_t i = 0; i < r->manner->shards; i++) {
        paramctl_ask(r->daemons[i]->url);
        if (paramctl("workers j") == 0) print_error("daemon %zu:\n%s", i, paramctl_output);
        if (paramctl("params j") == 0) print_error("%s", paramctl_output);
    }
    fail_msg("step %d is not reached", (int)step);
}

static void run_disturbed(run *r, const manner *m)
{
    begin_run(r, m);
    for (int i = 0; i < EVENTS; i++) {
        await_step(r, event_at[i]);
        if (r->ranks[0].step < STEPS) let_happen(r, i);
    }
    join_workers(r);
}

/* Compares the weights with those of an undisturbed run on one daemon. */
static void expect_undisturbed_bytes(const run *disturbed)
{
    manner m = *disturbed->manner;
    run quiet;

    m.shards = 1;
    m.event = NOTHING;
    begin_run(&quiet, &m);
    join_workers(&quiet);
    for (int i = 0; i < WORLD; i++)
        for (int p = 0; p < TENSORS; p++)
            assert_memory_equal(disturbed->ranks[i].weights[p], quiet.ranks[0].weights[p],
                                (size_t)sizes[p] * sizeof(float));
    end_run(&quiet);
}

static json_int_t counter(const run *r, size_t shard, const char *name)
{
    json_t *jobs, *job;
    json_int_t value;

    paramctl_ask(r->daemons[shard]->url);
    assert_int_equal(paramctl("jobs --json"), 0);
    jobs = parsed();
    job = json_is_array(jobs) ? json_array_get(jobs, 0) : json_array_get(json_object_get(jobs, "jobs"), 0);
    value = json_integer_value(json_object_get(job, name));
    json_decref(jobs);
    return value;
}

static const char adamw[] = "* adamw lr=0.01";

TEST(an_operator_takes_a_job_back_and_windows_send_its_steps_again)
{
    static const manner m = { .window = { 8, 8 }, .shards = 1, .event = OPERATOR, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    assert_int_equal(counter(&r, 0, "went_back"), EVENTS);
    end_run(&r);
}

TEST(an_operator_takes_a_job_back_and_workers_rewind)
{
    static const manner m = { .shards = 1, .event = OPERATOR, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    assert_true(r.ranks[0].rewound > 0);
    end_run(&r);
}

TEST(a_shard_that_is_killed_gets_its_steps_again_and_others_notice_nothing)
{
    static const manner m = { .window = { 8, 8 }, .shards = 2, .event = KILL_ONE, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    for (size_t i = 0; i < 2; i++) assert_int_equal(counter(&r, i, "went_back"), 0);
    for (int i = 0; i < WORLD; i++) assert_int_equal(r.ranks[i].rewound, 0);
    end_run(&r);
}

TEST(workers_without_windows_go_back_with_all_shards)
{
    static const manner m = { .shards = 3, .event = KILL_ONE, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    assert_true(counter(&r, 0, "went_back") + counter(&r, 1, "went_back") + counter(&r, 2, "went_back") > 0);
    end_run(&r);
}

TEST(a_worker_with_a_window_goes_along_with_one_that_has_none)
{
    static const manner m = { .window = { 8, 0 }, .shards = 2, .event = KILL_ONE, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    end_run(&r);
}

TEST(all_shards_are_killed_at_once)
{
    static const manner m = { .shards = 2, .event = KILL_ALL, .rule = adamw };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    end_run(&r);
}

static void try_manner(const manner *m)
{
    run r;

    run_disturbed(&r, m);
    expect_undisturbed_bytes(&r);
    end_run(&r);
}

TEST(shards_with_logs_go_back_to_the_last_step_of_the_log_that_was_lost)
{
    try_manner(&(manner){ .shards = 3, .event = KILL_ONE, .whole = true, .log = true, .rule = adamw });
}

TEST(steps_that_need_verdicts_are_sent_again_to_one_shard)
{
    try_manner(&(manner){ .window = { 8, 8 }, .shards = 2, .event = KILL_ONE, .whole = true, .rule = adamw });
}

TEST(steps_that_need_verdicts_are_taken_anew_by_all)
{
    try_manner(&(manner){ .shards = 2, .event = KILL_ONE, .whole = true, .rule = adamw });
}

TEST(a_mixed_crew_takes_steps_that_need_verdicts_anew)
{
    try_manner(&(manner){ .window = { 0, 8 }, .shards = 3, .event = KILL_ONE, .whole = true, .rule = adamw });
}

TEST(a_worker_that_dies_in_a_step_is_replaced)
{
    try_manner(&(manner){ .window = { 8, 8 }, .shards = 2, .event = KILL_WORKER, .whole = true, .rule = adamw });
    try_manner(&(manner){ .shards = 2, .event = KILL_WORKER, .whole = true, .rule = adamw });
}

TEST(a_shard_and_a_worker_that_die_at_once_are_replaced)
{
    try_manner(&(manner){ .window = { 8, 8 }, .shards = 2, .event = KILL_BOTH, .whole = true, .rule = adamw });
    try_manner(&(manner){ .shards = 2, .event = KILL_BOTH, .whole = true, .rule = adamw });
}

/* Ranks meet at shard 0, which is killed, too, while one waits there for the other. */
TEST(barriers_outlive_the_shard_that_has_them)
{
    static const manner m = {
        .window = { 8, 8 }, .shards = 2, .event = KILL_ONE, .whole = true, .barriers = true, .rule = adamw
    };
    run r;

    run_disturbed(&r, &m);
    expect_undisturbed_bytes(&r);
    for (int i = 0; i < WORLD; i++) assert_int_equal(r.ranks[i].rewound, 0);
    end_run(&r);
}

/* The ranks of one job have windows, those of the other one have none and go back. */
TEST(two_jobs_on_a_cluster_survive_the_loss_of_a_shard)
{
    static const manner windows = { .window = { 8, 8 }, .shards = 3, .event = KILL_ONE, .whole = true, .rule = adamw },
                        none = { .shards = 3, .whole = true, .rule = "* sgd lr=0.05 momentum=0.9" };
    run first, second;

    begin_run(&first, &windows);
    second = first;
    second.manner = &none;
    memset(second.ranks, 0, sizeof second.ranks);
    start_workers(&second, "k");
    for (int i = 0; i < EVENTS; i++) {
        await_step(&first, event_at[i]);
        if (first.ranks[0].step < STEPS) let_happen(&first, i);
    }
    join_workers(&first);
    join_workers(&second);
    for (int i = 0; i < WORLD; i++) assert_int_equal(first.ranks[i].rewound, 0);
    expect_undisturbed_bytes(&first);
    expect_undisturbed_bytes(&second);
    free_weights(&second);
    end_run(&first);
}

/* Takes steps up to 8 as the only rank. `disturbed`: after step 6 shard 1 comes back at step 5, and a new process takes
 * over. */
static void take_8_steps(run *r, bool disturbed)
{
    struct rank *rank = &r->ranks[0];
    float *gradients[TENSORS];
    pd_client *client;
    pd_error err;

    for (int i = 0; i < TENSORS; i++) gradients[i] = calloc((size_t)sizes[i], sizeof(float));
    assert_non_null(client = begin(rank, &err));
    for (int step = 1; step <= 8; step++) {
        assert_int_equal(take_step(rank, client, gradients, &err), PD_OK);
        if (step == 5) assert_int_equal(pd_client_sync(client, 0, &err), PD_OK);
        if (step != 6 || !disturbed) continue;
        pd_client_close(client);
        start_daemon(r, 1);
        assert_non_null(client = begin(rank, &err));
        step = (int)pd_client_step(client, 0);
        assert_int_equal(step, 5);
        disturbed = false;
    }
    assert_int_equal(pd_client_leave(client, &err), PD_OK);
    pd_client_close(client);
    for (int i = 0; i < TENSORS; i++) free(gradients[i]);
}

/* The parameters of shard 0 have taken step 6, those of shard 1 have lost it: its weights are those of step 5. */
TEST(a_new_process_goes_back_with_a_shard_that_has_lost_one_step)
{
    static const manner m = { .shards = 2, .alone = true, .rule = adamw };
    run runs[2];

    for (int i = 0; i < 2; i++) {
        begin_daemons(&runs[i], &m);
        begin_weights(&runs[i]);
        take_8_steps(&runs[i], i == 1);
    }
    for (int p = 0; p < TENSORS; p++)
        assert_memory_equal(runs[1].ranks[0].weights[p], runs[0].ranks[0].weights[p], (size_t)sizes[p] * sizeof(float));
    for (int i = 0; i < 2; i++) end_run(&runs[i]);
}

/* go_back checks that each rank gets the note of the step to which all go back. */
TEST(a_note_that_comes_with_the_last_call_of_a_step_is_in_its_checkpoint)
{
    try_manner(&(manner){ .shards = 2, .event = KILL_ONE, .whole = true, .halves = true, .rule = adamw });
    try_manner(&(manner){ .shards = 3, .event = KILL_ALL, .whole = true, .halves = true, .rule = adamw });
}
