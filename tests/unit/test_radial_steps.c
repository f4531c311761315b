/* Tests steps whose aggregate is the radial mean: which weights count, contributions that are old or that are too few,
 * and which ranges are refused. */
#include "test.h"
#include "rig.h"

enum { WORLD = 3, N = 150, CONN = 10 };
static const int64_t sizes[] = { N };

/* A job, its gradients, and the weights before the step that is looked at. */
typedef struct fixture {
    rig rig;
    float g[WORLD][N], before[N];
} fixture;

static void set_up(fixture *f)
{
    pd_store_config config = rig_config();

    rig_new(&f->rig, &config);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        rig_noise(rank + 1, f->g[rank], N);
        for (int i = 0; i < N; i++) f->g[rank][i] *= (float)(1 + rank);
    }
}

static void tear_down(fixture *f)
{
    rig_free(&f->rig);
}

static void start(fixture *f, const char *options)
{
    f->rig.job = rig_start(&f->rig, "job", WORLD, CONN, sizes, 1, options, "* sgd lr=1");
}

static void push(fixture *f, uint32_t rank, uint64_t step, double weight)
{
    for (int64_t first = 0, n; first < N; first += n) {
        rig_frame *frame = rig_frame_new(&f->rig, PD_REQ_PUSH, f->rig.job, rank, CONN + rank, step);
        n = pd_range_piece(0, N, (uint64_t)f->rig.chunk, (uint64_t)first);
        rig_piece(frame, 0, PD_F32, first, n, f->g[rank] + first);
        rig_weight(frame, weight, false);
        assert_int_equal(rig_send(&f->rig, frame), PD_OK);
    }
}

static void remember(fixture *f)
{
    rig_work(&f->rig);
    memcpy(f->before, rig_weights(&f->rig, f->rig.job, 0), sizeof f->before);
}

static double norm_of(const double *x)
{
    double sum = 0;

    for (int i = 0; i < N; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* Checks that the step has subtracted the radial mean of the gradients with these weights; 0: it does not count. */
static void assert_moved(fixture *f, uint64_t step, const double weight[WORLD])
{
    double sum[N] = { 0 }, length = 0, total = 0, size;

    rig_work(&f->rig);
    assert_int_equal(rig_versions(&f->rig, f->rig.job, 0)->step, step);
    assert_int_equal(rig_versions(&f->rig, f->rig.job, 0)->outcome, PD_STEPPED);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        double x[N], norm;
        if (weight[rank] == 0) continue;
        for (int i = 0; i < N; i++) x[i] = f->g[rank][i];
        norm = norm_of(x);
        for (int i = 0; i < N; i++) sum[i] += weight[rank] * x[i] / norm;
        length += weight[rank] * norm;
        total += weight[rank];
    }
    size = norm_of(sum);
    for (int i = 0; i < N; i++) {
        double by = length / total * sum[i] / size, got = rig_weights(&f->rig, f->rig.job, 0)[i];
        double wanted = f->before[i] - by;
        /* the radial mean is rounded once, and the new weight once */
        if (fabs(got - wanted) > 6.1e-8 * (fabs(wanted) + fabs(by)))
            fail_msg("element %d: %.9g, not %.9g", i, got, wanted);
    }
}

FIXTURE(fixture, set_up, tear_down);

TEST(weights_of_pushes_count, fixture *f)
{
    start(f, "aggregate=radial_mean");
    remember(f);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(f, rank, 1, 1 + 3 * rank);
    assert_moved(f, 1, (const double[]){ 1, 4, 7 });
}

TEST(a_contribution_without_weight_takes_no_part_even_if_it_is_not_finite, fixture *f)
{
    start(f, "aggregate=radial_mean");
    remember(f);
    f->g[1][140] = NAN;
    for (uint32_t rank = 0; rank < WORLD; rank++) push(f, rank, 1, rank == 1 ? 0 : 2);
    assert_moved(f, 1, (const double[]){ 2, 0, 2 });
}

TEST(without_any_weight_the_step_is_skipped, fixture *f)
{
    start(f, "aggregate=radial_mean");
    remember(f);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(f, rank, 1, 0);
    rig_work(&f->rig);
    assert_int_equal(rig_versions(&f->rig, f->rig.job, 0)->outcome, PD_SKIPPED);
    assert_memory_equal(f->before, rig_weights(&f->rig, f->rig.job, 0), sizeof f->before);
    assert_int_equal(f->rig.buffers_out, 0);
}

TEST(a_step_of_few_ranks_is_their_radial_mean, fixture *f)
{
    start(f, "aggregate=radial_mean quorum=2");
    remember(f);
    push(f, 2, 1, 3);
    push(f, 0, 1, 1);
    assert_moved(f, 1, (const double[]){ 1, 0, 3 });
}

TEST(weights_of_old_contributions_are_damped, fixture *f)
{
    start(f, "aggregate=radial_mean quorum=2 staleness=2 damping=inverse");
    push(f, 0, 1, 1);
    push(f, 1, 1, 1);
    remember(f);
    push(f, 2, 1, 4); /* too late for step 1, one step old in step 2 */
    push(f, 0, 2, 1);
    assert_moved(f, 2, (const double[]){ 1, 0, 4 * 0.5 });
}

TEST(a_single_old_contribution_is_multiplied_by_its_damping, fixture *f)
{
    start(f, "aggregate=radial_mean rounds=async"); /* the default of damping is then root */
    push(f, 0, 1, 1);
    remember(f);
    push(f, 1, 1, 5);
    rig_work(&f->rig);
    assert_int_equal(rig_versions(&f->rig, f->rig.job, 0)->step, 2);
    for (int i = 0; i < N; i++) {
        float by = f->g[1][i] * (float)(1 / sqrt(2));
        assert_true(rig_weights(&f->rig, f->rig.job, 0)[i] == f->before[i] - by);
    }
}

/* Returns the answer to the last of three ranks that declare these ranges. */
static int declare(fixture *f, const rig_range ranges[WORLD])
{
    static const pd_shape shape = { 1, { N } };
    int rc = PD_OK;

    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(
            rig_hello(&f->rig, "job", rank, WORLD, CONN + rank, CONN + rank, "aggregate=radial_mean", NULL), PD_OK);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rc, PD_OK);
        rc = rig_declare_range(&f->rig, rank, CONN + rank, "w", &shape, ranges[rank]);
    }
    return rc;
}

TEST(ranges_that_are_equal_or_apart_are_taken, fixture *f)
{
    assert_int_equal(declare(f, (const rig_range[]){ { 0, 70 }, { 70, N }, { 0, 70 } }), PD_OK);
}

TEST(empty_ranges_cut_nothing, fixture *f)
{
    assert_int_equal(declare(f, (const rig_range[]){ { 0, N }, { 70, 70 }, { 0, N } }), PD_OK);
}

TEST(ranges_that_overlap_are_refused_and_the_text_says_where, fixture *f)
{
    assert_int_equal(declare(f, (const rig_range[]){ { 0, N }, { 0, N }, { 70, 90 } }), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->rig.error.text, "w: rank 0 contributes elements 0 to 150"));
    assert_non_null(strstr(f->rig.error.text, "begins or ends at 70: aggregate = radial_mean"));
}
