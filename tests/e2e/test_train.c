/* Tests training through the real daemon: the pulled weights equal those that the formulas give, bit for bit. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/optim.h"
#include "team.h"

/* Chunks of 4 KiB, so that a tensor of a few thousand elements has several chunks. */
static const char *const small_chunks[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };
static const int64_t mixed[] = { 1, 1024, 1025, 4000, 3, 64, 8192, 5 };
enum { SIZE = 1500, MIXED = sizeof mixed / sizeof mixed[0] };

static bool ten_steps(worker *w)
{
    for (int i = 0; i < 10; i++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

/* Applies the same gradients to the same weights in this process. Returns the weights. */
static float **train_here(const model *m, const char *rule_values[][2], int steps)
{
    float **weights = model_buffers(m), **gradients = model_buffers(m);
    pd_declaration *declarations = calloc(m->n, sizeof *declarations);
    pd_step_io *io = calloc(m->n, sizeof *io);
    pd_model *here;
    pd_error err;

    fill_weights(m, weights);
    for (size_t i = 0; i < m->n; i++) {
        declarations[i] = (pd_declaration){ .name = m->params[i].name, .shape = m->params[i].shape };
        pd_hypers_init(&declarations[i].hypers, pd_optim_find("sgd"));
        for (int k = 0; rule_values[k][0] != NULL; k++)
            assert_int_equal(pd_hypers_set(&declarations[i].hypers, rule_values[k][0], rule_values[k][1], &err), PD_OK);
        io[i] = (pd_step_io){ .gradient = gradients[i], .before = weights[i], .after = weights[i] };
    }
    assert_int_equal(pd_model_new(&here, declarations, m->n, 1, &err), PD_OK);
    for (int step = 1; step <= steps; step++) {
        for (size_t i = 0; i < m->n; i++) fill_gradient(gradients[i], m->elements[i], 0, (uint64_t)step, i);
        assert_int_equal(pd_model_step(here, io, &err), PD_OK);
    }
    pd_model_free(here);
    free(io);
    free(declarations);
    model_free_buffers(m, gradients);
    return weights;
}

TEST(one_worker_trains_as_the_same_arithmetic_does_here, test_daemon *daemon)
{
    static const char *const rules[] = { "* sgd lr=0.05 momentum=0.9 weight_decay=0.01 nesterov=yes", NULL };
    static const char *values[][2] = {
        { "lr", "0.05" }, { "momentum", "0.9" }, { "weight_decay", "0.01" }, { "nesterov", "yes" }, { NULL, NULL }
    };
    model *m = model_new(mixed, MIXED);
    team t = { .url = daemon->url, .job = "one", .world = 1, .rules = rules, .model = m, .work = ten_steps };
    worker workers[TEAM_MOST];
    float **here = train_here(m, values, 10);

    team_run(&t, workers);
    assert_true(model_same(m, workers[0].weights, here));
    assert_int_equal(workers[0].items[3].step, 10);
    assert_int_equal(workers[0].items[3].outcome, 1);
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
}

TEST(checksums_change_nothing, test_daemon *daemon)
{
    static const char *const rules[] = { "* sgd lr=0.05", NULL };
    static const char *values[][2] = { { "lr", "0.05" }, { NULL, NULL } };
    model *m = model_new(mixed, MIXED);
    team t = { .url = daemon->url,
               .job = "checksum",
               .world = 1,
               .rules = rules,
               .model = m,
               .work = ten_steps,
               .checksum = true };
    worker workers[TEAM_MOST];
    float **here = train_here(m, values, 10);

    team_run(&t, workers);
    assert_true(model_same(m, workers[0].weights, here));
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
}

static bool sorted_steps(worker *w)
{
    for (int i = 0; i < 5; i++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

static bool shuffled_steps(worker *w)
{
    size_t order[MIXED];

    for (int i = 0; i < 5; i++) {
        shuffle(order, MIXED, (uint64_t)(w->rank * 100 + i));
        if (!worker_step(w, order, NULL)) return false;
    }
    return true;
}

/* Takes five steps. In each step the ranks push after different delays and in different orders. */
static bool staggered_steps(worker *w)
{
    size_t order[MIXED];

    for (int i = 0; i < 5; i++) {
        sleep_for(0.02 * ((w->rank * 3 + i) % 4));
        shuffle(order, MIXED, (uint64_t)(w->rank + 7 * i));
        if (!worker_step(w, order, NULL)) return false;
    }
    return true;
}

/* Pushes each parameter with a ticket of its own. All tickets are under way at once. */
static bool pipelined_steps(worker *w)
{
    for (int i = 0; i < 5; i++) {
        pd_ticket_id tickets[MIXED];
        size_t order[MIXED];
        pd_error err;

        shuffle(order, MIXED, (uint64_t)(w->rank * 31 + i));
        for (size_t k = 0; k < MIXED; k++) {
            size_t p = order[k];
            fill_gradient(w->gradients[p], w->team->model->elements[p], w->rank, pd_client_step(w->client, p) + 1, p);
            if (pd_client_push_pull(w->client, &w->items[p], 1, NULL, &tickets[k], &err) != PD_OK)
                return worker_fail(w, "push_pull", &err);
        }
        for (size_t k = MIXED; k-- > 0;)
            if (pd_client_wait(w->client, tickets[k], 0, &err) != PD_OK) return worker_fail(w, "wait", &err);
    }
    return true;
}

static void run_four(const test_daemon *daemon, const model *m, const char *job, bool (*work)(worker *),
                     const char *const *options, worker *workers, team *t)
{
    static const char *const rules[] = { "* sgd lr=0.05 momentum=0.9", NULL };

    *t = (team){
        .url = daemon->url, .job = job, .world = 4, .rules = rules, .options = options, .model = m, .work = work
    };
    team_run(t, workers);
    for (int r = 1; r < 4; r++) assert_true(model_same(m, workers[0].weights, workers[r].weights));
}

TEST(any_order_timing_and_pipelining_give_the_same_bits, test_daemon *daemon)
{
    static bool (*const manners[])(worker *) = { shuffled_steps, staggered_steps, pipelined_steps };
    model *m = model_new(mixed, MIXED);
    worker sorted[TEAM_MOST], other[TEAM_MOST];
    team t, u;

    run_four(daemon, m, "sorted", sorted_steps, NULL, sorted, &t);
    for (int i = 0; i < 3; i++) {
        char job[24];

        snprintf(job, sizeof job, "other-%d", i);
        run_four(daemon, m, job, manners[i], NULL, other, &u);
        assert_true(model_same(m, sorted[0].weights, other[0].weights));
        team_free(&u, other);
    }
    team_free(&t, sorted);
    model_free(m);
}

static bool two_steps(worker *w)
{
    return worker_step(w, NULL, NULL) && worker_step(w, NULL, NULL);
}

TEST(two_thousand_small_tensors_arrive_in_order)
{
    enum { N = 2000 };
    static int64_t sizes[N];
    static const char *const rules[] = { "* sgd lr=1", NULL };
    test_daemon *daemon = daemon_start(NULL);
    worker workers[TEAM_MOST];
    model *m;
    team t;
    float g[64];

    for (int i = 0; i < N; i++) sizes[i] = 1 + i % 64;
    m = model_new(sizes, N);
    t = (team){ .url = daemon->url, .job = "small", .world = 2, .rules = rules, .model = m, .work = two_steps };
    team_run(&t, workers);
    assert_true(model_same(m, workers[0].weights, workers[1].weights));
    for (int p = 0; p < N; p += 97) {
        float **first = model_buffers(m), h[64];

        fill_weights(m, first);
        for (uint64_t step = 1; step <= 2; step++) {
            fill_gradient(g, sizes[p], 0, step, (size_t)p);
            fill_gradient(h, sizes[p], 1, step, (size_t)p);
            for (int64_t i = 0; i < sizes[p]; i++) first[p][i] -= (g[i] + h[i]) / 2;
        }
        assert_memory_equal(workers[0].weights[p], first[p], (size_t)sizes[p] * sizeof(float));
        model_free_buffers(m, first);
    }
    /* small parameters share frames: there are far fewer frames than parameters */
    assert_true(workers[0].stats.bytes_out < 600000 * 2);
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* So many parameters take several frames for the declarations, and several for the answers. */
TEST(twelve_thousand_parameters_train_and_come_back)
{
    enum { N = 12000 };
    static const char *const flags[] = { "--max-params=12000", NULL };
    static int64_t sizes[N];
    test_daemon *daemon = daemon_start(flags);
    worker workers[TEAM_MOST];
    model *m;
    team t;

    for (int i = 0; i < N; i++) sizes[i] = 1 + i % 3;
    m = model_new(sizes, N);
    t = (team){ .url = daemon->url, .job = "many", .world = 2, .model = m, .work = two_steps, .deadline = patient(60) };
    team_run(&t, workers);
    assert_true(model_same(m, workers[0].weights, workers[1].weights));
    assert_int_equal(pd_client_step(workers[0].client, N - 1), 2);
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(a_tensor_larger_than_a_chunk_arrives_whole)
{
    static const int64_t sizes[] = { 2500000, 7 }; /* 10 MB: three chunks of 4 MiB */
    static const char *const rules[] = { "* sgd lr=0.01", NULL };
    static const char *values[][2] = { { "lr", "0.01" }, { NULL, NULL } };
    test_daemon *daemon = daemon_start(NULL);
    model *m = model_new(sizes, 2);
    team t = { .url = daemon->url, .job = "large", .world = 1, .rules = rules, .model = m, .work = two_steps };
    worker workers[TEAM_MOST];
    float **here = train_here(m, values, 2);

    team_run(&t, workers);
    assert_true(model_same(m, workers[0].weights, here));
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(weights_are_those_of_the_lowest_rank_and_a_pull_waits_for_its_step, test_daemon *daemon)
{
    static const int64_t size = SIZE;
    static const char *const rules[] = { "* sgd lr=1", NULL };
    model *m = model_new(&size, 1);
    team t = { .url = daemon->url, .job = "pull", .world = 1, .rules = rules, .model = m };
    worker w;
    pd_ticket_id pull, push;
    pd_error err;
    float *weights, before[SIZE];

    if (!worker_open(&w, &t, 0) || !worker_declare(&w)) fail_msg("%s", w.failure);
    weights = w.weights[0];
    memcpy(before, weights, sizeof before);
    fill_gradient(w.gradients[0], size, 0, 1, 0);
    assert_int_equal(pd_client_pull(w.client, w.items, 1, 1, &pull, &err), PD_OK);
    assert_int_equal(pd_client_wait(w.client, pull, 0.1, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "waited"));
    assert_int_equal(
        pd_client_push(w.client, &(pd_item){ .param = 0, .gradient = w.gradients[0] }, 1, NULL, &push, &err), PD_OK);
    assert_int_equal(pd_client_wait(w.client, pull, 0, &err), PD_OK);
    for (int i = 0; i < size; i++) assert_true(weights[i] == before[i] - w.gradients[0][i]);
    assert_int_equal(w.items[0].version, 1);
    assert_int_equal(pd_client_wait(w.client, push, 0, &err), PD_OK);
    assert_int_equal(pd_client_wait(w.client, push, 0, &err), PD_NOT_FOUND);
    if (!worker_leave(&w)) fail_msg("%s", w.failure);
    worker_free(&w);
    model_free(m);
}

static bool three_barriers(worker *w)
{
    pd_error err;

    for (int i = 0; i < 3; i++) {
        int *counts = w->team->arg;

        sleep_for(0.01 * w->rank);
        __atomic_add_fetch(&counts[i], 1, __ATOMIC_SEQ_CST);
        if (pd_client_barrier(w->client, &err) != PD_OK) return worker_fail(w, "barrier", &err);
        if (__atomic_load_n(&counts[i], __ATOMIC_SEQ_CST) != 4)
            return worker_fail(w, "a barrier let somebody through too early", NULL);
    }
    return true;
}

TEST(a_barrier_waits_for_every_rank, test_daemon *daemon)
{
    static const int64_t size = 1;
    model *m = model_new(&size, 1);
    int counts[3] = { 0 };
    team t = { .url = daemon->url, .job = "barrier", .world = 4, .model = m, .work = three_barriers, .arg = counts };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    team_free(&t, workers);
    model_free(m);
}

GROUP_OBJECT(daemon_start(small_chunks), daemon_end);
