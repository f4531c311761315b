/* convert.c - converts tensors between float32, float16 and bfloat16. convert.h converts one element. */
#include "convert.h"

#include <fenv.h>
#include <stdalign.h>

#include "pages.h"

enum { TILE = 1024 };

int pd_round_to_nearest(void)
{
    int mode = fegetround();

    if (mode != FE_TONEAREST) fesetround(FE_TONEAREST);
    return mode;
}

void pd_round_by(int mode)
{
    if (mode != FE_TONEAREST) fesetround(mode);
}

PD_CLONES(void, widen_f16, (float *restrict to, const uint16_t *restrict from, int64_t n), (to, from, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = pd_f32_from_f16(from[i]);
}

PD_CLONES(void, widen_bf16, (float *restrict to, const uint16_t *restrict from, int64_t n), (to, from, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = pd_f32_from_bf16(from[i]);
}

PD_CLONES(void, narrow_f16_plainly, (uint16_t *restrict to, const float *restrict from, int64_t n), (to, from, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = pd_f16_from_f32(from[i]);
}

PD_CLONES(void, narrow_bf16, (uint16_t *restrict to, const float *restrict from, int64_t n), (to, from, n))
{
    for (int64_t i = 0; i < n; i++) to[i] = pd_bf16_from_f32(from[i]);
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

/* Does what narrow_f16_plainly does, bit for bit, with the instruction that x86-64-v3 has for it. */
__attribute__((target("arch=x86-64-v3"))) static void narrow_f16_by_8(uint16_t *restrict to, const float *restrict from,
                                                                      int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) to[i] = pd_f16_from_f32(from[i]);
}

static void narrow_f16(uint16_t *to, const float *from, int64_t n)
{
    (pd_cpu_in_use >= PD_CPU_AVX2 ? narrow_f16_by_8 : narrow_f16_plainly)(to, from, n);
}
#else
static void narrow_f16(uint16_t *to, const float *from, int64_t n)
{
    narrow_f16_plainly(to, from, n);
}
#endif

static void widen(float *to, const void *from, pd_dtype from_type, int64_t n)
{
    if (from_type == PD_F16)
        widen_f16(to, from, n);
    else
        widen_bf16(to, from, n);
}

static void narrow(void *to, pd_dtype to_type, const float *from, int64_t n)
{
    if (to_type == PD_F16)
        narrow_f16(to, from, n);
    else
        narrow_bf16(to, from, n);
}

void pd_convert(void *to, pd_dtype to_type, const void *from, pd_dtype from_type, int64_t n)
{
    float tile[TILE];

    if (to_type == from_type) {
        if (n > 0) memcpy(to, from, (size_t)n * pd_dtype_size(to_type));
        return;
    }
    if (to_type == PD_F32) {
        widen(to, from, from_type, n);
        return;
    }
    if (from_type == PD_F32) {
        narrow(to, to_type, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        widen(tile, (const uint16_t *)from + i, from_type, some);
        narrow((uint16_t *)to + i, to_type, tile, some);
    }
}

void pd_widen_past_cache(float *to, const void *from, pd_dtype from_type, int64_t n)
{
    alignas(64) float tile[TILE];

    for (int64_t i = 0; i < n; i += TILE) {
        int64_t some = n - i < TILE ? n - i : TILE;
        widen(tile, (const uint16_t *)from + i, from_type, some);
        pd_past_cache(to + i, tile, (size_t)some * sizeof *tile);
    }
    pd_past_cache_end();
}
