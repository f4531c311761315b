/* root_parts.c - functions that several methods for roots share: ridges, memory, conversions, and roots of diagonal
 * matrices. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "pages.h"
#include "root_types.h"

double pd_root_ridge(double epsilon, double largest)
{
    /* If `largest` is NaN, the comparison is false, so the result is NaN, too. */
    return epsilon * (largest < 1e-6 ? 1e-6 : largest);
}

double pd_root_bounded_ridge(double epsilon, double bound)
{
    double ridge = epsilon * bound;

    return ridge < 1e-16 ? 1e-16 : ridge;
}

double pd_root_exponent(const pd_root_want *want)
{
    if (want->method == PD_ROOT_COUPLED) return 1.0 / want->p;
    if (want->method == PD_ROOT_HIGHER_ORDER) return (double)(want->q > 1 ? want->q : 1) / want->p;
    return want->exponent;
}

void *pd_root_room(int64_t n, int64_t count, size_t size, size_t more)
{
    size_t bytes;

    if (__builtin_mul_overflow((size_t)n, (size_t)n, &bytes) || __builtin_mul_overflow(bytes, (size_t)count, &bytes) ||
        __builtin_mul_overflow(bytes, size, &bytes) || __builtin_add_overflow(bytes, more, &bytes) ||
        bytes > PTRDIFF_MAX - 64)
        return NULL;
    return pd_pages_new(bytes);
}

void pd_root_widen(double *to, pd_mat A)
{
    for (int64_t i = 0; i < A.rows; i++)
        for (int64_t j = 0; j < A.cols; j++) to[i * A.cols + j] = (double)A.at[i * A.stride + j];
}

void pd_root_narrow(pd_mat X, const double *from)
{
    for (int64_t i = 0; i < X.rows; i++)
        for (int64_t j = 0; j < X.cols; j++) X.at[i * X.stride + j] = (float)from[i * X.cols + j];
}

bool pd_root_is_finite(pd_mat X)
{
    for (int64_t i = 0; i < X.rows; i++)
        if (!pd_all_finite(X.at + i * X.stride, PD_F32, X.cols)) return false;
    return true;
}

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
