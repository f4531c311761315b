/* mat.h - views of matrices in memory, and of their parts. Pure functions; any thread. */
#ifndef PD_MAT_H
#define PD_MAT_H

#include <stdint.h>

/* A view of a matrix in memory that somebody else owns. */
typedef struct pd_mat {
    float *at;
    int64_t rows, cols, stride; /* stride: number of floats from one row to the next, at least `cols` */
} pd_mat;

/* Says whether op(A) in the comments below is the matrix A itself or its transpose A'. */
typedef enum pd_turn { PD_AS_IS, PD_TRANSPOSED } pd_turn;
/* The side from which a matrix is multiplied. In pd_syrk it chooses the product A A' (PD_LEFT) or A' A (PD_RIGHT),
 * where A' is A transposed. */
typedef enum pd_side { PD_LEFT, PD_RIGHT } pd_side;

/* Returns a view of a matrix whose rows follow each other without gaps. */
static inline pd_mat pd_mat_dense(float *at, int64_t rows, int64_t cols)
{
    return (pd_mat){ at, rows, cols, cols };
}

/* Returns a view of a rectangle of M: `rows` rows from row `top` on, `cols` columns from column `left` on. */
static inline pd_mat pd_mat_part(pd_mat M, int64_t top, int64_t left, int64_t rows, int64_t cols)
{
    return (pd_mat){ M.at + top * M.stride + left, rows, cols, M.stride };
}

/* pd_mat_rows returns a view of rows [first, end) of M, pd_mat_cols of its columns [first, end). */
static inline pd_mat pd_mat_rows(pd_mat M, int64_t first, int64_t end)
{
    return pd_mat_part(M, first, 0, end - first, M.cols);
}
static inline pd_mat pd_mat_cols(pd_mat M, int64_t first, int64_t end)
{
    return pd_mat_part(M, 0, first, M.rows, end - first);
}

#endif
