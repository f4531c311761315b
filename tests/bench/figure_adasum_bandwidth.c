/* adasum_bandwidth: the bytes per second that Adasum of 8 contributions reads, divided by the bandwidth of a triad,
 * a[i] = b[i] + s c[i], with as many threads in the same memory. Each run is compared with the triad after it, and
 * the median of the ratios counts.
 *
 * Contributions are read twice (for their dot products and to be combined), and so count twice. The result that is
 * written does not count.
 *
 *     figure_adasum_bandwidth [MEBIBYTES [CONTRIBUTIONS [FORM [TYPE]]]]          64 8 tree float32 by default */

#include "adasum.h"
#include "figure.h"
#include "pages.h"
#include "triad.h"

enum { ROUNDS = 9, WARM = 2, MOST = 64, CHUNK = 1 << 20 };

/* The input of Adasum: k vectors, each cut into chunks as it would arrive in frames. */
typedef struct load {
    pd_adasum_form form;
    pd_dtype dtype;
    int k, threads;
    int64_t n, *ends;
    char *x[MOST];
    float *to, *scratch[MOST];
    pd_vector_run *at;
    pd_vectors vectors;
} load;

static void *new_pages(size_t bytes)
{
    void *at = pd_pages_new(bytes);

    if (at == NULL) figure_stop("out of memory");
    return at;
}

static void fill(load *l)
{
    size_t size = pd_dtype_size(l->dtype), runs = (size_t)((l->n + CHUNK - 1) / CHUNK);
    uint32_t seed = 1;

    l->ends = figure_alloc(runs * sizeof *l->ends);
    l->at = figure_alloc(runs * (size_t)l->k * sizeof *l->at);
    l->to = new_pages((size_t)l->n * sizeof(float));
    for (int r = 0; r < l->k; r++) {
        uint16_t *at = new_pages((size_t)l->n * size);
        for (int64_t i = 0; i < l->n * (int64_t)(size / 2);
             i++) { /* each two bytes are a 16-bit number, or half of a float32; they are chosen so that the number
                     * is about ±1 */
            seed = seed * 1664525u + 1013904223u;
            at[i] = (uint16_t)((seed >> 16 & 0x80ff) | 0x3c00);
        }
        l->x[r] = (char *)at;
    }
    for (int64_t i = 0; i < pd_adasum_scratch_vectors(l->form, l->k); i++)
        l->scratch[i] = new_pages((size_t)l->n * sizeof(float));
    for (size_t p = 0; p < runs; p++) {
        l->ends[p] = ((int64_t)p + 1) * CHUNK < l->n ? ((int64_t)p + 1) * CHUNK : l->n;
        for (int r = 0; r < l->k; r++)
            l->at[p * (size_t)l->k + (size_t)r] =
                (pd_vector_run){ .at = l->x[r] + p * CHUNK * size, .dtype = l->dtype };
    }
    l->vectors = (pd_vectors){ l->k, runs, l->ends, l->at };
}

/* Measures a triad over the memory of the first two contributions. Returns its milliseconds, and writes the bytes it
 * moves. */
static double compare_ms(const load *l, double *bytes)
{
    int64_t n = l->n * (int64_t)pd_dtype_size(l->dtype) / (int64_t)sizeof(float);

    *bytes = 3.0 * sizeof(float) * (double)n;
    return triad_ms(l->to, (const float *)l->x[0], (const float *)l->x[1], n, l->threads);
}

static double adasum_ms(const load *l, double pass[8])
{
    double begin = figure_ms(), last = begin;
    pd_adasum *a;

    if (pd_adasum_begin(&a, l->form, &l->vectors, l->n, l->to, l->scratch) != PD_OK) figure_stop("out of memory");
    for (int p = 0; pd_adasum_units(a) > 0; p++) {
        int64_t units = pd_adasum_units(a);
#pragma omp parallel for num_threads(l->threads) schedule(dynamic)
        for (int64_t i = 0; i < units; i++) pd_adasum_unit(a, i);
        pd_adasum_turn(a);
        if (p < 8) pass[p] = figure_ms() - last;
        last = figure_ms();
    }
    pd_adasum_end(a);
    return figure_ms() - begin;
}

static double bytes_read(const load *l)
{
    double vector = (double)l->n * sizeof(float), bytes = 2.0 * l->k * (double)l->n * (double)pd_dtype_size(l->dtype);

    for (int64_t left = pd_adasum_scratch_vectors(l->form, l->k) + 1; left > 1; left = (left + 7) / 8)
        bytes += 2 * (double)left * vector;
    return bytes;
}

int main(int argc, char **argv)
{
    load l = { .threads = (int)sysconf(_SC_NPROCESSORS_ONLN), .k = argc > 2 ? atoi(argv[2]) : 8, .dtype = PD_F32 };
    double share[ROUNDS], ms[ROUNDS], triad[ROUNDS], pass[8] = { 0 }, triad_bytes = 0;
    int64_t mebibytes = argc > 1 ? atoll(argv[1]) : 64;

    figure_kernels(argv);
    l.form = argc > 3 && strcmp(argv[3], "vdot") == 0 ? PD_ADASUM_VDOT : PD_ADASUM_TREE;
    if (mebibytes <= 0 || l.k < 2 || l.k > MOST || (argc > 4 && pd_dtype_parse(&l.dtype, argv[4]) != PD_OK))
        figure_stop("usage: %s [MEBIBYTES [CONTRIBUTIONS [tree|vdot [TYPE]]]]", argv[0]);
    l.n = (mebibytes << 20) / (int64_t)pd_dtype_size(l.dtype);
    fill(&l);
    for (int i = -WARM; i < ROUNDS; i++) {
        double a = adasum_ms(&l, pass), t = compare_ms(&l, &triad_bytes);
        if (i >= 0) ms[i] = a, triad[i] = t, share[i] = (bytes_read(&l) / a) / (triad_bytes / t);
    }
    fprintf(stderr, "last passes: %.1f and %.1f ms\n", pass[0], pass[1]);
    (void)figure_quantile(share, ROUNDS, 0.5); /* sorts `share`, so that its first and last values are the extremes */
    printf("%.3f\t%.3f to %.3f; %d threads, %d contributions of %lld MiB of %s read twice, %.1f ms, %.1f GB/s; triad "
           "%.1f GB/s\n",
           figure_quantile(share, ROUNDS, 0.5), share[0], share[ROUNDS - 1], l.threads, l.k, (long long)mebibytes,
           pd_dtype_name(l.dtype), figure_quantile(ms, ROUNDS, 0.5),
           bytes_read(&l) / figure_quantile(ms, ROUNDS, 0.5) / 1e6,
           triad_bytes / figure_quantile(triad, ROUNDS, 0.5) / 1e6);
    return 0;
}
