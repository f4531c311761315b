/* Tests what is particular to schedule_free, schedule_free_sgd and gpa: the weights to evaluate with (readouts), and
 * steps that a parameter misses. test_first_order_twins.c tests their formulas. */
#include "test.h"
#include "batch.h"
#include "optimizer.h"
#include "vectors.h"

enum { N = 301, LARGE = 150001, STEPS = 12 };

static const char *const rows[] = { "schedule_free", "schedule_free_sgd", "gpa" };

/* With r = 0 and a constant rate, the weights to evaluate with are the mean of all z. */
TEST(evaluation_weights_are_the_mean_of_the_steps)
{
    static const int64_t n = N;

    for (int k = 0; k < 2; k++) {
        pd_hypers h = vectors_hypers(rows[k], OPTIONS("lr", "0.05"));
        pd_model *model = vectors_model(&h, &n, 1, 2);
        float w[N], x[N], d[N], gradient[N];
        double sum[N] = { 0 };
        vectors_fill(w, N, 0);
        for (int s = 1; s <= STEPS; s++) {
            vectors_fill(gradient, N, s);
            vectors_step(model, gradient, w, w, NULL);
            vectors_slot(model, "z_minus_y", d, N);
            for (int i = 0; i < N; i++) sum[i] += (double)w[i] + (double)d[i];
            pd_model_read_out(model, 0, w, x);
            for (int i = 0; i < N; i++) assert_true(fabs((double)x[i] - sum[i] / s) < 2e-6);
        }
        assert_memory_not_equal(x, w, sizeof x);
        pd_model_free(model);
    }
}

TEST(evaluation_weights_of_gpa_are_an_exponential_average)
{
    static const int64_t n = N;
    pd_hypers h = vectors_hypers("gpa", OPTIONS("lr", "0.05", "eval_interp_coeff", "0.75"));
    pd_model *model = vectors_model(&h, &n, 1, 2);
    float w[N], x[N], d[N], gradient[N];
    double average[N];

    vectors_fill(w, N, 0);
    for (int i = 0; i < N; i++) average[i] = (double)w[i];
    for (int s = 1; s <= STEPS; s++) {
        vectors_fill(gradient, N, s);
        vectors_step(model, gradient, w, w, NULL);
        vectors_slot(model, "z_minus_y", d, N);
        pd_model_read_out(model, 0, w, x);
        for (int i = 0; i < N; i++) {
            average[i] = 0.75 * average[i] + 0.25 * ((double)w[i] + (double)d[i]);
            assert_true(fabs((double)x[i] - average[i]) < 2e-6);
        }
    }
    pd_model_free(model);
}

TEST(before_the_first_step_and_for_other_optimizers_they_are_the_weights)
{
    static const char *const others[] = { "adamw", "sgd", "schedule_free", "gpa" };
    static const int64_t n = N;
    float w[N], x[N];

    vectors_fill(w, N, 3);
    for (int k = 0; k < 4; k++) {
        pd_hypers h = vectors_hypers(others[k], OPTIONS(NULL));
        pd_model *model = vectors_model(&h, &n, 1, 1);
        pd_model_read_out(model, 0, w, x);
        assert_memory_equal(x, w, sizeof x);
        pd_model_free(model);
    }
}

TEST(their_ranges_change_no_bit)
{
    static const int64_t n = LARGE, cuts[] = { 0, 3, 65536, 70001, LARGE };
    float *w = malloc(LARGE * sizeof *w), *gradient = malloc(LARGE * sizeof *gradient),
          *x[2] = { malloc(LARGE * sizeof *w), malloc(LARGE * sizeof *w) };

    for (int k = 0; k < 3; k++) {
        pd_hypers h = vectors_hypers(rows[k], OPTIONS("lr", "0.05"));
        pd_model *model = vectors_model(&h, &n, 1, 2);
        vectors_fill(w, LARGE, 0);
        for (int s = 1; s <= 2; s++) {
            vectors_fill(gradient, LARGE, s);
            vectors_step(model, gradient, w, w, NULL);
        }
        pd_model_read_out(model, 0, w, x[0]);
        for (int i = 0; i < 4; i++)
            pd_optim_read_out(pd_model_optim(model, 0), w + cuts[i], x[1] + cuts[i], cuts[i], cuts[i + 1] - cuts[i]);
        assert_memory_equal(x[0], x[1], LARGE * sizeof *w);
        pd_model_free(model);
    }
    free(w);
    free(gradient);
    free(x[0]);
    free(x[1]);
}

/* Steps two parameters of a group. The second one has its first gradient in step `first`. Returns its `weight_sum`. */
static double sum_with_gap(const pd_hypers *h, int first, float *w)
{
    static const int64_t n[2] = { N, N };
    pd_model *model = vectors_model(h, n, 2, 1);
    float other[N], gradient[N];
    double sum;

    vectors_fill(w, N, 0);
    vectors_fill(other, N, 0);
    for (int s = 1; s <= STEPS; s++) {
        vectors_fill(gradient, N, s);
        pd_step_io io[2] = { { .gradient = gradient, .before = other, .after = other },
                             { .gradient = s >= first ? gradient : NULL, .before = w, .after = w } };
        assert_int_equal(pd_model_step(model, io, NULL), PD_OK);
    }
    assert_int_equal(pd_model_read_part(model, 1, "weight_sum", -1, -1, &sum, 1, NULL), PD_OK);
    pd_model_free(model);
    return sum;
}

/* Upstream's weights of steps belong to the group: they grow while a parameter has no gradient. */
TEST(missed_steps_count_in_the_average)
{
    float w[3][N];

    for (int k = 0; k < 2; k++) {
        pd_hypers h = vectors_hypers(rows[k], OPTIONS("lr", "0.05", "warmup_steps", "5", "r", "1"));
        double all = sum_with_gap(&h, 1, w[0]), late = sum_with_gap(&h, 8, w[1]), latest = sum_with_gap(&h, 12, w[2]);
        assert_true(fabs(late / all - 1) < 1e-14 && fabs(latest / all - 1) < 1e-14);
        assert_memory_not_equal(w[0], w[1], sizeof w[0]);
    }
}

/* Weights of very many missed steps are added in parts, each as its middle step. */
TEST(a_billion_missed_steps_take_no_time)
{
    static const int64_t n = N;
    static const double power = 1.5, count = 1e9;
    pd_hypers h = vectors_hypers("schedule_free", OPTIONS("lr", "1", "r", "1.5"));
    pd_model *model = vectors_model(&h, &n, 1, 1);
    float w[N], gradient[N];
    double sum;

    vectors_fill(w, N, 0);
    vectors_fill(gradient, N, 1);
    pd_optim_set_count(pd_model_optim(model, 0), (int64_t)count - 1);
    pd_step_io io = { .gradient = gradient, .before = w, .after = w };
    pd_optim *optim = pd_model_optim(model, 0);
    assert_int_equal(pd_optim_begin(optim, &io), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_true(pd_optim_done(optim));
    assert_int_equal(pd_model_read_part(model, 0, "weight_sum", -1, -1, &sum, 1, NULL), PD_OK);
    assert_true(fabs(sum / (pow(count, power + 1) / (power + 1)) - 1) < 1e-6);
    pd_model_free(model);
}

/* A job that begins at a later step has not averaged the steps before it. */
TEST(a_later_start_begins_the_average_anew)
{
    pd_declaration d = { .name = "w", .shape = { 1, { N } }, .start_step = 1000000 };
    double stats[PD_MAX_MODEL_STATS] = { 0 }, sum;
    float w[N], x[N], gradient[N];
    pd_optim *optim;
    pd_part part;

    d.hypers = vectors_hypers("schedule_free_sgd", OPTIONS("lr", "0.5"));
    assert_int_equal(pd_optim_new(&optim, &d, stats, NULL), PD_OK);
    vectors_fill(w, N, 0);
    vectors_fill(gradient, N, 1);
    pd_step_io io = { .gradient = gradient, .before = w, .after = w };
    assert_int_equal(pd_optim_begin(optim, &io), PD_OK);
    assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
    assert_true(pd_plan_part(pd_optim_plan(optim), "weight_sum", -1, -1, &part));
    pd_optim_read_part(optim, &part, &sum);
    assert_true(sum == 0.25);
    pd_optim_read_out(optim, w, x, 0, N);
    assert_memory_equal(x, w, sizeof x);
    pd_optim_free(optim);
}

TEST(beta_stays_as_declared)
{
    static const struct {
        const char *row, *name;
    } fixed[] = { { "schedule_free_sgd", "momentum" },
                  { "gpa", "train_interp_coeff" },
                  { "gpa", "iterate_averaging_type" } };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        size_t n;
        const pd_hyper *table = pd_optimizer_hypers(pd_optim_find(fixed[i].row), &n);
        int k = pd_hypers_find(pd_optim_find(fixed[i].row), fixed[i].name);
        assert_true(k >= 0 && !table[k].per_step);
    }
}
