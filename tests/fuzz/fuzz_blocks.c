/* Reads any bytes as a piece of a quantized type. Parts have the values of the whole, sums are those of the values, and
 * any numbers can be encoded. */
#include <stdlib.h>
#include <string.h>

#include "block_codec.h"
#include "kernels.h"
#include "seed.h"

enum { MOST = 700 };

/* Returns the largest number of elements whose bytes fit into `bytes`. */
static int64_t elements_in(pd_dtype dtype, size_t bytes)
{
    int64_t n = MOST;

    while (n > 0 && pd_dtype_bytes(dtype, (uint64_t)n) > bytes) n--;
    return n;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static void read_parts(pd_dtype dtype, const void *piece, int64_t n, int64_t first)
{
    float whole[MOST], part[MOST], sum[MOST];
    pd_vector_run run = pd_vector_run_of(piece, dtype, first, n);
    pd_addend addend = { run, 1 };
    bool finite = true;

    pd_blocks_decode(whole, dtype, piece, n, 0, n);
    pd_vector_run_read(part, &run, 0, n - first);
    pd_accumulate(sum, n - first, false, &addend, 1, 1);
    for (int64_t i = first; i < n; i++) {
        MUST(same(whole[i], part[i - first]) && same(whole[i], sum[i - first]));
        finite = finite && whole[i] - whole[i] == 0;
    }
    MUST(pd_vector_run_is_finite(&run, 0, n - first) == finite);
}

static void encode(pd_dtype dtype, const void *bytes, int64_t n)
{
    float x[MOST], rest[MOST] = { 0 };
    uint8_t *piece = malloc((size_t)pd_dtype_bytes(dtype, (uint64_t)n) + 1);

    memcpy(x, bytes, (size_t)n * sizeof *x);
    pd_blocks_encode(piece, dtype, x, n);
    pd_blocks_rest(rest, x, dtype, piece, n);
    for (int64_t i = 0; i < n; i++) MUST(rest[i] - rest[i] == 0);
    free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pd_dtype dtype;
    uint8_t *bytes;
    int64_t n;

    if (size < 3) return 0;
    dtype = data[0] % 2 == 0 ? PD_INT8 : PD_INT4;
    n = elements_in(dtype, size - 3);
    /* A copy of exactly the piece's bytes: reading past it is found. */
    bytes = malloc((size_t)pd_dtype_bytes(dtype, (uint64_t)n) + 1);
    memcpy(bytes, data + 3, (size_t)pd_dtype_bytes(dtype, (uint64_t)n));
    read_parts(dtype, bytes, n, (data[1] + 256 * data[2]) % (n + 1));
    free(bytes);
    encode(dtype, data + 3,
           (int64_t)((size - 3) / sizeof(float)) < MOST ? (int64_t)((size - 3) / sizeof(float)) : MOST);
    return 0;
}

static void make_seeds(const char *folder)
{
    uint8_t seed[3 + 4 * MOST] = { 0 };
    float x[200], piece[200];

    for (int i = 0; i < 200; i++) x[i] = (float)(i * i % 97) / 7 - 5;
    pd_blocks_encode(piece, PD_INT8, x, 200);
    memcpy(seed + 3, piece, pd_dtype_bytes(PD_INT8, 200));
    write_seed(folder, "int8", seed, 3 + pd_dtype_bytes(PD_INT8, 200));
    seed[0] = 1;
    seed[1] = 77;
    pd_blocks_encode(piece, PD_INT4, x, 199);
    memcpy(seed + 3, piece, pd_dtype_bytes(PD_INT4, 199));
    write_seed(folder, "int4", seed, 3 + pd_dtype_bytes(PD_INT4, 199));
    memcpy(seed + 3, x, sizeof x);
    write_seed(folder, "floats", seed, 3 + sizeof x);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return seed_if_asked(make_seeds);
}
