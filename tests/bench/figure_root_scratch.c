/* root_scratch: the time of one float32 root that is computed from scratch (pd_root_eigh, p = 4, condition 1e4),
 * divided by the time of a bare ssyevd of the same matrix on the same thread. It is measured for n = 512 and 1024,
 * and the larger ratio counts. Roots and ssyevd alternate, and the median ratio counts. The error of the root may be
 * at most twice the error of a root assembled from ssyevd. */
#include "blascore.h"
#include "figure.h"
#include "matrices.h"
#include "root.h"
#include "root_types.h"

enum { PAIRS = 15 };

typedef struct outcome {
    double ratio, plain_ms, ours_ms, plain_error, error;
} outcome;

static outcome measure(int64_t n)
{
    const matrices_root root = { .p = 4 };
    const pd_root_want want = { .p = root.p };
    pd_mat A = matrices_new(n), X = matrices_new(n);
    double *R = figure_alloc((size_t)(n * n) * sizeof *R), ratio[PAIRS], plain[PAIRS], ours[PAIRS];
    pd_root_report report;
    outcome o;

    matrices_with_condition(A, 1e4, (uint64_t)n);
    matrices_reference(R, A, &root);
    for (int i = 0; i < PAIRS; i++) {
        matrices_plain(X, A, &root, &plain[i]);
        o.plain_error = matrices_error(X, R);
        ours[i] = figure_ms();
        if (pd_root_eigh(X, A, &want, &report) != PD_OK) figure_stop("there is no root");
        ours[i] = figure_ms() - ours[i];
        o.error = matrices_error(X, R);
        ratio[i] = ours[i] / plain[i];
    }
    o.ratio = figure_quantile(ratio, PAIRS, 0.5), o.plain_ms = figure_quantile(plain, PAIRS, 0.5),
    o.ours_ms = figure_quantile(ours, PAIRS, 0.5);
    if (!(o.error <= 2 * o.plain_error)) figure_stop("n %d: error %.2e, plain %.2e", (int)n, o.error, o.plain_error);
    free(A.at), free(X.at), free(R);
    return o;
}

int main(int argc, char **argv)
{
    outcome a, b;

    (void)argc;
    figure_kernels(argv);
    a = measure(512), b = measure(1024);
    printf("%.3f\tn 512: %.1f over %.1f ms, error %.1e and plain %.1e; n 1024: %.1f over %.1f ms, error %.1e and plain "
           "%.1e; %s\n",
           a.ratio > b.ratio ? a.ratio : b.ratio, a.ours_ms, a.plain_ms, a.error, a.plain_error, b.ours_ms, b.plain_ms,
           b.error, b.plain_error, pd_blas_core());
    return 0;
}
