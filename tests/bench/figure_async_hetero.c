/* async_hetero: what asynchronous outer steps gain if four workers have unlike speeds.
 *
 *     figure_async_hetero loss|time [--json FILE] [LOCAL]     FILE: gets the curves. LOCAL: local steps of a worker in
 *                                                             the synchronous job [1,600]
 *
 * The workers have the speeds 0.58 : 0.75 : 1.51 : 3.33, as in arXiv:2401.09135. They take 20 local steps of AdamW with
 * batches of 8 examples between two pushes, and begin with a model that has had 1,600 synchronous steps of batches of
 * 32. A local step at speed 1 takes 20 ms; its learning rate falls to 0 along half a cosine. Each job is over when it
 * has counted the same number of examples, 4 x LOCAL x 8. Its test loss is the mean of its last five looks.
 *
 *     sync                DiLoCo: a step waits for all four; Nesterov momentum 0.8, rate 0.2
 *     delayed Nesterov    rounds=async, damping=root, delayed_nesterov with period 4, momentum 0.8, rate 0.7
 *     Nesterov at 0.07    rounds=async, without damping, sgd with Nesterov momentum 0.9
 *     Nesterov at 0.7     the same with DiLoCo's rate: it diverges
 *
 * The first two are tuned, with another seed and over the same grid: momentum 0.8 and 0.9, rates from 0.2 to 0.7. With
 * DiLoCo's own 0.9 and 0.7 both end with a loss that is 7 % higher.
 *
 * The figure is the loss of delayed Nesterov over sync's, or its time; median of three seeds. */
#include "figure.h"
#include "race.h"

enum { SYNC, DELAYED, LOW, HIGH, METHODS, BATCH = 8, WARM_STEPS = 1600 };

#define LOCAL_LR 5e-4
#define WARM_LR 1e-3
#define NESTEROV "nesterov=yes momentum="

static const race_method methods[METHODS] = {
    [SYNC] = { .name = "sync", .rule = "* sgd lr=0.2 " NESTEROV "0.8", .seeds_at_once = true },
    [DELAYED] = { .name = "delayed Nesterov",
                  .rule = "* delayed_nesterov lr=0.7 momentum=0.8 period=4",
                  .seeds_at_once = true,
                  .options = { "rounds=async", "damping=root" } },
    [LOW] = { .name = "Nesterov at 0.07",
              .rule = "* sgd lr=0.07 " NESTEROV "0.9",
              .seeds_at_once = true,
              .options = { "rounds=async", "damping=none" } },
    [HIGH] = { .name = "Nesterov at 0.7",
               .rule = "* sgd lr=0.7 " NESTEROV "0.9",
               .seeds_at_once = true,
               .options = { "rounds=async", "damping=none" } },
};

static void compare(const race *r, int method, double time[RACE_SEEDS], double loss[RACE_SEEDS])
{
    for (int s = 0; s < RACE_SEEDS; s++) {
        const race_curve *sync = &r->curves[SYNC][s], *it = &r->curves[method][s];
        time[s] = it->end_seconds / sync->end_seconds;
        loss[s] = fmin(999, race_final(it) / race_final(sync));
    }
}

static void print_method(const race *r, int method)
{
    double time[RACE_SEEDS], loss[RACE_SEEDS];

    compare(r, method, time, loss);
    printf("; %s: loss %.4f (%.4f, %.4f, %.4f) of sync's, time %.3f (%.3f, %.3f, %.3f)", r->methods[method].name,
           race_median(loss), loss[0], loss[1], loss[2], race_median(time), time[0], time[1], time[2]);
}

int main(int argc, char **argv)
{
    static race r = { .methods = methods,
                      .n = METHODS,
                      .options = { .batch = BATCH,
                                   .step_ms = { 20 / 0.58, 20 / 0.75, 20 / 1.51, 20 / 3.33 },
                                   .sync = { .every = 20 },
                                   .local_lr = LOCAL_LR } };
    bool loss_wanted = argc > 1 && strcmp(argv[1], "loss") == 0;
    const char *json = NULL;
    int local_steps = WARM_STEPS;
    double time[RACE_SEEDS], loss[RACE_SEEDS];
    warm *warmed[RACE_SEEDS];
    pd_child daemon;

    if (argc < 2 || (!loss_wanted && strcmp(argv[1], "time") != 0)) figure_stop("expected loss|time");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            json = argv[++i];
        else if ((local_steps = atoi(argv[i])) < 100)
            figure_stop("expected [--json FILE] [LOCAL]");
    }
    figure_kernels(argv);
    fleet_load();
    figure_daemon(&daemon);
    for (int s = 0; s < RACE_SEEDS; s++)
        warmed[s] = fleet_warm((uint64_t)s + 1, WARM_STEPS, FLEET_WORKERS * BATCH, WARM_LR);
    r.options.url = daemon.local;
    r.options.examples = (int64_t)FLEET_WORKERS * local_steps * BATCH;
    race_run(&r, warmed);
    pd_child_stop(&daemon);
    if (json != NULL) race_write(&r, json);
    compare(&r, DELAYED, time, loss);
    printf("%.4f\twarm start: loss %.4f, %.4f, %.4f; sync: %.4f, %.4f, %.4f after %.1f s",
           race_median(loss_wanted ? loss : time), fleet_loss(warmed[0]->value), fleet_loss(warmed[1]->value),
           fleet_loss(warmed[2]->value), race_final(&r.curves[SYNC][0]), race_final(&r.curves[SYNC][1]),
           race_final(&r.curves[SYNC][2]), r.curves[SYNC][0].end_seconds);
    for (int m = DELAYED; m < METHODS; m++) print_method(&r, m);
    printf("; medians (each of 3 seeds)\n");
    for (int s = 0; s < RACE_SEEDS; s++) free(warmed[s]);
    return 0;
}
