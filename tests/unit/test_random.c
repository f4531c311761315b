/* Tests random numbers that depend only on where they are used: the cipher against published answers, how numbers
 * are made from it, and the statistics of the numbers. */
#include "test.h"
#include "random.h"

enum { MANY = 1 << 20 };

/* Published test vectors of Random123 for threefry2x32 with 20 rounds: zeros, ones, digits of pi. */
TEST(the_cipher_gives_the_published_answers)
{
    static const struct {
        uint32_t counter[2], key[2], out[2];
    } known[] = {
        { { 0, 0 }, { 0, 0 }, { 0x6b200159, 0x99ba4efe } },
        { { 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff }, { 0x1cb996fc, 0xbb002be7 } },
        { { 0x243f6a88, 0x85a308d3 }, { 0x13198a2e, 0x03707344 }, { 0xc4923a9c, 0x483df7a0 } },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[2];
        pd_threefry(known[i].key, known[i].counter, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static bool same_stream(pd_random a, pd_random b)
{
    return a.key[0] == b.key[0] && a.key[1] == b.key[1];
}

TEST(a_fold_enciphers_its_number)
{
    pd_random stream = { { 0x13198a2e, 0x03707344 } }, folded = pd_random_fold(stream, UINT64_C(0x85a308d3243f6a88));

    assert_int_equal(folded.key[0], 0xc4923a9c);
    assert_int_equal(folded.key[1], 0x483df7a0);
}

static pd_random plain(uint64_t seed)
{
    return (pd_random){ { (uint32_t)seed, (uint32_t)(seed >> 32) } };
}

/* The name is folded into the seed eight bytes at a time, first byte lowest. Then the length of the name is folded
 * in. */
TEST(a_stream_folds_its_name_into_the_seed)
{
    uint64_t seed = UINT64_C(0x123456789abcdef0);
    pd_random twelve = pd_random_fold(pd_random_fold(plain(seed), UINT64_C(0x6867666564636261)), 0x6c6b6a69);

    assert_true(same_stream(pd_random_stream(seed, ""), pd_random_fold(plain(seed), 0)));
    assert_true(same_stream(pd_random_stream(seed, "\xff"), pd_random_fold(pd_random_fold(plain(seed), 0xff), 1)));
    assert_true(same_stream(pd_random_stream(seed, "abcdefghijkl"), pd_random_fold(twelve, 12)));
}

TEST(streams_differ_by_seed_name_and_fold)
{
    static const char *const names[] = { "",         "a",          "b",         "ab",         "ba",
                                         "abcdefgh", "abcdefgh\1", "abcdefghi", "layers.0.w", "layers.1.w" };
    pd_random streams[200];
    size_t n = 0;

    for (uint64_t seed = 0; seed < 4; seed++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            streams[n] = pd_random_stream(seed < 2 ? seed : seed << 32, names[i]);
            streams[n + 1] = pd_random_fold(streams[n], 1);
            n += 2;
        }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) assert_false(same_stream(streams[i], streams[k]));
}

typedef void draw_function(pd_random stream, uint64_t key, uint64_t first, float *out, int64_t n);

static uint32_t word_of(pd_random stream, uint64_t key, uint64_t i)
{
    pd_random folded = pd_random_fold(stream, key);
    uint32_t counter[2] = { (uint32_t)(i / 2), (uint32_t)(i / 2 >> 32) }, out[2];

    pd_threefry(folded.key, counter, out);
    return out[i % 2];
}

static float uniform_of(uint32_t word)
{
    return ldexpf((float)(word / 256), -24);
}

static float normal_of(uint32_t word)
{
    float u = (float)(ldexp((double)(2 * (int64_t)(word / 256) + 1), -24) - 1), z;

    pd_random_normal_of(&u, &z, 1);
    return z;
}

TEST(number_i_is_made_of_word_i)
{
    static const uint64_t starts[] = { 0, 1, 7, (UINT64_C(1) << 33) - 5, (UINT64_C(1) << 33) + 3, UINT64_MAX / 2 };
    pd_random stream = pd_random_stream(5, "w");
    float uniform[2100], normal[2100];

    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
        pd_random_uniform(stream, 3, starts[s], uniform, 2100);
        pd_random_normal(stream, 3, starts[s], normal, 2100);
        for (uint64_t i = 0; i < 2100; i++) {
            uint32_t word = word_of(stream, 3, starts[s] + i);
            assert_true(uniform[i] == uniform_of(word));
            assert_true(normal[i] == normal_of(word));
        }
    }
}

static void assert_cuts_do_not_matter(draw_function *draw, uint64_t start)
{
    static float whole[10000], parts[10000];
    pd_random stream = pd_random_stream(1, "cut");

    draw(stream, 9, start, whole, 10000);
    for (int64_t most = 1; most < 3000; most = most * 3 + 1) {
        memset(parts, 0, sizeof parts);
        for (int64_t at = 0, n; at < 10000; at += n) {
            n = 1 + (at * 7919) % most;
            if (n > 10000 - at) n = 10000 - at;
            draw(stream, 9, start + (uint64_t)at, parts + at, n);
        }
        assert_memory_equal(parts, whole, sizeof whole);
    }
}

TEST(cuts_do_not_matter)
{
    for (uint64_t start = 0; start < 2; start++) {
        assert_cuts_do_not_matter(pd_random_uniform, start);
        assert_cuts_do_not_matter(pd_random_normal, start + (UINT64_C(1) << 33) - 3000);
    }
}

TEST(nothing_beyond_the_last_number_is_written)
{
    float out[4] = { 7, 7, 7, 7 };

    pd_random_normal(pd_random_stream(1, ""), 0, 0, out, 0);
    assert_true(out[0] == 7);
    pd_random_normal(pd_random_stream(1, ""), 0, 1, out, 1);
    assert_true(out[0] != 7 && out[1] == 7);
    pd_random_uniform(pd_random_stream(1, ""), 0, 0, out, 3);
    assert_true(out[2] != 7 && out[3] == 7);
}

TEST(draws_of_other_keys_are_others)
{
    pd_random stream = pd_random_stream(1, "w");
    float a[64], b[64];

    pd_random_uniform(stream, 1, 0, a, 64);
    for (uint64_t key = 0; key < 64; key++) {
        int same = 0;
        if (key == 1) continue;
        pd_random_uniform(stream, key < 32 ? key : key << 32, 0, b, 64);
        for (int i = 0; i < 64; i++) same += a[i] == b[i];
        assert_in_range(same, 0, 1);
    }
}

static float *drawn(draw_function *draw)
{
    float *x = malloc(MANY * sizeof *x);

    assert_non_null(x);
    draw(pd_random_stream(77, "moments"), 4, 0, x, MANY);
    return x;
}

/* Checks that the mean of MANY numbers is within five standard errors of `expected`. `sum` is the sum of the
 * numbers, `deviation` the standard deviation of one of them. */
static void assert_mean(double sum, double expected, double deviation)
{
    double mean = sum / MANY;

    if (!(fabs(mean - expected) < 5 * deviation / sqrt(MANY))) fail_msg("mean %.6f, expected %.6f", mean, expected);
}

TEST(uniform_numbers_fill_their_interval_evenly)
{
    float *x = drawn(pd_random_uniform);
    double sum = 0, squares = 0, next = 0, chi = 0;
    int count[256] = { 0 };

    for (int i = 0; i < MANY; i++) {
        double d = (double)x[i] - 0.5;
        assert_true(x[i] >= 0 && x[i] < 1);
        sum += d, squares += d * d, next += d * ((double)x[i ^ 1] - 0.5);
        count[(int)(x[i] * 256)]++;
    }
    for (int k = 0; k < 256; k++) chi += (count[k] - MANY / 256.0) * (count[k] - MANY / 256.0) / (MANY / 256.0);
    assert_mean(sum, 0, sqrt(1 / 12.0));
    assert_mean(squares, 1 / 12.0, sqrt(1 / 180.0));
    assert_mean(next, 0, sqrt(2) / 12); /* the covariance of two neighbouring numbers; the sum counts each pair twice */
    assert_true(chi > 255 - 5 * sqrt(2 * 255) && chi < 255 + 5 * sqrt(2 * 255));
    free(x);
}

TEST(normal_numbers_have_the_moments_of_a_normal_distribution)
{
    float *x = drawn(pd_random_normal);
    double first = 0, second = 0, third = 0, fourth = 0, next = 0, beyond = 0;

    for (int i = 0; i < MANY; i++) {
        double z = (double)x[i];
        first += z, second += z * z, third += z * z * z, fourth += z * z * z * z;
        next += z * (double)x[(i + 1) % MANY];
        beyond += fabs(z) > 3;
    }
    assert_mean(first, 0, 1);
    assert_mean(second, 1, sqrt(2));
    assert_mean(third, 0, sqrt(15));
    assert_mean(fourth, 3, sqrt(96));
    assert_mean(next, 0, 1);
    assert_mean(beyond, 0.0026998, sqrt(0.0026998));
    free(x);
}

/* Returns the error of z as the quantile for u, in units of z's last place. The absolute value of a normal variable
 * exceeds the exact quantile with probability 1 - |u|. The error of this probability, divided by the slope of erf,
 * is the error of z. */
static double off_by(float u, float z)
{
    double size = fabs((double)z), p = fabs((double)u);
    double gap = p < 0.5 ? erf(size / sqrt(2)) - p : (1 - p) - erfc(size / sqrt(2));
    double slope = sqrt(2 / acos(-1)) * exp(-size * size / 2);

    return fabs(gap / slope) / (double)(nextafterf(fabsf(z), INFINITY) - fabsf(z));
}

TEST(quantiles_are_right_to_a_few_units_in_the_last_place)
{
    double worst = 0;

    for (int64_t k = 1; k < 1 << 24; k += k < 4096 || k > (1 << 24) - 4096 ? 1 : 61) {
        float u = ldexpf((float)k, -24), z;
        double off;
        pd_random_normal_of(&u, &z, 1);
        off = off_by(u, z);
        if (off > worst) worst = off;
    }
    print_message("worst: %.2f units in the last place\n", worst);
    assert_true(worst < 4);
}

TEST(quantiles_are_odd_and_grow)
{
    float last = 0;

    for (int64_t k = 0; k < 1 << 24; k += 4099) {
        float u = ldexpf((float)k, -24), minus = -u, z, of_minus;
        pd_random_normal_of(&u, &z, 1);
        pd_random_normal_of(&minus, &of_minus, 1);
        assert_true(of_minus == -z);
        assert_true(k == 0 ? z == 0 : z > last);
        last = z;
    }
}

TEST(extreme_words_give_the_ends_of_the_distribution)
{
    static const float least = -5.4199832f; /* a normal variable is smaller than this with probability 2^-25 */

    assert_true(fabsf(normal_of(0) - least) < 2e-6f);
    assert_true(normal_of(UINT32_MAX) == -normal_of(0));
    assert_true(normal_of(UINT32_C(0x80000000)) > 0 && normal_of(UINT32_C(0x80000000)) < 1e-7f);
    assert_true(normal_of(UINT32_C(0x7fffffff)) == -normal_of(UINT32_C(0x80000000)));
}

/* Compares a checksum with a constant: all machines, compilers and instruction sets must give the same bits. */
TEST(the_bits_are_these)
{
    static const uint64_t expected = UINT64_C(0x127db17816b6efe3);
    float x[4096];
    uint64_t sum = 0;

    pd_random_normal(pd_random_stream(UINT64_C(0xfeedfacecafe), "bits"), 11, 12345, x, 4096);
    for (int i = 0; i < 4096; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum = sum * UINT64_C(6364136223846793005) + bits;
    }
    if (sum != expected) fail_msg("%#llx", (unsigned long long)sum);
}
