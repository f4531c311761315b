/* polar.c - orthogonalizes a matrix by iterations that only multiply matrices. */
#include "polar.h"

#include <math.h>
#include <string.h>

#include "convert.h"
#include "cpu.h"
#include "kernels.h"
#include "stripes.h"

/* The triples of Polar Express (arXiv:2505.16932, algorithm 1), before they are made safe against rounding. The last
 * one counts for all later iterations, too. */
enum { TRIPLES = 8 };
static const double express[TRIPLES][3] = {
    { 8.28721201814563, -23.595886519098837, 17.300387312530933 },
    { 4.107059111542203, -2.9478499167379106, 0.5448431082926601 },
    { 3.9486908534822946, -2.908902115962949, 0.5518191394370137 },
    { 3.3184196573706015, -2.488488024314874, 0.51004894012372 },
    { 2.300652019954817, -1.6689039845747493, 0.4188073119525673 },
    { 1.891301407787398, -1.2679958271945868, 0.37680408948524835 },
    { 1.8750014808534479, -1.2500016453999487, 0.3750001645474248 },
    { 1.875, -1.25, 0.375 },
};
/* Factor by which Polar Express keeps singular values below 1, so that rounding does not bring them above, and what it
 * adds to the norm. */
static const double safety = 1.01, express_eps = 1e-7;

/* One iteration on one matrix. */
typedef struct iteration {
    const pd_polar *how;
    float a, b, c;
    pd_mat X, next; /* next: the result; before that, memory for a product of the size of A */
    pd_mat A, Y;    /* Y: b A + c A A */
    bool tall;      /* X has more rows than columns, so that A = X' X */
    int stripes;    /* number of stripes of the present product */
} iteration;

PD_INLINE float bf16(float x)
{
    return pd_f32_from_bf16(pd_bf16_from_f32(x));
}

PD_CLONES(void, round_all, (float *x, int64_t n), (x, n))
{
    for (int64_t i = 0; i < n; i++) x[i] = bf16(x[i]);
}

PD_CLONES(void, divide, (float *x, float by, int64_t n), (x, by, n))
{
    for (int64_t i = 0; i < n; i++) x[i] /= by;
}

/* y <- b a + c y, for n elements */
PD_CLONES(void, combine, (float *restrict y, float c, const float *restrict a, float b, int64_t n), (y, c, a, b, n))
{
    for (int64_t i = 0; i < n; i++) y[i] = b * a[i] + c * y[i];
}

/* y <- b x + y for n elements, with each operand rounded to bfloat16 and the sum, too */
PD_CLONES(void, combine_rounded, (float *restrict y, const float *restrict x, float b, int64_t n), (y, x, b, n))
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16(bf16(b * x[i]) + bf16(y[i]));
}

PD_CLONES(void, scale_rounded, (float *restrict y, const float *restrict x, float by, int64_t n), (y, x, by, n))
{
    for (int64_t i = 0; i < n; i++) y[i] = bf16(by * x[i]);
}

static bool rounds_each(const pd_polar *how)
{
    return how->bfloat16 && how->form == PD_POLAR_KELLER;
}

/* Computes a stripe of the lower half of A = X X'. */
static void gram_stripe(const void *work, int stripe)
{
    const iteration *t = work;

    pd_syrk_rows(t->A, 0, 1, t->X, t->tall ? PD_RIGHT : PD_LEFT,
                 pd_stripe_bound(t->A.rows, PD_STRIPE_SQUARE, stripe, t->stripes),
                 pd_stripe_bound(t->A.rows, PD_STRIPE_SQUARE, stripe + 1, t->stripes));
}

/* Computes a stripe of the lower half of Y = A A, and what lies right of it within the stripe. */
static void square_stripe(const void *work, int stripe)
{
    const iteration *t = work;
    int64_t first = pd_stripe_bound(t->A.rows, PD_STRIPE_SQUARE, stripe, t->stripes),
            end = pd_stripe_bound(t->A.rows, PD_STRIPE_SQUARE, stripe + 1, t->stripes);

    if (t->stripes == 1)
        pd_gemm_half(t->Y, 1, t->A, PD_AS_IS, t->A, PD_AS_IS);
    else
        pd_gemm(pd_mat_part(t->Y, first, 0, end - first, end), 0, 1, pd_mat_rows(t->A, first, end), PD_AS_IS,
                pd_mat_cols(t->A, 0, end), PD_AS_IS);
}

/* Computes a stripe of Y A in the memory of `next`. Y is not symmetric to the last bit. */
static void product_stripe(const void *work, int stripe)
{
    const iteration *t = work;
    int64_t first = pd_stripe_bound(t->A.rows, PD_STRIPE_EVEN, stripe, t->stripes),
            end = pd_stripe_bound(t->A.rows, PD_STRIPE_EVEN, stripe + 1, t->stripes);
    pd_mat P = pd_mat_dense(t->next.at, t->A.rows, t->A.rows);

    pd_gemm(pd_mat_rows(P, first, end), 0, 1, pd_mat_rows(t->Y, first, end), PD_AS_IS, t->A, PD_AS_IS);
}

/* Computes a stripe of next = a X + Y X, rounded as the program does it. */
static void step_stripe(const void *work, int stripe)
{
    const iteration *t = work;
    const bool each = rounds_each(t->how);
    int64_t n = t->tall ? t->X.rows : t->X.cols, first = pd_stripe_bound(n, PD_STRIPE_EVEN, stripe, t->stripes),
            end = pd_stripe_bound(n, PD_STRIPE_EVEN, stripe + 1, t->stripes);
    pd_mat X = t->tall ? pd_mat_rows(t->X, first, end) : pd_mat_cols(t->X, first, end),
           next = t->tall ? pd_mat_rows(t->next, first, end) : pd_mat_cols(t->next, first, end);

    for (int64_t i = 0; !each && i < X.rows; i++)
        memcpy(next.at + i * next.stride, X.at + i * X.stride, (size_t)X.cols * sizeof *X.at);
    if (t->tall)
        pd_gemm(next, each ? 0 : t->a, 1, X, PD_AS_IS, t->Y, PD_TRANSPOSED);
    else
        pd_gemm(next, each ? 0 : t->a, 1, t->Y, PD_AS_IS, X, PD_AS_IS);
    for (int64_t i = 0; t->how->bfloat16 && i < X.rows; i++) {
        float *row = next.at + i * next.stride;
        if (each)
            combine_rounded(row, X.at + i * X.stride, t->a, X.cols);
        else
            round_all(row, X.cols);
    }
}

static void run(iteration *t, double flops, int64_t most, void (*stripe)(const void *work, int stripe))
{
    t->stripes = pd_stripes_of(flops, most / PD_STRIPE_WIDTH);
    pd_stripes_run(t->stripes, stripe, t);
}

/* Computes Y = b A + c A A. A and Y have both halves. */
static void compute_polynomial(iteration *t)
{
    const int64_t side = t->A.rows, n = side * side;
    const double cube = (double)n * (double)side;

    if (rounds_each(t->how)) {
        scale_rounded(t->Y.at, t->A.at, t->c, n);
        run(t, 2 * cube, side, product_stripe);
        memcpy(t->Y.at, t->next.at, (size_t)n * sizeof *t->Y.at);
        combine_rounded(t->Y.at, t->A.at, t->b, n);
        return;
    }
    run(t, cube, side / 2, square_stripe);
    for (int64_t i = 0; i < side; i++) {
        float *row = t->Y.at + i * side;
        combine(row, t->c, t->A.at + i * side, t->b, i + 1);
        if (t->how->bfloat16) round_all(row, i + 1);
    }
    pd_mirror(t->Y);
}

static void iterate(iteration *t)
{
    const double side = (double)t->A.rows, elements = (double)t->X.rows * (double)t->X.cols;

    run(t, side * elements, t->A.rows / 2, gram_stripe);
    pd_mirror(t->A);
    if (t->how->bfloat16) round_all(t->A.at, t->A.rows * t->A.rows);
    compute_polynomial(t);
    run(t, 2 * side * elements, t->tall ? t->X.rows : t->X.cols, step_stripe);
}

/* Sets a, b and c of an iteration, counted from 0. */
static void choose_factors(iteration *t, int step)
{
    const double *triple = express[step < TRIPLES ? step : TRIPLES - 1];
    const double s = step < TRIPLES - 1 ? safety : 1;
    const pd_polar *how = t->how;

    t->a = how->express ? (float)(triple[0] / s) : how->factors[0];
    t->b = how->express ? (float)(triple[1] / pow(s, 3)) : how->factors[1];
    t->c = how->express ? (float)(triple[2] / pow(s, 5)) : how->factors[2];
}

/* Returns the number by which X is divided before the first iteration. */
static float divisor_of(const pd_mat *X, const pd_polar *how)
{
    float norm = (float)sqrt(pd_sum_squares(X->at, X->rows * X->cols)), eps = how->eps;

    if (how->express) return (float)(safety * (double)norm + express_eps);
    if (how->bfloat16) norm = bf16(norm), eps = how->form == PD_POLAR_TORCH ? bf16(eps) : eps;
    if (how->form == PD_POLAR_TORCH) return norm < eps ? eps : norm;
    return how->bfloat16 ? bf16(norm + eps) : norm + eps;
}

void pd_polar_factor(pd_mat X, const pd_polar *how, float *scratch)
{
    const int64_t n = X.rows * X.cols, side = X.rows < X.cols ? X.rows : X.cols;
    float *const home = X.at;
    iteration t = { .how = how, .X = X, .tall = X.rows > X.cols };

    t.next = pd_mat_dense(scratch, X.rows, X.cols);
    t.A = pd_mat_dense(scratch + n, side, side);
    t.Y = pd_mat_dense(scratch + n + side * side, side, side);
    if (how->bfloat16) round_all(X.at, n);
    divide(X.at, divisor_of(&X, how), n);
    if (how->bfloat16) round_all(X.at, n);
    for (int i = 0; i < how->steps; i++) {
        pd_mat before = t.X;
        choose_factors(&t, i);
        iterate(&t);
        t.X = t.next;
        t.next = before;
    }
    if (t.X.at != home) memcpy(home, t.X.at, (size_t)n * sizeof *home);
}

int64_t pd_polar_scratch(int64_t rows, int64_t cols)
{
    int64_t side = rows < cols ? rows : cols;

    return rows * cols + 2 * side * side;
}

double pd_polar_flops(int64_t rows, int64_t cols, int steps)
{
    double least = (double)(rows < cols ? rows : cols), elements = (double)rows * (double)cols;

    return steps * (3 * least * elements + least * least * least);
}

bool pd_polar_is_large(int64_t rows, int64_t cols)
{
    double least = (double)(rows < cols ? rows : cols);

    return pd_stripes_of(2 * least * (double)rows * (double)cols, (rows < cols ? cols : rows) / PD_STRIPE_WIDTH) > 1;
}
