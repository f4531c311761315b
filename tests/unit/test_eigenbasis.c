/* Tests eigenvectors and their refresh against matrices with known eigenvalues. */
#include "test.h"
#include "eigenbasis.h"
#include "paramd/error.h"
#include "roots.h"

enum { N = 19 };

/* A matrix L with eigenvalues 1, 1/2, 1/4 ... down to 2^-9 (twice each, nearly), and memory for bases. */
typedef struct sample {
    pd_mat L, Q, old, room;
    double values[N], condition;
    float order[N];
} sample;

static void begin(sample *s)
{
    for (int i = 0; i < N; i++) s->values[i] = pow(2, -i / 2.0);
    s->L = roots_with(s->values, N, 5);
    s->Q = roots_matrix(N), s->old = roots_matrix(N), s->room = roots_matrix(N);
    for (int i = 0; i < N; i++) s->old.at[i * N + i] = 1;
}

static void end(sample *s)
{
    free(s->L.at), free(s->Q.at), free(s->old.at), free(s->room.at);
}

FIXTURE(sample, begin, end);

/* Returns entry (i, j) of Q' L Q. */
static double rotated(const sample *s, int i, int j)
{
    double sum = 0;

    for (int a = 0; a < N; a++)
        for (int b = 0; b < N; b++)
            sum += (double)s->Q.at[a * N + i] * (double)s->L.at[a * N + b] * (double)s->Q.at[b * N + j];
    return sum;
}

static void assert_orthonormal(const sample *s)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double dot = i == j ? -1 : 0;
            for (int a = 0; a < N; a++) dot += (double)s->Q.at[a * N + i] * (double)s->Q.at[a * N + j];
            assert_true(fabs(dot) < 2e-6);
        }
}

static double largest_off_diagonal(const sample *s)
{
    double most = 0;

    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (i != j) most = fmax(most, fabs(rotated(s, i, j)));
    return most;
}

static pd_mat copy_of_L(sample *s)
{
    memcpy(s->room.at, s->L.at, N * N * sizeof(float));
    return s->room;
}

TEST(eigenvectors_are_columns_by_descending_eigenvalue, sample *s)
{
    assert_int_equal(pd_eigenbasis(s->Q, copy_of_L(s), &s->condition), PD_OK);
    assert_orthonormal(s);
    assert_true(largest_off_diagonal(s) < 1e-6);
    for (int i = 0; i < N; i++) assert_true(fabs(rotated(s, i, i) - s->values[i]) < 1e-6);
    assert_true(fabs(s->condition / pow(2, (N - 1) / 2.0) - 1) < 1e-3);
}

TEST(refreshes_converge_to_the_eigenvectors, sample *s)
{
    double before = INFINITY;

    for (int step = 0; step < 40; step++) {
        assert_int_equal(pd_eigenbasis_refresh(s->Q, s->order, s->old, copy_of_L(s), &s->condition), PD_OK);
        assert_orthonormal(s);
        memcpy(s->old.at, s->Q.at, N * N * sizeof(float));
        if (step % 10 != 9) continue;
        assert_true(largest_off_diagonal(s) < before / 2);
        before = largest_off_diagonal(s);
    }
    for (int i = 0; i < N; i++) assert_true(fabs(rotated(s, i, i) - s->values[i]) < 1e-4);
}

/* A basis of unit vectors stays one while L is diagonal: only their order changes, and their signs. */
TEST(a_refresh_sorts_by_descending_eigenvalue, sample *s)
{
    for (int i = 0; i < N * N; i++) s->L.at[i] = 0;
    for (int i = 0; i < N; i++) s->L.at[i * N + i] = (float)(1 + (i * 7) % N);
    assert_int_equal(pd_eigenbasis_refresh(s->Q, s->order, s->old, copy_of_L(s), &s->condition), PD_OK);
    for (int j = 0; j < N; j++) {
        int from = (int)s->order[j];
        assert_true(1 + (from * 7) % N == N - j);
        for (int i = 0; i < N; i++) assert_true(fabsf(s->Q.at[i * N + j]) == (i == from ? 1.0f : 0.0f));
    }
    assert_true(fabs(s->condition - N) < 1e-9);
}

TEST(a_refresh_without_order_keeps_columns, sample *s)
{
    for (int i = 0; i < N * N; i++) s->L.at[i] = 0;
    for (int i = 0; i < N; i++) s->L.at[i * N + i] = (float)(1 + (i * 7) % N);
    assert_int_equal(pd_eigenbasis_refresh(s->Q, NULL, s->old, copy_of_L(s), &s->condition), PD_OK);
    for (int i = 0; i < N * N; i++) assert_true(fabsf(s->Q.at[i]) == s->old.at[i]);
}

/* Makes the basis of unit vectors that iterations begin with. */
static void begin_with_units(sample *s)
{
    memcpy(s->Q.at, s->old.at, N * N * sizeof(float));
}

TEST(iterations_converge_to_ascending_eigenvalues, sample *s)
{
    float values[N];
    double rest;

    begin_with_units(s);
    assert_int_equal(pd_eigenbasis_iterate(s->Q, values, s->L, 0, 300, &rest), PD_OK);
    assert_orthonormal(s);
    assert_true(rest < 1e-5 && largest_off_diagonal(s) < 1e-5);
    for (int i = 0; i < N; i++) {
        assert_true(fabs((double)values[i] - s->values[N - 1 - i]) < 1e-5);
        assert_true(fabs(rotated(s, i, i) - (double)values[i]) < 1e-5);
    }
}

/* A basis is moved in each refresh of a job, so a little loss each time would add up. */
TEST(a_basis_stays_orthonormal_through_thousands_of_calls, sample *s)
{
    float values[N];
    double rest;

    begin_with_units(s);
    for (int step = 0; step < 3000; step++)
        assert_int_equal(pd_eigenbasis_iterate(s->Q, values, s->L, 0, 1, &rest), PD_OK);
    assert_orthonormal(s);
    for (int i = 1; i < N; i++) assert_true(values[i] >= values[i - 1]);
}

TEST(iterations_end_at_the_tolerance, sample *s)
{
    float values[N];
    double rest, after;

    begin_with_units(s);
    assert_int_equal(pd_eigenbasis_iterate(s->Q, values, s->L, 0.1, 1000, &rest), PD_OK);
    assert_true(rest <= 0.1 && rest > 1e-3);
    memcpy(s->old.at, s->Q.at, N * N * sizeof(float));
    assert_int_equal(pd_eigenbasis_iterate(s->Q, values, s->L, 0.1, 1000, &after), PD_OK);
    assert_memory_equal(s->Q.at, s->old.at, N * N * sizeof(float));
}

/* What upstream's program does in these cases was seen: reversed unit vectors, and unit vectors. */
TEST(a_matrix_of_zeros_has_bases, sample *s)
{
    for (int i = 0; i < N * N; i++) s->L.at[i] = 0;
    assert_int_equal(pd_eigenbasis(s->Q, copy_of_L(s), &s->condition), PD_OK);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) assert_true(s->Q.at[i * N + j] == (i + j == N - 1 ? 1.0f : 0.0f));
    assert_int_equal(pd_eigenbasis_refresh(s->Q, s->order, s->old, copy_of_L(s), &s->condition), PD_OK);
    for (int i = 0; i < N * N; i++) assert_true(s->Q.at[i] == s->old.at[i]);
    assert_true(s->condition == 0);
}
