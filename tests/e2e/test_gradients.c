/* Tests gradients through the real daemon: means and sums, gaps, numbers that are not finite, and hyperparameters sent
 * with a push. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

/* Chunks of 4 KiB, so that a tensor of a few thousand elements has several chunks. */
static const char *const small_chunks[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };
static const int64_t mixed[] = { 1, 1024, 1025, 4000, 3, 64, 8192, 5 };
enum { SIZE = 1500, MIXED = sizeof mixed / sizeof mixed[0] };

enum { STEPS = 3 };
#define LR 0.5f

typedef enum how { MEAN, SUM, WEIGHTED, PRESUMMED, ADASUM, MEDIAN } how;

static double weight_of(int rank)
{
    return rank == 2 ? 0 : 8.0 * (rank + 1);
}

static bool weighted_steps(worker *w)
{
    pd_push_options options = { .weight = weight_of(w->rank),
                                .zero_weight = weight_of(w->rank) == 0,
                                .presummed = *(how *)w->team->arg == PRESUMMED };

    for (int i = 0; i < STEPS; i++)
        if (!worker_step(w, NULL, &options)) return false;
    return true;
}

static bool plain_steps(worker *w)
{
    for (int i = 0; i < STEPS; i++)
        if (!worker_step(w, NULL, NULL)) return false;
    return true;
}

static void aggregate_here(const model *m, size_t p, uint64_t step, int world, how h, float *sum)
{
    float *g = calloc((size_t)m->elements[p], sizeof *g);
    double weights = 0;
    bool first = true;

    for (int r = 0; r < world; r++) {
        bool weighs = h == WEIGHTED || h == PRESUMMED;
        float factor = h == WEIGHTED ? (float)weight_of(r) : 1;

        if (weighs && weight_of(r) == 0) continue;
        weights += weight_of(r);
        fill_gradient(g, m->elements[p], r, step, p);
        for (int64_t i = 0; i < m->elements[p]; i++) sum[i] = first ? g[i] * factor : sum[i] + g[i] * factor;
        first = false;
    }
    for (int64_t i = 0; i < m->elements[p]; i++) sum[i] /= h == SUM ? 1 : h == MEAN ? (float)world : (float)weights;
    free(g);
}

/* Writes the Adasum of two vectors, computed in float64, to `a`. */
static void adasum_pair(double *a, const double *b, int64_t n)
{
    double aa = 1e-30, ab = 0, bb = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        aa += 2 * a[i] * a[i];
        ab += a[i] * b[i];
        bb += 2 * b[i] * b[i];
    }
    for (int64_t i = 0; i < n; i++) a[i] = (1 - ab / aa) * a[i] + (1 - ab / bb) * b[i];
}

static int ascending(const void *a, const void *b)
{
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

/* Computes the aggregate that the test expects of the gradients of four ranks. */
static void gather_here(const model *m, size_t p, uint64_t step, how h, float *out)
{
    int64_t n = m->elements[p];
    float *g[4];
    double *x[4];

    for (int r = 0; r < 4; r++) {
        g[r] = calloc((size_t)n, sizeof *g[r]);
        x[r] = calloc((size_t)n, sizeof *x[r]);
        fill_gradient(g[r], n, r, step, p);
        for (int64_t i = 0; i < n; i++) x[r][i] = g[r][i];
    }
    adasum_pair(x[0], x[1], n);
    adasum_pair(x[2], x[3], n);
    adasum_pair(x[0], x[2], n);
    for (int64_t i = 0; i < n; i++) {
        float values[4] = { g[0][i], g[1][i], g[2][i], g[3][i] };
        qsort(values, 4, sizeof *values, ascending);
        out[i] = h == ADASUM ? (float)x[0][i] : (values[1] + values[2]) / 2;
    }
    for (int r = 0; r < 4; r++) {
        free(g[r]);
        free(x[r]);
    }
}

static void expect_aggregate(const test_daemon *daemon, const char *job, const char *option, how h)
{
    static const char *const rules[] = { "* sgd lr=0.5", NULL };
    const char *const options[] = { option, NULL };
    model *m = model_new(mixed, MIXED);
    team t = {
        .url = daemon->url,
        .job = job,
        .world = 4,
        .rules = rules,
        .options = options,
        .model = m,
        .arg = &h,
        .work = h == WEIGHTED || h == PRESUMMED ? weighted_steps : plain_steps,
    };
    worker workers[TEAM_MOST];
    float **here = model_buffers(m);

    fill_weights(m, here);
    for (size_t p = 0; p < m->n; p++) {
        float *sum = calloc((size_t)m->elements[p], sizeof *sum);

        for (uint64_t step = 1; step <= STEPS; step++) {
            if (h == ADASUM || h == MEDIAN)
                gather_here(m, p, step, h, sum);
            else
                aggregate_here(m, p, step, 4, h, sum);
            for (int64_t i = 0; i < m->elements[p]; i++) here[p][i] -= LR * sum[i];
        }
        free(sum);
    }
    team_run(&t, workers);
    for (size_t p = 0; p < m->n; p++)
        for (int64_t i = 0; i < m->elements[p]; i++) {
            float difference = fabsf(workers[1].weights[p][i] - here[p][i]), scale = 1e-5f * (1 + fabsf(here[p][i]));
            if (difference > scale)
                fail_msg("%s: p%zu[%lld]: %g, expected %g", job, p, (long long)i, workers[1].weights[p][i], here[p][i]);
        }
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
}

HOLDS_FOR(test_daemon *daemon, the_mean_is_of_all_ranks, expect_aggregate(daemon, "mean", "aggregate=mean", MEAN));
HOLDS_FOR(test_daemon *daemon, the_sum_is_of_all_ranks, expect_aggregate(daemon, "sum", "aggregate=sum", SUM));
HOLDS_FOR(test_daemon *daemon, the_weighted_mean_counts_examples,
          expect_aggregate(daemon, "weighted", "aggregate=weighted_mean", WEIGHTED));
HOLDS_FOR(test_daemon *daemon, presummed_gradients_are_divided_by_all_examples,
          expect_aggregate(daemon, "presummed", "aggregate=weighted_mean", PRESUMMED));

HOLDS_FOR(test_daemon *daemon, adasum_merges_ranks_in_pairs,
          expect_aggregate(daemon, "adasum", "aggregate=adasum", ADASUM));
TEST(the_median_and_the_trimmed_mean_of_four_keep_the_middle_two, test_daemon *daemon)
{
    expect_aggregate(daemon, "median", "aggregate=median", MEDIAN);
    expect_aggregate(daemon, "trimmed", "aggregate=trimmed_mean", MEDIAN);
}

/* Takes a step in which rank 1 has no gradient of parameter 1, and no rank has a gradient of parameter 2. */
static bool gappy_step(worker *w)
{
    if (w->rank == 1) w->items[1].gradient = NULL;
    w->items[2].gradient = NULL;
    return worker_step(w, NULL, NULL);
}

TEST(a_rank_without_gradient_does_not_count_and_none_at_all_is_no_step, test_daemon *daemon)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const int64_t sizes[] = { SIZE, SIZE, SIZE };
    model *m = model_new(sizes, 3);
    team t = { .url = daemon->url, .job = "gaps", .world = 2, .rules = rules, .model = m, .work = gappy_step };
    worker workers[TEAM_MOST];
    float **first = model_buffers(m), g[SIZE];

    team_run(&t, workers);
    fill_weights(m, first);
    fill_gradient(g, SIZE, 0, 1, 1);
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < SIZE; i++) assert_true(workers[r].weights[1][i] == first[1][i] - g[i]);
        assert_memory_equal(workers[r].weights[2], first[2], sizeof g);
        assert_int_equal(workers[r].items[1].outcome, 1);
        assert_int_equal(workers[r].items[2].outcome, 3);
        assert_int_equal(workers[r].items[2].step, 1);
        assert_int_equal(workers[r].items[2].version, 0);
    }
    team_free(&t, workers);
    model_free_buffers(m, first);
    model_free(m);
}

/* Takes two steps in which ranks leave parameters out. Rank 0 pushes parameter 0 only, rank 1 pushes parameters 0
 * and 1, and nobody pushes parameter 2. Each rank ends its step with close_step. */
static bool closed_steps(worker *w)
{
    for (uint64_t step = 1; step <= 2; step++) {
        size_t n = w->rank == 0 ? 1 : 2;
        pd_ticket_id push, closing, pull;
        pd_error err;

        for (size_t p = 0; p < n; p++) fill_gradient(w->gradients[p], SIZE, w->rank, step, p);
        if (pd_client_push(w->client, w->items, n, NULL, &push, &err) != PD_OK ||
            pd_client_close_step(w->client, step, &closing, &err) != PD_OK ||
            pd_client_wait(w->client, closing, 0, &err) != PD_OK || pd_client_wait(w->client, push, 0, &err) != PD_OK ||
            pd_client_pull(w->client, w->items, 3, step, &pull, &err) != PD_OK ||
            pd_client_wait(w->client, pull, 0, &err) != PD_OK)
            return worker_fail(w, "a step that is closed", &err);
        for (size_t p = 0; p < 3; p++)
            if (pd_client_step(w->client, p) != step) return worker_fail(w, "a parameter is not a step further", NULL);
    }
    return true;
}

TEST(what_a_rank_leaves_out_is_absent_when_it_closes_its_step, test_daemon *daemon)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    static const int64_t sizes[] = { SIZE, SIZE, SIZE };
    model *m = model_new(sizes, 3);
    team t = { .url = daemon->url, .job = "left out", .world = 2, .rules = rules, .model = m, .work = closed_steps };
    worker workers[TEAM_MOST];
    float **here = model_buffers(m), g[SIZE];

    team_run(&t, workers);
    fill_weights(m, here);
    for (uint64_t step = 1; step <= 2; step++) {
        fill_gradient(g, SIZE, 1, step, 1);
        for (int i = 0; i < SIZE; i++) here[1][i] -= g[i];
    }
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < SIZE; i++) assert_true(workers[r].weights[1][i] == here[1][i]);
        assert_memory_equal(workers[r].weights[2], here[2], sizeof g);
        assert_int_equal(workers[r].items[0].version, 2);
        assert_int_equal(workers[r].items[2].version, 0);
    }
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
}

/* The gradient of p1 on rank 1 has a NaN in its second chunk. */
static bool push_poison(worker *w, pd_error *err)
{
    pd_ticket_id ticket;
    int rc;

    for (size_t p = 0; p < 2; p++)
        fill_gradient(w->gradients[p], w->team->model->elements[p], w->rank, pd_client_step(w->client, p) + 1, p);
    if (w->rank == 1) w->gradients[1][SIZE - 1] = NAN;
    rc = pd_client_push_pull(w->client, w->items, 2, NULL, &ticket, err);
    if (rc == PD_OK) rc = pd_client_wait(w->client, ticket, 0, err);
    return rc == PD_OK;
}

static bool poisoned_step(worker *w)
{
    pd_error err;
    return push_poison(w, &err) || worker_fail(w, "push_pull", &err);
}

static const int64_t two_sizes[] = { SIZE, SIZE };

TEST(a_gradient_that_is_not_finite_skips_its_parameters_step, test_daemon *daemon)
{
    static const char *const options[] = { "nonfinite=skip", NULL };
    model *m = model_new(two_sizes, 2);
    team t = { .url = daemon->url, .job = "skip", .world = 2, .options = options, .model = m, .work = poisoned_step };
    worker workers[TEAM_MOST];
    float **first = model_buffers(m);

    fill_weights(m, first);
    team_run(&t, workers);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(workers[r].items[0].outcome, 1);
        assert_int_equal(workers[r].items[1].outcome, 2);
        assert_int_equal(workers[r].items[1].step, 1);
        assert_memory_equal(workers[r].weights[1], first[1], SIZE * sizeof(float));
    }
    team_free(&t, workers);
    model_free_buffers(m, first);
    model_free(m);
}

TEST(a_gradient_that_is_not_finite_skips_the_whole_jobs_step_where_that_is_wanted, test_daemon *daemon)
{
    static const char *const options[] = { "nonfinite_scope=job", NULL };
    model *m = model_new(two_sizes, 2);
    team t = {
        .url = daemon->url, .job = "skip-all", .world = 2, .options = options, .model = m, .work = poisoned_step
    };
    worker workers[TEAM_MOST];
    float **first = model_buffers(m);

    fill_weights(m, first);
    team_run(&t, workers);
    for (int r = 0; r < 2; r++) {
        for (int p = 0; p < 2; p++) assert_int_equal(workers[r].items[p].outcome, 2);
        assert_true(model_same(m, workers[r].weights, first));
    }
    team_free(&t, workers);
    model_free_buffers(m, first);
    model_free(m);
}

TEST(a_gradient_that_is_not_finite_is_applied_where_that_is_wanted, test_daemon *daemon)
{
    static const char *const options[] = { "nonfinite=apply", NULL };
    model *m = model_new(two_sizes, 2);
    team t = { .url = daemon->url, .job = "apply", .world = 2, .options = options, .model = m, .work = poisoned_step };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    assert_int_equal(workers[0].items[1].outcome, 1);
    assert_true(isnan(workers[0].weights[1][SIZE - 1]));
    assert_true(isfinite(workers[0].weights[1][SIZE - 2]));
    team_free(&t, workers);
    model_free(m);
}

/* The rank pushes the refused tensor again without NaN, and all ranks take the step. */
static bool rejected_step(worker *w)
{
    pd_ticket_id ticket;
    pd_error err = { 0 };

    if (w->rank == 0) return push_poison(w, &err) || worker_fail(w, "push_pull", &err);
    if (push_poison(w, &err)) return worker_fail(w, "a NaN was taken", NULL);
    if (err.code != PD_INVALID_ARGUMENT || strstr(err.text, "p1") == NULL)
        return worker_fail(w, "not the error expected", &err);
    if (strstr(err.text, "Encountered nan or inf values") == NULL) return worker_fail(w, "not upstream's words", NULL);
    if (strstr(err.text, "a lower learning rate") == NULL ||
        strstr(err.text, "start_preconditioning_step, clipping of gradients") == NULL)
        return worker_fail(w, "no advice", &err);
    if (w->items[1].outcome != PD_INVALID_ARGUMENT) return worker_fail(w, "p1 is not marked as refused", &err);
    w->gradients[1][SIZE - 1] = 1;
    if (pd_client_push_pull(w->client, &w->items[1], 1, NULL, &ticket, &err) != PD_OK ||
        pd_client_wait(w->client, ticket, 0, &err) != PD_OK)
        return worker_fail(w, "the mended push", &err);
    return true;
}

TEST(a_gradient_that_is_not_finite_is_rejected_where_that_is_wanted_and_can_be_mended, test_daemon *daemon)
{
    static const char *const options[] = { "nonfinite=reject", NULL };
    model *m = model_new(two_sizes, 2);
    team t = { .url = daemon->url, .job = "reject", .world = 2, .options = options, .model = m, .work = rejected_step };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    assert_int_equal(workers[1].items[1].outcome, 1);
    assert_int_equal(workers[1].items[1].step, 1);
    assert_true(model_same(m, workers[0].weights, workers[1].weights));
    assert_true(isfinite(workers[0].weights[1][SIZE - 1]));
    team_free(&t, workers);
    model_free(m);
}

static bool scheduled_steps(worker *w)
{
    for (int i = 0; i < 4; i++) {
        char lr[32];
        const char *const hypers[] = { lr, NULL };

        snprintf(lr, sizeof lr, "lr=%g", 1.0 / (1 << i));
        if (!worker_step(w, NULL, &(pd_push_options){ .hypers = i == 3 ? NULL : hypers })) return false;
    }
    return true;
}

TEST(a_learning_rate_sent_with_a_push_holds_for_that_step, test_daemon *daemon)
{
    static const char *const rules[] = { "* sgd lr=0.25", NULL };
    static const int64_t size = SIZE;
    model *m = model_new(&size, 1);
    team t = { .url = daemon->url, .job = "schedule", .world = 1, .rules = rules, .model = m, .work = scheduled_steps };
    worker workers[TEAM_MOST];
    float **here = model_buffers(m), g[SIZE];

    fill_weights(m, here);
    for (int s = 0; s < 4; s++) {
        fill_gradient(g, SIZE, 0, (uint64_t)s + 1, 0);
        for (int i = 0; i < SIZE; i++) here[0][i] -= (s == 3 ? 0.25f : 1.0f / (float)(1 << s)) * g[i];
    }
    team_run(&t, workers);
    for (int i = 0; i < SIZE; i++)
        assert_true(fabsf(workers[0].weights[0][i] - here[0][i]) <= 1e-5f * (1 + fabsf(here[0][i])));
    team_free(&t, workers);
    model_free_buffers(m, here);
    model_free(m);
}

/* Rank 1 pushes second and is refused. It pushes again with the value of the round. */
static bool conflicting_step(worker *w)
{
    static const char *const mine[2][2] = { { "lr=0.5", NULL }, { "lr=0.125", NULL } };
    pd_push_options options = { .hypers = mine[w->rank] };
    pd_error err = { 0 };
    pd_ticket_id ticket;

    if (w->rank == 0) return worker_step(w, NULL, &options);
    daemon_await_contributions(w->team->arg, "conflict", 1);
    fill_gradient(w->gradients[0], SIZE, 1, 1, 0);
    if (pd_client_push_pull(w->client, w->items, 1, &options, &ticket, &err) != PD_OK ||
        pd_client_wait(w->client, ticket, 0, &err) == PD_OK)
        return worker_fail(w, "two learning rates in one round were taken", &err);
    if (err.code != PD_INVALID_ARGUMENT || strstr(err.text, "0.5") == NULL || strstr(err.text, "0.125") == NULL)
        return worker_fail(w, "the error does not name both values", &err);
    options.hypers = mine[0];
    return worker_step(w, NULL, &options);
}

TEST(ranks_that_send_different_learning_rates_are_told_both, test_daemon *daemon)
{
    static const int64_t size = SIZE;
    model *m = model_new(&size, 1);
    team t = { .url = daemon->url, .job = "conflict", .world = 2, .model = m, .work = conflicting_step, .arg = daemon };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    assert_int_equal(workers[1].items[0].step, 1);
    team_free(&t, workers);
    model_free(m);
}

GROUP_OBJECT(daemon_start(small_chunks), daemon_end);
