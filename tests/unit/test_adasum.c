/* Tests Adasum: the tree of pairs, any number of vectors, and that no thread count changes the bits. */
#include "test.h"
#include "adasum.h"
#include "convert.h"
#include "roots.h"

enum { K_MAX = 130, FEW = 40, N_MAX = 70001, RUNS_MAX = 64 };

/* The input vectors, the runs that they are cut into, and the buffers for results. */
typedef struct fixture {
    int k;
    int64_t n, ends[RUNS_MAX];
    float *x[K_MAX], *to, *other, *scratch[K_MAX];
    pd_vector_run at[RUNS_MAX * K_MAX];
    uint32_t seed;
} fixture;

static void set_up(fixture *f)
{
    for (int r = 0; r < K_MAX; r++)
        f->x[r] = malloc(N_MAX * sizeof(float)), f->scratch[r] = malloc(N_MAX * sizeof(float));
    f->to = malloc(N_MAX * sizeof(float));
    f->other = malloc(N_MAX * sizeof(float));
    f->seed = 3;
}

static void tear_down(fixture *f)
{
    for (int r = 0; r < K_MAX; r++) free(f->x[r]), free(f->scratch[r]);
    free(f->to);
    free(f->other);
}

/* Fills k vectors of n elements that share a common part. With `uneven`, their norms differ by powers of ten. */
static void fill(fixture *f, int k, int64_t n, bool uneven)
{
    f->k = k;
    f->n = n;
    for (int64_t i = 0; i < n; i++) f->other[i] = (float)roots_number(&f->seed);
    for (int r = 0; r < k; r++) {
        float size = uneven ? powf(10, (float)(f->seed >> 12 & 3) - 2) : 1;
        for (int64_t i = 0; i < n; i++) f->x[r][i] = size * (f->other[i] + (float)roots_number(&f->seed));
    }
}

/* Cuts every vector into `runs` runs of about equal length. The lengths are no multiples of the element ranges that
 * Adasum works on. */
static pd_vectors cut(fixture *f, int runs)
{
    for (int p = 0; p < runs; p++) {
        int64_t begin = f->n * p / runs;
        f->ends[p] = f->n * (p + 1) / runs;
        for (int r = 0; r < f->k; r++) f->at[p * f->k + r] = (pd_vector_run){ .at = f->x[r] + begin, .dtype = PD_F32 };
    }
    return (pd_vectors){ f->k, (size_t)runs, f->ends, f->at };
}

/* Runs Adasum into `to`. Returns whether the result is finite. */
static bool run(pd_adasum_form form, const pd_vectors *v, int64_t n, float *to, float *const *scratch, int threads)
{
    pd_adasum *a;
    bool finite;

    (void)threads;
    assert_int_equal(pd_adasum_begin(&a, form, v, n, to, scratch), PD_OK);
    for (int64_t units; (units = pd_adasum_units(a)) > 0; pd_adasum_turn(a)) {
        assert_true(pd_adasum_unit_ns(a) > 0);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t i = 0; i < units; i++) pd_adasum_unit(a, units - 1 - i);
    }
    finite = isfinite(pd_adasum_largest(a));
    pd_adasum_end(a);
    return finite;
}

static bool average(fixture *f, pd_adasum_form form)
{
    pd_vectors v = cut(f, 1);

    return run(form, &v, f->n, f->to, f->scratch, 1);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void merge(double *to, const double *a, const double *b, int64_t n)
{
    double ab = dot(a, b, n), f = ab / (2 * dot(a, a, n) + 1e-30), g = ab / (2 * dot(b, b, n) + 1e-30);

    for (int64_t i = 0; i < n; i++) to[i] = (1 - f) * a[i] + (1 - g) * b[i];
}

static double **doubles_of(const fixture *f)
{
    double **x = malloc((size_t)f->k * sizeof *x);

    for (int r = 0; r < f->k; r++) {
        x[r] = malloc((size_t)(f->n + 1) * sizeof *x[r]);
        for (int64_t i = 0; i < f->n; i++) x[r][i] = (double)f->x[r][i];
    }
    return x;
}

static void free_doubles(double **x, int k)
{
    for (int r = 0; r < k; r++) free(x[r]);
    free(x);
}

/* Computes the butterfly as replicas do: in each exchange, every replica merges its own vector first and its partner's
 * second. The result is the mean over all replicas. */
static void butterfly(double **x, int k, int64_t n)
{
    int width = 1;

    while (2 * width <= k) width *= 2;
    for (int r = width; r < k; r++) merge(x[r - width], x[r - width], x[r], n);
    for (int h = 1; h < width; h *= 2) {
        double **y = malloc((size_t)width * sizeof *y);
        for (int r = 0; r < width; r++) merge(y[r] = malloc((size_t)(n + 1) * sizeof **y), x[r], x[r ^ h], n);
        for (int r = 0; r < width; r++) memcpy(x[r], y[r], (size_t)n * sizeof **y);
        free_doubles(y, width);
    }
    for (int r = 1; r < width; r++)
        for (int64_t i = 0; i < n; i++) x[0][i] += x[r][i];
    for (int64_t i = 0; i < n; i++) x[0][i] /= width;
}

static void dot_product_form(double **x, int k, int64_t n)
{
    double *sum = calloc((size_t)n + 1, sizeof *sum), *out = calloc((size_t)n + 1, sizeof *out);

    for (int r = 0; r < k; r++)
        for (int64_t i = 0; i < n; i++) sum[i] += x[r][i];
    for (int r = 0; r < k; r++) {
        double gs = dot(x[r], sum, n), gg = dot(x[r], x[r], n);
        for (int64_t i = 0; i < n; i++) out[i] += x[r][i] * (1 - (gs - gg) / (k * gg));
    }
    memcpy(x[0], out, (size_t)n * sizeof *out);
    free(sum);
    free(out);
}

static double norm_of(const fixture *f, const double *wanted)
{
    double most = sqrt(dot(wanted, wanted, f->n));

    for (int r = 0; r < f->k; r++) {
        double sum = 0;
        for (int64_t i = 0; i < f->n; i++) sum += (double)f->x[r][i] * (double)f->x[r][i];
        if (sqrt(sum) > most) most = sqrt(sum);
    }
    return most;
}

static void check_against_twin(fixture *f, pd_adasum_form form)
{
    double **x = doubles_of(f), error = 0;

    assert_true(average(f, form));
    (form == PD_ADASUM_TREE ? butterfly : dot_product_form)(x, f->k, f->n);
    for (int64_t i = 0; i < f->n; i++) error += ((double)f->to[i] - x[0][i]) * ((double)f->to[i] - x[0][i]);
    if (sqrt(error) > 1.5e-7 * norm_of(f, x[0]))
        fail_msg("%d vectors of %lld: off by %.3g", f->k, (long long)f->n, sqrt(error) / norm_of(f, x[0]));
    free_doubles(x, f->k);
}

static void check_lengths(fixture *f, pd_adasum_form form, const int64_t lengths[5])
{
    for (int k = 1; k <= FEW; k++)
        for (size_t l = 0; l < 5; l++) {
            fill(f, k, lengths[l], l % 2 == 0);
            check_against_twin(f, form);
        }
    for (int k = 64; k <= K_MAX; k += 11) { /* more than 64 vectors are merged in groups, then the groups' results
                                             * are merged */
        fill(f, k, 513, k % 2 == 0);
        check_against_twin(f, form);
    }
}

FIXTURE(fixture, set_up, tear_down);

HOLDS_FOR(fixture *f, tree_of_any_number_is_the_butterfly,
          check_lengths(f, PD_ADASUM_TREE, (const int64_t[]){ 2, 5, 511, 513, 1024 }));

HOLDS_FOR(fixture *f, dot_product_form_of_any_number_is_its_formula,
          check_lengths(f, PD_ADASUM_VDOT, (const int64_t[]){ 1, 5, 511, 513, 1024 }));

TEST(dot_products_run_over_the_whole_vector, fixture *f)
{
    static const int counts[] = { 2, 3, 8, 11, 16 };

    for (size_t c = 0; c < 5; c++) {
        fill(f, counts[c], N_MAX, true);
        check_against_twin(f, PD_ADASUM_TREE);
        check_against_twin(f, PD_ADASUM_VDOT);
    }
}

TEST(one_vector_is_itself, fixture *f)
{
    fill(f, 1, 700, false);
    f->x[0][3] = -0.0f;
    f->x[0][4] = 1e-42f;
    for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
        assert_true(average(f, (pd_adasum_form)form));
        assert_memory_equal(f->to, f->x[0], 700 * sizeof(float));
    }
    f->x[0][5] = NAN;
    assert_false(average(f, PD_ADASUM_TREE));
    assert_true(isnan(f->to[5]) && f->to[6] == f->x[0][6]);
}

TEST(one_vector_is_read_once, fixture *f)
{
    pd_vectors v;
    pd_adasum *a;

    fill(f, 1, 700, false);
    v = cut(f, 1);
    assert_int_equal(pd_adasum_begin(&a, PD_ADASUM_TREE, &v, f->n, f->to, NULL), PD_OK);
    pd_adasum_unit(a, 0);
    pd_adasum_turn(a);
    assert_int_equal(pd_adasum_units(a), 0);
    pd_adasum_end(a);
}

/* If there are more vectors, a unit of work covers fewer elements of each. So every unit reads about as many bytes,
 * and none takes long. */
TEST(units_are_cut_finer_where_many_vectors_contribute, fixture *f)
{
    pd_vectors v;
    pd_adasum *a;

    for (int k = 8; k <= 32; k *= 2) {
        fill(f, k, 1 << 16, false);
        v = cut(f, 1);
        assert_int_equal(pd_adasum_begin(&a, PD_ADASUM_VDOT, &v, f->n, f->to, NULL), PD_OK);
        assert_int_equal(pd_adasum_units(a), k / 8);
        pd_adasum_end(a);
    }
}

TEST(identical_vectors_give_themselves, fixture *f)
{
    for (int k = 2; k <= 33; k += k < 9 ? 1 : 8)
        for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
            fill(f, k, 600, false);
            for (int r = 1; r < k; r++) memcpy(f->x[r], f->x[0], 600 * sizeof(float));
            assert_true(average(f, (pd_adasum_form)form));
            for (int i = 0; i < 600; i++) assert_true(fabsf(f->to[i] - f->x[0][i]) <= 1e-6f * fabsf(f->x[0][i]));
        }
}

TEST(orthogonal_vectors_give_their_sum, fixture *f)
{
    for (int k = 2; k <= 33; k += k < 9 ? 1 : 8)
        for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
            fill(f, k, 40 * k, true);
            for (int r = 0; r < k; r++)
                for (int i = 0; i < 40 * k; i++)
                    if (i % k != r) f->x[r][i] = 0;
            assert_true(average(f, (pd_adasum_form)form));
            for (int i = 0; i < 40 * k; i++) assert_true(f->to[i] == f->x[i % k][i]);
        }
}

TEST(opposite_vectors_cancel_to_the_bit, fixture *f)
{
    for (int k = 2; k <= 32; k *= 2) {
        fill(f, k, 300, false);
        for (int r = 1; r < k; r++)
            for (int i = 0; i < 300; i++) f->x[r][i] = r % 2 == 0 ? f->x[0][i] : -f->x[0][i];
        assert_true(average(f, PD_ADASUM_TREE));
        for (int i = 0; i < 300; i++) assert_true(f->to[i] == 0);
    }
}

TEST(vectors_that_cancelled_take_nothing_from_the_others, fixture *f)
{
    fill(f, 4, 300, false); /* the vectors are a, -a, b, b: merge(merge(a, -a), merge(b, b)) = b */
    for (int i = 0; i < 300; i++) f->x[1][i] = -f->x[0][i], f->x[3][i] = f->x[2][i];
    assert_true(average(f, PD_ADASUM_TREE));
    for (int i = 0; i < 300; i++) assert_true(fabsf(f->to[i] - f->x[2][i]) < 1e-6f);
    /* -a becomes -a (1 + a few rounding errors), so the sum of the first pair is nearly but not exactly 0 */
    for (int i = 0; i < 300; i++) f->x[1][i] *= 1 + 1e-8f * (float)(i % 16);
    assert_true(average(f, PD_ADASUM_TREE));
    for (int i = 0; i < 300; i++) assert_true(fabsf(f->to[i] - f->x[2][i]) < 2e-6f);
}

/* In each pair, the second vector is nearly the negative of the first, so the pair's sum is short. Its direction is
 * still exact, and the other vectors must lose their component along this direction. */
TEST(vectors_that_nearly_cancelled_still_count, fixture *f)
{
    for (float left = 0.1f; left > 5e-5f; left /= 10) {
        fill(f, 8, 600, false);
        for (int r = 1; r < 8; r += 2)
            for (int i = 0; i < 600; i++) f->x[r][i] = left * f->x[r][i] - f->x[r - 1][i];
        check_against_twin(f, PD_ADASUM_TREE);
    }
}

TEST(zero_vectors_leave_the_others_unchanged, fixture *f)
{
    fill(f, 2, 300, false);
    memset(f->x[1], 0, 300 * sizeof(float));
    assert_true(average(f, PD_ADASUM_TREE));
    assert_memory_equal(f->to, f->x[0], 300 * sizeof(float));
    memset(f->x[0], 0, 300 * sizeof(float));
    assert_true(average(f, PD_ADASUM_TREE));
    for (int i = 0; i < 300; i++) assert_true(f->to[i] == 0);
}

TEST(zeros_spoil_the_dot_product_form, fixture *f)
{
    fill(f, 3, 300, false);
    memset(f->x[1], 0, 300 * sizeof(float));
    assert_false(average(f, PD_ADASUM_VDOT));
    for (int i = 0; i < 300; i++) assert_true(isnan(f->to[i]));
}

TEST(epsilon_counts_for_the_smallest_norms_alone, fixture *f)
{
    f->k = 2, f->n = 1;
    f->x[0][0] = f->x[1][0] = 1e-12f;
    assert_true(average(f, PD_ADASUM_TREE));
    assert_true(fabsf(f->to[0] - 1e-12f) < 1e-18f); /* epsilon is much smaller than the squared norm: the result is
                                                     * the average of the two equal vectors */
    f->x[0][0] = f->x[1][0] = 1e-18f;
    assert_true(average(f, PD_ADASUM_TREE));
    assert_true(fabsf(f->to[0] - 2e-18f) < 1e-23f); /* epsilon is much larger than the squared norm: the result is
                                                     * nearly the sum of the two equal vectors */
    f->x[0][0] = f->x[1][0] = 1e-15f;
    assert_true(average(f, PD_ADASUM_TREE));
    assert_true(fabsf(f->to[0] - 4e-15f / 3) < 1e-21f); /* epsilon equals the squared norm: the result is 2 (1 - 1/3)
                                                         * times one vector */
}

TEST(a_value_that_is_not_finite_spoils_everything, fixture *f)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };

    for (int k = 2; k <= 20; k += 3)
        for (int b = 0; b < 3; b++)
            for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
                fill(f, k, 530, false);
                f->x[k - 1][529] = bad[b];
                assert_false(average(f, (pd_adasum_form)form));
                for (int i = 0; i < 530; i++) assert_true(isnan(f->to[i]));
            }
}

TEST(scales_with_its_vectors, fixture *f)
{
    float *kept = f->scratch[K_MAX - 1];

    for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
        fill(f, 12, 900, true);
        assert_true(average(f, (pd_adasum_form)form));
        memcpy(kept, f->to, 900 * sizeof *kept);
        for (int r = 0; r < 12; r++)
            for (int i = 0; i < 900; i++) f->x[r][i] *= 0.125f;
        assert_true(average(f, (pd_adasum_form)form));
        for (int i = 0; i < 900; i++)
            assert_true(f->to[i] == 0.125f * kept[i]); /* epsilon is too small to change the result */
    }
}

TEST(swapping_partners_changes_no_bit, fixture *f)
{
    float *kept = f->scratch[K_MAX - 1], *x;

    fill(f, 2, 900, true);
    average(f, PD_ADASUM_TREE);
    memcpy(kept, f->to, 900 * sizeof *kept);
    x = f->x[0], f->x[0] = f->x[1], f->x[1] = x;
    average(f, PD_ADASUM_TREE);
    assert_memory_equal(f->to, kept, 900 * sizeof *kept);
}

TEST(the_order_of_pairs_matters_from_four_vectors_on, fixture *f)
{
    float *kept = f->scratch[K_MAX - 1], *x;
    float most = 0;

    fill(f, 4, 900, false);
    average(f, PD_ADASUM_TREE);
    memcpy(kept, f->to, 900 * sizeof *kept);
    x = f->x[1], f->x[1] = f->x[2], f->x[2] = x;
    average(f, PD_ADASUM_TREE);
    for (int i = 0; i < 900; i++) most = fmaxf(most, fabsf(f->to[i] - kept[i]));
    assert_true(most > 1e-4f);
}

TEST(neither_threads_nor_cuts_change_a_bit, fixture *f)
{
    static const int counts[] = { 2, 8, 11, 20 }, runs[] = { 1, 2, 7, 63 };

    for (size_t c = 0; c < 4; c++)
        for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
            fill(f, counts[c], N_MAX, true);
            average(f, (pd_adasum_form)form);
            for (int threads = 1; threads <= 8; threads++) {
                pd_vectors v = cut(f, runs[threads % 4]);
                run((pd_adasum_form)form, &v, N_MAX, f->other, f->scratch, threads);
                assert_memory_equal(f->to, f->other, N_MAX * sizeof(float));
            }
        }
}

TEST(short_types_are_converted_on_the_way, fixture *f)
{
    uint16_t *h = malloc(2 * 1300 * sizeof *h);
    int64_t ends[2] = { 601, 1300 };
    pd_vector_run at[6];
    pd_vectors v = { 3, 2, ends, at };

    fill(f, 3, 1300, false);
    pd_convert(h, PD_F16, f->x[0], PD_F32, 1300);
    pd_convert(h + 1300, PD_BF16, f->x[1], PD_F32, 1300);
    pd_convert(f->x[0], PD_F32, h, PD_F16, 1300);
    pd_convert(f->x[1], PD_F32, h + 1300, PD_BF16, 1300);
    for (int p = 0; p < 2; p++) {
        at[3 * p] = (pd_vector_run){ .at = h + 601 * p, .dtype = PD_F16 };
        at[3 * p + 1] =
            p == 0 ? (pd_vector_run){ .at = h + 1300, .dtype = PD_BF16 }
                   : (pd_vector_run){ .at = f->x[1] + 601, .dtype = PD_F32 }; /* the second vector begins in bfloat16
                                                                            * and ends in float32 */
        at[3 * p + 2] = (pd_vector_run){ .at = f->x[2] + 601 * p, .dtype = PD_F32 };
    }
    for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
        average(f, (pd_adasum_form)form);
        run((pd_adasum_form)form, &v, 1300, f->other, f->scratch, 1);
        assert_memory_equal(f->to, f->other, 1300 * sizeof(float));
    }
    free(h);
}

TEST(only_powers_of_two_give_the_result_of_trax)
{
    for (int k = 1; k <= 64; k++)
        assert_int_equal(pd_adasum_is_exact(k), k == 1 || k == 2 || k == 4 || k == 8 || k == 16 || k == 32 || k == 64);
}

TEST(scratch_is_an_eighth_of_the_vectors)
{
    for (int k = 1; k <= 8; k++) assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_TREE, k), 0);
    assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_TREE, 9), 1);
    assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_TREE, 16), 1);
    assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_TREE, 31), 3);
    assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_TREE, 4096), 511);
    assert_int_equal(pd_adasum_scratch_vectors(PD_ADASUM_VDOT, 4096), 0);
}

TEST(no_elements_are_done_at_once, fixture *f)
{
    pd_vectors v = { 2, 0, NULL, NULL };
    pd_adasum *a;

    for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
        assert_int_equal(pd_adasum_begin(&a, (pd_adasum_form)form, &v, 0, f->to, NULL), PD_OK);
        assert_int_equal(pd_adasum_units(a), 0);
        assert_true(isfinite(pd_adasum_largest(a)));
        pd_adasum_end(a);
    }
    pd_adasum_end(NULL);
}

TEST(without_memory_nothing_is_planned, fixture *f)
{
    pd_vectors v;
    pd_adasum *a = NULL;
    int rc, failed = 0;

    fill(f, 9, 1000, false);
    v = cut(f, 1);
    for (;; failed++) {
        oom_arm(failed);
        rc = pd_adasum_begin(&a, PD_ADASUM_TREE, &v, f->n, f->to, f->scratch);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(a);
    }
    assert_true(failed > 0);
    pd_adasum_end(a);
}

TEST(passes_allocate_nothing, fixture *f)
{
    pd_vectors v;
    pd_adasum *a;
    int64_t before;

    fill(f, 20, 1000, false);
    v = cut(f, 3);
    for (int form = PD_ADASUM_TREE; form <= PD_ADASUM_VDOT; form++) {
        assert_int_equal(pd_adasum_begin(&a, (pd_adasum_form)form, &v, f->n, f->to, f->scratch), PD_OK);
        before = oom_allocations();
        for (; pd_adasum_units(a) > 0; pd_adasum_turn(a))
            for (int64_t i = 0; i < pd_adasum_units(a); i++) pd_adasum_unit(a, i);
        assert_int_equal(oom_allocations(), before);
        pd_adasum_end(a);
    }
}
