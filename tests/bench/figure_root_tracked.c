/* root_tracked: the time of 20 refreshes of a root by pd_root_tracked while its statistics change slowly, divided by
 * the time of 20 bare ssyevd with the root assembled (p = 4, ridge 1e-6). Refreshes that decompose the matrix again
 * are included. It is measured for n = 512 and 1024, and the larger ratio counts. The error of each root may be at
 * most twice the error of the root from ssyevd of the same matrix.
 *
 * The statistics are moving averages (beta2 0.999, 20 steps between two refreshes) of G G', where G is a random
 * matrix whose rows become smaller by a power law.
 *
 *     figure_root_tracked [n beta2 p power seed columns]
 *
 * Without arguments it prints root_tracked. With arguments it measures one matrix, prints its ratio, and one line for
 * each refresh on the standard error: root_tracked_fast is that of statistics that change fast. */
#include "blascore.h"
#include "figure.h"
#include "matrices.h"
#include "root.h"
#include "root_types.h"

enum { REFRESHES = 20, EVERY = 20, BEFORE = 100, TURNS = 3 };

typedef struct scene {
    int64_t n, columns;
    double beta, power;
    uint64_t seed;
    matrices_root root;
    bool speaks;
} scene;

typedef struct outcome {
    double tracked_ms, plain_ms, worst; /* worst: largest ratio of the tracked root's error to the error of the root
                                         * from ssyevd */
    int decomposed;
} outcome;

/* Sets A to the statistics after a long history: the mean of G G' over BEFORE steps. */
static void begin(pd_mat A, pd_mat G, const scene *s, uint64_t *seed)
{
    for (int t = 0; t < BEFORE; t++) matrices_step(A, G, (float)t / (float)(t + 1), s->power, seed);
}

/* Measures one refresh of the root and one ssyevd, TURNS times each. Each refresh begins with the same basis Q. */
static void refresh(const scene *s, pd_mat A, pd_mat Q, double *R, outcome *o)
{
    const pd_root_want want = { .p = s->root.p, .epsilon = s->root.epsilon };
    pd_mat X = matrices_new(s->n), basis = matrices_new(s->n), copy = matrices_new(s->n);
    double plain[TURNS], tracked[TURNS], error = 0, plain_error = 0, least, most;
    pd_root_report report = { 0 };

    matrices_copy(basis, Q);
    matrices_reference(R, A, &s->root);
    for (int i = 0; i < TURNS; i++) {
        plain[i] = matrices_plain(X, A, &s->root, NULL);
        plain_error = matrices_error(X, R);
        matrices_copy(Q, basis), matrices_copy(copy, A);
        tracked[i] = figure_ms();
        if (pd_root_tracked(X, Q, copy, &want, &report) != PD_OK) figure_stop("there is no root");
        tracked[i] = figure_ms() - tracked[i];
        error = matrices_error(X, R);
    }
    least = figure_quantile(tracked, TURNS, 0.5), most = figure_quantile(plain, TURNS, 0.5);
    o->tracked_ms += least, o->plain_ms += most, o->decomposed += report.decomposed;
    if (error / plain_error > o->worst) o->worst = error / plain_error;
    if (s->speaks)
        fprintf(stderr, "%6.1f of %6.1f ms, error %.2e, plain %.2e (%.2f), measure %.1e, condition %.1e, %s\n", least,
                most, error, plain_error, error / plain_error, report.error, report.condition,
                report.decomposed ? "decomposed" : "tracked");
    free(X.at), free(basis.at), free(copy.at);
}

static outcome measure(const scene *s)
{
    pd_mat A = matrices_new(s->n), Q = matrices_new(s->n);
    pd_mat G = pd_mat_dense(figure_alloc((size_t)(s->n * s->columns) * sizeof(float)), s->n, s->columns);
    double *R = figure_alloc((size_t)(s->n * s->n) * sizeof *R);
    uint64_t seed = s->seed;
    outcome o = { 0 };

    begin(A, G, s, &seed);
    for (int k = 0; k < REFRESHES; k++) {
        for (int t = 0; k > 0 && t < EVERY; t++) matrices_step(A, G, (float)s->beta, s->power, &seed);
        refresh(s, A, Q, R, &o);
    }
    free(A.at), free(Q.at), free(G.at), free(R);
    return o;
}

int main(int argc, char **argv)
{
    scene s = { .n = 512, .columns = 512, .beta = 0.999, .power = 1, .seed = 1, .root = { .p = 4, .epsilon = 1e-6 } };
    outcome a, b;

    figure_kernels(argv);
    if (argc == 7) {
        s = (scene){ .n = atoll(argv[1]),
                     .beta = atof(argv[2]),
                     .power = atof(argv[4]),
                     .seed = (uint64_t)atoll(argv[5]),
                     .columns = atoll(argv[6]),
                     .root = { .p = atoi(argv[3]), .epsilon = 1e-6 },
                     .speaks = true };
        a = measure(&s);
        printf("%.3f\tmean of %d, %d decomposed: n %d %.1f over %.1f ms, error up to %.2f of plain; %s\n",
               a.tracked_ms / a.plain_ms, REFRESHES, a.decomposed, (int)s.n, a.tracked_ms / REFRESHES,
               a.plain_ms / REFRESHES, a.worst, pd_blas_core());
        return 0;
    }
    a = measure(&s);
    s.n = s.columns = 1024;
    b = measure(&s);
    if (!(a.worst <= 2 && b.worst <= 2))
        figure_stop("errors up to %.2f and %.2f times that of ssyevd", a.worst, b.worst);
    a.plain_ms /= REFRESHES, a.tracked_ms /= REFRESHES, b.plain_ms /= REFRESHES, b.tracked_ms /= REFRESHES;
    printf("%.3f\tmeans of %d, %d and %d decomposed: n 512 %.1f over %.1f ms, error up to %.2f of plain; n 1024 %.1f "
           "over %.1f ms, up to %.2f; %s\n",
           a.tracked_ms / a.plain_ms > b.tracked_ms / b.plain_ms ? a.tracked_ms / a.plain_ms
                                                                 : b.tracked_ms / b.plain_ms,
           REFRESHES, a.decomposed, b.decomposed, a.tracked_ms, a.plain_ms, a.worst, b.tracked_ms, b.plain_ms, b.worst,
           pd_blas_core());
    return 0;
}
