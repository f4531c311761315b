/* quantize_bandwidth, convert_bandwidth, robust_bandwidth, q4_kernels: the bytes per second that a group of kernels
 * moves, divided by the bandwidth of a triad, a[i] = b[i] + s c[i], with as many threads in the same memory. Each run
 * is compared with the triad after it, and the median of the ratios counts. The figure is the ratio of the group's
 * slowest kernel.
 *
 * An array counts once for each time that it must be read or written. Quantizing reads a matrix twice: for the sizes of
 * its buckets, and for its codes.
 *
 * Kernels write past the cache where a job of this size does (PD_BEYOND_CACHE).
 *
 * q4_kernels adds one contribution in int8 or int4 to a sum, which is read and written.
 *
 *     figure_kernel_bandwidth quantize|convert|robust|add [MEBI_ELEMENTS]          64 by default */

#include "block_codec.h"
#include "convert.h"
#include "cpu.h"
#include "figure.h"
#include "kernels.h"
#include "pages.h"
#include "quantize.h"
#include "robust.h"
#include "triad.h"

/* SIDE: rows and columns of a quantized matrix. RANGE: elements that a thread converts or averages at a time. */
enum { ROUNDS = 9, WARM = 2, SIDE = 1024, RANGE = 1 << 16, VECTORS = 8, PER_MATRIX = SIDE * SIDE };

/* The arrays of a run. `n` elements of float32 are read or written by each kernel. */
typedef struct arrays {
    int64_t n;
    int threads;
    float *x, *y, *z;             /* n elements each */
    char *codes;                  /* the other form of the elements */
    const float *vector[VECTORS]; /* vectors of n / VECTORS elements: parts of x */
} arrays;

static bool is_past_cache(const arrays *a)
{
    return a->n * (int64_t)sizeof(float) >= PD_BEYOND_CACHE;
}

static pd_quantized matrix_of(const arrays *a, pd_storage storage, int64_t i)
{
    return pd_quantized_at(a->codes + i * pd_quantized_room(PD_STORE_INT16, false, SIDE, SIDE), storage, false, SIDE,
                           SIDE);
}

static void quantize(const arrays *a, int form, int64_t i)
{
    pd_quantized q = matrix_of(a, (pd_storage)form, i);
    pd_quantize(&q, a->x + i * PER_MATRIX);
}

static void dequantize(const arrays *a, int form, int64_t i)
{
    pd_quantized q = matrix_of(a, (pd_storage)form, i);
    (is_past_cache(a) ? pd_dequantize_past_cache : pd_dequantize)(a->y + i * PER_MATRIX, &q);
}

static void narrow(const arrays *a, int form, int64_t i)
{
    pd_convert((uint16_t *)(void *)a->codes + i * RANGE, (pd_dtype)form, a->x + i * RANGE, PD_F32, RANGE);
}

static void widen(const arrays *a, int form, int64_t i)
{
    const uint16_t *from = (const uint16_t *)(const void *)a->codes + i * RANGE;

    if (is_past_cache(a))
        pd_widen_past_cache(a->y + i * RANGE, from, (pd_dtype)form, RANGE);
    else
        pd_convert(a->y + i * RANGE, PD_F32, from, (pd_dtype)form, RANGE);
}

static void trim(const arrays *a, int form, int64_t i)
{
    void *scratch = malloc(pd_trimmed_mean_scratch(VECTORS));
    pd_vector_run runs[VECTORS];

    if (scratch == NULL) figure_stop("out of memory");
    for (int r = 0; r < VECTORS; r++) runs[r] = (pd_vector_run){ .at = a->vector[r] + i * RANGE, .dtype = PD_F32 };
    pd_trimmed_mean(a->y + i * RANGE, RANGE, runs, VECTORS, form, scratch);
    free(scratch);
}

static char *piece_of(const arrays *a, int64_t i)
{
    return a->codes + i * RANGE * (int64_t)sizeof(uint16_t);
}

static void encode(const arrays *a, int form)
{
    for (int64_t i = 0; i < a->n / RANGE; i++)
        pd_blocks_encode(piece_of(a, i), (pd_dtype)form, a->x + i * RANGE, RANGE);
}

static void add(const arrays *a, int form, int64_t i)
{
    pd_addend addend = { pd_vector_run_of(piece_of(a, i), (pd_dtype)form, 0, RANGE), 0.5f };
    pd_accumulate(a->y + i * RANGE, RANGE, true, &addend, 1, 1);
}

/* The kernels of each group. `bytes`: bytes that are moved for an element of a matrix, or of one vector. `elements`:
 * elements of a unit, which one thread computes; a unit of `robust` has as many of each vector. */
static const struct {
    const char *group, *name;
    void (*unit)(const arrays *a, int form, int64_t i);
    int form;
    double bytes;
    int64_t elements;
} kernels[] = {
    { "quantize", "to int8", quantize, PD_STORE_INT8, 4 + 4 + 1, PER_MATRIX },
    { "quantize", "from int8", dequantize, PD_STORE_INT8, 1 + 4, PER_MATRIX },
    { "quantize", "to int16", quantize, PD_STORE_INT16, 4 + 4 + 2, PER_MATRIX },
    { "quantize", "from int16", dequantize, PD_STORE_INT16, 2 + 4, PER_MATRIX },
    { "convert", "to bfloat16", narrow, PD_BF16, 4 + 2, RANGE },
    { "convert", "from bfloat16", widen, PD_BF16, 2 + 4, RANGE },
    { "convert", "to float16", narrow, PD_F16, 4 + 2, RANGE },
    { "convert", "from float16", widen, PD_F16, 2 + 4, RANGE },
    { "robust", "median of 8", trim, 3, 4 * VECTORS + 4, RANGE *VECTORS },
    { "robust", "trimmed mean of 8", trim, 1, 4 * VECTORS + 4, RANGE *VECTORS },
    { "add", "add int8", add, PD_INT8, 4 + 4 + 1 + 4.0 / PD_BLOCK, RANGE },
    { "add", "add int4", add, PD_INT4, 4 + 4 + 0.5 + 4.0 / PD_BLOCK, RANGE },
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

static double kernel_ms(size_t k, const arrays *a)
{
    double begin = figure_ms();

#pragma omp parallel for num_threads(a->threads) schedule(static)
    for (int64_t i = 0; i < a->n / kernels[k].elements; i++) kernels[k].unit(a, kernels[k].form, i);
    return figure_ms() - begin;
}

/* Returns the kernel's bandwidth, as a share of the bandwidth of the triad after it. */
static double share_of(size_t k, const arrays *a, double *triad_gb)
{
    double share[ROUNDS], ms[ROUNDS], triad[ROUNDS];
    double elements = (double)(kernels[k].unit == trim ? a->n / VECTORS : a->n), moved = kernels[k].bytes * elements,
           triad_moved = 3.0 * sizeof(float) * (double)a->n;

    if (kernels[k].unit == add) encode(a, kernels[k].form);
    for (int i = -WARM; i < ROUNDS; i++) {
        double s = kernel_ms(k, a), t = triad_ms(a->y, a->x, a->z, a->n, a->threads);
        if (i >= 0) ms[i] = s, triad[i] = t, share[i] = moved / s / (triad_moved / t);
    }
    (void)figure_quantile(share, ROUNDS, 0.5); /* sorts `share`, so that its first and last values are the extremes */
    *triad_gb = triad_moved / figure_quantile(triad, ROUNDS, 0.5) / 1e6;
    fprintf(stderr, "%-18s %.3f (%.3f to %.3f), %.1f ms; triad %.1f GB/s\n", kernels[k].name,
            figure_quantile(share, ROUNDS, 0.5), share[0], share[ROUNDS - 1], figure_quantile(ms, ROUNDS, 0.5),
            *triad_gb);
    return figure_quantile(share, ROUNDS, 0.5);
}

static arrays make_arrays(int64_t n)
{
    arrays a = { .n = n, .threads = (int)sysconf(_SC_NPROCESSORS_ONLN) };

    a.x = triad_floats(n, 1), a.y = triad_floats(n, 1), a.z = triad_floats(n, 1);
    a.codes = pd_pages_new((size_t)(n / PER_MATRIX * pd_quantized_room(PD_STORE_INT16, false, SIDE, SIDE)));
    if (a.codes == NULL) figure_stop("out of memory");
    for (int r = 0; r < VECTORS; r++) a.vector[r] = a.x + r * (n / VECTORS);
    return a;
}

int main(int argc, char **argv)
{
    int64_t mebi = argc > 2 ? atoll(argv[2]) : 64;
    double worst = 0, triad_gb = 0;
    char note[1024] = "";
    arrays a;

    figure_kernels(argv);
    if (argc < 2 || mebi <= 0) figure_stop("usage: %s quantize|convert|robust|add [MEBI_ELEMENTS]", argv[0]);
    a = make_arrays(mebi << 20);
    for (size_t k = 0; k < KERNELS; k++) {
        double share;
        size_t used = strlen(note);
        if (strcmp(argv[1], kernels[k].group) != 0) continue;
        share = share_of(k, &a, &triad_gb);
        if (worst == 0 || share < worst) worst = share;
        snprintf(note + used, sizeof note - used, ", %s %.2f", kernels[k].name, share);
    }
    if (worst == 0) figure_stop("%s: expected quantize, convert, robust or add", argv[1]);
    printf("%.3f\t%d threads, %lld Mi elements, triad %.1f GB/s%s\n", worst, a.threads, (long long)mebi, triad_gb,
           note);
    return 0;
}
