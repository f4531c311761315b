#include "kernels.h"

#include "convert.h"
#include "dispatch.h"

/* A run of acc that stays in the first-level cache while the addends pass over it. */
enum { TILE = 2048 };

PD_INLINE bool finite_bits(uint32_t bits)
{
    return (bits & 0x7fffffffu) < 0x7f800000u;
}

/* ---- accumulation: one function for each element type, first product or further one ---- */

#define ACCUMULATE(name, type, value, op)                                                               \
    PD_CLONES static void name(float *restrict acc, const void *from, float w, int64_t n)               \
    {                                                                                                   \
        const type *restrict x = from;                                                                  \
        for (int64_t i = 0; i < n; i++) acc[i] op w * value(x[i]);                                      \
    }

ACCUMULATE(set_f32, float, , =)
ACCUMULATE(add_f32, float, , +=)
ACCUMULATE(set_f16, uint16_t, pd_f32_from_f16, =)
ACCUMULATE(add_f16, uint16_t, pd_f32_from_f16, +=)
ACCUMULATE(set_bf16, uint16_t, pd_f32_from_bf16, =)
ACCUMULATE(add_bf16, uint16_t, pd_f32_from_bf16, +=)

static void add_one(float *acc, const pd_addend *x, int64_t offset, int64_t n, bool first)
{
    const char *at = (const char *)x->at + (size_t)offset * pd_dtype_size(x->dtype);

    switch (x->dtype) {
    case PD_F32:  (first ? set_f32 : add_f32)(acc, at, x->weight, n); break;
    case PD_F16:  (first ? set_f16 : add_f16)(acc, at, x->weight, n); break;
    case PD_BF16: (first ? set_bf16 : add_bf16)(acc, at, x->weight, n); break;
    }
}

PD_CLONES static bool finite_f32(const float *x, int64_t n)
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) bad |= !finite_bits(pd_f32_bits(x[i]));
    return !bad;
}

PD_CLONES static void divide(float *x, float divisor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] /= divisor;
}

bool pd_accumulate(float *acc, int64_t n, bool resume, const pd_addend *x, int k, float divisor)
{
    bool finite = true;

    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;

        for (int j = 0; j < k; j++) add_one(acc + i, &x[j], i, some, j == 0 && !resume);
        if (k == 0 && !resume) memset(acc + i, 0, (size_t)some * sizeof *acc);
        if (divisor != 1.0f) divide(acc + i, divisor, some);
        finite &= finite_f32(acc + i, some);
    }
    return finite;
}

/* ---- finiteness ---- */

PD_CLONES static bool finite_16(const uint16_t *x, uint16_t exponent, int64_t n)
{
    uint16_t bad = 0;

    for (int64_t i = 0; i < n; i++) bad |= (uint16_t)((x[i] & exponent) == exponent);
    return !bad;
}

bool pd_all_finite(const void *at, pd_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i += TILE) {             /* tiles: a bad element near the front ends the search */
        int64_t some = n - i < TILE ? n - i : TILE;
        const char *tile = (const char *)at + (size_t)i * pd_dtype_size(dtype);
        bool finite = dtype == PD_F32 ? finite_f32((const void *)tile, some)
                                      : finite_16((const void *)tile, dtype == PD_F16 ? 0x7c00 : 0x7f80, some);
        if (!finite) return false;
    }
    return true;
}

/* ---- sums ---- */

typedef float  floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef double doubles __attribute__((vector_size(64)));

PD_INLINE double fold(const doubles *low, const doubles *high)
{
    doubles lane = *low + *high;

    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* The last n < 16 elements, padded with zeros to whole lanes. */
PD_INLINE void load_tail(float *tail, const float *x, int64_t n)
{
    memset(tail, 0, 16 * sizeof *tail);
    memcpy(tail, x, (size_t)n * sizeof *tail);
}

PD_CLONES double pd_dot(const float *x, const float *y, int64_t n)
{
    doubles low = { 0 }, high = { 0 };
    float a[16], b[16];
    int64_t i;

    for (i = 0; i + 16 <= n; i += 16) {
        low += __builtin_convertvector(*(const floats *)(x + i), doubles) * __builtin_convertvector(*(const floats *)(y + i), doubles);
        high += __builtin_convertvector(*(const floats *)(x + i + 8), doubles) * __builtin_convertvector(*(const floats *)(y + i + 8), doubles);
    }
    if (i < n) {
        load_tail(a, x + i, n - i);
        load_tail(b, y + i, n - i);
        low += __builtin_convertvector(*(const floats *)a, doubles) * __builtin_convertvector(*(const floats *)b, doubles);
        high += __builtin_convertvector(*(const floats *)(a + 8), doubles) * __builtin_convertvector(*(const floats *)(b + 8), doubles);
    }
    return fold(&low, &high);
}

double pd_sum_squares(const float *x, int64_t n)
{
    return pd_dot(x, x, n);
}
