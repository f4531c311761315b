/* convert.h - converts elements between float32, float16 and bfloat16, and to integer codes. Rounds as the instructions
 * of IEEE hardware do, bit for bit. Pure functions; any thread. */
#ifndef PD_CONVERT_H
#define PD_CONVERT_H

#include "paramd/tensor.h"

#include <string.h>

#include "cpu.h"

/* Converts elements [0, n) of `from` into `to`, which must not overlap. Values are converted to float32 and then
 * rounded to nearest even. NaN stays NaN, a value that float16 cannot hold becomes infinite, and subnormal numbers are
 * kept. Equal types are copied bit for bit. */
void pd_convert(void *to, pd_dtype to_type, const void *from, pd_dtype from_type, int64_t n);
/* Converts float16 or bfloat16 elements to float32 like pd_convert, but writes them past the cache (pages.h). For
 * outputs that are part of PD_BEYOND_CACHE bytes or more. */
void pd_widen_past_cache(float *to, const void *from, pd_dtype from_type, int64_t n);

/* Makes the calling thread round to nearest. Returns its rounding mode until now, for pd_round_by. */
int pd_round_to_nearest(void);
/* Sets the rounding mode that pd_round_to_nearest has returned. */
void pd_round_by(int mode);

PD_INLINE uint32_t pd_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

PD_INLINE float pd_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns `condition ? yes : no`, computed with a bit mask. Compilers turn several conditions on one value into jumps,
 * and do not vectorize loops with jumps. */
PD_INLINE uint32_t pd_choose(bool condition, uint32_t yes, uint32_t no)
{
    return no ^ ((no ^ yes) & -(uint32_t)condition);
}

PD_INLINE float pd_f32_from_bf16(uint16_t h)
{
    return pd_f32_from_bits((uint32_t)h << 16);
}

PD_INLINE uint16_t pd_bf16_from_f32(float x)
{
    uint32_t bits = pd_f32_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    /* Sets a bit of the mantissa, so that a NaN stays a NaN when the lower half of the float32 is cut off. */
    uint32_t quiet = bits >> 16 | 0x40u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* Converts a float16 to float32 by moving its exponent and mantissa into their places in a float32. The two types have
 * different exponent biases, so the float32 is then the value times 2^-112. Multiplication by 2^112, which is exact,
 * corrects it. */
PD_INLINE float pd_f32_from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t bits = pd_f32_bits(pd_f32_from_bits(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000u; /* the result if the float16 is infinite or NaN; a NaN keeps its
                                                 * payload */

    return pd_f32_from_bits((magnitude >= 0x0f800000u ? special : bits) | (uint32_t)(h & 0x8000u) << 16);
}

/* Rounds |x| to float16 by adding to it 2^13 times the largest power of two that is at most |x|. The last place of the
 * sum, a float32, has the value of the last place of the float16, so the addition rounds |x| there, and the lowest bits
 * of the sum are the mantissa of the float16. A carry out of the mantissa raises the exponent, as it must. Below 2^-14
 * the last place of a float16 has a fixed value, so the power is at least 2^-14.
 *
 * |x| is first limited to 65536, which becomes infinity in float16, as does every value from 65520 on. A NaN is
 * limited, too, and then gets its mantissa back. */
PD_INLINE uint16_t pd_f16_from_f32(float x)
{
    int32_t bits = (int32_t)pd_f32_bits(x), magnitude = bits & 0x7fffffff;
    int32_t finite = magnitude < 0x47800000 ? magnitude : 0x47800000; /* at most 65536 */
    int32_t power = finite & 0x7f800000;
    /* mantissa of a NaN in float16; 0 if x is a number */
    int32_t nan = (0x7f800000 - magnitude) >> 31 & (0x200 | (magnitude >> 13 & 0x3ff));
    float places;
    uint32_t half;

    /* `power` is the largest power of two that is at most |x|, but at least 2^-14, the smallest normal number of
     * float16. */
    power = power > 0x38800000 ? power : 0x38800000;
    places = pd_f32_from_bits((uint32_t)power + (13u << 23));
    half = (pd_f32_bits(pd_f32_from_bits((uint32_t)finite) + places) & 0xfff) + ((uint32_t)(power - 0x38800000) >> 13);
    return (uint16_t)(half | (uint32_t)nan | ((uint32_t)bits >> 16 & 0x8000u));
}

/* Returns x / divisor, rounded to the nearest integer, and from a half to the even integer. NaN gives 0, and a quotient
 * beyond `most`, which is at most 32767, gives `most`. The addition rounds: from 2^23 on, neighbouring float32 numbers
 * are integers. The sum's lowest 16 bits are the code's. The thread must round to nearest (pd_round_to_nearest). */
PD_INLINE int32_t pd_code_from_f32(float x, float divisor, float most)
{
    uint32_t bits = pd_f32_bits(x / divisor), sign = bits & 0x80000000u;
    int32_t magnitude = (int32_t)(bits ^ sign), limit = (int32_t)pd_f32_bits(most);

    magnitude = (int32_t)pd_choose(magnitude > 0x7f800000, 0, (uint32_t)magnitude);
    magnitude = magnitude < limit ? magnitude : limit;
    return (int16_t)pd_f32_bits(pd_f32_from_bits((uint32_t)magnitude | sign) + 0x1.8p23f);
}

#endif
