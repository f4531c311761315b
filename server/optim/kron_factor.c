/* kron_factor.c - the arithmetic of one block of the optimizer kron: the update of its factors, and preconditioning
 * with them. */
#include "kron_factor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "convert.h"
#include "cpu.h"
#include "kernels.h"
#include "pages.h"
#include "stripes.h"
#include "trsm.h"

#define TINY 0x1p-126f /* added to a number that may be 0 before a division by it */

/* Returns the larger of two numbers that are not negative; NaN if one of them is NaN. */
PD_INLINE float larger(float a, float b)
{
    return b > a || isnan(b) ? b : a;
}

/* Updates most[], the largest absolute values seen so far in each of 16 lanes, by the n elements of x, a row of a
 * matrix. Element i of every row belongs to lane i % 16. */
PD_INLINE void largest_in_lanes(float *most, const float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++) most[k] = larger(most[k], fabsf(x[i + k]));
    for (int k = 0; i < n; i++, k++) most[k] = larger(most[k], fabsf(x[i]));
}

static float largest_lane(const float *most)
{
    float size = most[0];

    for (int k = 1; k < 16; k++) size = larger(size, most[k]);
    return size;
}

PD_CLONES(float, largest, (const float *x, int64_t n), (x, n))
{
    float most[16] = { 0 };

    largest_in_lanes(most, x, n);
    return largest_lane(most);
}

/* Return the largest absolute element of a triangle of the square matrix S, the diagonal included: largest_below of the
 * lower triangle, largest_above of the upper one. */
PD_CLONES(float, largest_below, (pd_mat S), (S))
{
    float most[16] = { 0 };

    for (int64_t i = 0; i < S.rows; i++) largest_in_lanes(most, S.at + i * S.stride, i + 1);
    return largest_lane(most);
}

PD_CLONES(float, largest_above, (pd_mat S), (S))
{
    float most[16] = { 0 };

    for (int64_t i = 0; i < S.rows; i++) largest_in_lanes(most, S.at + i * S.stride + i, S.rows - i);
    return largest_lane(most);
}

PD_CLONES(void, scale, (float *restrict x, float by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] *= by;
}

PD_CLONES(void, divide, (float *restrict x, float by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] /= by;
}

PD_CLONES(void, scale_each, (float *restrict x, const float *restrict by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] *= by[i];
}

PD_CLONES(void, divide_each, (float *restrict x, const float *restrict by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] /= by[i];
}

PD_CLONES(void, add_share_of_each, (float *restrict x, const float *restrict share, int64_t n), (x, share, n))
{
    for (int64_t i = 0; i < n; i++) x[i] += share[i] * x[i];
}

PD_CLONES(void, add_squares, (float *restrict sum, const float *restrict x, int64_t n), (sum, x, n))
{
    for (int64_t i = 0; i < n; i++) sum[i] += x[i] * x[i];
}

/* Replaces two arrays a and b, element by element, by their sum and their difference: (a, b) <- (a + b, a - b). */
PD_CLONES(void, sum_and_difference, (float *restrict a, float *restrict b, int64_t n), (a, b, n))
{
    for (int64_t i = 0; i < n; i++) {
        float sum = a[i] + b[i], difference = a[i] - b[i];
        a[i] = sum;
        b[i] = difference;
    }
}

PD_CLONES(void, round_to_bfloat16, (float *x, int64_t n), (x, n))
{
    for (int64_t i = 0; i < n; i++) x[i] = pd_f32_from_bf16(pd_bf16_from_f32(x[i]));
}

/* Returns the index of the row with the largest sum of squares in the symmetric matrix S; of equal rows the first.
 * Reads only the lower half of S. squares[i] receives the sum of squares of row i. */
static int64_t heaviest_row(pd_mat S, float *squares)
{
    int64_t heaviest = 0;

    memset(squares, 0, (size_t)S.rows * sizeof *squares);
    for (int64_t i = 0; i < S.rows; i++) {
        const float *row = S.at + i * S.stride;
        add_squares(squares, row, i);
        squares[i] = (float)pd_sum_squares(row, i + 1);
    }
    for (int64_t i = 1; i < S.rows; i++)
        if (squares[i] > squares[heaviest]) heaviest = i;
    return heaviest;
}

float pd_kron_norm_bound(pd_mat S, float *scratch)
{
    float *heavy = scratch, *once = scratch + S.rows, *twice = scratch + 2 * S.rows;
    float most = largest_below(S);
    int64_t j;

    if (!(most > 0)) return most;
    for (int64_t i = 0; i < S.rows; i++) divide(S.at + i * S.stride, most, i + 1);
    j = heaviest_row(S, once);
    for (int64_t i = 0; i < S.rows; i++) heavy[i] = i <= j ? S.at[j * S.stride + i] : S.at[i * S.stride + j];
    pd_symv(once, S, heavy);
    scale(once, 1 / sqrtf((float)pd_sum_squares(once, S.rows)), S.rows);
    pd_symv(twice, S, once);
    return most * sqrtf((float)pd_sum_squares(twice, S.rows));
}

static int64_t product(const int64_t *size, int first, int end)
{
    int64_t n = 1;

    for (int d = first; d < end; d++) n *= size[d];
    return n;
}

/* A view of a tensor as matrices of equal size (sheets), for an operation along one dimension. There are `count`
 * sheets, one after the other in memory. The dimension indexes their rows; or, with `columns`, there is one sheet, and
 * the dimension indexes its columns. */
typedef struct sheets {
    pd_mat first;
    int64_t count;
    bool columns;
} sheets;

static sheets sheets_of(const pd_block_view *x, int dim)
{
    int64_t outer = product(x->size, 0, dim), side = x->size[dim], inner = product(x->size, dim + 1, x->rank);

    if (x->rank == 2) return (sheets){ { x->at, x->size[0], x->size[1], x->stride }, 1, dim == 1 };
    if (dim == x->rank - 1 && x->rank > 1) return (sheets){ pd_mat_dense(x->at, outer, side), 1, true };
    return (sheets){ pd_mat_dense(x->at, side, inner), outer, false };
}

static void along_diagonal(pd_mat B, bool columns, const float *q, bool divides)
{
    for (int64_t i = 0; i < B.rows; i++) {
        float *row = B.at + i * B.stride;
        if (columns && divides)
            divide_each(row, q, B.cols);
        else if (columns)
            scale_each(row, q, B.cols);
        else if (divides)
            divide(row, q[i], B.cols);
        else
            scale(row, q[i], B.cols);
    }
}

static pd_turn turn_of(pd_kron_operation operation, bool columns)
{
    return (operation == PD_KRON_APPLY) == columns ? PD_TRANSPOSED : PD_AS_IS;
}

/* Applies an operation to the matrix B, in place: from the left, or from the right if `columns` is set. */
static void along_triangle(pd_mat B, bool columns, pd_mat Q, pd_kron_operation operation)
{
    pd_side side = columns ? PD_RIGHT : PD_LEFT;

    if (operation == PD_KRON_SOLVE_TRANSPOSED)
        pd_trsm(B, Q, turn_of(operation, columns), side);
    else
        pd_trmm(B, Q, turn_of(operation, columns), side);
}

/* Returns into how many independent computations an operation can be divided: one for each sheet, or if there is only
 * one sheet, one for each of its columns (rows, with `columns`). Each computation uses the whole factor. */
static int64_t breadth_of(const sheets *x)
{
    return x->count > 1 ? x->count : x->columns ? x->first.rows : x->first.cols;
}

/* Returns a view of the sheets [first, end) of x. If x is a single sheet, [first, end) are its columns (its rows, with
 * `columns`). */
static sheets part_of(sheets x, int64_t first, int64_t end)
{
    if (x.count > 1) {
        x.first.at += first * x.first.rows * x.first.cols;
        x.count = end - first;
    } else {
        x.first = x.columns ? pd_mat_rows(x.first, first, end) : pd_mat_cols(x.first, first, end);
    }
    return x;
}

/* The arguments of an operation on x with a triangular factor Q. A stripe is a range of sheets, or of the rows or
 * columns of a single sheet (part_of). */
typedef struct triangle_work {
    sheets x;
    pd_mat Q;
    pd_kron_operation operation;
    int stripes;
} triangle_work;

static void triangle_stripe(const void *work, int stripe)
{
    const triangle_work *t = work;
    int64_t n = breadth_of(&t->x);
    sheets x = part_of(t->x, pd_stripe_bound(n, PD_STRIPE_EVEN, stripe, t->stripes),
                       pd_stripe_bound(n, PD_STRIPE_EVEN, stripe + 1, t->stripes));

    for (int64_t o = 0; o < x.count; o++, x.first.at += x.first.rows * x.first.cols)
        along_triangle(x.first, x.columns, t->Q, t->operation);
}

void pd_kron_along(const pd_block_view *x, int dim, const float *Q, bool diagonal, int64_t side,
                   pd_kron_operation operation)
{
    int64_t n = x->size[dim];
    triangle_work t = { sheets_of(x, dim), { (float *)Q, n, n, side }, operation, 1 };
    pd_mat B = t.x.first;

    if (diagonal) {
        for (int64_t o = 0; o < t.x.count; o++, B.at += B.rows * B.cols)
            along_diagonal(B, t.x.columns, Q, operation == PD_KRON_SOLVE_TRANSPOSED);
        return;
    }
    t.stripes = pd_stripes_of((double)product(x->size, 0, x->rank) * (double)n,
                              t.x.count > 1 ? t.x.count : breadth_of(&t.x) / (2 * PD_STRIPE_WIDTH));
    pd_stripes_run(t.stripes, triangle_stripe, &t);
}

static pd_block_view dense_view(const pd_kron_block *block, float *at)
{
    pd_block_view view = { .at = at, .rank = block->rank };

    memcpy(view.size, block->full, sizeof view.size);
    if (view.rank == 2) view.stride = view.size[1];
    return view;
}

static int64_t largest_of(const int64_t *n, int count, const bool *but)
{
    int64_t most = 0;

    for (int d = 0; d < count; d++)
        if ((but == NULL || !but[d]) && n[d] > most) most = n[d];
    return most;
}

/* Returns how many floats of scratch memory the arithmetic of an update of a block's factors needs. To bound an
 * eigenvalue takes a matrix and three vectors for a triangular factor; a diagonal factor needs one vector. */
int64_t pd_kron_update_scratch(const pd_kron_block *block)
{
    int64_t triangle = largest_of(block->full, block->rank, block->diagonal);

    return pd_floats_padded(triangle * triangle) + 3 * pd_floats_padded(largest_of(block->full, block->rank, NULL));
}

void pd_kron_squares_along(float *sum, const pd_block_view *x, int dim)
{
    sheets s = sheets_of(x, dim);

    memset(sum, 0, (size_t)x->size[dim] * sizeof *sum);
    for (int64_t o = 0; o < s.count; o++, s.first.at += s.first.rows * s.first.cols)
        for (int64_t i = 0; i < s.first.rows; i++) {
            const float *row = s.first.at + i * s.first.stride;
            if (s.columns)
                add_squares(sum, row, s.first.cols);
            else
                sum[i] += (float)pd_sum_squares(row, s.first.cols);
        }
}

/* Computes m, the multiplier of a diagonal factor: m = -rate / max|T1 + T2| (T1 - T2). T1 and T2 are vectors: the sums
 * of squares of the tensors A and B for each index of dimension `dim`. m has `side` numbers; the elements of m after
 * the size of the dimension are 0. */
static void diagonal_multiplier(float *m, int64_t side, const pd_block_view *A, const pd_block_view *B, int dim,
                                float rate, float *scratch)
{
    int64_t n = A->size[dim];
    float step;

    memset(m, 0, (size_t)side * sizeof *m);
    pd_kron_squares_along(scratch, A, dim);
    pd_kron_squares_along(m, B, dim);
    sum_and_difference(scratch, m, n);
    step = rate / (largest(scratch, n) + TINY);
    for (int64_t i = 0; i < n; i++) m[i] *= -step;
}

/* Converts M in place to the multiplier of a triangular factor. At first M is a symmetric matrix, stored in the lower
 * half only. It becomes the identity minus `step` times its upper half, with zeros below the diagonal.
 *
 * Works in squares of 8 x 8 elements, because many rows of M may map to the same set of the first-level cache. */
static void to_multiplier(pd_mat M, float step)
{
    enum { SIDE = 8 };

    for (int64_t top = 0; top < M.rows; top += SIDE) {
        int64_t bottom = top + SIDE < M.rows ? top + SIDE : M.rows;
        for (int64_t left = 0; left <= top; left += SIDE)
            for (int64_t j = left; j < left + SIDE && j < bottom; j++)
                for (int64_t i = j < top ? top : j; i < bottom; i++) {
                    float change = -step * M.at[i * M.stride + j];
                    M.at[i * M.stride + j] = 0;
                    M.at[j * M.stride + i] = i == j ? 1 + change : change;
                }
    }
}

/* Computes M, the multiplier of a triangular factor: M = I - rate / bound(T1 + T2) triu(T1 - T2). T1 and T2 are the
 * tensors A and B, contracted with themselves over all dimensions except `dim`. `bound` bounds the largest eigenvalue
 * (pd_kron_norm_bound), and triu is the upper triangle. */
static void triangular_multiplier(float *at, int64_t side, const pd_block_view *A, const pd_block_view *B, int dim,
                                  float rate, float *scratch)
{
    int64_t n = A->size[dim];
    pd_mat M = { at, n, n, side }, sum = pd_mat_dense(scratch, n, n);

    if (n < side) memset(at, 0, (size_t)(side * side) * sizeof *at);
    pd_block_gram(sum, 0, 1, A, dim);
    pd_block_gram(M, 0, 1, B, dim);
    for (int64_t i = 0; i < n; i++) sum_and_difference(sum.at + i * n, at + i * side, i + 1);
    to_multiplier(M, rate / (pd_kron_norm_bound(sum, scratch + pd_floats_padded(n * n)) + TINY));
}

void pd_kron_multipliers(const pd_kron_block *block, float *H, float *V, float *const *Q, float rate, float *const *M,
                         float *scratch)
{
    pd_block_view A = dense_view(block, H), B = dense_view(block, V);

    for (int d = 0; d < block->rank; d++) {
        pd_kron_along(&A, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_APPLY);
        pd_kron_along(&B, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_SOLVE_TRANSPOSED);
    }
    for (int d = 0; d < block->rank; d++) {
        if (block->diagonal[d])
            diagonal_multiplier(M[d], block->side[d], &A, &B, d, rate, scratch);
        else
            triangular_multiplier(M[d], block->side[d], &A, &B, d, rate, scratch);
    }
}

int64_t pd_kron_factor_floats(const pd_kron_block *block, int d)
{
    return block->diagonal[d] ? block->side[d] : block->side[d] * block->side[d];
}

int64_t pd_kron_task_scratch(const pd_kron_block *block)
{
    return 2 * pd_floats_padded(product(block->full, 0, block->rank)) + pd_kron_update_scratch(block);
}

int64_t pd_kron_phase_scratch(const pd_kron_block *block)
{
    int64_t floats = pd_kron_task_scratch(block) + pd_floats_padded(product(block->size, 0, block->rank));

    for (int d = 0; d < block->rank; d++) floats += pd_floats_padded(pd_kron_factor_floats(block, d));
    return floats;
}

/* The arguments of the product of two triangular matrices, Q <- M Q. A stripe is a range of columns of Q. */
typedef struct factor_work {
    pd_mat Q, M;
    int stripes;
} factor_work;

static void factor_stripe(const void *work, int stripe)
{
    const factor_work *f = work;

    pd_trmm_upper_columns(f->Q, f->M, pd_stripe_bound(f->Q.rows, PD_STRIPE_CUBE, stripe, f->stripes),
                          pd_stripe_bound(f->Q.rows, PD_STRIPE_CUBE, stripe + 1, f->stripes));
}

static void multiply_triangles(pd_mat Q, pd_mat M)
{
    double n = (double)Q.rows;
    factor_work f = { Q, M, pd_stripes_of(n * n * n / 3, Q.rows / (2 * PD_STRIPE_WIDTH)) };

    pd_stripes_run(f.stripes, factor_stripe, &f);
}

void pd_kron_multiply(const pd_kron_block *block, float *const *Q, float *const *M, bool bfloat16)
{
    for (int d = 0; d < block->rank; d++) {
        int64_t n = block->full[d], side = block->side[d];
        if (block->diagonal[d])
            add_share_of_each(Q[d], M[d], n);
        else
            multiply_triangles((pd_mat){ Q[d], n, n, side }, (pd_mat){ M[d], n, n, side });
        if (bfloat16) round_to_bfloat16(Q[d], pd_kron_factor_floats(block, d));
    }
}

/* Returns the largest absolute element of a block's factor for dimension d, without the rows and columns that were
 * added to fill its memory (side > full). */
static float largest_in_factor(const pd_kron_block *block, int d, float *Q)
{
    int64_t n = block->full[d];

    return block->diagonal[d] ? largest(Q, n) : largest_above((pd_mat){ Q, n, n, block->side[d] });
}

void pd_kron_balance(const pd_kron_block *block, float *const *Q, bool bfloat16)
{
    float size[PD_MAX_RANK], sum = 0, mean;

    for (int d = 0; d < block->rank; d++) {
        size[d] = largest_in_factor(block, d, Q[d]);
        sum += logf(size[d]);
    }
    mean = expf(sum / (float)block->rank);
    for (int d = 0; d < block->rank; d++) {
        float by = mean / size[d];
        if (bfloat16) round_to_bfloat16(&by, 1);
        scale(Q[d], by, pd_kron_factor_floats(block, d));
        if (bfloat16) round_to_bfloat16(Q[d], pd_kron_factor_floats(block, d));
    }
}

/* The arguments of a product of the matrix `from` and a triangular factor Q, whose result is written to `to`. A stripe
 * is a range of rows of the result (of columns, with `columns`), that is, of indices of the dimension of Q. This is
 * possible because `to` and `from` do not overlap. */
typedef struct apart_work {
    pd_mat to, from, Q;
    bool columns;
    pd_turn turn;
    int stripes;
} apart_work;

static void apart_stripe(const void *work, int stripe)
{
    const apart_work *w = work;
    int64_t n = w->Q.rows, first = pd_stripe_bound(n, PD_STRIPE_SQUARE, stripe, w->stripes),
            end = pd_stripe_bound(n, PD_STRIPE_SQUARE, stripe + 1, w->stripes);
    bool from_the_end = w->columns == (w->turn == PD_TRANSPOSED); /* the first row or column costs most */

    pd_trmm_part(w->to, w->from, w->Q, w->turn, w->columns ? PD_RIGHT : PD_LEFT, from_the_end ? n - end : first,
                 from_the_end ? n - first : end);
}

/* Returns the number of stripes into which precondition_apart cuts a product along a dimension of size `side`. 1: the
 * product is not cut along this dimension, because cutting it along the others gives enough stripes, or it is small. */
static int stripes_apart(const sheets *x, int64_t side)
{
    if (x->count > 1 || breadth_of(x) >= side) return 1;
    return pd_stripes_of((double)x->first.rows * (double)x->first.cols * (double)side, side / (2 * PD_STRIPE_WIDTH));
}

bool pd_kron_needs_other(const pd_kron_block *block)
{
    pd_block_view x = { .rank = block->rank, .stride = block->size[1] };

    memcpy(x.size, block->size, sizeof x.size);
    for (int d = 0; d < block->rank; d++) {
        sheets all = sheets_of(&x, d);
        if (!block->diagonal[d] && stripes_apart(&all, x.size[d]) > 1) return true;
    }
    return false;
}

/* Multiplies x by Q'Q along one dimension, in stripes of that dimension. `other` is work memory with the layout of
 * x. */
static void precondition_apart(const sheets *x, float *other, pd_mat Q, int stripes)
{
    pd_mat X = x->first, Y = { other, X.rows, X.cols, X.stride };
    apart_work half = { Y, X, Q, x->columns, turn_of(PD_KRON_APPLY, x->columns), stripes },
               whole = { X, Y, Q, x->columns, turn_of(PD_KRON_APPLY_TRANSPOSED, x->columns), stripes };

    pd_stripes_run(stripes, apart_stripe, &half);
    pd_stripes_run(stripes, apart_stripe, &whole);
}

/* Preconditions x, a block without padding, by the block's factors Q. Of a padded factor it uses only the corner of n x
 * n elements, where n is the size without padding. The other elements have no effect: x with padding would be zero from
 * n on, and Q is upper triangular, so Q x would be zero from n on, too. The first n elements of Q'(Q x) then depend
 * only on the corner. */
void pd_kron_precondition(const pd_kron_block *block, const pd_block_view *x, float *const *Q, float *other)
{
    for (int d = 0; d < block->rank; d++) {
        int64_t n = x->size[d];
        sheets all = sheets_of(x, d);
        int stripes = block->diagonal[d] || other == NULL ? 1 : stripes_apart(&all, n);
        if (stripes > 1) {
            precondition_apart(&all, other, (pd_mat){ Q[d], n, n, block->side[d] }, stripes);
        } else {
            pd_kron_along(x, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_APPLY);
            pd_kron_along(x, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_APPLY_TRANSPOSED);
        }
    }
}

double pd_kron_update_flops(const pd_kron_block *block)
{
    double elements = (double)product(block->full, 0, block->rank), flops = 0;

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->full[d];
        if (block->diagonal[d])
            flops += 6 * elements;
        else
            /* operations for a triangular factor Q: a product with Q, the solution of a triangular system, two
             * contractions, and the product of Q with its multiplier */
            flops += 4 * elements * n + n * n * n / 3;
    }
    return flops;
}

double pd_kron_precondition_flops(const pd_kron_block *block)
{
    double elements = (double)product(block->size, 0, block->rank), flops = 0;

    for (int d = 0; d < block->rank; d++) flops += 2 * elements * (block->diagonal[d] ? 1 : (double)block->size[d]);
    return flops;
}

bool pd_kron_is_large(const pd_kron_block *block)
{
    double elements = (double)product(block->full, 0, block->rank);

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->full[d];
        if (!block->diagonal[d] && (pd_stripes_of(elements * n, 2) > 1 || pd_stripes_of(n * n * n / 3, 2) > 1))
            return true;
    }
    return false;
}

bool pd_kron_counts(float *counter, double p)
{
    *counter += 1;
    if (!(*counter >= 1 / (float)p)) return false;
    *counter = 0;
    return true;
}
