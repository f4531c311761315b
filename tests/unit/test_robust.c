/* Tests medians and trimmed means. */
#include "test.h"
#include "convert.h"
#include "robust.h"
#include "roots.h"

enum { K_MAX = 4096, N = 203, SOME = 37 };

typedef struct fixture {
    float *x; /* vector r begins at x + r N */
    float to[N], other[N];
    pd_vector_run at[K_MAX];
    void *scratch;
    uint32_t seed;
} fixture;

static void set_up(fixture *f)
{
    f->x = malloc(K_MAX * (size_t)N * sizeof *f->x);
    f->scratch = malloc(pd_trimmed_mean_scratch(K_MAX));
    f->seed = 5;
    for (int r = 0; r < K_MAX; r++) {
        f->at[r] = (pd_vector_run){ .at = f->x + r * N, .dtype = PD_F32 };
        for (int i = 0; i < N; i++) f->x[r * N + i] = (float)roots_number(&f->seed);
    }
}

static void tear_down(fixture *f)
{
    free(f->x);
    free(f->scratch);
}

static bool trimmed(fixture *f, int k, int trim)
{
    return isfinite(pd_trimmed_mean(f->to, N, f->at, k, trim, f->scratch));
}

static bool median(fixture *f, int k)
{
    return trimmed(f, k, pd_median_trim(k));
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void sorted_column(const fixture *f, int k, int i, float *column)
{
    for (int r = 0; r < k; r++) column[r] = f->x[r * N + i];
    qsort(column, (size_t)k, sizeof *column, ascending);
}

static void check_against_sorting(fixture *f, int k, int trim)
{
    float *column = malloc((size_t)k * sizeof *column);

    assert_true(trimmed(f, k, trim));
    for (int i = 0; i < N; i++) {
        double sum = 0;
        sorted_column(f, k, i, column);
        for (int r = trim; r < k - trim; r++) sum += (double)column[r];
        assert_true(f->to[i] == (float)(sum / (k - 2 * trim)));
    }
    free(column);
}

FIXTURE(fixture, set_up, tear_down);

TEST(averages_what_is_left_of_the_sorted_values, fixture *f)
{
    for (int k = 1; k <= 70; k++)
        for (int trim = 0; trim <= pd_median_trim(k); trim += 1 + k / 9) check_against_sorting(f, k, trim);
}

TEST(takes_as_many_vectors_as_a_job_has_ranks, fixture *f)
{
    static const int counts[] = { 128, 1000, K_MAX };

    for (int c = 0; c < 3; c++) check_against_sorting(f, counts[c], counts[c] / 5);
}

TEST(median_is_the_middle_or_the_mean_of_two, fixture *f)
{
    float *column = malloc(100 * sizeof *column);

    for (int k = 1; k <= 100; k++) {
        median(f, k);
        for (int i = 0; i < N; i++) {
            sorted_column(f, k, i, column);
            assert_true(f->to[i] == (float)(((double)column[(k - 1) / 2] + (double)column[k / 2]) / 2));
        }
    }
    free(column);
}

TEST(equal_values_and_both_zeros_are_sorted_too, fixture *f)
{
    for (int r = 0; r < 9; r++)
        for (int i = 0; i < N; i++) f->x[r * N + i] = (float)((r * 7 + i) % 3) - 1;
    f->x[0] = -0.0f;
    for (int trim = 0; trim <= 4; trim++) check_against_sorting(f, 9, trim);
}

static const float spoils[] = { NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f };

/* Fills `bad` vectors, beginning with vector `first`, with the values that an adversary might send, in turn. */
static void spoil(fixture *f, int first, int bad)
{
    for (int r = first; r < first + bad; r++)
        for (int i = 0; i < N; i++) f->x[r * N + i] = spoils[(r + i) % 6];
}

/* Checks that every element of the result is finite and lies between the smallest and the largest of the `good`
 * vectors, which come first. */
static void check_within_good(const fixture *f, const float *x, int good)
{
    for (int i = 0; i < N; i++) {
        float least = INFINITY, most = -INFINITY;
        for (int r = 0; r < good; r++) least = fminf(least, x[r * N + i]), most = fmaxf(most, x[r * N + i]);
        assert_true(f->to[i] >= least && f->to[i] <= most);
    }
}

TEST(a_minority_cannot_move_the_median_out_of_the_others, fixture *f)
{
    for (int k = 3; k <= SOME; k++) { /* each number of vectors, k, uses separate vectors */
        int bad = (k - 1) / 2;
        const pd_vector_run *at = f->at + SOME * (k - 3);
        spoil(f, SOME * (k - 3) + k - bad, bad);
        assert_true(isfinite(pd_trimmed_mean(f->to, N, at, k, pd_median_trim(k), f->scratch)));
        check_within_good(f, at[0].at, k - bad);
    }
}

TEST(as_many_as_are_trimmed_cannot_move_the_mean_out_of_the_others, fixture *f)
{
    for (int trim = 1; trim <= 5; trim++) {
        spoil(f, 13 - trim, trim);
        assert_true(trimmed(f, 13, trim));
        check_within_good(f, f->x, 13 - trim);
    }
}

TEST(a_majority_that_is_not_finite_shows, fixture *f)
{
    for (int r = 0; r < 3; r++) f->x[r * N + 7] = NAN;
    assert_false(median(f, 5));
    assert_true(isnan(f->to[7]) && isfinite(f->to[6]) && isfinite(f->to[8]));
    for (int r = 0; r < 3; r++) f->x[r * N + 7] = -INFINITY;
    assert_false(median(f, 5));
    assert_true(f->to[7] == -INFINITY);
    f->x[2 * N + 7] = 0;
    assert_true(median(f, 5));
}

TEST(sign_of_nan_does_not_matter, fixture *f)
{
    f->x[N] = NAN;
    f->x[2 * N] = pd_f32_from_bits(0x7f800001u);
    trimmed(f, 6, 2);
    memcpy(f->other, f->to, sizeof f->to);
    f->x[N] = -NAN;
    f->x[2 * N] = pd_f32_from_bits(0xffffffffu);
    trimmed(f, 6, 2);
    assert_memory_equal(f->to, f->other, sizeof f->to);
}

TEST(large_values_do_not_overflow, fixture *f)
{
    for (int r = 0; r < 4; r++) f->x[r * N] = 3e38f;
    assert_true(trimmed(f, 4, 0));
    assert_true(f->to[0] == 3e38f);
}

TEST(order_of_vectors_changes_no_bit, fixture *f)
{
    for (int k = 2; k <= 100; k += 7) {
        trimmed(f, k, k / 5);
        memcpy(f->other, f->to, sizeof f->to);
        for (int r = 0; r < k; r++) f->at[r].at = f->x + (r + k / 2) % k * N;
        trimmed(f, k, k / 5);
        assert_memory_equal(f->to, f->other, sizeof f->to);
        for (int r = 0; r < k; r++) f->at[r].at = f->x + r * N;
    }
}

TEST(cutting_into_calls_changes_no_bit, fixture *f)
{
    pd_vector_run part[80];

    for (int k = 7; k <= 80; k += 73) {
        trimmed(f, k, 2);
        for (int i = 0; i < N; i += 19) {
            for (int r = 0; r < k; r++) part[r] = (pd_vector_run){ .at = f->x + r * N + i, .dtype = PD_F32 };
            pd_trimmed_mean(f->other + i, N - i < 19 ? N - i : 19, part, k, 2, f->scratch);
        }
        assert_memory_equal(f->to, f->other, sizeof f->to);
    }
}

TEST(result_may_lie_in_a_source, fixture *f)
{
    trimmed(f, 9, 2);
    pd_trimmed_mean(f->x + 3 * N, N, f->at, 9, 2, f->scratch);
    assert_memory_equal(f->to, f->x + 3 * N, sizeof f->to);
}

TEST(short_types_are_converted_on_the_way, fixture *f)
{
    uint16_t h[N], b[N];

    pd_convert(h, PD_F16, f->x, PD_F32, N);
    pd_convert(b, PD_BF16, f->x + N, PD_F32, N);
    pd_convert(f->x, PD_F32, h, PD_F16, N);
    pd_convert(f->x + N, PD_F32, b, PD_BF16, N);
    trimmed(f, 5, 1);
    memcpy(f->other, f->to, sizeof f->to);
    f->at[0] = (pd_vector_run){ .at = h, .dtype = PD_F16 };
    f->at[1] = (pd_vector_run){ .at = b, .dtype = PD_BF16 };
    trimmed(f, 5, 1);
    assert_memory_equal(f->to, f->other, sizeof f->to);
}

TEST(scratch_is_bounded)
{
    for (int k = 1; k <= K_MAX; k++) assert_true(pd_trimmed_mean_scratch(k) <= 256 * 1024);
}
