/* Tests inverse roots that are updated from the eigenbasis of the last refresh. */
#include "test.h"
#include "root.h"
#include "root_types.h"
#include "roots.h"

enum { N = 24 };

/* A matrix A that changes, its root X and the tracked eigenbasis Q. */
typedef struct track {
    pd_mat A, toward, X, Q;
    pd_root_want want;
    pd_root_report report;
} track;

/* Makes a matrix with eigenvalues from 1 down to about 1/8. `toward` has the same eigenvalues in another basis. */
static track *begin(int64_t n, int p)
{
    track *t = calloc(1, sizeof *t);
    double *values = calloc((size_t)n, sizeof *values);

    for (int64_t i = 0; i < n; i++) values[i] = pow(8, -(double)i / (double)n);
    *t = (track){ .A = roots_with(values, n, 11),
                  .toward = roots_with(values, n, 12),
                  .X = roots_matrix(n),
                  .Q = roots_matrix(n),
                  .want = { .method = PD_ROOT_TRACKED, .p = p, .epsilon = 1e-6 } };
    free(values);
    return t;
}

static void end(track *t)
{
    free(t->A.at), free(t->toward.at), free(t->X.at), free(t->Q.at), free(t);
}

static int refresh(track *t)
{
    pd_mat C = roots_copy(t->A);
    int rc = pd_root_tracked(t->X, t->Q, C, &t->want, &t->report);

    free(C.at);
    return rc;
}

static void move(track *t, double part)
{
    int64_t n = t->A.rows;

    for (int64_t i = 0; i < n * n; i++)
        t->A.at[i] = (float)((1 - part) * (double)t->A.at[i] + part * (double)t->toward.at[i]);
}

static void refreshes_well(track *t)
{
    double error;

    assert_int_equal(refresh(t), PD_OK);
    error = roots_error(t->X, t->A, t->want.p, t->want.epsilon);
    if (!(error < 3e-6))
        fail_msg("n %d, p %d: error %g after %d corrections", (int)t->A.rows, t->want.p, error, t->report.iterations);
}

TEST(the_first_refresh_decomposes_and_keeps_an_orthogonal_basis)
{
    static const int64_t sizes[] = { 1, 2, 3, 17, 64 };

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        track *t = begin(sizes[s], 4);
        int64_t n = sizes[s];
        refreshes_well(t);
        assert_true(t->report.decomposed && t->report.iterations == 0);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                double dot = 0, form = 0;
                for (int64_t k = 0; k < n; k++) dot += (double)t->Q.at[i * n + k] * (double)t->Q.at[j * n + k];
                for (int64_t k = 0; k < n; k++) /* row i is an eigenvector: Q A Q' is diagonal */
                    for (int64_t l = 0; l < n; l++)
                        form += (double)t->Q.at[i * n + k] * (double)t->A.at[k * n + l] * (double)t->Q.at[j * n + l];
                assert_true(fabs(dot - (i == j)) < 1e-5);
                assert_true(i == j || fabs(form) < 1e-5);
            }
        end(t);
    }
}

TEST(slow_movement_needs_no_decomposition)
{
    static const int64_t sizes[] = { 1, 2, 3, 17, 64 };

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int p = 1; p <= 9; p += s == 4 ? 3 : 1) {
            track *t = begin(sizes[s], p);
            pd_mat Q;
            refreshes_well(t);
            Q = roots_copy(t->Q);
            move(t, 1e-5);
            refreshes_well(t);
            assert_true(!t->report.decomposed && t->report.iterations == 1);
            assert_memory_equal(Q.at, t->Q.at, (size_t)(sizes[s] * sizes[s]) * sizeof *Q.at);
            free(Q.at);
            end(t);
        }
}

TEST(faster_movement_decomposes_anew)
{
    for (int p = 1; p <= 9; p++) {
        track *t = begin(N, p);
        refreshes_well(t);
        move(t, 4e-3);
        refreshes_well(t);
        if (!t->report.decomposed) fail_msg("p %d: computed in the last basis", p);
        end(t);
    }
}

TEST(a_jump_decomposes_anew)
{
    track *t = begin(N, 4);
    pd_mat Q;

    refreshes_well(t);
    Q = roots_copy(t->Q);
    move(t, 0.9);
    refreshes_well(t);
    assert_true(t->report.decomposed && t->report.iterations == 0);
    assert_memory_not_equal(Q.at, t->Q.at, N * N * sizeof *Q.at);
    move(t, 1e-5);
    refreshes_well(t);
    assert_true(!t->report.decomposed);
    free(Q.at);
    end(t);
}

TEST(a_long_walk_stays_good)
{
    track *t = begin(N, 4);
    int decomposed = 0;

    for (int k = 0; k < 60; k++) {
        refreshes_well(t);
        decomposed += t->report.decomposed;
        move(t, 1e-3);
    }
    assert_in_range(decomposed, 2, 30);
    end(t);
}

/* Returns the eigenvalue of row i of the basis of begin_steep. */
static double eigenvalue(int64_t i, int64_t n)
{
    return pow(10, -5.0 * (double)(n - 1 - i) / (double)(n - 1));
}

/* Makes a matrix whose eigenvalues fall from 1 to 1e-5, so that large eigenvalues hardly count in the root. */
static track *begin_steep(int64_t n)
{
    track *t = begin(n, 4);
    double *values = calloc((size_t)n, sizeof *values);

    for (int64_t i = 0; i < n; i++) values[i] = eigenvalue(i, n);
    free(t->A.at);
    t->A = roots_with(values, n, 11);
    free(values);
    return t;
}

/* Returns the error of the root, divided by the error of a root by ssyevd of the same matrix. */
static double of_plain(const track *t)
{
    pd_mat X = roots_matrix(t->A.rows), C = roots_copy(t->A);
    pd_root_report report;
    double plain;

    assert_int_equal(pd_root_eigh(X, C, &t->want, &report), PD_OK);
    plain = roots_error(X, t->A, t->want.p, t->want.epsilon);
    free(X.at), free(C.at);
    return roots_error(t->X, t->A, t->want.p, t->want.epsilon) / plain;
}

/* Adds x (v w' + w v') to A, with the rows v and w of the basis. */
static void couple(track *t, int64_t v, int64_t w, double x)
{
    int64_t n = t->A.rows;
    const float *a = t->Q.at + v * n, *b = t->Q.at + w * n;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            t->A.at[i * n + j] += (float)(x * ((double)a[i] * (double)b[j] + (double)b[i] * (double)a[j]));
}

/* Movements of all sizes: some leave out nearly all elements off the diagonal, some none, some decompose. */
TEST(is_as_good_as_a_decomposition_however_far_it_moves)
{
    static const int64_t sizes[] = { 64, 100, 128 };
    int decomposed = 0, tracked = 0;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (double part = 1e-8; part < 1; part *= 4) {
            track *t = begin_steep(sizes[s]);
            assert_int_equal(refresh(t), PD_OK);
            for (int64_t i = 0, j; i < sizes[s]; i++) {
                j = (i * 7 + 3) % sizes[s];
                couple(t, i, j, part * sqrt(eigenvalue(i, sizes[s]) * eigenvalue(j, sizes[s])));
            }
            assert_int_equal(refresh(t), PD_OK);
            if (t->report.decomposed)
                decomposed++;
            else
                tracked++;
            if (!(of_plain(t) <= 2)) fail_msg("n %d, part %g: %g", (int)sizes[s], part, of_plain(t));
            end(t);
        }
    assert_in_range(decomposed, 3, 30);
    assert_in_range(tracked, 12, 36);
}

/* A change of two eigenvectors that are not among the rows that are looked at first. */
TEST(notices_a_change_between_the_rows_it_looks_at)
{
    static const int pairs[][2] = { { 0, 5 }, { 2, 120 }, { 66, 70 }, { 100, 104 }, { 121, 125 } };

    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        track *t = begin_steep(128);
        assert_int_equal(refresh(t), PD_OK);
        couple(t, pairs[k][0], pairs[k][1], 0.8 * sqrt(eigenvalue(pairs[k][0], 128) * eigenvalue(pairs[k][1], 128)));
        assert_int_equal(refresh(t), PD_OK);
        if (!(of_plain(t) <= 2)) fail_msg("%d and %d: %g", pairs[k][0], pairs[k][1], of_plain(t));
        end(t);
    }
}

TEST(the_same_inputs_give_the_same_bits)
{
    track *t = begin(N, 3);
    pd_mat first;

    refreshes_well(t);
    move(t, 1e-5);
    refreshes_well(t);
    first = roots_copy(t->X);
    refreshes_well(t);
    assert_true(!t->report.decomposed);
    assert_memory_equal(first.at, t->X.at, N * N * sizeof *first.at);
    free(first.at);
    end(t);
}

TEST(the_root_is_exactly_symmetric)
{
    track *t = begin(17, 5);

    refreshes_well(t);
    move(t, 1e-5);
    refreshes_well(t);
    for (int i = 0; i < 17; i++)
        for (int j = 0; j < i; j++) assert_true(t->X.at[i * 17 + j] == t->X.at[j * 17 + i]);
    end(t);
}

TEST(what_is_no_basis_is_not_used)
{
    for (int damage = 0; damage < 5; damage++) {
        track *t = begin(N, 4);
        refreshes_well(t);
        switch (damage) {
        case 0: t->Q.at[5] = NAN; break;
        case 1: t->Q.at[N * 3 + 2] += 0.01f; break;                       /* a row longer than 1 */
        case 2: memcpy(t->Q.at, t->Q.at + N, N * sizeof *t->Q.at); break; /* two rows alike */
        case 3:
            for (int j = 0; j < N; j++) t->Q.at[j] += 1e-3f * t->Q.at[N + j];
            break; /* two rows that are not orthogonal */
        default: memset(t->Q.at + N * (N - 1), 0, N * sizeof *t->Q.at); break;
        }
        refreshes_well(t);
        assert_true(t->report.decomposed);
        end(t);
    }
}

TEST(eigenvalues_may_be_repeated)
{
    double values[N], other[N];
    track *t = begin(N, 4);

    for (int i = 0; i < N; i++) values[i] = i < N / 2 ? 4 : 1, other[i] = values[i] * 1.01;
    free(t->A.at);
    t->A = roots_with(values, N, 3);
    refreshes_well(t);
    free(t->A.at);
    t->A = roots_with(other, N, 3);
    refreshes_well(t);
    assert_true(!t->report.decomposed && t->report.iterations == 1);
    end(t);
}

TEST(a_zero_matrix_has_the_root_of_its_ridge)
{
    track *t = begin(5, 2);

    memset(t->A.at, 0, 25 * sizeof *t->A.at);
    t->want.epsilon = 1e-2;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(refresh(t), PD_OK);
        for (int i = 0; i < 25; i++) assert_true(fabs((double)t->X.at[i] - (i % 6 == 0 ? 1e4 : 0)) < 1e-2);
        assert_true(t->report.decomposed == (k == 0) && t->report.largest == 0);
    }
    end(t);
}

TEST(a_matrix_that_becomes_singular_is_refused_and_leaves_no_basis)
{
    track *t = begin(6, 4);

    t->want.epsilon = 0;
    refreshes_well(t);
    memset(t->A.at, 0, 36 * sizeof *t->A.at);
    t->A.at[0] = 1;
    assert_int_equal(refresh(t), PD_OUT_OF_RANGE);
    assert_true(isinf(t->report.error));
    for (int i = 0; i < 36; i++) assert_true(t->Q.at[i] == 0);
    end(t);
}

TEST(what_is_not_finite_is_refused_and_the_basis_stays)
{
    track *t = begin(6, 4);
    pd_mat Q;

    refreshes_well(t);
    Q = roots_copy(t->Q);
    t->A.at[8] = NAN;
    assert_int_equal(refresh(t), PD_OUT_OF_RANGE);
    t->A.at[8] = INFINITY;
    assert_int_equal(refresh(t), PD_OUT_OF_RANGE);
    assert_memory_equal(Q.at, t->Q.at, 36 * sizeof *Q.at);
    free(Q.at);
    end(t);
}

TEST(scales_as_powers_do)
{
    static const float scales[] = { 1e-30f, 1e30f };

    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (int p = 2; p <= 5; p++) {
            track *t = begin(17, p);
            for (int i = 0; i < 17 * 17; i++) t->A.at[i] *= scales[s], t->toward.at[i] *= scales[s];
            t->want.epsilon = 0;
            refreshes_well(t);
            move(t, 1e-5);
            refreshes_well(t);
            assert_true(!t->report.decomposed);
            end(t);
        }
}

/* The ridge follows the largest eigenvalue of the present matrix, not of the matrix from which the basis was
 * computed. */
TEST(reports_what_the_matrix_is_now)
{
    track *t = begin(N, 4);

    refreshes_well(t);
    for (int i = 0; i < N * N; i++) t->A.at[i] *= 3;
    refreshes_well(t);
    assert_true(!t->report.decomposed);
    assert_true(fabs(t->report.largest - 3) < 1e-5);
    assert_true(fabs(t->report.condition - pow(8, (N - 1.0) / N)) < 1e-3);
    assert_true(t->report.error > 0 && t->report.error < 1e-5);
    end(t);
}

TEST(leaves_the_gaps_of_strided_matrices)
{
    track *t = begin(5, 3), *u = begin(5, 3);
    float memory[3][40];
    pd_mat X = { memory[0], 5, 5, 8 }, Q = { memory[1], 5, 5, 8 }, A = { memory[2], 5, 5, 8 };

    for (int i = 0; i < 40; i++) memory[0][i] = -1, memory[1][i] = i % 8 < 5 ? 0 : NAN, memory[2][i] = NAN;
    for (int k = 0; k < 2; k++) {
        refreshes_well(t);
        for (int i = 0; i < 5; i++) memcpy(A.at + i * 8, t->A.at + i * 5, 5 * sizeof *A.at);
        assert_int_equal(pd_root_tracked(X, Q, A, &u->want, &u->report), PD_OK);
        assert_true(u->report.decomposed == (k == 0));
        for (int i = 0; i < 40; i++) {
            assert_true(i % 8 < 5 ? X.at[i] == t->X.at[i / 8 * 5 + i % 8] : X.at[i] == -1);
            assert_true(i % 8 < 5 ? Q.at[i] == t->Q.at[i / 8 * 5 + i % 8] : isnan(Q.at[i]));
        }
    }
    end(t);
    end(u);
}

/* Three cases: the first refresh; a refresh after a small change; and a refresh that decomposes after an attempt in the
 * last basis. */
TEST(no_allocation_may_fail_unnoticed)
{
    static const double parts[] = { 0, 1e-5, 2e-3 };

    for (int way = 0; way < 3; way++) {
        track *t = begin(N, 3);
        pd_mat C = roots_matrix(N), Q = roots_matrix(N);
        int64_t n;
        if (way > 0) refreshes_well(t);
        memcpy(Q.at, t->Q.at, N * N * sizeof *Q.at);
        move(t, parts[way]);
        for (n = 0;; n++) {
            int rc;
            memcpy(C.at, t->A.at, N * N * sizeof *C.at);
            memcpy(t->Q.at, Q.at, N * N * sizeof *Q.at);
            oom_arm(n);
            rc = pd_root_tracked(t->X, t->Q, C, &t->want, &t->report);
            if (!oom_disarm()) {
                assert_int_equal(rc, PD_OK);
                break;
            }
            assert_int_equal(rc, PD_NO_MEMORY);
        }
        assert_int_equal(t->report.decomposed, way != 1);
        assert_true(n >= 1);
        free(C.at), free(Q.at);
        end(t);
    }
}
