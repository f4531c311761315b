/* kron_fit.c - the newer updates of a block's factors in the optimizer kron, and preconditioning with such factors.
 *
 * With H, what the factors are fitted to, N its number of elements, n the size of dimension i, P = Q'Q (QUAD4P: P = Q),
 * and for each dimension i:
 *
 *     g = P along every dimension of H                        with the factors before the update
 *     T1 = g contracted with itself over all dimensions but i;   T2 = N / n
 *     l = bound(T1) + T2;   L <- max(betaL L + (1 - betaL) l, l);   s = preconditioner_lr / L
 *     QUAD:       p = Q - s/2 (T1 Q - T2 Q);   p <- p - s/2 (p T1 - p T2);   Q <- (p + p') / 2
 *     QUAD4P:     the same with s in place of s/2
 *     Q0.5EQ1.5:  Q <- Q - s (T1 Q - T2 Q), then Q is rotated towards a symmetric matrix (rotate)
 *
 * T2 is what the probe of EQ would give on average, so that no system has to be solved. For a diagonal factor T1 is a
 * vector, the bound its largest element, and the update q <- q (1 - s/2 (T1 - T2))^2, or q <- q (1 - s (T1 - T2)). */
#include "kron_fit.h"

#include <math.h>
#include <string.h>

#include "convert.h"
#include "cpu.h"
#include "kernels.h"
#include "pages.h"
#include "stripes.h"

#define TINY 0x1p-126f /* added to a number that may be 0 before a division by it */

enum { PROBES = 32 }; /* number of random vectors by which the norm of a matrix is bounded */

static int64_t elements_of(const pd_kron_block *block)
{
    int64_t n = 1;

    for (int d = 0; d < block->rank; d++) n *= block->size[d];
    return n;
}

/* Returns the size of the largest full factor of a block; 0: all are diagonal. */
static int64_t largest_side(const pd_kron_block *block)
{
    int64_t most = 0;

    for (int d = 0; d < block->rank; d++)
        if (!block->diagonal[d] && block->size[d] > most) most = block->size[d];
    return most;
}

static int64_t bounds_of(pd_kron_rule rule)
{
    return rule == PD_KRON_PRO ? 2 : 1;
}

int64_t pd_kron_fit_normals(const pd_kron_block *block, pd_kron_rule rule)
{
    int64_t n = elements_of(block);

    for (int d = 0; d < block->rank; d++)
        if (!block->diagonal[d]) n += bounds_of(rule) * PROBES * block->size[d];
    return n;
}

/* The scratch memory of preconditioning: P is a matrix, `product` has room for the elements of the block. */
typedef struct whiten_memory {
    float *P, *product;
} whiten_memory;

int64_t pd_kron_whiten_scratch(const pd_kron_block *block)
{
    int64_t side = largest_side(block);

    return pd_floats_padded(side * side) + pd_floats_padded(elements_of(block));
}

static whiten_memory whiten_memory_of(const pd_kron_block *block, float *scratch)
{
    int64_t side = largest_side(block);

    return (whiten_memory){ scratch, scratch + pd_floats_padded(side * side) };
}

/* The scratch memory of an update: three matrices, and two times as many vectors as bound a norm. */
typedef struct fit_memory {
    float *T1, *product, *R, *V, *W;
} fit_memory;

int64_t pd_kron_fit_scratch(const pd_kron_block *block)
{
    int64_t side = largest_side(block), longest = 0, update;

    for (int d = 0; d < block->rank; d++)
        if (block->size[d] > longest) longest = block->size[d];
    update = 3 * pd_floats_padded(side * side) + 2 * pd_floats_padded(PROBES * longest);
    return update > pd_kron_whiten_scratch(block) ? update : pd_kron_whiten_scratch(block);
}

static fit_memory fit_memory_of(const pd_kron_block *block, float *scratch)
{
    int64_t side = largest_side(block), square = pd_floats_padded(side * side);
    float *V = scratch + 3 * square;

    return (fit_memory){ scratch, scratch + square, scratch + 2 * square, V, V + pd_floats_padded(PROBES * side) };
}

static void copy_rows(pd_mat to, pd_mat from)
{
    for (int64_t i = 0; i < from.rows; i++)
        memcpy(to.at + i * to.stride, from.at + i * from.stride, (size_t)from.cols * sizeof *to.at);
}

/* Multiplies the tensor x by the symmetric matrix P along dimension `dim`, in place. */
static void along(const pd_block_view *x, int dim, pd_mat P, float *product)
{
    int64_t outer = 1, n = x->size[dim], inner = 1;

    for (int d = 0; d < dim; d++) outer *= x->size[d];
    for (int d = dim + 1; d < x->rank; d++) inner *= x->size[d];
    if (x->rank == 2 || inner == 1) {
        bool last = inner == 1 && (x->rank != 2 || dim == 1);
        pd_mat X = x->rank == 2 ? (pd_mat){ x->at, x->size[0], x->size[1], x->stride } : pd_mat_dense(x->at, outer, n),
               Y = pd_mat_dense(product, X.rows, X.cols);
        if (last)
            pd_block_multiply(Y, X, PD_AS_IS, P, PD_AS_IS);
        else
            pd_block_multiply(Y, P, PD_AS_IS, X, PD_AS_IS);
        copy_rows(X, Y);
        return;
    }
    for (int64_t o = 0; o < outer; o++) {
        pd_mat X = pd_mat_dense(x->at + o * n * inner, n, inner), Y = pd_mat_dense(product, n, inner);
        pd_block_multiply(Y, P, PD_AS_IS, X, PD_AS_IS);
        copy_rows(X, Y);
    }
}

/* Computes S = A'A for a square matrix A. */
static void squared(pd_mat S, pd_mat A)
{
    pd_block_view view = { .at = A.at, .rank = 2, .size = { A.rows, A.cols }, .stride = A.stride };

    pd_block_gram(S, 0, 1, &view, 1);
    pd_mirror(S);
}

void pd_kron_whiten(const pd_kron_block *block, pd_kron_rule rule, const pd_block_view *x, float *const *Q,
                    float *scratch)
{
    whiten_memory memory = whiten_memory_of(block, scratch);

    for (int d = 0; d < block->rank; d++) {
        int64_t n = block->size[d];
        pd_mat factor = { Q[d], n, n, block->side[d] }, P = pd_mat_dense(memory.P, n, n);
        if (block->diagonal[d]) {
            for (int i = 0; i < (rule == PD_KRON_QUAD4P ? 1 : 2); i++)
                pd_kron_along(x, d, Q[d], true, block->side[d], PD_KRON_APPLY);
        } else if (rule == PD_KRON_QUAD4P) {
            along(x, d, factor, memory.product);
        } else {
            squared(P, factor);
            along(x, d, P, memory.product);
        }
    }
}

PD_CLONES(void, divide_into, (float *restrict to, const float *restrict from, float by, int64_t n), (to, from, by, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = from[i] / by;
}

PD_CLONES(void, add_multiple,
          (float *restrict to, const float *restrict x, const float *restrict y, float by, int64_t n),
          (to, x, y, by, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = x[i] + by * y[i];
}

static float norm_of(const float *x, int64_t n)
{
    return sqrtf((float)pd_sum_squares(x, n));
}

static int64_t heaviest_row(pd_mat A)
{
    int64_t heaviest = 0;
    double most = -1;

    for (int64_t i = 0; i < A.rows; i++) {
        double sum = pd_sum_squares(A.at + i * A.stride, A.cols);
        if (!(sum > most)) continue;
        most = sum;
        heaviest = i;
    }
    return heaviest;
}

/* Returns a lower bound of the spectral norm of A, a dense matrix that is symmetric or skew-symmetric: the longest of
 * PROBES vectors after powers of A. The vectors begin as the heaviest row, to which a random vector is added on the
 * side where it makes the row longer. `most` is of the size of A's elements; if it is not above 0, returns it. `scaled`
 * is memory for a matrix as A. */
static float bound_of(pd_mat A, float most, const float *normals, float *scaled, const fit_memory *memory)
{
    int64_t n = A.rows, heavy;
    pd_mat S = pd_mat_dense(scaled, n, n), V = pd_mat_dense(memory->V, PROBES, n),
           W = pd_mat_dense(memory->W, PROBES, n);
    float longest = 0;

    if (!(most > 0)) return most;
    divide_into(S.at, A.at, most, n * n);
    heavy = heaviest_row(S) * n;
    for (int64_t r = 0; r < PROBES; r++) {
        double dot = pd_dot(S.at + heavy, normals + r * n, n);
        add_multiple(V.at + r * n, S.at + heavy, normals + r * n, (float)((dot > 0) - (dot < 0)), n);
    }
    for (int i = 0; i < 2; i++) {
        pd_block_multiply(W, V, PD_AS_IS, S, PD_AS_IS);
        for (int64_t r = 0; r < PROBES; r++)
            divide_into(V.at + r * n, W.at + r * n, norm_of(W.at + r * n, n) + TINY, n);
        pd_block_multiply(W, V, PD_AS_IS, S, PD_AS_IS);
        copy_rows(V, W);
    }
    for (int64_t r = 0; r < PROBES; r++) longest = pd_larger(longest, norm_of(V.at + r * n, n));
    return most * longest;
}

/* Returns the size of the step of a factor's update, for terms of size l. Updates the smoothness number L. */
static float step_of(const pd_kron_fit *fit, float l, const float *L, float *to_L)
{
    float mean = fit->beta * *L + (1 - fit->beta) * l;

    *to_L = mean > l ? mean : l; /* NaN if l is NaN */
    return fit->rate / *to_L;
}

static void fit_diagonal(const pd_kron_fit *fit, const pd_block_view *g, int dim, float T2, const float *q,
                         const float *L, float *to, float *to_L, float *T1)
{
    int64_t n = g->size[dim];
    float s;

    pd_kron_squares_along(T1, g, dim);
    s = step_of(fit, pd_largest(T1, n) + T2, L, to_L);
    if (fit->rule == PD_KRON_QUAD) s /= 2;
    for (int64_t i = 0; i < n; i++) {
        float by = 1 - s * (T1[i] - T2);
        to[i] = q[i] * (fit->rule == PD_KRON_PRO ? by : by * by);
    }
}

/* The function that computes q - s (c - t q) for one row: q is the row of a factor, c that of its product with T1. */
PD_CLONES(void, step_row, (float *to, const float *q, const float *restrict c, float s, float t, int64_t n),
          (to, q, c, s, t, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = q[i] - s * (c[i] - t * q[i]);
}

static void step_rows(pd_mat to, pd_mat Q, pd_mat C, float s, float t)
{
    for (int64_t i = 0; i < Q.rows; i++)
        step_row(to.at + i * to.stride, Q.at + i * Q.stride, C.at + i * C.stride, s, t, Q.cols);
}

static void symmetrize(pd_mat A)
{
    for (int64_t i = 0; i < A.rows; i++)
        for (int64_t j = 0; j < i; j++) {
            float *a = A.at + i * A.stride + j, *b = A.at + j * A.stride + i;
            *a = *b = (*a + *b) / 2;
        }
}

static float trace_of(pd_mat A)
{
    double sum = 0;

    for (int64_t i = 0; i < A.rows; i++) sum += (double)A.at[i * A.stride + i];
    return (float)sum;
}

/* Computes R = Q' - Q, and returns its largest magnitude. */
static float skew_part(pd_mat R, pd_mat Q)
{
    for (int64_t i = 0; i < Q.rows; i++)
        for (int64_t j = 0; j <= i; j++) {
            float skew = Q.at[j * Q.stride + i] - Q.at[i * Q.stride + j];
            R.at[i * R.stride + j] = skew;
            R.at[j * R.stride + i] = -skew;
        }
    return pd_largest(R.at, R.rows * R.cols);
}

/* Rotates Q towards a symmetric matrix, by one step that solves the problem of Procrustes: with R = Q' - Q, divided by
 * its norm, Q <- Q + a (R Q + a/2 R R Q). The step a makes the trace of Q largest, and is at most 1/8. */
static void rotate(pd_mat Q, const float *normals, const fit_memory *memory)
{
    int64_t n = Q.rows;
    pd_mat R = pd_mat_dense(memory->R, n, n), RQ = pd_mat_dense(memory->T1, n, n),
           RRQ = pd_mat_dense(memory->product, n, n);
    float norm = bound_of(R, skew_part(R, Q), normals, memory->T1, memory), a = 0.125f, curvature;

    divide_into(RQ.at, R.at, norm + TINY, n * n);
    memcpy(R.at, RQ.at, (size_t)(n * n) * sizeof *R.at);
    pd_block_multiply(RQ, R, PD_AS_IS, Q, PD_AS_IS);
    pd_block_multiply(RRQ, R, PD_AS_IS, RQ, PD_AS_IS);
    curvature = trace_of(RRQ);
    if (curvature < 0) a = fminf(-trace_of(RQ) / curvature, a);
    for (int64_t i = 0; i < n; i++) {
        float *row = Q.at + i * Q.stride;
        const float *once = RQ.at + i * n, *twice = RRQ.at + i * n;
        for (int64_t j = 0; j < n; j++) row[j] += a * (once[j] + a / 2 * twice[j]);
    }
}

static float largest_on_diagonal(pd_mat A)
{
    float most = 0;

    for (int64_t i = 0; i < A.rows; i++) most = pd_larger(most, A.at[i * A.stride + i]);
    return most;
}

/* Computes `to`, the update of the full factor Q of one dimension. T2 is a multiple of the identity, given as this
 * number. */
static void fit_matrix(const pd_kron_fit *fit, const pd_block_view *g, int dim, float T2, pd_mat Q, const float *L,
                       pd_mat to, float *to_L, const float *normals, const fit_memory *memory)
{
    int64_t n = Q.rows;
    pd_mat T1 = pd_mat_dense(memory->T1, n, n), C = pd_mat_dense(memory->product, n, n);
    float s;

    pd_block_gram(T1, 0, 1, g, dim);
    pd_mirror(T1);
    s = step_of(fit, bound_of(T1, largest_on_diagonal(T1), normals, C.at, memory) + T2, L, to_L);
    if (fit->rule == PD_KRON_QUAD) s /= 2;
    pd_block_multiply(C, T1, PD_AS_IS, Q, PD_AS_IS);
    step_rows(to, Q, C, s, T2);
    if (fit->rule == PD_KRON_PRO) {
        rotate(to, normals + PROBES * n, memory);
        return;
    }
    pd_block_multiply(C, to, PD_AS_IS, T1, PD_AS_IS);
    step_rows(to, to, C, s, T2);
    symmetrize(to);
}

static void round_to_bfloat16(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = pd_f32_from_bf16(pd_bf16_from_f32(x[i]));
}

/* Scales all factors of a block so that their largest magnitudes become equal: the geometric mean of what these
 * were. */
static void balance(const pd_kron_block *block, float *const *Q)
{
    float most[PD_MAX_RANK], sum = 0, mean;

    for (int d = 0; d < block->rank; d++) {
        int64_t n = block->size[d], rows = block->diagonal[d] ? 1 : n;
        most[d] = pd_largest(Q[d], n);
        for (int64_t i = 1; i < rows; i++) most[d] = pd_larger(most[d], pd_largest(Q[d] + i * block->side[d], n));
        sum += logf(most[d]);
    }
    mean = expf(sum / (float)block->rank);
    for (int d = 0; d < block->rank; d++) pd_scale(Q[d], Q[d], mean / most[d], pd_kron_factor_floats(block, d));
}

void pd_kron_fit_factors(const pd_kron_block *block, const pd_kron_fit *fit, float *H, const float *normals,
                         float *const *Q, float *const *L, float *const *to, float *const *to_L, float *scratch)
{
    fit_memory memory = fit_memory_of(block, scratch);
    pd_block_view g = { .at = H, .rank = block->rank, .stride = block->rank == 2 ? block->size[1] : 0 };
    float elements = (float)elements_of(block);

    memcpy(g.size, block->size, sizeof g.size);
    pd_kron_whiten(block, fit->rule, &g, Q, scratch);
    for (int d = 0; d < block->rank; d++) {
        int64_t n = block->size[d], side = block->side[d];
        float T2 = elements / (float)n;
        memcpy(to[d], Q[d], (size_t)pd_kron_factor_floats(block, d) * sizeof *to[d]);
        if (block->diagonal[d]) {
            fit_diagonal(fit, &g, d, T2, Q[d], L[d], to[d], to_L[d], memory.V);
            continue;
        }
        fit_matrix(fit, &g, d, T2, (pd_mat){ Q[d], n, n, side }, L[d], (pd_mat){ to[d], n, n, side }, to_L[d], normals,
                   &memory);
        normals += bounds_of(fit->rule) * PROBES * n;
    }
    if (fit->balances && block->rank > 1) balance(block, to);
    for (int d = 0; d < block->rank && fit->bfloat16; d++) round_to_bfloat16(to[d], pd_kron_factor_floats(block, d));
}

double pd_kron_whiten_flops(const pd_kron_block *block, pd_kron_rule rule)
{
    double elements = (double)elements_of(block), flops = 0;

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->size[d];
        if (block->diagonal[d])
            flops += 2 * elements;
        else
            flops += 2 * elements * n + (rule == PD_KRON_QUAD4P ? 0 : n * n * n);
    }
    return flops;
}

double pd_kron_fit_flops(const pd_kron_block *block, pd_kron_rule rule)
{
    double elements = (double)elements_of(block), flops = pd_kron_whiten_flops(block, rule);

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->size[d];
        if (block->diagonal[d])
            flops += 2 * elements;
        else
            /* the contraction, products of factors (two of QUAD, three of Q0.5EQ1.5), and the bounds */
            flops +=
                elements * n + (rule == PD_KRON_PRO ? 6 : 4) * n * n * n + (double)bounds_of(rule) * 8 * PROBES * n * n;
    }
    return flops;
}

bool pd_kron_fit_is_large(const pd_kron_block *block)
{
    double elements = (double)elements_of(block);

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->size[d];
        if (!block->diagonal[d] && (pd_stripes_of(2 * elements * n, 2) > 1 || pd_stripes_of(2 * n * n * n, 2) > 1))
            return true;
    }
    return false;
}
