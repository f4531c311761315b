/* block_products.c - multiplies a block of a tensor by itself, and by a matrix along each of its dimensions. */
#include "block_products.h"

#include <assert.h>

#include "stripes.h"

/* Largest number of elements of a matrix block that is copied to scratch memory before it is multiplied. Such a block
 * fits into a second-level cache together with its products. */
enum { MOST_GATHERED = 32768 };

/* Returns whether the elements of a block are contiguous in the memory of the whole tensor. */
static bool lies_dense(const pd_shape *shape, const pd_block *block)
{
    return pd_block_run_length(shape, block) == pd_block_elements(block, shape->rank);
}

/* Returns whether products read a block where it lies in the tensor. Otherwise the block is copied first. Small blocks
 * of a matrix are copied unless they are contiguous: they are read four times, and their rows often lie a power of 2
 * apart, so they would push each other out of the first-level cache. */
static bool is_used_in_place(const pd_shape *shape, const pd_block *block)
{
    return lies_dense(shape, block) || (shape->rank == 2 && pd_block_elements(block, 2) > MOST_GATHERED);
}

static int64_t padded(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

int64_t pd_block_view_scratch(const pd_shape *shape, const pd_block *block)
{
    return is_used_in_place(shape, block) ? 0 : padded(pd_block_elements(block, shape->rank));
}

int64_t pd_block_contract_scratch(const pd_shape *shape, const pd_block *block)
{
    return (shape->rank < 2                                      ? 0
            : shape->rank == 2 && is_used_in_place(shape, block) ? 1
                                                                 : 2) *
           padded(pd_block_elements(block, shape->rank));
}

bool pd_block_is_large(const pd_block *block, int rank)
{
    double elements = (double)pd_block_elements(block, rank);

    for (int d = 0; d < rank; d++)
        if (pd_stripes_of(2 * elements * (double)block->size[d], 2) > 1) return true;
    return false;
}

pd_block_view pd_block_look(const float *whole, const pd_shape *shape, const pd_block *block, float *scratch)
{
    pd_block_view view = { .rank = shape->rank };

    assert(shape->rank >= 1);
    for (int d = 0; d < view.rank; d++) view.size[d] = block->size[d];
    if (is_used_in_place(shape, block)) {
        view.at = (float *)whole + pd_block_run_start(shape, block, 0);
        if (view.rank == 2) view.stride = shape->dim[1];
    } else {
        pd_block_gather(scratch, whole, shape, block);
        view.at = scratch;
        if (view.rank == 2) view.stride = block->size[1];
    }
    return view;
}

static int64_t product(const int64_t *size, int first, int end)
{
    int64_t n = 1;

    for (int d = first; d < end; d++) n *= size[d];
    return n;
}

static pd_mat matrix_of(const pd_block_view *view)
{
    return (pd_mat){ view->at, view->size[0], view->size[1], view->stride };
}

/* The arguments of pd_block_gram. A stripe is a range of rows of S. */
typedef struct gram {
    pd_mat S;
    float beta, alpha;
    const pd_block_view *view;
    int dim, stripes;
} gram;

static void gram_stripe(const void *work, int stripe)
{
    const gram *g = work;
    const pd_block_view *view = g->view;
    int64_t outer = product(view->size, 0, g->dim), side = view->size[g->dim],
            inner = product(view->size, g->dim + 1, view->rank),
            first = pd_stripe_bound(side, PD_STRIPE_SQUARE, stripe, g->stripes),
            end = pd_stripe_bound(side, PD_STRIPE_SQUARE, stripe + 1, g->stripes);

    if (view->rank == 2) {
        pd_syrk_rows(g->S, g->beta, g->alpha, matrix_of(view), g->dim == 0 ? PD_LEFT : PD_RIGHT, first, end);
    } else if (inner == 1) {
        pd_syrk_rows(g->S, g->beta, g->alpha, pd_mat_dense(view->at, outer, side), PD_RIGHT, first, end);
    } else {
        for (int64_t o = 0; o < outer; o++)
            pd_syrk_rows(g->S, o == 0 ? g->beta : 1, g->alpha, pd_mat_dense(view->at + o * side * inner, side, inner),
                         PD_LEFT, first, end);
    }
}

void pd_block_gram(pd_mat S, float beta, float alpha, const pd_block_view *view, int dim)
{
    double flops = (double)product(view->size, 0, view->rank) * (double)view->size[dim];
    gram g = { S, beta, alpha, view, dim, pd_stripes_of(flops, view->size[dim] / (2 * PD_STRIPE_WIDTH)) };

    pd_stripes_run(g.stripes, gram_stripe, &g);
}

/* A product C = op(A) op(B) of whole matrices. A stripe is a range of rows of C, or of columns if C has more columns
 * than rows. */
typedef struct whole_product {
    pd_mat C, A, B;
    pd_turn a, b;
    int stripes;
} whole_product;

static void product_stripe(const void *work, int stripe)
{
    const whole_product *p = work;
    bool wide = p->C.cols > p->C.rows;
    int64_t n = wide ? p->C.cols : p->C.rows, first = pd_stripe_bound(n, PD_STRIPE_EVEN, stripe, p->stripes),
            end = pd_stripe_bound(n, PD_STRIPE_EVEN, stripe + 1, p->stripes);

    if (wide)
        pd_gemm(pd_mat_cols(p->C, first, end), 0, 1, p->A, p->a,
                p->b == PD_AS_IS ? pd_mat_cols(p->B, first, end) : pd_mat_rows(p->B, first, end), p->b);
    else
        pd_gemm(pd_mat_rows(p->C, first, end), 0, 1,
                p->a == PD_AS_IS ? pd_mat_rows(p->A, first, end) : pd_mat_cols(p->A, first, end), p->a, p->B, p->b);
}

void pd_block_multiply(pd_mat C, pd_mat A, pd_turn a, pd_mat B, pd_turn b)
{
    double flops = 2 * (double)C.rows * (double)C.cols * (double)(a == PD_AS_IS ? A.cols : A.rows);
    int64_t n = C.cols > C.rows ? C.cols : C.rows;
    whole_product p = { C, A, B, a, b, pd_stripes_of(flops, n / PD_STRIPE_WIDTH) };

    pd_stripes_run(p.stripes, product_stripe, &p);
}

static void contract_matrix(pd_mat out, const pd_block_view *view, float *const *P, float *scratch)
{
    int64_t m = view->size[0], n = view->size[1];
    pd_mat half = pd_mat_dense(scratch, m, n);

    pd_block_multiply(half, pd_mat_dense(P[0], m, m), PD_TRANSPOSED, matrix_of(view), PD_AS_IS);
    pd_block_multiply(out, half, PD_AS_IS, pd_mat_dense(P[1], n, n), PD_AS_IS);
}

/* Multiplies a block by the matrices P[d], along one dimension d after the other. Each product removes the first
 * dimension of the block and appends a new one at the end. After one product per dimension, the dimensions are in their
 * old order again. The last product writes to `out`. */
static void contract_in_turns(float *out, const pd_block_view *view, float *const *P, float *scratch)
{
    int64_t n = product(view->size, 0, view->rank);
    float *from = view->at;

    for (int d = 0; d < view->rank; d++) {
        int64_t side = view->size[d], rest = n / side;
        float *to = d == view->rank - 1 ? out : scratch + d % 2 * padded(n);
        pd_block_multiply(pd_mat_dense(to, rest, side), pd_mat_dense(from, side, rest), PD_TRANSPOSED,
                          pd_mat_dense(P[d], side, side), PD_AS_IS);
        from = to;
    }
}

double pd_block_view_sum(const pd_block_view *view, double (*measure)(const float *x, int64_t n))
{
    double sum = 0;

    if (view->rank != 2 || view->stride == view->size[1]) return measure(view->at, product(view->size, 0, view->rank));
    for (int64_t i = 0; i < view->size[0]; i++) sum += measure(view->at + i * view->stride, view->size[1]);
    return sum;
}

double pd_block_contract(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view,
                         float *const *P, float *scratch, double (*measure)(const float *x, int64_t n))
{
    int64_t n = product(view->size, 0, view->rank);
    bool in_place = is_used_in_place(shape, block);
    pd_block_view out = *view;
    double sum;

    out.at = in_place ? whole + pd_block_run_start(shape, block, 0) : scratch + (view->rank - 1) % 2 * padded(n);
    if (view->rank == 1)
        pd_gemv(out.at, 0, 1, pd_mat_dense(P[0], n, n), PD_TRANSPOSED, view->at);
    else if (view->rank == 2)
        contract_matrix((pd_mat){ out.at, view->size[0], view->size[1], view->stride }, view, P, scratch);
    else
        contract_in_turns(out.at, view, P, scratch);
    sum = pd_block_view_sum(&out, measure);
    if (!in_place) pd_block_scatter(whole, out.at, shape, block);
    return sum;
}
