/* adafactor_bandwidth: the memory bandwidth of a step of adafactor on one square, factored parameter, divided by the
 * bandwidth of a triad, a[i] = b[i] + s c[i], with as many threads in the same memory. Steps and triads alternate, and
 * the median of the ratios counts.
 *
 * An array of the parameter's size counts once for each time that the algorithm must read or write it, six times in
 * all. The gradient is read three times (sums, lengths, move), because the clip needs the root mean square of an update
 * that needs the moments of the whole gradient. The weights before the step are read twice, because their scale must be
 * known before any of them moves. The weights after the step are written once. Row and column moments do not count.
 *
 *     figure_adafactor_bandwidth [SIDE]          SIDE is 8192 by default */

#include "figure.h"
#include "stepped.h"
#include "triad.h"

enum { ROUNDS = 9, WARM = 2, STREAMS = 6 };

int main(int argc, char **argv)
{
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t side = argc > 1 ? atoll(argv[1]) : 8192, n = side * side;
    double share[ROUNDS], step[ROUNDS], triad[ROUNDS], median;
    pd_optim *optim;
    pd_step_io io;

    figure_kernels(argv);
    if (side < 128 || side > 65536) figure_stop("usage: %s [SIDE], from 128 to 65536", argv[0]);
    io = (pd_step_io){ .gradient = triad_floats(n, 1e-2f), .before = triad_floats(n, 1), .after = triad_floats(n, 1) };
    optim = stepped_optim("adafactor", "learning_rate", "0.01", (pd_shape){ 2, { side, side } });
    for (int i = -WARM; i < ROUNDS; i++) {
        double s = stepped_ms(optim, &io, threads), t = triad_ms(io.after, io.before, io.gradient, n, threads);
        if (i >= 0) step[i] = s, triad[i] = t, share[i] = STREAMS * t / (3 * s);
    }
    pd_optim_free(optim);
    median = figure_quantile(share, ROUNDS, 0.5);
    printf("%.3f\t%d threads, %lld x %lld, step %.1f ms, triad %.1f GB/s, %.3f to %.3f\n", median, threads,
           (long long)side, (long long)side, figure_quantile(step, ROUNDS, 0.5),
           3.0 * sizeof(float) * (double)n / figure_quantile(triad, ROUNDS, 0.5) / 1e6, share[0], share[ROUNDS - 1]);
    return 0;
}
