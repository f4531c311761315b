/* sgemm.c - measures the peak of sgemm on this machine. */
#include "sgemm.h"

#include "figure.h"
#include "linalg.h"
#include "pages.h"

enum { SIDE = 1024 };

void sgemm_fill(float *at, int64_t n, float size)
{
    uint32_t seed = 1;

    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = size * ((float)(seed >> 8) / 8388608.0f - 1);
    }
}

float *sgemm_random(int64_t n, float size)
{
    float *at = pd_pages_new((size_t)n * sizeof *at);

    if (at == NULL) figure_stop("out of memory");
    sgemm_fill(at, n, size);
    return at;
}

double sgemm_peak(int threads)
{
    static float *A, *B, *C;
    int64_t n = (int64_t)SIDE * SIDE;
    double begin;

    if (A == NULL) A = sgemm_random(n, 1), B = sgemm_random(n, 1), C = sgemm_random(n * threads, 1);
    begin = figure_ms();
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        pd_gemm(pd_mat_dense(C + n * t, SIDE, SIDE), 0, 1, pd_mat_dense(A, SIDE, SIDE), PD_AS_IS,
                pd_mat_dense(B, SIDE, SIDE), PD_AS_IS);
    return 2.0 * SIDE * SIDE * SIDE * threads / (figure_ms() - begin);
}
