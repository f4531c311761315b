/* block_rotation.c - rotates a block along each of its dimensions by products of matrices. */
#include "block_rotation.h"

#include <string.h>

static int64_t padded(int64_t floats)
{
    return (floats + 15) / 16 * 16;
}

int64_t pd_block_rotate_scratch(const pd_block *block, int rank)
{
    return (rank < 2 ? 0 : rank == 2 ? 1 : 2) * padded(pd_block_elements(block, rank));
}

static void copy_rows(float *out, pd_mat from)
{
    for (int64_t i = 0; i < from.rows; i++)
        memmove(out + i * from.cols, from.at + i * from.stride, (size_t)from.cols * sizeof *out);
}

static void rotate_vector(float *out, const pd_block_view *view, const float *Q, pd_turn turn)
{
    int64_t n = view->size[0];

    if (Q == NULL)
        copy_rows(out, pd_mat_dense(view->at, 1, n));
    else
        pd_gemv(out, 0, 1, pd_mat_dense((float *)(uintptr_t)Q, n, n), turn == PD_AS_IS ? PD_TRANSPOSED : PD_AS_IS,
                view->at);
}

static void rotate_matrix(float *out, const pd_block_view *view, float *const *Q, pd_turn turn, float *scratch)
{
    int64_t m = view->size[0], n = view->size[1];
    pd_mat from = { view->at, m, n, view->stride };
    pd_turn left = turn == PD_AS_IS ? PD_TRANSPOSED : PD_AS_IS;

    if (Q[0] != NULL) {
        pd_mat to = pd_mat_dense(Q[1] != NULL || out == view->at ? scratch : out, m, n);
        pd_block_multiply(to, pd_mat_dense(Q[0], m, m), left, from, PD_AS_IS);
        from = to;
    }
    if (Q[1] != NULL) {
        pd_mat to = pd_mat_dense(out == from.at ? scratch : out, m, n);
        pd_block_multiply(to, from, PD_AS_IS, pd_mat_dense(Q[1], n, n), turn);
        from = to;
    }
    if (from.at != out) copy_rows(out, from);
}

/* Writes the transpose of a matrix, tile by tile. */
static void transpose(float *out, const float *from, int64_t rows, int64_t cols)
{
    enum { TILE = 32 };

    for (int64_t top = 0; top < rows; top += TILE)
        for (int64_t left = 0; left < cols; left += TILE)
            for (int64_t i = top; i < rows && i < top + TILE; i++)
                for (int64_t j = left; j < cols && j < left + TILE; j++) out[j * rows + i] = from[i * cols + j];
}

/* Rotates along one dimension after the other. Each pass removes the first dimension of the block and appends it at the
 * end, so after one pass per dimension they are in their old order again. The last pass writes to `out`. */
static void rotate_in_turns(float *out, const pd_block_view *view, float *const *Q, pd_turn turn, float *scratch)
{
    int64_t n = 1;
    float *from = view->at;

    for (int d = 0; d < view->rank; d++) n *= view->size[d];
    for (int d = 0; d < view->rank; d++) {
        int64_t side = view->size[d], rest = n / side;
        float *to = d == view->rank - 1 ? out : scratch + d % 2 * padded(n);
        if (Q[d] == NULL)
            transpose(to, from, side, rest);
        else
            pd_block_multiply(pd_mat_dense(to, rest, side), pd_mat_dense(from, side, rest), PD_TRANSPOSED,
                              pd_mat_dense(Q[d], side, side), turn);
        from = to;
    }
}

void pd_block_rotate(float *out, const pd_block_view *view, float *const *Q, pd_turn turn, float *scratch)
{
    if (view->rank == 1)
        rotate_vector(out, view, Q[0], turn);
    else if (view->rank == 2)
        rotate_matrix(out, view, Q, turn, scratch);
    else
        rotate_in_turns(out, view, Q, turn, scratch);
}

/* How a block is cut into slabs along dimension d: matrices with the indices of d in their rows, or, if d is the last
 * dimension, in their columns. */
typedef struct slabs {
    const pd_shape *shape;
    const pd_block *block;
    int d;
    int row, col; /* the dimension that the rows run along (-1: there is one row), and the first one of the columns */
    int64_t stride[PD_MAX_RANK], rows, cols, n;
} slabs;

static slabs slabs_of(const pd_shape *shape, const pd_block *block, int d)
{
    int rank = shape->rank, last = rank - 1;
    slabs s = { .shape = shape, .block = block, .d = d, .row = d == last ? last - 1 : d, .col = last };

    s.stride[last] = 1;
    for (int k = last - 1; k >= 0; k--) s.stride[k] = s.stride[k + 1] * shape->dim[k + 1];
    s.rows = s.row < 0 ? 1 : block->size[s.row];
    s.cols = block->size[last];
    while (s.col - 1 > d && block->size[s.col] == shape->dim[s.col]) s.cols *= block->size[--s.col];
    s.n = s.rows * s.cols == 0 ? 0 : pd_block_elements(block, rank) / (s.rows * s.cols);
    return s;
}

static pd_mat slab(const slabs *s, float *whole, int64_t index)
{
    for (int k = s->shape->rank - 1; k >= 0; k--) {
        int64_t at = s->block->start[k];
        if (k != s->row && k < s->col) {
            at += index % s->block->size[k];
            index /= s->block->size[k];
        }
        whole += at * s->stride[k];
    }
    return (pd_mat){ whole, s->rows, s->cols, s->row < 0 ? s->cols : s->stride[s->row] };
}

static void copy_back(pd_mat to, const float *from)
{
    for (int64_t i = 0; i < to.rows; i++)
        memcpy(to.at + i * to.stride, from + i * to.cols, (size_t)to.cols * sizeof *from);
}

/* Computes one panel of a slab: at most as many rows or columns as dimension d has indices. */
static void multiply_panel(pd_mat panel, bool columns, pd_mat R, float *scratch)
{
    pd_mat to = pd_mat_dense(scratch, panel.rows, panel.cols);

    if (columns)
        pd_block_multiply(to, panel, PD_AS_IS, R, PD_AS_IS);
    else
        pd_block_multiply(to, R, PD_TRANSPOSED, panel, PD_AS_IS);
    copy_back(panel, scratch);
}

static void sort_panel(pd_mat panel, bool columns, const float *order, float *scratch)
{
    for (int64_t i = 0; i < panel.rows; i++) {
        const float *row = panel.at + (columns ? i : (int64_t)order[i]) * panel.stride;
        for (int64_t j = 0; j < panel.cols; j++) scratch[i * panel.cols + j] = row[columns ? (int64_t)order[j] : j];
    }
    copy_back(panel, scratch);
}

/* Multiplies each slab by R, or sorts it if R has no elements: panel by panel, so that a panel fits `scratch`. */
static void change(float *whole, const slabs *s, pd_mat R, const float *order, float *scratch)
{
    bool columns = s->d == s->shape->rank - 1;
    int64_t side = s->block->size[s->d], length = columns ? s->rows : s->cols;

    for (int64_t index = 0; index < s->n; index++) {
        pd_mat all = slab(s, whole, index);
        for (int64_t first = 0; first < length; first += side) {
            int64_t end = first + side < length ? first + side : length;
            pd_mat panel = columns ? pd_mat_rows(all, first, end) : pd_mat_cols(all, first, end);
            if (order == NULL)
                multiply_panel(panel, columns, R, scratch);
            else
                sort_panel(panel, columns, order, scratch);
        }
    }
}

void pd_block_multiply_along(float *whole, const pd_shape *shape, const pd_block *block, int d, pd_mat R,
                             float *scratch)
{
    slabs s = slabs_of(shape, block, d);

    change(whole, &s, R, NULL, scratch);
}

void pd_block_sort_along(float *whole, const pd_shape *shape, const pd_block *block, int d, const float *order,
                         float *scratch)
{
    slabs s = slabs_of(shape, block, d);

    change(whole, &s, (pd_mat){ 0 }, order, scratch);
}
