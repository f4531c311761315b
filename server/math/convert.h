/* convert.h - element types to each other, with the bits of IEEE hardware. Pure; any thread. */
#ifndef PD_CONVERT_H
#define PD_CONVERT_H

#include "paramd/tensor.h"

#include <string.h>

#include "clones.h"

/* Elements [0, n) of `from` to those of `to`, which must not overlap, by way of float32: rounded to nearest even,
 * NaN stays NaN, what float16 cannot hold becomes infinite, subnormal numbers are kept. Equal types are copied bit
 * for bit. */
void pd_convert(void *to, pd_dtype to_type, const void *from, pd_dtype from_type, int64_t n);

/* ---- one element, for loops that convert on the way; without branches, so that they vectorise ---- */

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

/* condition ? yes : no, by a mask: compilers make jumps of several conditions on one value, and loops with jumps
 * stay scalar. */
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
    /* a NaN whose payload sits in the lost half stays one */
    uint32_t quiet = bits >> 16 | 0x40u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* A half's exponent and mantissa, moved into a float's place, read as its value times 2^-112: one exact product. */
PD_INLINE float pd_f32_from_f16(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t bits = pd_f32_bits(pd_f32_from_bits(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000u;                 /* infinite or NaN, payload kept */

    return pd_f32_from_bits((magnitude >= 0x0f800000u ? special : bits) | (uint32_t)(h & 0x8000u) << 16);
}

PD_INLINE uint16_t pd_f16_from_f32(float x)
{
    uint32_t bits = pd_f32_bits(x), a = bits & 0x7fffffffu;
    uint32_t normal = (a + 0xfffu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    /* the last place of 0.5f is 2^-24, a half's smallest step */
    uint32_t tiny = pd_f32_bits(pd_f32_from_bits(a) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | (a >> 13 & 0x3ffu);
    uint32_t h = pd_choose(a < 0x38800000u, tiny, normal);

    h = pd_choose(a >= 0x477ff000u, 0x7c00u, h);                /* from 65520 on: infinite */
    h = pd_choose(a > 0x7f800000u, nan, h);
    return (uint16_t)(h | (bits >> 16 & 0x8000u));
}

#endif
