/* quorum_slow: what a quorum of three gains if one of four workers is ten times slower than the others.
 *
 *     figure_quorum_slow time|loss [--json FILE] [EXAMPLES]     FILE: gets the curves. EXAMPLES: that a job counts
 *                                                               [24,000]
 *
 * The workers train the quickstart's model, each with batches of 8 examples. A step of three of them takes 20 ms, of
 * which 4 ms need no weights; one of the slow worker takes 200 ms. All jobs count the same number of examples, so a
 * quorum of three takes a third more steps than sync does. The figure is the time until the job has the test loss that
 * sync ends with, over sync's time, or its final loss over sync's: the larger one of a quorum without a grace and of
 * one with grace = auto; median of three seeds. The learning rate falls to 0 along half a cosine. Losses are means of
 * the last five looks. Further, a job in which contributions count that are up to 12 steps old, where the slow worker
 * takes part. */
#include "figure.h"
#include "race.h"

enum { SYNC, QUORUM, AUTO, STALE, METHODS, SLOW = 3, BATCH = 8 };

static char sync_rule[96], quorum_rule[96];

static const race_method methods[METHODS] = {
    [SYNC] = { .name = "sync", .rule = sync_rule, .lane = 0, .seeds_at_once = true },
    [QUORUM] = { .name = "quorum 3 of 4", .rule = quorum_rule, .options = { "rounds=quorum", "quorum=3" }, .lane = 1 },
    [AUTO] = { .name = "grace = auto",
               .rule = quorum_rule,
               .options = { "rounds=quorum", "quorum=3", "grace=auto" },
               .lane = 1,
               .tells_patience = true },
    [STALE] = { .name = "staleness = 12",
                .rule = quorum_rule,
                .options = { "rounds=quorum", "quorum=3", "staleness=12", "damping=root" },
                .lane = 1 },
};

/* Writes the rule of a job in which `counted` workers count in each step. */
static void write_rule(char rule[96], int counted, int64_t examples)
{
    snprintf(rule, 96, "* sgd lr=cosine(peak=0.01,steps=%d) momentum=0.9", (int)(examples / (counted * BATCH)));
}

/* Returns the share of steps in which the slow worker counted. */
static double slow_share(const race_curve *c)
{
    return (double)c->counted[SLOW] / (double)c->steps;
}

/* Fills the time to sync's loss and the final loss of a method, both over sync's, for each seed. */
static void compare(const race *r, int method, double time[RACE_SEEDS], double loss[RACE_SEEDS])
{
    for (int s = 0; s < RACE_SEEDS; s++) {
        const race_curve *sync = &r->curves[SYNC][s], *it = &r->curves[method][s];
        double level = race_final(sync);
        time[s] = fmin(999, race_reaches(it, level) / race_reaches(sync, level));
        loss[s] = race_final(it) / level;
    }
}

static void print_method(const race *r, int method)
{
    double time[RACE_SEEDS], loss[RACE_SEEDS], share[RACE_SEEDS];

    compare(r, method, time, loss);
    for (int s = 0; s < RACE_SEEDS; s++) share[s] = slow_share(&r->curves[method][s]);
    printf("; %s: time to sync's loss %.3f (%.3f, %.3f, %.3f), final loss %.4f (%.4f, %.4f, %.4f) of sync's, the slow "
           "worker counts in %.3f of the steps",
           r->methods[method].name, race_median(time), time[0], time[1], time[2], race_median(loss), loss[0], loss[1],
           loss[2], race_median(share));
}

int main(int argc, char **argv)
{
    static race r = { .methods = methods,
                      .n = METHODS,
                      .options = {
                          .batch = BATCH, .step_ms = { 20, 20, 20, 200 }, .patience_ms = 4, .examples = 24000 } };
    bool loss_wanted = argc > 1 && strcmp(argv[1], "loss") == 0;
    const char *json = NULL;
    double value = 0, time[RACE_SEEDS], loss[RACE_SEEDS];
    pd_child daemon;

    if (argc < 2 || (!loss_wanted && strcmp(argv[1], "time") != 0)) figure_stop("expected time|loss");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            json = argv[++i];
        else if ((r.options.examples = atoi(argv[i])) < 1000)
            figure_stop("expected [--json FILE] [EXAMPLES]");
    }
    figure_kernels(argv);
    write_rule(sync_rule, FLEET_WORKERS, r.options.examples);
    write_rule(quorum_rule, FLEET_WORKERS - 1, r.options.examples);
    fleet_load();
    figure_daemon(&daemon);
    r.options.url = daemon.local;
    race_run(&r, NULL);
    pd_child_stop(&daemon);
    if (json != NULL) race_write(&r, json);
    for (int m = QUORUM; m <= AUTO; m++) {
        compare(&r, m, time, loss);
        value = fmax(value, race_median(loss_wanted ? loss : time));
    }
    printf("%.4f\tsync: loss %.4f, %.4f, %.4f after %.1f s", value, race_final(&r.curves[SYNC][0]),
           race_final(&r.curves[SYNC][1]), race_final(&r.curves[SYNC][2]), r.curves[SYNC][0].end_seconds);
    for (int m = QUORUM; m < METHODS; m++) print_method(&r, m);
    printf("; medians (each of 3 seeds)\n");
    return 0;
}
