/* clip.c - scales gradients so that their common norm has an upper bound. */
#include "clip.h"

#include <math.h>

#include "kernels.h"

/* Gradients of more ranges than this are processed by several threads. To wake a thread takes about as long as to
 * process one range. */
enum { WORTH_SHARING = 2 };

void pd_clip_sum(pd_clip_piece *pieces, size_t n, pd_exact_sum *sum, int threads)
{
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (n > WORTH_SHARING)
    for (size_t i = 0; i < n; i++) pieces[i].squares = pd_sum_squares(pieces[i].from, pieces[i].n);
    for (size_t i = 0; i < n; i++) pd_exact_sum_add(sum, pieces[i].squares);
}

void pd_clip_apply(const pd_clip_piece *pieces, size_t n, float scale, int threads)
{
    (void)threads;
#pragma omp parallel for schedule(static) num_threads(threads) if (n > WORTH_SHARING)
    for (size_t i = 0; i < n; i++) pd_scale(pieces[i].to, pieces[i].from, scale, pieces[i].n);
}

float pd_clip_scale(double limit, double squares)
{
    float most = (float)(1.0 / limit), inverse = 1.0f / sqrtf((float)squares);

    return (float)limit * (isnan(inverse) || inverse < most ? inverse : most);
}

bool pd_clip_exceeds(double limit, double squares)
{
    return sqrt(squares) > limit;
}
