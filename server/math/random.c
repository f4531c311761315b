/* random.c - computes random numbers from a seed, a name, a key and an index. */
#include "random.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "convert.h"
#include "cpu.h"

PD_INLINE uint32_t turned(uint32_t x, int bits)
{
    return x << bits | x >> (32 - bits);
}

/* Does four rounds of the cipher Threefry on the two words x and y. The rounds rotate y by a, b, c and d bits. */
PD_INLINE void mix(uint32_t *x, uint32_t *y, int a, int b, int c, int d)
{
    *x += *y, *y = turned(*y, a) ^ *x;
    *x += *y, *y = turned(*y, b) ^ *x;
    *x += *y, *y = turned(*y, c) ^ *x;
    *x += *y, *y = turned(*y, d) ^ *x;
}

/* Encrypts a counter of two words, x and y. The key has three words. Two of them, in rotation, are added to the counter
 * before the first round, and after every fourth round. */
PD_INLINE void encipher(uint32_t k0, uint32_t k1, uint32_t *x, uint32_t *y)
{
    uint32_t k2 = 0x1bd11bda ^ k0 ^ k1;

    *x += k0, *y += k1;
    mix(x, y, 13, 15, 26, 6);
    *x += k1, *y += k2 + 1;
    mix(x, y, 17, 29, 16, 24);
    *x += k2, *y += k0 + 2;
    mix(x, y, 13, 15, 26, 6);
    *x += k0, *y += k1 + 3;
    mix(x, y, 17, 29, 16, 24);
    *x += k1, *y += k2 + 4;
    mix(x, y, 13, 15, 26, 6);
    *x += k2, *y += k0 + 5;
}

void pd_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2])
{
    uint32_t x = counter[0], y = counter[1];

    encipher(key[0], key[1], &x, &y);
    out[0] = x;
    out[1] = y;
}

pd_random pd_random_fold(pd_random stream, uint64_t number)
{
    const uint32_t counter[2] = { (uint32_t)number, (uint32_t)(number >> 32) };
    pd_random folded;

    pd_threefry(stream.key, counter, folded.key);
    return folded;
}

pd_random pd_random_stream(uint64_t seed, const char *name)
{
    pd_random stream = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    size_t n = strlen(name);

    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        for (size_t i = 0; i < sizeof word && at + i < n; i++) word |= (uint64_t)(unsigned char)name[at + i] << (8 * i);
        stream = pd_random_fold(stream, word);
    }
    /* The name's length is mixed into the stream's key last, so that "a" and "a\0" give different streams. */
    return pd_random_fold(stream, n);
}

enum { TILE = 1024 }; /* number of random words that are computed at a time; must be even */

/* Computes two random words for each of `pairs` counters. Their lower halves are low, low + 1, ...; all have the upper
 * half `high`. */
PD_CLONES(void, make_words, (pd_random key, uint32_t low, uint32_t high, uint32_t *words, int64_t pairs),
          (key, low, high, words, pairs))
{
    uint32_t k0 = key.key[0], k1 = key.key[1];

    for (int64_t i = 0; i < pairs; i++) {
        uint32_t x = low + (uint32_t)i, y = high;
        encipher(k0, k1, &x, &y);
        words[2 * i] = x;
        words[2 * i + 1] = y;
    }
}

/* Computes random words of a draw from word number `first` on, which must be even. Computes n words, rounded up to an
 * even number, but at most TILE, and fewer if the lower half of the counter would overflow. Returns the number of
 * words. */
static int64_t some_words(pd_random key, uint64_t first, uint32_t *words, int64_t n)
{
    uint64_t counter = first / 2, left = (UINT64_C(1) << 32) - (uint32_t)counter;
    int64_t pairs = (n < TILE ? n + 1 : TILE) / 2;

    if ((uint64_t)pairs > left) pairs = (int64_t)left;
    make_words(key, (uint32_t)counter, (uint32_t)(counter >> 32), words, pairs);
    return 2 * pairs;
}

typedef void numbers(const uint32_t *words, float *out, int64_t n);

static void draw(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n, numbers *make)
{
    pd_random folded = pd_random_fold(stream, key);
    uint32_t words[TILE];

    while (n > 0) {
        int64_t skipped = (int64_t)(first % 2),
                made = some_words(folded, first - (uint64_t)skipped, words, n + skipped) - skipped;
        if (made > n) made = n;
        make(words + skipped, out, made);
        first += (uint64_t)made;
        out += made;
        n -= made;
    }
}

PD_CLONES(void, uniform_numbers, (const uint32_t *words, float *out, int64_t n), (words, out, n))
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f;
}

void pd_random_uniform(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n)
{
    draw(stream, key, first, out, n, uniform_numbers);
}

/* Returns -log(y) for y in (0, 1], with an error of at most one unit in the last place or 2^-25, whichever is larger.
 * Splits y into 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). */
PD_INLINE float minus_log(float y)
{
    static const float q[] = { 0.33333311f,  -0.24999987f, 0.20002146f, -0.16669214f, 0.1422001f,
                               -0.12385593f, 0.11865249f,  -0.1178052f, 0.069205977f };
    const uint32_t root = 0x3f3504f3;
    int32_t shifted = (int32_t)(pd_f32_bits(y) - root);
    float e = (float)(shifted >> 23), f = pd_f32_from_bits(((uint32_t)shifted & 0x7fffffu) + root) - 1.0f;
    float sum = q[8];

    for (int i = 7; i >= 0; i--) sum = sum * f + q[i];
    return -(e * 0.693359375f + (f + (f * f * (f * sum - 0.5f) - e * 0.00021219444f)));
}

/* Returns a normally distributed number for a u that is uniform in (-1, 1): sqrt(2) erfinv(u), computed as u P(w) with
 * w = -log(1 - u^2). P is a polynomial in w - 2.5 for w < 5, and in sqrt(w) - 3 for larger w. Its coefficients are
 * fitted to relative errors of 6e-9. */
PD_INLINE float normal_of(float u)
{
    static const float middle[] = { 2.1233134f,      0.34880203f,     -0.0059077172f, -0.0017716446f, 0.00030878568f,
                                    -7.0192304e-06f, -4.8970037e-06f, 6.5926408e-07f, 3.2855891e-08f, -1.2432377e-08f };
    static const float tail[] = { 4.0064344f,     1.4165825f,    0.013358241f,    -0.010803993f,   0.0080369357f,
                                  -0.0050715599f, 0.0021163311f, -0.00011068562f, -0.00045152646f, 0.00018392589f };
    float size = fabsf(u), w = minus_log((1.0f - size) * (1.0f + size));
    bool central = w < 5.0f;
    float t = central ? w - 2.5f : sqrtf(w) - 3.0f, sum = central ? middle[9] : tail[9];

    for (int i = 8; i >= 0; i--) sum = sum * t + (central ? middle[i] : tail[i]);
    return u * sum;
}

PD_CLONES(void, all_normal_of, (const float *u, float *out, int64_t n), (u, out, n))
{
    for (int64_t i = 0; i < n; i++) out[i] = normal_of(u[i]);
}

/* Calls a static function that PD_CLONES defines, because PD_CLONES cannot define a function that other files call. */
void pd_random_normal_of(const float *u, float *out, int64_t n)
{
    all_normal_of(u, out, n);
}

/* Computes standard normal numbers from random words, as sqrt(2) erfinv(u). u is an odd multiple of 2^-24, so it is
 * never 0, -1 or 1. */
PD_CLONES(void, normal_numbers, (const uint32_t *words, float *out, int64_t n), (words, out, n))
{
    for (int64_t i = 0; i < n; i++)
        out[i] = normal_of((float)((int32_t)(words[i] >> 8) * 2 + 1 - (1 << 24)) * 0x1p-24f);
}

void pd_random_normal(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n)
{
    draw(stream, key, first, out, n, normal_numbers);
}
