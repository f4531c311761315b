/* Tests the arithmetic of one block of kron against a second implementation in float64, on random configurations. */
#include <float.h>

#include "test.h"
#include "kron_factor.h"
#include "shampoos.h"

enum { MOST = 4096, MOST_SIDE = 80, CONFIGURATIONS = 60 };

typedef struct fixture {
    pd_kron_block block;
    int64_t n, elements; /* number of elements of the padded block (block.full) and of the block without padding
                          * (block.size) */
    float x[MOST], H[MOST], V[MOST];
    float q[PD_MAX_RANK][MOST_SIDE * MOST_SIDE], m[PD_MAX_RANK][MOST_SIDE * MOST_SIDE];
    float *Q[PD_MAX_RANK], *M[PD_MAX_RANK];
    float scratch[MOST_SIDE * MOST_SIDE + 4 * MOST_SIDE + 64];
    /* buffers of the second implementation */
    double A[MOST], B[MOST], T1[MOST_SIDE * MOST_SIDE], T2[MOST_SIDE * MOST_SIDE];
} fixture;

static int64_t product(const int64_t *size, int rank)
{
    int64_t n = 1;

    for (int d = 0; d < rank; d++) n *= size[d];
    return n;
}

static float random_float(float size)
{
    float x;

    shampoo_fill(&x, 1, size);
    return x;
}

/* Draws factor d as an upper triangle (or only its diagonal). Diagonal elements are near 1. */
static void draw_factor(fixture *f, int d)
{
    int64_t side = f->block.side[d], n = f->block.diagonal[d] ? side : side * side;

    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / side, col = i % side;
        if (f->block.diagonal[d] || row == col)
            f->q[d][i] = 1 + random_float(0.4f);
        else
            f->q[d][i] = row < col ? random_float(0.8f) / (float)side : 0;
    }
}

/* Draws a block with 1 to 5 dimensions. Some blocks are padded. Some factors have gaps between their rows. */
static void draw(fixture *f, int number)
{
    pd_kron_block *b = &f->block;
    int most[] = { 70, 40, 12, 7, 5 };

    memset(b, 0, sizeof *b);
    b->rank = 1 + number % 5;
    for (int d = 0; d < b->rank; d++) {
        b->diagonal[d] = shampoo_below(3) == 0;
        b->size[d] = 1 + shampoo_below(most[b->rank - 1]);
        b->full[d] = b->size[d] + (number % 2 == 0 ? 0 : shampoo_below(3));
        b->side[d] = b->full[d] + (number % 3 == 0 ? shampoo_below(3) : 0);
        f->Q[d] = f->q[d];
        f->M[d] = f->m[d];
        draw_factor(f, d);
        for (int i = 0; i < MOST_SIDE * MOST_SIDE; i++) f->m[d][i] = NAN;
    }
    f->n = product(b->full, b->rank);
    f->elements = product(b->size, b->rank);
    shampoo_fill(f->x, f->elements, 1);
    shampoo_fill(f->H, f->n, 1);
    shampoo_fill(f->V, f->n, 1);
}

static double factor(const fixture *f, int d, int64_t row, int64_t col)
{
    if (f->block.diagonal[d]) return row == col ? (double)f->q[d][row] : 0;
    return (double)f->q[d][row * f->block.side[d] + col];
}

/* Returns the distance of elements that are neighbours along dimension d, in a dense array of these sizes. */
static int64_t stride_of(const int64_t *size, int rank, int d)
{
    return product(size + d + 1, rank - d - 1);
}
static int64_t index_of(const int64_t *size, int rank, int d, int64_t i)
{
    return i / stride_of(size, rank, d) % size[d];
}

/* Multiplies x by the factor Q along dimension d, or by Q transposed: x[..b..] <- sum over a of Q[b,a] x[..a..]. */
static void twin_along(const fixture *f, double *x, const int64_t *size, int d, bool transposed)
{
    double next[MOST];
    int64_t n = product(size, f->block.rank), stride = stride_of(size, f->block.rank, d);

    for (int64_t i = 0; i < n; i++) {
        int64_t b = index_of(size, f->block.rank, d, i);
        next[i] = 0;
        for (int64_t a = 0; a < size[d]; a++)
            next[i] += (transposed ? factor(f, d, a, b) : factor(f, d, b, a)) * x[i + (a - b) * stride];
    }
    memcpy(x, next, (size_t)n * sizeof *x);
}

/* Solves Q' y = x along dimension d, from the first index to the last, and writes y to x. */
static void twin_solve(const fixture *f, double *x, int d)
{
    int64_t stride = stride_of(f->block.full, f->block.rank, d);

    for (int64_t b = 0; b < f->block.full[d]; b++)
        for (int64_t i = 0; i < f->n; i++) {
            if (index_of(f->block.full, f->block.rank, d, i) != b) continue;
            for (int64_t a = 0; a < b; a++) x[i] -= factor(f, d, a, b) * x[i + (a - b) * stride];
            x[i] /= factor(f, d, b, b);
        }
}

static void twin_gram(const fixture *f, double *T, const double *x, int d)
{
    int64_t side = f->block.full[d], stride = stride_of(f->block.full, f->block.rank, d);

    memset(T, 0, (size_t)(side * side) * sizeof *T);
    for (int64_t i = 0; i < f->n; i++) {
        int64_t row = index_of(f->block.full, f->block.rank, d, i);
        for (int64_t col = 0; col < side; col++) T[row * side + col] += x[i] * x[i + (col - row) * stride];
    }
}

static double twin_bound(const double *S, int64_t n)
{
    double most = 0, heaviest = -1, norm = 0, result = 0, x[MOST_SIDE] = { 0 };
    int64_t j = 0;

    for (int64_t i = 0; i < n * n; i++) most = fmax(most, fabs(S[i]));
    if (!(most > 0)) return most;
    for (int64_t col = 0; col < n; col++) {
        double squares = 0;
        for (int64_t i = 0; i < n; i++) squares += S[i * n + col] * S[i * n + col];
        if (squares > heaviest * (1 + 1e-12)) heaviest = squares, j = col;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) x[i] += S[k * n + j] / most * S[k * n + i] / most;
    for (int64_t i = 0; i < n; i++) norm += x[i] * x[i];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t k = 0; k < n; k++) sum += x[k] / sqrt(norm) * S[i * n + k] / most;
        result += sum * sum;
    }
    return most * sqrt(result);
}

/* Computes the new factor of dimension d as a dense matrix of the padded size, and writes it to `out`. */
static void twin_factor(fixture *f, int d, double rate, double *out)
{
    int64_t n = f->block.full[d];
    double sum[MOST_SIDE * MOST_SIDE], bound = 0;

    twin_gram(f, f->T1, f->A, d);
    twin_gram(f, f->T2, f->B, d);
    for (int64_t i = 0; i < n * n; i++) sum[i] = f->T1[i] + f->T2[i];
    for (int64_t i = 0; i < n; i++) bound = fmax(bound, sum[i * n + i]);
    if (!f->block.diagonal[d]) bound = twin_bound(sum, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double change = 0;
            for (int64_t k = f->block.diagonal[d] ? j : i; k <= j; k++)
                if (!f->block.diagonal[d] || i == j)
                    change += (f->T1[i * n + k] - f->T2[i * n + k]) * factor(f, d, k, j);
            out[i * n + j] = factor(f, d, i, j) - rate / (bound + 0x1p-126) * change;
        }
}

/* Checks that factor d equals `expected` within a relative tolerance. */
static void assert_factor(const fixture *f, int d, const double *expected, double tolerance)
{
    int64_t n = f->block.full[d];
    double far = 0, norm = 0;

    for (int64_t i = 0; i < n * n; i++) {
        double off = factor(f, d, i / n, i % n) - expected[i];
        if (i / n > i % n) assert_true(factor(f, d, i / n, i % n) == 0);
        far += off * off;
        norm += expected[i] * expected[i];
    }
    if (!(sqrt(far) <= tolerance * sqrt(norm)))
        fail_msg("factor %d of rank %d is off by %g", d, f->block.rank, sqrt(far / norm));
}

FIXTURE(fixture, NULL, NULL);

TEST(factors_become_what_the_twin_says, fixture *f)
{
    static double expected[PD_MAX_RANK][MOST_SIDE * MOST_SIDE];

    for (int c = 0; c < CONFIGURATIONS; c++) {
        draw(f, c);
        for (int64_t i = 0; i < f->n; i++) f->A[i] = (double)f->H[i], f->B[i] = (double)f->V[i];
        for (int d = 0; d < f->block.rank; d++) {
            twin_along(f, f->A, f->block.full, d, false);
            twin_solve(f, f->B, d);
        }
        for (int d = 0; d < f->block.rank; d++) twin_factor(f, d, 0.1, expected[d]);
        assert_true(pd_kron_update_scratch(&f->block) <= (int64_t)(sizeof f->scratch / sizeof *f->scratch));
        pd_kron_multipliers(&f->block, f->H, f->V, f->Q, 0.1f, f->M, f->scratch);
        pd_kron_multiply(&f->block, f->Q, f->M, false);
        for (int d = 0; d < f->block.rank; d++) assert_factor(f, d, expected[d], 2e-6);
    }
}

TEST(memory_after_a_factor_is_not_written, fixture *f)
{
    for (int c = 0; c < CONFIGURATIONS; c += 3) {
        static float before[PD_MAX_RANK][MOST_SIDE * MOST_SIDE];
        draw(f, c);
        memcpy(before, f->q, sizeof before);
        pd_kron_multipliers(&f->block, f->H, f->V, f->Q, 0.1f, f->M, f->scratch);
        pd_kron_multiply(&f->block, f->Q, f->M, false);
        for (int d = 0; d < f->block.rank; d++) {
            int64_t side = f->block.side[d], n = f->block.diagonal[d] ? side : side * side;
            assert_true(shampoo_all_finite(f->m[d], n));
            for (int64_t i = 0; i < n; i++)
                if (i % side >= f->block.full[d] || (!f->block.diagonal[d] && i / side >= f->block.full[d]))
                    assert_true(f->q[d][i] == before[d][i]);
        }
    }
}

TEST(preconditioning_is_the_twin_s_even_where_only_a_corner_of_the_factors_is_used, fixture *f)
{
    for (int c = 0; c < CONFIGURATIONS; c++) {
        pd_block_view x = { .at = f->x };
        double far = 0, norm = 0;
        draw(f, c);
        x.rank = f->block.rank;
        memcpy(x.size, f->block.size, sizeof x.size);
        x.stride = x.size[1];
        memset(f->A, 0, sizeof f->A); /* the expected result: the gradient, padded with zeros, times the whole
                                       * factors */
        for (int64_t i = 0; i < f->elements; i++) {
            int64_t to = 0;
            for (int d = 0; d < x.rank; d++) to = to * f->block.full[d] + index_of(f->block.size, x.rank, d, i);
            f->A[to] = (double)f->x[i];
        }
        for (int d = 0; d < x.rank; d++) {
            twin_along(f, f->A, f->block.full, d, false);
            twin_along(f, f->A, f->block.full, d, true);
        }
        pd_kron_precondition(&f->block, &x, f->Q, NULL);
        for (int64_t i = 0; i < f->elements; i++) {
            int64_t at = 0;
            for (int d = 0; d < x.rank; d++) at = at * f->block.full[d] + index_of(f->block.size, x.rank, d, i);
            far += pow((double)f->x[i] - f->A[at], 2);
            norm += f->A[at] * f->A[at];
        }
        assert_true(sqrt(far) <= 2e-6 * sqrt(norm));
    }
}

TEST(a_matrix_is_preconditioned_in_place, fixture *f)
{
    enum { ROWS = 6, COLS = 5, STRIDE = 9 };
    float wide[ROWS * STRIDE], dense[ROWS * COLS];
    pd_block_view x = { .at = wide, .rank = 2, .size = { ROWS, COLS }, .stride = STRIDE };

    f->block = (pd_kron_block){
        .rank = 2, .diagonal = { false, true }, .size = { ROWS, COLS }, .full = { ROWS, COLS }, .side = { ROWS, COLS }
    };
    for (int d = 0; d < 2; d++) f->Q[d] = f->q[d], draw_factor(f, d);
    shampoo_fill(wide, ROWS * STRIDE, 1);
    for (int i = 0; i < ROWS * COLS; i++) dense[i] = wide[i / COLS * STRIDE + i % COLS];
    pd_kron_precondition(&f->block, &x, f->Q, NULL);
    pd_kron_precondition(&f->block, &(pd_block_view){ .at = dense, .rank = 2, .size = { ROWS, COLS }, .stride = COLS },
                         f->Q, NULL);
    for (int i = 0; i < ROWS * COLS; i++) assert_true(fabsf(dense[i] - wide[i / COLS * STRIDE + i % COLS]) <= 1e-6f);
}

static float bound_of(fixture *f, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) f->q[0][i * n + j] = j > i ? NAN : size * f->x[i] * f->x[j];
    return pd_kron_norm_bound(pd_mat_dense(f->q[0], n, n), f->scratch);
}

TEST(the_bound_of_a_rank_one_matrix_is_its_norm_at_any_size, fixture *f)
{
    double squares = 0;

    shampoo_fill(f->x, 40, 1);
    for (int i = 0; i < 40; i++) squares += (double)f->x[i] * (double)f->x[i];
    for (int power = -110; power <= 110; power += 44) {
        double size = ldexp(1, power);
        assert_true(fabs((double)bound_of(f, 40, (float)size) / size - squares) < 1e-5 * squares);
    }
}

TEST(the_bound_of_a_diagonal_matrix_is_its_largest_element, fixture *f)
{
    memset(f->q[0], 0, sizeof f->q[0]);
    for (int i = 0; i < 20; i++) f->q[0][i * 21] = (float)(i % 13);
    assert_true(pd_kron_norm_bound(pd_mat_dense(f->q[0], 20, 20), f->scratch) == 12);
}

/* In this matrix, four rows hold four twos each, and the fifth row holds a single four. All rows have a sum of
 * squares of 16. The bound must be computed from the first of them, which gives 8. */
TEST(of_equally_heavy_rows_the_bound_takes_the_first, fixture *f)
{
    memset(f->q[0], 0, sizeof f->q[0]);
    for (int i = 0; i < 16; i++) f->q[0][i / 4 * 5 + i % 4] = 2;
    f->q[0][24] = 4;
    assert_true(fabsf(pd_kron_norm_bound(pd_mat_dense(f->q[0], 5, 5), f->scratch) - 8) < 1e-5f);
}

TEST(the_bound_of_zeros_is_zero_and_of_nan_is_nan, fixture *f)
{
    for (int at = 0; at < 40 * 40; at++) {
        memset(f->q[0], 0, sizeof f->q[0]);
        if (at == 0) assert_true(pd_kron_norm_bound(pd_mat_dense(f->q[0], 40, 40), f->scratch) == 0);
        if (at % 40 > at / 40) continue;
        f->q[0][0] = 1;
        f->q[0][39 * 40 + 39] = 1;
        f->q[0][at] = NAN;
        assert_true(isnan(pd_kron_norm_bound(pd_mat_dense(f->q[0], 40, 40), f->scratch)));
    }
}

TEST(balancing_makes_factors_equally_large_and_keeps_their_product, fixture *f)
{
    for (int c = 0; c < CONFIGURATIONS; c++) {
        double before = 1, after = 1, size[PD_MAX_RANK] = { 0 };
        draw(f, c);
        for (int d = 0; d < f->block.rank; d++) {
            int64_t side = f->block.side[d], n = f->block.diagonal[d] ? side : side * side;
            for (int64_t i = 0; i < n; i++) f->q[d][i] *= d == 0 ? 1e-3f : (float)d * 30;
            before *= factor(f, d, 0, 0);
        }
        pd_kron_balance(&f->block, f->Q, false);
        for (int d = 0; d < f->block.rank; d++) {
            int64_t n = f->block.full[d];
            after *= factor(f, d, 0, 0);
            for (int64_t i = 0; i < n * n; i++) size[d] = fmax(size[d], fabs(factor(f, d, i / n, i % n)));
        }
        assert_true(fabs(after / before - 1) < 1e-5);
        for (int d = 1; d < f->block.rank; d++) assert_true(fabs(size[d] / size[0] - 1) < 1e-5);
    }
}

TEST(bfloat16_factors_hold_bfloat16_numbers_after_each_operation, fixture *f)
{
    for (int operation = 0; operation < 2; operation++) {
        draw(f, 1);
        pd_kron_multipliers(&f->block, f->H, f->V, f->Q, 0.1f, f->M, f->scratch);
        if (operation == 0)
            pd_kron_multiply(&f->block, f->Q, f->M, true);
        else
            pd_kron_balance(&f->block, f->Q, true);
        for (int d = 0; d < f->block.rank; d++) {
            int64_t side = f->block.side[d], n = f->block.diagonal[d] ? side : side * side;
            for (int64_t i = 0; i < n; i++) {
                uint32_t bits;
                memcpy(&bits, &f->q[d][i], sizeof bits);
                assert_true((bits & 0xffff) == 0);
            }
        }
    }
}

/* Balancing multiplies each factor by G / r, where r is its largest element and G the geometric mean of all r. Here r
 * is 1 and 3, so the multipliers are sqrt(3) and 1/sqrt(3). They are rounded to bfloat16 before the multiplication. */
TEST(bfloat16_rounds_the_multiplier_before_it_multiplies, fixture *f)
{
    f->block =
        (pd_kron_block){ .rank = 2, .diagonal = { true, true }, .size = { 2, 1 }, .full = { 2, 1 }, .side = { 2, 1 } };
    for (int d = 0; d < 2; d++) f->Q[d] = f->q[d];
    f->q[0][0] = 1, f->q[0][1] = 0.71875f;
    f->q[1][0] = 3;
    pd_kron_balance(&f->block, f->Q, true);
    assert_true(f->q[0][0] == 1.734375f);
    assert_true(f->q[0][1] == 1.25f);     /* the rounded multiplier gives 1.734375 * 0.71875 = 1.24658, which is rounded
                                       * to 1.25; sqrt(3) would give 1.2449 and 1.2421875 */
    assert_true(f->q[1][0] == 1.734375f); /* 0.578125 * 3 */
}

/* With a gradient of 0 and a rate of 0.3, the factor Q becomes 1.3 Q = 13 Q / 10, rounded to bfloat16.
 *
 * Q is an integer from 128 to 255. In bfloat16, neighbouring numbers differ by 1 below 256 and by 2 above. A result
 * halfway between two numbers becomes the even one. */
TEST(a_diagonal_factor_halfway_between_bfloat16_numbers_becomes_the_even_one, fixture *f)
{
    f->block = (pd_kron_block){ .rank = 1, .diagonal = { true }, .size = { 1 }, .full = { 1 }, .side = { 1 } };
    f->Q[0] = f->q[0], f->M[0] = f->m[0];
    for (int Q = 128; Q < 256; Q++) {
        int unit = 13 * Q < 2560 ? 10 : 20, next = 13 * Q / unit, rest = 13 * Q % unit;
        next += 2 * rest > unit || (2 * rest == unit && next % 2 != 0);
        f->q[0][0] = (float)Q, f->H[0] = 0, f->V[0] = 1;
        pd_kron_multipliers(&f->block, f->H, f->V, f->Q, 0.3f, f->M, f->scratch);
        pd_kron_multiply(&f->block, f->Q, f->M, true);
        if (f->q[0][0] != (float)(next * unit / 10)) fail_msg("%d becomes %g", Q, f->q[0][0]);
    }
}
