#include "block_products.h"

#include <assert.h>

/* The block's elements lie together, in its own order: it spans every dimension behind the first in which it has more than one. */
static bool lies_dense(const pd_shape *shape, const pd_block *block)
{
    int d = 0;

    while (d < shape->rank && block->size[d] == 1) d++;
    for (d++; d < shape->rank; d++)
        if (block->size[d] != shape->dim[d]) return false;
    return true;
}

static int64_t padded(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

int64_t pd_block_view_scratch(const pd_shape *shape, const pd_block *block)
{
    return shape->rank <= 2 || lies_dense(shape, block) ? 0 : padded(pd_block_elements(block, shape->rank));
}

int64_t pd_block_contract_scratch(const pd_shape *shape, const pd_block *block)
{
    return (shape->rank < 2 ? 0 : shape->rank == 2 ? 1 : 2) * padded(pd_block_elements(block, shape->rank));
}

/* Where a block's first element is. */
static int64_t offset_of(const pd_shape *shape, const pd_block *block)
{
    int64_t offset = 0;

    for (int d = 0; d < shape->rank; d++) offset = offset * shape->dim[d] + block->start[d];
    return offset;
}

pd_block_view pd_block_look(const float *whole, const pd_shape *shape, const pd_block *block, float *scratch)
{
    pd_block_view view = { .rank = shape->rank };

    assert(shape->rank >= 1);
    for (int d = 0; d < view.rank; d++) view.size[d] = block->size[d];
    if (view.rank == 2) view.stride = shape->dim[1];
    if (view.rank <= 2 || lies_dense(shape, block)) {
        view.at = (float *)whole + offset_of(shape, block);
    } else {
        pd_block_gather(scratch, whole, shape, block);
        view.at = scratch;
    }
    return view;
}

/* ---- statistics ---- */

static int64_t product(const int64_t *size, int first, int end)
{
    int64_t n = 1;

    for (int d = first; d < end; d++) n *= size[d];
    return n;
}

void pd_block_gram(pd_mat S, float beta, float alpha, const pd_block_view *view, int dim)
{
    int64_t outer = product(view->size, 0, dim), side = view->size[dim], inner = product(view->size, dim + 1, view->rank);

    if (view->rank == 2) {
        pd_syrk(S, beta, alpha, (pd_mat){ view->at, view->size[0], view->size[1], view->stride }, dim == 0 ? PD_LEFT : PD_RIGHT);
    } else if (inner == 1) {
        pd_syrk(S, beta, alpha, pd_mat_dense(view->at, outer, side), PD_RIGHT);
    } else {
        for (int64_t o = 0; o < outer; o++)
            pd_syrk(S, o == 0 ? beta : 1, alpha, pd_mat_dense(view->at + o * side * inner, side, inner), PD_LEFT);
    }
}

/* ---- preconditioning ---- */

static void contract_matrix(pd_mat out, const pd_block_view *view, float *const *P, float *scratch)
{
    int64_t m = view->size[0], n = view->size[1];
    pd_mat half = pd_mat_dense(scratch, m, n);

    pd_gemm(half, 0, 1, pd_mat_dense(P[0], m, m), PD_TRANSPOSED, (pd_mat){ view->at, m, n, view->stride }, PD_AS_IS);
    pd_gemm(out, 0, 1, half, PD_AS_IS, pd_mat_dense(P[1], n, n), PD_AS_IS);
}

/* Each turn takes the first dimension away and brings its successor last; after as many turns as dimensions they are in order again. The last turn
 * writes to `out`. */
static void contract_in_turns(float *out, const pd_block_view *view, float *const *P, float *scratch)
{
    int64_t n = product(view->size, 0, view->rank);
    float *from = view->at;

    for (int d = 0; d < view->rank; d++) {
        int64_t side = view->size[d], rest = n / side;
        float *to = d == view->rank - 1 ? out : scratch + d % 2 * padded(n);
        pd_gemm(pd_mat_dense(to, rest, side), 0, 1, pd_mat_dense(from, side, rest), PD_TRANSPOSED, pd_mat_dense(P[d], side, side), PD_AS_IS);
        from = to;
    }
}

void pd_block_contract(float *whole, const pd_shape *shape, const pd_block *block, const pd_block_view *view, float *const *P, float *scratch)
{
    int64_t n = product(view->size, 0, view->rank);
    float *out = whole + offset_of(shape, block);

    if (view->rank == 1) {
        pd_gemv(out, 0, 1, pd_mat_dense(P[0], n, n), PD_TRANSPOSED, view->at);
    } else if (view->rank == 2) {
        contract_matrix((pd_mat){ out, view->size[0], view->size[1], shape->dim[1] }, view, P, scratch);
    } else if (lies_dense(shape, block)) {
        contract_in_turns(out, view, P, scratch);
    } else {
        out = scratch + (view->rank - 1) % 2 * padded(n);
        contract_in_turns(out, view, P, scratch);
        pd_block_scatter(whole, out, shape, block);
    }
}
