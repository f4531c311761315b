/* kernels.c - sums, scales and checks vectors. The speed of these loops is limited by memory bandwidth. */
#include "kernels.h"

#include "block_codec.h"
#include "convert.h"
#include "lanes.h"

/* Number of elements of `acc` that are computed at a time. They stay in the first-level cache while the addends are
 * added to them. */
enum { TILE = 2048 };

PD_INLINE bool finite_bits(uint32_t bits)
{
    return (bits & 0x7fffffffu) < 0x7f800000u;
}

/* Largest number of float32 addends that one loop adds. With four, memory bandwidth limits the loop. */
enum { GROUP = 4 };

/* Adds k vectors, each times its weight, to the sum `acc` in one loop. With `first`, the old values of `acc` are
 * ignored. The callers pass `k` and `first` as constants, so that the loop has no branches. */
PD_INLINE void sum_group(float *acc, const pd_addend *x, int64_t offset, int64_t n, int k, bool first)
{
    const float *a = (const float *)x[0].run.at + offset, *b = a, *c = a, *d = a;
    float wa = x[0].weight, wb = 0, wc = 0, wd = 0;

    if (k > 1) b = (const float *)x[1].run.at + offset, wb = x[1].weight;
    if (k > 2) c = (const float *)x[2].run.at + offset, wc = x[2].weight;
    if (k > 3) d = (const float *)x[3].run.at + offset, wd = x[3].weight;
/* The addends do not overlap the sum `acc`, or are `acc` itself, so the compiler may vectorize the loop. */
#pragma GCC ivdep
    for (int64_t i = 0; i < n; i++) {
        float sum = first ? wa * a[i] : acc[i] + wa * a[i];
        if (k > 1) sum += wb * b[i];
        if (k > 2) sum += wc * c[i];
        if (k > 3) sum += wd * d[i];
        acc[i] = sum;
    }
}

#define SUM(k)                                                                                                         \
    PD_CLONES(void, set_##k, (float *acc, const pd_addend *x, int64_t offset, int64_t n), (acc, x, offset, n))         \
    {                                                                                                                  \
        sum_group(acc, x, offset, n, k, true);                                                                         \
    }                                                                                                                  \
    PD_CLONES(void, add_##k, (float *acc, const pd_addend *x, int64_t offset, int64_t n), (acc, x, offset, n))         \
    {                                                                                                                  \
        sum_group(acc, x, offset, n, k, false);                                                                        \
    }
SUM(1)
SUM(2)
SUM(3)
SUM(4)

/* Defines functions that add a float16 or bfloat16 vector to the sum `acc`, or set `acc` to it. The elements are
 * converted to float32 in the loop. */
#define SUM_SHORT(name, value, op)                                                                                     \
    PD_CLONES(void, name, (float *restrict acc, const pd_addend *x, int64_t offset, int64_t n), (acc, x, offset, n))   \
    {                                                                                                                  \
        const uint16_t *restrict a = (const uint16_t *)x->run.at + offset;                                             \
        float w = x->weight;                                                                                           \
        for (int64_t i = 0; i < n; i++) acc[i] op w *value(a[i]);                                                      \
    }
SUM_SHORT(set_f16, pd_f32_from_f16, =)
SUM_SHORT(add_f16, pd_f32_from_f16, +=)
SUM_SHORT(set_bf16, pd_f32_from_bf16, =)
SUM_SHORT(add_bf16, pd_f32_from_bf16, +=)

/* The same for vectors of a quantized type. */
static void set_blocks(float *acc, const pd_addend *x, int64_t offset, int64_t n)
{
    pd_blocks_add(acc, x->run.dtype, x->run.at, x->run.of, x->run.skip + offset, n, x->weight, true);
}

static void add_blocks(float *acc, const pd_addend *x, int64_t offset, int64_t n)
{
    pd_blocks_add(acc, x->run.dtype, x->run.at, x->run.of, x->run.skip + offset, n, x->weight, false);
}

typedef void sum_function(float *acc, const pd_addend *x, int64_t offset, int64_t n);

/* Returns how many of the next k addends one loop adds: up to GROUP if they are float32, otherwise one. */
static int group_size(const pd_addend *x, int k)
{
    int n = 0;

    while (n < k && n < GROUP && x[n].run.dtype == PD_F32) n++;
    return n > 0 ? n : 1;
}

static sum_function *group_function(const pd_addend *x, int size, bool first)
{
    static sum_function *const sets[] = { set_1, set_2, set_3, set_4 }, *const adds[] = { add_1, add_2, add_3, add_4 };

    if (x->run.dtype == PD_F16) return first ? set_f16 : add_f16;
    if (x->run.dtype == PD_BF16) return first ? set_bf16 : add_bf16;
    if (pd_dtype_is_quantized(x->run.dtype)) return first ? set_blocks : add_blocks;
    return first ? sets[size - 1] : adds[size - 1];
}

/* Returns the bits of the largest magnitude. Read as integers, they have the same order as the magnitudes, with NaN
 * last. */
PD_CLONES(int32_t, largest_bits, (const float *x, int64_t n), (x, n))
{
    int32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)(pd_f32_bits(x[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return most;
}

PD_CLONES(bool, finite_f32, (const float *x, int64_t n), (x, n))
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) bad |= !finite_bits(pd_f32_bits(x[i]));
    return !bad;
}

PD_CLONES(void, divide, (float *x, float divisor, int64_t n), (x, divisor, n))
{
    for (int64_t i = 0; i < n; i++) x[i] /= divisor;
}

float pd_accumulate(float *acc, int64_t n, bool resume, const pd_addend *x, int k, float divisor)
{
    int32_t most = 0;

    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        int32_t bits;

        for (int j = 0, size; j < k; j += size) {
            size = group_size(x + j, k - j);
            group_function(x + j, size, j == 0 && !resume)(acc + i, x + j, i, some);
        }
        if (k == 0 && !resume) memset(acc + i, 0, (size_t)some * sizeof *acc);
        if (divisor != 1.0f) divide(acc + i, divisor, some);
        bits = largest_bits(acc + i, some);
        most = bits > most ? bits : most;
    }
    return pd_f32_from_bits((uint32_t)most);
}

float pd_largest(const float *x, int64_t n)
{
    return pd_f32_from_bits((uint32_t)largest_bits(x, n));
}

float pd_larger(float a, float b)
{
    return pd_f32_bits(a) > pd_f32_bits(b) ? a : b;
}

PD_CLONES(bool, finite_16, (const uint16_t *x, uint16_t exponent, int64_t n), (x, exponent, n))
{
    uint16_t bad = 0;

    for (int64_t i = 0; i < n; i++) bad |= (uint16_t)((x[i] & exponent) == exponent);
    return !bad;
}

bool pd_all_finite(const void *at, pd_dtype dtype, int64_t n)
{
    /* Checks TILE elements at a time, so that the search ends soon if an element near the beginning is not finite. */
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        const char *tile = (const char *)at + (size_t)i * pd_dtype_size(dtype);
        bool finite = dtype == PD_F32 ? finite_f32((const void *)tile, some)
                                      : finite_16((const void *)tile, dtype == PD_F16 ? 0x7c00 : 0x7f80, some);
        if (!finite) return false;
    }
    return true;
}

bool pd_vector_run_is_finite(const pd_vector_run *run, int64_t first, int64_t n)
{
    float tile[TILE];
    bool finite = true;

    if (!pd_dtype_is_quantized(run->dtype))
        return pd_all_finite((const char *)run->at + (size_t)first * pd_dtype_size(run->dtype), run->dtype, n);
    for (int64_t i = 0; finite && i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        pd_vector_run_read(tile, run, first + i, some);
        finite = pd_all_finite(tile, PD_F32, some);
    }
    return finite;
}

PD_CLONES(bool, finite_f64, (const double *x, int64_t n), (x, n))
{
    uint64_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bad |= (uint64_t)((bits & 0x7ff0000000000000u) == 0x7ff0000000000000u);
    }
    return !bad;
}

bool pd_all_finite_f64(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += TILE)
        if (!finite_f64(x + i, n - i < TILE ? n - i : TILE)) return false;
    return true;
}

/* Copies the last n < 16 elements of a vector, and pads them with zeros to 16 elements, the number that one iteration
 * of the loop reads. */
PD_INLINE void load_tail(float *tail, const float *x, int64_t n)
{
    memset(tail, 0, 16 * sizeof *tail);
    memcpy(tail, x, (size_t)n * sizeof *tail);
}

/* Adds the products of 16 elements of x and y to 16 partial sums (lanes): the first eight to sum[0], the others to
 * sum[1]. */
PD_INLINE void add_products(pd_lanes sum[2], const float *x, const float *y)
{
    pd_lanes_add_product(&sum[0], pd_lanes_of(x), pd_lanes_of(y));
    pd_lanes_add_product(&sum[1], pd_lanes_of(x + 8), pd_lanes_of(y + 8));
}

/* Returns the dot product. The callers pass `x` twice for the sum of squares, so that its loop converts it once. */
PD_INLINE double sum_products(const float *x, const float *y, int64_t n)
{
    pd_lanes sum[2] = { 0 };
    float a[16], b[16];
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16) add_products(sum, x + i, y + i);
    if (i < n) {
        load_tail(a, x + i, n - i);
        load_tail(b, y + i, n - i);
        add_products(sum, a, b);
    }
    pd_lanes_add(&sum[0], sum[1]);
    return pd_lanes_sum(sum[0]);
}

PD_CLONES(double, dot, (const float *x, const float *y, int64_t n), (x, y, n))
{
    return sum_products(x, y, n);
}
PD_CLONES(double, squares, (const float *x, int64_t n), (x, n))
{
    return sum_products(x, x, n);
}

double pd_dot(const float *x, const float *y, int64_t n)
{
    return dot(x, y, n);
}

double pd_sum_squares(const float *x, int64_t n)
{
    return squares(x, n);
}

PD_CLONES(void, scale, (float *to, const float *from, float by, int64_t n), (to, from, by, n))
{
#pragma GCC ivdep /* The two vectors do not overlap, or are the same, so the compiler may vectorize the loop. */
    for (int64_t i = 0; i < n; i++) to[i] = by * from[i];
}

void pd_scale(float *to, const float *from, float by, int64_t n)
{
    scale(to, from, by, n);
}
