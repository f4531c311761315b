/* triad.c - measures the memory bandwidth of this machine. */
#include "triad.h"

#include "cpu.h"
#include "figure.h"
#include "pages.h"

enum { RANGE = 1 << 16 };

float *triad_floats(int64_t n, float size)
{
    float *at = pd_pages_new((size_t)n * sizeof *at);
    uint32_t seed = 1;

    if (at == NULL) figure_stop("out of memory");
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = size * ((float)(seed >> 8) / 8388608.0f - 1);
    }
    return at;
}

PD_CLONES(void, triad_range, (float *a, const float *b, const float *c, int64_t n), (a, b, c, n))
{
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) a[i] = b[i] + 0.5f * c[i];
}

double triad_ms(float *a, const float *b, const float *c, int64_t n, int threads)
{
    double begin = figure_ms();

    (void)threads; /* a build without OpenMP runs the triad on one thread */
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t first = 0; first < n; first += RANGE)
        triad_range(a + first, b + first, c + first, n - first < RANGE ? n - first : RANGE);
    return figure_ms() - begin;
}
