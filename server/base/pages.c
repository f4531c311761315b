/* pages.c - allocates memory for tensors, on huge pages if it is large, and copies tensors. Large copies bypass the
 * cache. */
#include "pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu.h"

#define ALIGN ((size_t)64)
#define HUGE_PAGE ((size_t)2 << 20)

void *pd_pages_new(size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    void *at = NULL;

    if (bytes > PTRDIFF_MAX - ALIGN || posix_memalign(&at, align, bytes / ALIGN * ALIGN + ALIGN) != 0) return NULL;
    if (align == HUGE_PAGE) /* huge pages only save time, so an error is ignored */
        (void)madvise(at, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return at;
}

float *pd_floats_new(int64_t n)
{
    return n > (int64_t)(PTRDIFF_MAX / sizeof(float)) ? NULL : pd_pages_new((size_t)n * sizeof(float));
}

int64_t pd_floats_padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_CLONES
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    VECTOR = 32,
    STEP = 4,
    LINE = 64,                  /* bytes of a cache line */
    COPIED_PAST_CACHE = 1 << 18 /* copies of this many bytes or more bypass the cache */
};

typedef uint8_t vector __attribute__((vector_size(VECTOR), aligned(1), may_alias));

/* Copies `steps` times STEP vectors. The empty asm statement keeps the compiler from replacing the loop by memcpy. */
PD_CLONES(void, copy_steps, (uint8_t *restrict to, const uint8_t *restrict from, size_t steps), (to, from, steps))
{
    for (; steps > 0; steps--, to += STEP * VECTOR, from += STEP * VECTOR) {
        const vector *in = (const vector *)from;
        vector *out = (vector *)to, a = in[0], b = in[1], c = in[2], d = in[3];
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
        __asm__ volatile("" : : : "memory");
    }
}

static void copy_plainly(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t whole = n / (STEP * VECTOR) * (STEP * VECTOR);

    copy_steps(to, from, whole / (STEP * VECTOR));
    if (n > whole) memcpy(to + whole, from + whole, n - whole);
}

/* Copies whole cache lines with stores that bypass the cache, so the CPU need not read a line before it writes the
 * line. `to` must be the beginning of a cache line. Returns the number of bytes copied, 0 on CPUs other than x86-64. */
static size_t copy_lines_plainly(uint8_t *to, const uint8_t *from, size_t n)
{
#ifdef __SSE2__
    size_t whole = n / LINE * LINE;

    for (size_t i = 0; i < whole; i += LINE) {
        const __m128i *in = (const __m128i *)(from + i);
        __m128i *out = (__m128i *)(to + i), a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1),
                c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a), _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c), _mm_stream_si128(out + 3, d);
    }
    return whole;
#else
    (void)to, (void)from, (void)n;
    return 0;
#endif
}

#ifdef HAS_CLONES
/* Does the same with stores of half a line. Zen 4 takes a third longer with stores of 16 bytes. */
__attribute__((target("arch=x86-64-v3"))) static size_t copy_half_lines(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t whole = n / LINE * LINE;

    for (size_t i = 0; i < whole; i += LINE) {
        const __m256i *in = (const __m256i *)(from + i);
        __m256i *out = (__m256i *)(to + i), a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
        _mm256_stream_si256(out, a), _mm256_stream_si256(out + 1, b);
    }
    return whole;
}

__attribute__((target("arch=x86-64-v4"))) static size_t copy_whole_lines(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t whole = n / LINE * LINE;

    for (size_t i = 0; i < whole; i += LINE)
        _mm512_stream_si512((__m512i *)(to + i), _mm512_loadu_si512((const __m512i *)(from + i)));
    return whole;
}

static size_t copy_lines(uint8_t *to, const uint8_t *from, size_t n)
{
    if (pd_cpu_in_use == PD_CPU_AVX512) return copy_whole_lines(to, from, n);
    return pd_cpu_in_use == PD_CPU_AVX2 ? copy_half_lines(to, from, n) : copy_lines_plainly(to, from, n);
}
#else
static size_t copy_lines(uint8_t *to, const uint8_t *from, size_t n)
{
    return copy_lines_plainly(to, from, n);
}
#endif

void pd_past_cache(void *to, const void *from, size_t n)
{
    size_t head = -(uintptr_t)to % LINE, done = head < n ? head : n;

    copy_plainly(to, from, done);
    done += copy_lines((uint8_t *)to + done, (const uint8_t *)from + done, n - done);
    copy_plainly((uint8_t *)to + done, (const uint8_t *)from + done, n - done);
}

void pd_past_cache_end(void)
{
#ifdef __SSE2__
    _mm_sfence();
#endif
}

void pd_copy_bytes(void *to, const void *from, size_t n)
{
    if (n < COPIED_PAST_CACHE) {
        copy_plainly(to, from, n);
        return;
    }
    pd_past_cache(to, from, n);
    pd_past_cache_end(); /* otherwise another process could learn that the bytes are there before it can read them */
}
