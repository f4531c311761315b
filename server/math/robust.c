/* robust.c - computes medians and trimmed means, element by element. */
#include "robust.h"

#include <assert.h>

#include "convert.h"
#include "cpu.h"
#include "kernels.h"

/* Number of elements that are sorted at the same time: WIDE for up to FEW vectors, otherwise NARROW. So the sort keys
 * of these elements, a row for each vector, fit into the second-level cache. */
enum { WIDE = 64, NARROW = 16, FEW = 1024 };

static int width(int k)
{
    return k <= FEW ? WIDE : NARROW;
}

int pd_median_trim(int k)
{
    return (k - 1) / 2;
}

size_t pd_trimmed_mean_scratch(int k)
{
    return (size_t)k * (size_t)width(k) * sizeof(int32_t);
}

/* Returns the sort key of a float32 with these bits: an integer, and keys have the same order as the numbers. If the
 * number is negative, all bits but the sign are inverted. All NaNs get the same key, above infinity. */
PD_INLINE int32_t key_of(uint32_t bits)
{
    uint32_t key = bits ^ ((uint32_t)((int32_t)bits >> 31) & 0x7fffffffu);

    return (int32_t)pd_choose((bits & 0x7fffffffu) > 0x7f800000u, 0x7fc00000u, key);
}

PD_INLINE float value_of(int32_t key)
{
    return pd_f32_from_bits((uint32_t)key ^ ((uint32_t)(key >> 31) & 0x7fffffffu));
}

PD_CLONES(void, make_keys, (int32_t *restrict row, const float *restrict x, int w), (row, x, w))
{
    for (int i = 0; i < w; i++) row[i] = key_of(pd_f32_bits(x[i]));
}

/* Compares the sort keys in rows a and b, element by element. Puts the smaller one of each pair into a, and the larger
 * one into b. */
PD_CLONES(void, order, (int32_t *restrict a, int32_t *restrict b, int w), (a, b, w))
{
    for (int i = 0; i < w; i++) {
        int32_t x = a[i], y = b[i];
        a[i] = x < y ? x : y;
        b[i] = x < y ? y : x;
    }
}

/* Sorts the k values of each element, which stand in k rows, by Batcher's merge exchange (Knuth, The Art of Computer
 * Programming, volume 3, 5.2.2, algorithm M), which works for any k. Which rows it compares does not depend on the
 * values, so all elements of a row are sorted at the same time. */
static void sort_rows(int32_t *rows, int k, int w)
{
    int top = 1;

    while (top * 2 < k) top *= 2;
    for (int p = k > 1 ? top : 0; p > 0; p /= 2)
        for (int q = top, r = 0, d = p; d > 0; d = q > p ? q - p : 0, q /= 2, r = p)
            for (int i = 0; i + d < k; i++)
                if ((i & p) == r) order(rows + (ptrdiff_t)i * w, rows + (ptrdiff_t)(i + d) * w, w);
}

/* Computes the mean of `kept` rows of sort keys, element by element. A row has w elements; only the first n means are
 * written. Returns the largest magnitude of a mean (pd_largest). */
PD_CLONES(float, average, (float *to, int n, const int32_t *rows, int kept, int w), (to, n, rows, kept, w))
{
    double sum[WIDE] = { 0 };
    int32_t most = 0;

    for (int r = 0; r < kept; r++)
        for (int i = 0; i < w; i++) sum[i] += (double)value_of(rows[r * w + i]);
    for (int i = 0; i < n; i++) {
        int32_t bits;
        to[i] = (float)(sum[i] / kept);
        bits = (int32_t)(pd_f32_bits(to[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return pd_f32_from_bits((uint32_t)most);
}

/* Writes the sort keys of elements [first, first + n) of a vector into a row of w keys. */
static void load_row(int32_t *row, const pd_vector_run *x, int64_t first, int n, int w)
{
    float tile[WIDE] = { 0 };

    if (x->dtype == PD_F32 && n == w) {
        make_keys(row, (const float *)x->at + first, w);
        return;
    }
    pd_vector_run_read(tile, x, first, n);
    make_keys(row, tile, w);
}

float pd_trimmed_mean(float *to, int64_t n, const pd_vector_run *x, int k, int trim, void *scratch)
{
    int32_t *rows = scratch;
    int w = width(k);
    float largest = 0;

    assert(k >= 1 && trim >= 0 && trim <= pd_median_trim(k));
    for (int64_t first = 0; first < n; first += w) {
        int some = n - first < w ? (int)(n - first) : w;
        for (int r = 0; r < k; r++) load_row(rows + (ptrdiff_t)r * w, &x[r], first, some, w);
        sort_rows(rows, k, w);
        largest = pd_larger(largest, average(to + first, some, rows + (ptrdiff_t)trim * w, k - 2 * trim, w));
    }
    return largest;
}
