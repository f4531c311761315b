/* Tests second-order optimizers through the real daemon: the weights do not depend on thread timing or on the time at
 * which roots finish. Also tests what is reported about roots. */
#include "test.h"
#include "connection.h"
#include "daemon_process.h"
#include "team.h"

/* Matrices that are cut into blocks of 64, vectors, and a tensor of three dimensions. Chunks have 4 KiB. */
static const int64_t elements[] = { 200 * 150, 64 * 64, 100, 130 * 40, 6 * 5 * 40 };
static const pd_shape shapes[] = {
    { 2, { 200, 150 } }, { 2, { 64, 64 } }, { 1, { 100 } }, { 2, { 130, 40 } }, { 3, { 6, 5, 40 } }
};
enum { PARAMS = sizeof elements / sizeof elements[0], STEPS = 9, WORLD = 3 };

static model *matrices(void)
{
    model *m = model_new(elements, PARAMS);

    for (size_t i = 0; i < PARAMS; i++) m->params[i].shape = shapes[i];
    return m;
}

/* Takes all steps. Each worker pushes the parameters in a random order, which differs between ranks and steps. With
 * a seed (`arg`) above 0, each worker also sleeps for a different time before each step. */
static bool work(worker *w)
{
    const uint64_t *seed = w->team->arg;

    for (uint64_t step = 1; step <= STEPS; step++) {
        size_t order[PARAMS];
        shuffle(order, PARAMS, *seed * 1000 + step * 10 + (uint64_t)w->rank);
        if (*seed > 0) sleep_for(0.001 * (double)((*seed + step * 7 + (uint64_t)w->rank * 3) % 5));
        if (!worker_step(w, order, NULL)) return false;
    }
    return true;
}

typedef struct told {
    uint64_t due, adopted, failed, replaced, waits;
} told;

/* Asks the daemon how many roots of the job were due, adopted, failed, and so on. The job lingers after its workers
 * have left. */
static told ask(const test_daemon *daemon, const char *job)
{
    Paramd__StatusReply *status = NULL;
    told roots = { 0 };
    pd_operator op;

    assert_int_equal(pd_operator_open(&op, daemon->url, patient(10), NULL), PD_OK);
    assert_int_equal(pd_client_call(op.client, PD_STATUS, NULL, op.arena, (void **)&status, NULL), PD_OK);
    for (size_t i = 0; i < status->n_jobs; i++) {
        const Paramd__JobInfo *info = status->jobs[i];
        if (strcmp(info->name, job) == 0)
            roots = (told){ info->roots_due, info->roots_adopted, info->roots_failed, info->roots_unused,
                            info->root_waits };
    }
    pd_operator_close(&op);
    return roots;
}

/* Trains on a daemon with these flags. Returns the weights. */
static float **train(const char *const *flags, const char *rule, uint64_t seed, told *roots)
{
    const char *const rules[] = { rule, NULL };
    test_daemon *daemon = daemon_start(flags);
    model *m = matrices();
    team t = { .url = daemon->url,
               .job = "roots",
               .world = WORLD,
               .rules = rules,
               .model = m,
               .work = work,
               .arg = &seed,
               .deadline = patient(30) };
    worker workers[TEAM_MOST];
    float **weights = model_buffers(m);

    team_run(&t, workers);
    for (size_t i = 0; i < PARAMS; i++) memcpy(weights[i], workers[0].weights[i], (size_t)elements[i] * sizeof(float));
    for (int w = 1; w < WORLD; w++) assert_true(model_same(m, workers[w].weights, weights));
    team_free(&t, workers);
    *roots = ask(daemon, "roots");
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
    model_free(m);
    return weights;
}

static const char *const one_thread[] = { "--threads-step-threads=1", "--threads-pool-threads=1", "--chunk-bytes=4KiB",
                                          "--max-payload=16KiB", NULL };
static const char *const two_threads[] = { "--threads-step-threads=2", "--threads-pool-threads=2", "--chunk-bytes=4KiB",
                                           "--max-payload=64KiB", NULL };
static const char *const four_threads[] = { "--threads-step-threads=4", "--threads-pool-threads=3",
                                            "--chunk-bytes=8KiB", "--max-payload=8KiB", NULL };

static void daemons_agree(int delay, const char *more)
{
    static const char *const *const flags[] = { two_threads, four_threads };
    char rule[300];
    told first, again;
    float **weights, **others;
    model *m = matrices();

    snprintf(rule, sizeof rule,
             "* scalable_shampoo learning_rate=0.01 block_size=64 start_preconditioning_step=2 "
             "preconditioning_compute_steps=2 root_delay=%d %s",
             delay, more);
    weights = train(one_thread, rule, 0, &first);
    assert_true(first.due > 0 && first.adopted > 0);
    if (delay == 0) {
        assert_true(first.waits > 0);
        assert_int_equal(first.adopted + first.failed, first.due);
    }
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        others = train(flags[i], rule, 10 + i, &again);
        assert_true(model_same(m, weights, others));
        assert_int_equal(again.due, first.due);
        assert_int_equal(again.adopted, first.adopted);
        assert_int_equal(again.failed, first.failed);
        assert_int_equal(again.replaced, 0);
        model_free_buffers(m, others);
    }
    model_free_buffers(m, weights);
    model_free(m);
}

HOLDS(daemons_with_other_threads_agree_where_roots_are_used_at_once, daemons_agree(0, ""));

TEST(daemons_with_other_threads_agree_where_roots_are_used_later)
{
    daemons_agree(1, "root_method=tracked");
    daemons_agree(2, "root_method=eigh best_effort_memory_usage_reduction=yes");
}

TEST(ready_roots_never_wait_and_the_log_says_what_that_costs)
{
    static const char *const rules[] = {
        "* scalable_shampoo learning_rate=0.01 block_size=64 preconditioning_compute_steps=1 root_delay=ready", NULL
    };
    test_daemon *daemon = daemon_start(two_threads);
    model *m = matrices();
    uint64_t seed = 3;
    team t = { .url = daemon->url,
               .job = "ready",
               .world = WORLD,
               .rules = rules,
               .model = m,
               .work = work,
               .arg = &seed,
               .deadline = patient(30) };
    worker workers[TEAM_MOST];
    told roots;

    team_run(&t, workers);
    roots = ask(daemon, "ready");
    assert_int_equal(roots.waits, 0);
    assert_true(roots.due > 0 && roots.adopted > 0);
    assert_true(roots.adopted + roots.failed + roots.replaced <= roots.due);
    assert_true(daemon_says(daemon, "not reproducible bit for bit", patient(5)));
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* Takes all steps, with a NaN in the gradient of p0 in step 3, which the daemon applies (nonfinite = apply). The
 * roots of p0 then fail, the last good roots stay in use, and steps go on. */
static bool poison(worker *w)
{
    for (uint64_t step = 1; step <= STEPS; step++) {
        pd_ticket_id ticket;
        pd_error err = { 0 };
        for (size_t i = 0; i < PARAMS; i++) fill_gradient(w->gradients[i], elements[i], w->rank, step, i);
        if (step == 3) w->gradients[0][0] = 0.0f / 0.0f;
        if (pd_client_push_pull(w->client, w->items, PARAMS, NULL, &ticket, &err) != PD_OK)
            return worker_fail(w, "push", &err);
        if (pd_client_wait(w->client, ticket, patient(20), &err) != PD_OK) return worker_fail(w, "wait", &err);
    }
    return true;
}

TEST(a_failed_root_keeps_the_last_good_one_and_training_goes_on)
{
    static const char *const rules[] = {
        "* scalable_shampoo learning_rate=0.01 block_size=64 preconditioning_compute_steps=1", NULL
    };
    static const char *const options[] = { "nonfinite=apply", NULL };
    test_daemon *daemon = daemon_start(one_thread);
    model *m = matrices();
    team t = { .url = daemon->url,
               .job = "poison",
               .world = 1,
               .rules = rules,
               .options = options,
               .model = m,
               .work = poison,
               .deadline = patient(30) };
    worker workers[TEAM_MOST];
    told roots;

    team_run(&t, workers);
    assert_int_equal(workers[0].items[1].step, STEPS);
    roots = ask(daemon, "poison");
    assert_int_equal(roots.adopted + roots.failed, roots.due);
    /* the two roots of the block that got the NaN fail in every step from step 3 on */
    assert_int_equal(roots.failed, 2 * (STEPS - 2));
    assert_true(daemon_says(daemon, "root preconditioners.0 of p0, size (64, 64), failed by step 3 (1 times so far)",
                            patient(5)));
    assert_true(daemon_says(daemon, "root preconditioners.0 of p0, size (64, 64), failed by step 6 (4 times so far)",
                            patient(5)));
    assert_false(daemon_says(daemon, "failed by step 5 ", 0));
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* Pushes a gradient of p0 with a NaN from rank 0 in step 2. The Kronecker factors of p0 keep the NaN, so steps 2 and
 * 3 of p0 are refused. The other parameters go on. */
static bool be_refused(worker *w)
{
    float *kept = malloc((size_t)elements[0] * sizeof *kept);
    bool good = true;

    for (uint64_t step = 1; step <= 3 && good; step++) {
        pd_ticket_id ticket;
        pd_error err = { 0 };
        int rc;
        for (size_t i = 0; i < PARAMS; i++) fill_gradient(w->gradients[i], elements[i], w->rank, step, i);
        if (step == 2 && w->rank == 0) w->gradients[0][0] = 0.0f / 0.0f;
        if (step == 2) memcpy(kept, w->weights[0], (size_t)elements[0] * sizeof *kept);
        rc = pd_client_push_pull(w->client, w->items, PARAMS, NULL, &ticket, &err);
        if (rc == PD_OK) rc = pd_client_wait(w->client, ticket, patient(20), &err);
        if (rc != (step == 1 ? PD_OK : PD_FAILED_PRECONDITION))
            good = worker_fail(w, "not the result expected", &err);
        else if (step > 1 && (strstr(err.text, "p0") == NULL || strstr(err.text, "Encountered nan values") == NULL))
            good = worker_fail(w, "no reason", &err);
        else if (w->items[0].outcome != (step == 1 ? 1 : 4) || w->items[1].outcome != 1)
            good = worker_fail(w, "outcomes", NULL);
        else if (w->items[0].step != step || w->items[0].version != 1)
            good = worker_fail(w, "step and version", NULL);
        else if (step > 1 && memcmp(kept, w->weights[0], (size_t)elements[0] * sizeof *kept) != 0)
            good = worker_fail(w, "weights have moved", NULL);
    }
    free(kept);
    return good;
}

TEST(a_refused_step_is_told_to_all_ranks_and_training_goes_on)
{
    static const char *const rules[] = { "* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=1", NULL };
    static const char *const options[] = { "nonfinite=apply", NULL };
    test_daemon *daemon = daemon_start(one_thread);
    model *m = matrices();
    team t = { .url = daemon->url,
               .job = "refused",
               .world = 2,
               .rules = rules,
               .options = options,
               .model = m,
               .work = be_refused,
               .deadline = patient(30) };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    assert_true(daemon_says(daemon, "step 2 of p0 is refused: ", patient(5)));
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* A statistic of 60,000 by 60,000 elements takes 14.4 GB. Its root takes as much, and the task that computes the
 * root needs memory for two more matrices of this size. */
TEST(a_dimension_of_60000_is_refused_with_its_bytes)
{
    static const char *const limited[] = { "--max-total-bytes=8GiB", NULL };
    static const char *const rules[] = { "* scalable_shampoo block_size=60000 skip_preconditioning_dim_size_gt=100000",
                                         NULL };
    static const int64_t large = 60000;
    test_daemon *daemon = daemon_start(limited);
    model *m = model_new(&large, 1);
    team t = { .url = daemon->url, .job = "large", .world = 1, .rules = rules, .model = m, .deadline = patient(20) };
    worker w;

    assert_true(worker_open(&w, &t, 0));
    assert_false(worker_declare(&w));
    if (strstr(w.failure, "parameter p0 needs 576") == NULL || strstr(w.failure, "8589934592 allowed") == NULL)
        fail_msg("%s", w.failure);
    worker_free(&w);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
