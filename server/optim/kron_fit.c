/* kron_fit.c - the updates of a block's factors in psgd_torch, and preconditioning with such factors.
 *
 * With H, what the factors are fitted to, N its number of elements, n the size of dimension i, P = Q'Q (QUAD4P and
 * PRO4P: P = Q), and for each dimension i:
 *
 *     g = P along every dimension of H                        with the factors before the update
 *     T1 = g contracted with itself over all dimensions but i;   T2 = N / n
 *     l = bound(T1 + T2);   L <- max(betaL L + (1 - betaL) l, l);   s = preconditioner_lr / L
 *     QUAD:       p = Q - s/2 (T1 Q - T2 Q);   p <- p - s/2 (p T1 - p T2);   Q <- (p + p') / 2
 *     QUAD4P:     the same with s in place of s/2
 *     Q0.5EQ1.5:  Q <- Q - s (T1 Q - T2 Q), then Q is rotated towards a symmetric matrix (rotate)
 *     PRO4P:      the same, and rotated until it is nearly symmetric (rotate_on)
 *     QEQ:        Q <- Q - s (Q T1 - Q T2)
 *     QEP:        Q <- Q - s (T1 - T2) Q, with Q T1 Q' and Q T2 Q' in place of T1 and T2
 *     EQ_psgd:    Q <- Q - s triu(T1 - T2) Q, where T1 is contracted from Q along every dimension of H, and T2 from the
 *                 inverse of Q' along every dimension of the probe: the random numbers for each element
 *
 * T2 = N / n is what the probe would give on average, so that no system has to be solved. For a diagonal factor T1 and
 * T2 are vectors, the bound their largest sum, and the update q <- q (1 - s/2 (T1 - T2))^2, or q <- q (1 - s (T1 -
 * T2)). */
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

bool pd_kron_rule_fits_p(pd_kron_rule rule)
{
    return rule == PD_KRON_QUAD4P || rule == PD_KRON_PRO4P;
}

static bool rotates(pd_kron_rule rule)
{
    return rule == PD_KRON_PRO || rule == PD_KRON_PRO4P;
}

static int64_t bounds_of(pd_kron_rule rule)
{
    return rotates(rule) ? 2 : 1;
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

static int64_t longest_of(const pd_kron_block *block)
{
    int64_t longest = 0;

    for (int d = 0; d < block->rank; d++)
        if (block->size[d] > longest) longest = block->size[d];
    return longest;
}

int64_t pd_kron_fit_scratch(const pd_kron_block *block)
{
    int64_t side = largest_side(block),
            update = 3 * pd_floats_padded(side * side) + 2 * pd_floats_padded(PROBES * longest_of(block));

    return update > pd_kron_whiten_scratch(block) ? update : pd_kron_whiten_scratch(block);
}

static fit_memory fit_memory_of(const pd_kron_block *block, float *scratch)
{
    int64_t side = largest_side(block), square = pd_floats_padded(side * side);
    float *V = scratch + 3 * square;

    return (fit_memory){ scratch, scratch + square, scratch + 2 * square, V,
                         V + pd_floats_padded(PROBES * longest_of(block)) };
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
            for (int i = 0; i < (pd_kron_rule_fits_p(rule) ? 1 : 2); i++)
                pd_kron_along(x, d, Q[d], true, block->side[d], PD_KRON_APPLY);
        } else if (pd_kron_rule_fits_p(rule)) {
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

PD_CLONES(void, add_to, (float *restrict to, const float *restrict x, float by, int64_t n), (to, x, by, n))
{
    for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
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

/* The arguments of an update of one dimension's factor. g is what T1 is contracted from, and `probe` what T2 is, with
 * EQ_psgd alone. `identity` is N / n. The factor is updated in place, from L to to_L its smoothness number. */
typedef struct fit_work {
    const pd_kron_fit *fit;
    const pd_block_view *g, *probe;
    int dim;
    float identity;
    const float *L;
    float *to_L;
    const float *normals; /* random numbers that bound the norms of matrices */
    const fit_memory *memory;
} fit_work;

/* Computes T1 and T2 of a diagonal factor. */
static void find_squares(const fit_work *w, const float *q, float *T1, float *T2)
{
    int64_t n = w->g->size[w->dim];
    bool qep = w->fit->rule == PD_KRON_QEP;

    pd_kron_squares_along(T1, w->g, w->dim);
    if (w->probe != NULL)
        pd_kron_squares_along(T2, w->probe, w->dim);
    else
        for (int64_t i = 0; i < n; i++) T2[i] = qep ? w->identity * (q[i] * q[i]) : w->identity;
    for (int64_t i = 0; qep && i < n; i++) T1[i] *= q[i] * q[i];
}

static float largest_sum(const float *a, const float *b, int64_t n)
{
    float most = 0;

    for (int64_t i = 0; i < n; i++) most = pd_larger(most, a[i] + b[i]);
    return most;
}

static void fit_diagonal(const fit_work *w, float *q)
{
    int64_t n = w->g->size[w->dim];
    float *T1 = w->memory->V, *T2 = w->memory->W, s;
    bool squares = w->fit->rule == PD_KRON_QUAD || w->fit->rule == PD_KRON_QUAD4P;

    find_squares(w, q, T1, T2);
    s = step_of(w->fit, largest_sum(T1, T2, n), w->L, w->to_L);
    if (w->fit->rule == PD_KRON_QUAD) s /= 2;
    for (int64_t i = 0; i < n; i++) {
        float by = 1 - s * (T1[i] - T2[i]);
        q[i] *= squares ? by * by : by;
    }
}

/* Subtracts s (c - t q) from q, a row of a factor, where c is that of its product with T1. */
PD_CLONES(void, step_row, (float *restrict q, const float *restrict c, float s, float t, int64_t n), (q, c, s, t, n))
{
    for (int64_t i = 0; i < n; i++) q[i] -= s * (c[i] - t * q[i]);
}

static void step_rows(pd_mat Q, pd_mat C, float s, float t)
{
    for (int64_t i = 0; i < Q.rows; i++) step_row(Q.at + i * Q.stride, C.at + i * C.stride, s, t, Q.cols);
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

/* Computes R = Q' - Q, divided by its norm, into memory->R, and RQ and RRQ into memory->T1 and memory->product. */
static void find_rotation(pd_mat Q, const float *normals, const fit_memory *memory)
{
    int64_t n = Q.rows;
    pd_mat R = pd_mat_dense(memory->R, n, n), RQ = pd_mat_dense(memory->T1, n, n),
           RRQ = pd_mat_dense(memory->product, n, n);
    float norm = bound_of(R, skew_part(R, Q), normals, memory->T1, memory);

    divide_into(RQ.at, R.at, norm + TINY, n * n);
    memcpy(R.at, RQ.at, (size_t)(n * n) * sizeof *R.at);
    pd_block_multiply(RQ, R, PD_AS_IS, Q, PD_AS_IS);
    pd_block_multiply(RRQ, R, PD_AS_IS, RQ, PD_AS_IS);
}

static void add_rotation(pd_mat Q, float a, const fit_memory *memory)
{
    int64_t n = Q.rows;

    for (int64_t i = 0; i < n; i++) {
        float *row = Q.at + i * Q.stride;
        const float *once = memory->T1 + i * n, *twice = memory->product + i * n;
        for (int64_t j = 0; j < n; j++) row[j] += a * (once[j] + a / 2 * twice[j]);
    }
}

/* Rotates Q towards a symmetric matrix, by one step that solves the problem of Procrustes: with R = Q' - Q, divided by
 * its norm, Q <- Q + a (R Q + a/2 R R Q). The step a makes the trace of Q largest, and is at most 1/8. */
static void rotate(pd_mat Q, const float *normals, const fit_memory *memory)
{
    int64_t n = Q.rows;
    float a = 0.125f, curvature;

    find_rotation(Q, normals, memory);
    curvature = trace_of(pd_mat_dense(memory->product, n, n));
    if (curvature < 0) a = fminf(-trace_of(pd_mat_dense(memory->T1, n, n)) / curvature, a);
    add_rotation(Q, a, memory);
}

/* Returns the step of a rotation of the third order: the first a above 0 at which once + a twice + 3/8 a^2 thrice is 0,
 * but at most 1/3. These are the traces of RQ, RRQ and RRRQ. */
static float third_order_step(float once, float twice, float thrice)
{
    float inside = twice * twice - 1.5f * thrice * once;

    /* The quotient is NaN if Q is symmetric, and then there is nothing to rotate. */
    return inside >= 0 ? fminf(2 * once / (sqrtf(inside) - twice), 1.0f / 3) : 1.0f / 3;
}

/* Returns the trace of RX, where R is skew-symmetric. */
static float skew_trace_of(const float *R, const float *X, int64_t n)
{
    return -(float)pd_dot(R, X, n * n);
}

static float largest_of(pd_mat A)
{
    float most = 0;

    for (int64_t i = 0; i < A.rows; i++) most = pd_larger(most, pd_largest(A.at + i * A.stride, A.cols));
    return most;
}

/* Rotates Q as `rotate` does, with a term of the third order, until Q is symmetric to a thousandth, at most ten times.
 * All rotations have the same random numbers: one is enough nearly always. */
static void rotate_on(pd_mat Q, const float *normals, const fit_memory *memory)
{
    enum { MOST_ROTATIONS = 10 };
    int64_t n = Q.rows;
    pd_mat R = pd_mat_dense(memory->R, n, n), RRRQ = pd_mat_dense(memory->T1, n, n);

    for (int i = 0; i < MOST_ROTATIONS; i++) {
        float a;
        find_rotation(Q, normals, memory);
        a = third_order_step(trace_of(pd_mat_dense(memory->T1, n, n)), trace_of(pd_mat_dense(memory->product, n, n)),
                             skew_trace_of(R.at, memory->product, n));
        add_rotation(Q, a, memory);
        pd_block_multiply(RRRQ, R, PD_AS_IS, pd_mat_dense(memory->product, n, n), PD_AS_IS);
        for (int64_t k = 0; k < n; k++) add_to(Q.at + k * Q.stride, RRRQ.at + k * n, a * a * a / 8, n);
        if (skew_part(R, Q) < 0.001f * largest_of(Q)) return;
    }
}

static float largest_on_diagonal(pd_mat A)
{
    float most = 0;

    for (int64_t i = 0; i < A.rows; i++) most = pd_larger(most, A.at[i * A.stride + i]);
    return most;
}

/* Computes T1 of a matrix, and for QEP the matrix that takes its place. */
static pd_mat find_statistics(const fit_work *w, pd_mat Q)
{
    int64_t n = Q.rows;
    pd_mat T1 = pd_mat_dense(w->memory->T1, n, n), half = pd_mat_dense(w->memory->product, n, n);

    pd_block_gram(T1, 0, 1, w->g, w->dim);
    pd_mirror(T1);
    if (w->fit->rule != PD_KRON_QEP) return T1;
    pd_block_multiply(half, Q, PD_AS_IS, T1, PD_AS_IS);
    pd_block_multiply(T1, half, PD_AS_IS, Q, PD_TRANSPOSED);
    return T1;
}

/* Computes T2 of QEP or of EQ_psgd, where it is no multiple of the identity. */
static pd_mat find_expected(const fit_work *w, pd_mat Q)
{
    int64_t n = Q.rows;
    pd_mat T2 = pd_mat_dense(w->memory->R, n, n);

    if (w->probe != NULL) {
        pd_block_gram(T2, 0, 1, w->probe, w->dim);
        pd_mirror(T2);
    } else {
        pd_block_multiply(T2, Q, PD_AS_IS, Q, PD_TRANSPOSED);
        pd_scale(T2.at, T2.at, w->identity, n * n);
    }
    return T2;
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

static void clear_below(pd_mat A)
{
    for (int64_t i = 1; i < A.rows; i++) memset(A.at + i * A.stride, 0, (size_t)i * sizeof *A.at);
}

/* Updates a matrix Q from T1 and T2, where T2 is a matrix, too. */
static void fit_from_matrices(const fit_work *w, pd_mat Q)
{
    int64_t n = Q.rows;
    pd_mat sum = find_statistics(w, Q), difference = find_expected(w, Q), C = pd_mat_dense(w->memory->product, n, n);
    float s;

    sum_and_difference(sum.at, difference.at, n * n);
    s = step_of(w->fit, bound_of(sum, largest_on_diagonal(sum), w->normals, C.at, w->memory), w->L, w->to_L);
    if (w->fit->rule == PD_KRON_EQ_PSGD) clear_below(difference);
    pd_block_multiply(C, difference, PD_AS_IS, Q, PD_AS_IS);
    step_rows(Q, C, s, 0);
}

/* Updates a matrix Q from T1 and T2, where T2 is a multiple of the identity. */
static void fit_from_multiple(const fit_work *w, pd_mat Q)
{
    pd_kron_rule rule = w->fit->rule;
    int64_t n = Q.rows;
    pd_mat T1 = find_statistics(w, Q), C = pd_mat_dense(w->memory->product, n, n);
    float T2 = w->identity,
          s = step_of(w->fit, bound_of(T1, largest_on_diagonal(T1), w->normals, C.at, w->memory) + T2, w->L, w->to_L);

    if (rule == PD_KRON_QUAD) s /= 2;
    if (rule != PD_KRON_QEQ) {
        pd_block_multiply(C, T1, PD_AS_IS, Q, PD_AS_IS);
        step_rows(Q, C, s, T2);
    }
    if (rotates(rule)) {
        (rule == PD_KRON_PRO ? rotate : rotate_on)(Q, w->normals + PROBES * n, w->memory);
        return;
    }
    pd_block_multiply(C, Q, PD_AS_IS, T1, PD_AS_IS);
    step_rows(Q, C, s, T2);
    if (rule != PD_KRON_QEQ) symmetrize(Q);
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

static pd_block_view view_of(const pd_kron_block *block, float *at)
{
    pd_block_view view = { .at = at, .rank = block->rank, .stride = block->rank == 2 ? block->size[1] : 0 };

    memcpy(view.size, block->size, sizeof view.size);
    return view;
}

/* Computes, in place, what T1 of every dimension is contracted from, and with EQ_psgd what T2 is. */
static void apply_factors(const pd_kron_block *block, pd_kron_rule rule, const pd_block_view *g,
                          const pd_block_view *probe, float *const *Q, float *scratch)
{
    if (rule != PD_KRON_EQ_PSGD) {
        pd_kron_whiten(block, rule, g, Q, scratch);
        return;
    }
    for (int d = 0; d < block->rank; d++) {
        pd_kron_along(g, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_APPLY);
        pd_kron_along(probe, d, Q[d], block->diagonal[d], block->side[d], PD_KRON_SOLVE_TRANSPOSED);
    }
}

static void fit_factor(const fit_work *w, bool diagonal, pd_mat Q)
{
    if (diagonal)
        fit_diagonal(w, Q.at);
    else if (w->fit->rule == PD_KRON_QEP || w->fit->rule == PD_KRON_EQ_PSGD)
        fit_from_matrices(w, Q);
    else
        fit_from_multiple(w, Q);
}

void pd_kron_fit_factors(const pd_kron_block *block, const pd_kron_fit *fit, float *H, float *normals, float *const *Q,
                         float *const *L, float *const *to, float *const *to_L, float *scratch)
{
    fit_memory memory = fit_memory_of(block, scratch);
    pd_block_view g = view_of(block, H), probe = view_of(block, normals);
    fit_work w = { .fit = fit, .g = &g, .normals = normals + elements_of(block), .memory = &memory };
    bool always = fit->rule == PD_KRON_QEP; /* its steps are of no use to factors of different sizes */

    if (fit->rule == PD_KRON_EQ_PSGD) w.probe = &probe;
    for (int d = 0; d < block->rank; d++) memcpy(to[d], Q[d], (size_t)pd_kron_factor_floats(block, d) * sizeof *to[d]);
    if (always && block->rank > 1) balance(block, to);
    apply_factors(block, fit->rule, &g, &probe, to, scratch);
    for (int d = 0; d < block->rank; d++) {
        int64_t n = block->size[d];
        w.dim = d;
        w.identity = (float)elements_of(block) / (float)n;
        w.L = L[d];
        w.to_L = to_L[d];
        fit_factor(&w, block->diagonal[d], (pd_mat){ to[d], n, n, block->side[d] });
        if (!block->diagonal[d]) w.normals += bounds_of(fit->rule) * PROBES * n;
    }
    if (fit->balances && !always && block->rank > 1) balance(block, to);
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
            flops += 2 * elements * n + (pd_kron_rule_fits_p(rule) ? 0 : n * n * n);
    }
    return flops;
}

/* Returns how many products of matrices of a factor's size an update of the factor takes, but for its contractions. */
static double products_of(pd_kron_rule rule)
{
    switch (rule) {
    case PD_KRON_QEP:             /* two for T1, one for T2, one of their difference and the factor */
    case PD_KRON_PRO4P: return 4; /* one for the step, three for a rotation */
    case PD_KRON_PRO: return 3;
    case PD_KRON_QUAD:
    case PD_KRON_QUAD4P: return 2;
    default: return 1; /* QEQ and EQ_psgd */
    }
}

double pd_kron_fit_flops(const pd_kron_block *block, pd_kron_rule rule)
{
    double elements = (double)elements_of(block), flops = pd_kron_whiten_flops(block, rule);
    bool eq = rule == PD_KRON_EQ_PSGD; /* a system and a second contraction in place of a product with Q'Q */

    for (int d = 0; d < block->rank; d++) {
        double n = (double)block->size[d];
        if (block->diagonal[d])
            flops += (eq ? 4 : 2) * elements;
        else
            /* the contractions, products of factors, and the bounds */
            flops += (eq ? 2 : 1) * elements * n + 2 * products_of(rule) * n * n * n - (eq ? n * n * n : 0) +
                     (double)bounds_of(rule) * 8 * PROBES * n * n;
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
