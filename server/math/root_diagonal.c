/* root_diagonal.c - computes roots of diagonal matrices element by element. Meta's Shampoo does the same for diagonal
 * matrices and single numbers, whatever method is configured (matrix_functions.py). Negative elements are not raised to
 * 0 first: if an element is still negative after epsilon is added, there is no root. */
#include "root_diagonal.h"

#include <math.h>
#include <string.h>

#include "root_parts.h"

bool pd_root_is_diagonal(pd_factor A)
{
    for (int64_t i = 0; i < A.A.rows; i++)
        for (int64_t j = 0; j < A.A.rows; j++)
            if (i != j && (A.wide != NULL ? A.wide[i * A.A.rows + j] != 0 : A.A.at[i * A.A.stride + j] != 0))
                return false;
    return true;
}

int pd_root_of_diagonal(pd_mat X, pd_factor A, const pd_root_want *want, pd_root_report *report)
{
    double exponent = pd_root_exponent(want), largest = 0, least = INFINITY;

    for (int64_t i = 0; i < X.rows; i++) {
        double a = A.wide != NULL ? A.wide[i * X.rows + i] : (double)A.A.at[i * A.A.stride + i];
        memset(X.at + i * X.stride, 0, (size_t)X.cols * sizeof *X.at);
        X.at[i * X.stride + i] = (float)pow(a + want->epsilon, -exponent);
        largest = fmax(largest, a), least = fmin(least, a);
    }
    *report = (pd_root_report){
        .error = 0, .largest = largest, .condition = (largest + want->epsilon) / (least + want->epsilon), .tries = 1
    };
    if (pd_root_is_finite(X)) return PD_OK;
    report->error = INFINITY;
    return PD_OUT_OF_RANGE;
}
