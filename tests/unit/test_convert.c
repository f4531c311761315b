/* Tests conversions between float32, float16 and bfloat16 on every value. */
#include "test.h"
#include "convert.h"

/* A number format by its definition, in float64: `digits` significant bits (with the leading one), exponents from
 * `least` to `most`. */

typedef struct format {
    pd_dtype dtype;
    int digits, least, most, fraction_bits;
} format;
static const format half = { PD_F16, 11, -14, 15, 10 }, brain = { PD_BF16, 8, -126, 127, 7 };

static double value_of(const format *f, uint16_t h)
{
    int exponent = (h & 0x7fff) >> f->fraction_bits, fraction = h & ((1 << f->fraction_bits) - 1);
    double sign = h & 0x8000 ? -1 : 1;

    if (exponent == f->most - f->least + 2) return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, f->least - f->fraction_bits);
    return sign * ldexp(fraction + (1 << f->fraction_bits), exponent - 1 + f->least - f->fraction_bits);
}

static double rounded(const format *f, double x)
{
    int exponent;
    double step;

    if (isnan(x) || isinf(x) || x == 0) return x;
    frexp(x, &exponent);
    exponent = exponent - 1 < f->least ? f->least : exponent - 1;
    step = ldexp(1, exponent - f->digits + 1);
    x = nearbyint(x / step) * step;
    return fabs(x) >= ldexp(1, f->most + 1) ? copysign((double)INFINITY, x) : x;
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void reads_every_pattern(const format *f)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t in = (uint16_t)h;
        float out;
        pd_convert(&out, PD_F32, &in, f->dtype, 1);
        assert_true(same((double)out, value_of(f, in)));
    }
}

/* Checks that numbers are rounded to the nearest 16-bit number, ties to even. The numbers lie next to every 16-bit
 * number and next to every midpoint of two neighbours, or are random bits. */
static void rounds_to_nearest_even(const format *f)
{
    enum { N = 64 };
    uint32_t random = 12345;

    for (uint32_t high = 0; high < 0x10000; high++) {
        uint32_t base = f->dtype == PD_BF16 ? high << 16 : 0, bits[N];
        float from[N], f32 = (float)value_of(f, (uint16_t)high), next;
        uint16_t to[N];
        int n = 0;

        if (f->dtype == PD_F16) base = pd_f32_bits(f32);
        next = (float)value_of(f, (uint16_t)(high + 1));
        for (int d = -2; d <= 2; d++) {
            bits[n++] = base + (uint32_t)d;
            bits[n++] = pd_f32_bits(f32 / 2 + next / 2) + (uint32_t)d;
        }
        while (n < N) bits[n++] = random = random * 1664525u + 1013904223u;
        memcpy(from, bits, sizeof from);
        pd_convert(to, f->dtype, from, PD_F32, N);
        for (int i = 0; i < N; i++) assert_true(same(value_of(f, to[i]), rounded(f, (double)from[i])));
    }
}

HOLDS(reads_every_float16, reads_every_pattern(&half));
HOLDS(reads_every_bfloat16, reads_every_pattern(&brain));
HOLDS(rounds_float16_to_nearest_even, rounds_to_nearest_even(&half));
HOLDS(rounds_bfloat16_to_nearest_even, rounds_to_nearest_even(&brain));

TEST(keeps_a_nan_whose_payload_is_cut_off)
{
    float nan = pd_f32_from_bits(0x7f800001);
    uint16_t h, b;

    pd_convert(&h, PD_F16, &nan, PD_F32, 1);
    pd_convert(&b, PD_BF16, &nan, PD_F32, 1);
    assert_true(isnan(value_of(&half, h)));
    assert_true(isnan(value_of(&brain, b)));
}

TEST(copies_equal_types_bit_for_bit)
{
    uint32_t in[3] = { 0x7f800001, 0x80000000, 1 }, out[3];

    pd_convert(out, PD_F32, in, PD_F32, 3);
    assert_memory_equal(in, out, sizeof in);
}

TEST(goes_between_the_short_types_by_way_of_float32)
{
    enum { N = 3000 };
    uint16_t *from = malloc(N * sizeof *from), *direct = malloc(N * sizeof *direct),
             *by_way = malloc(N * sizeof *by_way);
    float *middle = malloc(N * sizeof *middle);

    for (int i = 0; i < N; i++) from[i] = (uint16_t)(i * 21);
    pd_convert(direct, PD_BF16, from, PD_F16, N);
    pd_convert(middle, PD_F32, from, PD_F16, N);
    pd_convert(by_way, PD_BF16, middle, PD_F32, N);
    assert_memory_equal(direct, by_way, N * sizeof *direct);
    free(from);
    free(direct);
    free(by_way);
    free(middle);
}
