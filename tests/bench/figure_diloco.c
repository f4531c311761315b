/* diloco: what few synchronizations cost in loss, and what they save in bytes and time.
 *
 *     figure_diloco FIGURE [--json FILE] [STEPS]     FILE: gets the curves. STEPS: inner steps of a worker [1,600]
 *
 *     h20_loss, h20_bytes, h100_loss, h100_bytes     a sync after 20 and after 100 inner steps, over synchronous AdamW
 *     dylu_loss, dylu_time      workers with the speeds 0.58 : 0.75 : 1.51 : 3.33 (arXiv:2401.09135), each with as many
 *                               inner steps as it takes in the time of the fastest; over the same with 20 inner steps
 *     dylu_share                one worker ten times slower, a quorum of three: part of the rounds in which it counts
 *     stream_loss, stream_peak  four fragments, of which each is sent two inner steps before it is due, over one
 *                               fragment, with a sync after 40 inner steps; peak: most bytes in 100 ms, both ways
 *     int4_loss, int4_bytes     differences in 4 bits, a sync after 20 inner steps, over float32; bytes upwards
 *     int8_loss, int8_bytes     gradients in 8 bits with error feedback, synchronous AdamW, over float32
 *
 * Four workers train the quickstart's model with batches of 8 examples each, from a model that has had 1,600 steps of
 * batches of 32; the moments of AdamW begin at 0. Each job counts the same number of examples. Learning rates fall to 0
 * along half a cosine. They are tuned with other seeds: AdamW 3e-4, 5e-4, 1e-3 and 2e-3; inner rates 3e-4, 5e-4 and
 * 1e-3, each with outer rate and Nesterov momentum 0.7 0.9, 0.5 0.8, 0.3 0.9, 0.7 0.6, 0.9 0.5 and 1 0. The test loss
 * of a job is the mean of its last five looks; a figure is the median of three seeds. */
#include "figure.h"
#include "race.h"

enum { BATCH = 8, WARM_STEPS = 1600 };

#define ADAMW "* adamw lr=cosine(peak=5e-4,steps=%d) betas=0.9,0.99 weight_decay=0.01"
#define OUTER "* sgd lr=0.9 momentum=0.5 nesterov=yes"
#define AFTER(n) .sync = { .every = n }

/* An experiment: methods, of which the first is what others are compared with. */
typedef struct experiment {
    const char *name; /* figures whose names begin so belong to it */
    double step_ms[FLEET_WORKERS];
    int n;
    race_method methods[RACE_METHODS];
} experiment;

static const experiment experiments[] = {
    { .name = "h",
      .n = 3,
      .methods = { { .name = "each step", .rule = ADAMW },
                   { .name = "each 20th", .rule = OUTER, AFTER(20) },
                   { .name = "each 100th", .rule = OUTER, AFTER(100) } } },
    { .name = "dylu_loss|dylu_time",
      .step_ms = { 20 / 0.58, 20 / 0.75, 20 / 1.51, 20 / 3.33 },
      .n = 2,
      .methods = { { .name = "20 each", .rule = OUTER, .seeds_at_once = true, AFTER(20) },
                   { .name = "DyLU", .rule = OUTER, .seeds_at_once = true, .sync = { .every = 20, .dylu = true } } } },
    { .name = "dylu_share",
      .step_ms = { 10, 10, 10, 100 },
      .n = 2,
      .methods = { { .name = "20 each",
                     .rule = OUTER,
                     .seeds_at_once = true,
                     .options = { "rounds=quorum", "quorum=3", "grace=50ms" },
                     AFTER(20) },
                   { .name = "DyLU",
                     .rule = OUTER,
                     .seeds_at_once = true,
                     .options = { "rounds=quorum", "quorum=3", "grace=50ms" },
                     .sync = { .every = 20, .dylu = true } } } },
    { .name = "stream",
      .step_ms = { 10, 10, 10, 10 },
      .n = 3,
      .methods = { { .name = "one", .rule = OUTER, .seeds_at_once = true, AFTER(40) },
                   { .name = "four, mixed",
                     .rule = OUTER,
                     .seeds_at_once = true,
                     .sync = { .every = 40, .fragments = 4, .delay = 2, .alpha = 0.5 } },
                   { .name = "four",
                     .rule = OUTER,
                     .seeds_at_once = true,
                     .sync = { .every = 40, .fragments = 4, .delay = 2 } } } },
    { .name = "int4",
      .n = 3,
      .methods = { { .name = "float32", .rule = OUTER, AFTER(20) },
                   { .name = "int4", .rule = OUTER, .push = PD_INT4, AFTER(20) },
                   { .name = "no feedback", .rule = OUTER, .push = PD_INT4, .forgets = true, AFTER(20) } } },
    { .name = "int8",
      .n = 3,
      .methods = { { .name = "float32", .rule = ADAMW },
                   { .name = "int8", .rule = ADAMW, .push = PD_INT8 },
                   { .name = "no feedback", .rule = ADAMW, .push = PD_INT8, .forgets = true } } },
};

/* What a figure is: the method, and a number of a job (`at`), over that of the first method if `over`. */
typedef enum number { LOSS, BYTES, SENT, TIME, PEAK, SHARE } number;
static const struct figure_row {
    const char *name;
    int method;
    number what;
} rows[] = {
    { "h20_loss", 1, LOSS },    { "h20_bytes", 1, BYTES }, { "h100_loss", 2, LOSS },   { "h100_bytes", 2, BYTES },
    { "dylu_loss", 1, LOSS },   { "dylu_time", 1, TIME },  { "dylu_share", 1, SHARE }, { "stream_loss", 1, LOSS },
    { "stream_peak", 1, PEAK }, { "int4_loss", 1, LOSS },  { "int4_bytes", 1, SENT },  { "int8_loss", 1, LOSS },
    { "int8_bytes", 1, SENT },
};

static double number_of(const race_curve *c, number what)
{
    switch (what) {
    case LOSS: return race_final(c);
    case BYTES: return (double)(c->sent + c->received);
    case SENT: return (double)c->sent;
    case TIME: return c->end_seconds;
    case PEAK: return (double)c->peak;
    case SHARE: return (double)c->counted[FLEET_WORKERS - 1] / (double)c->steps;
    }
    return 0;
}

/* Sets the figure for each seed. A share is a number by itself; all others are over those of the first method. */
static double measure(const race *r, int method, number what, double at[RACE_SEEDS])
{
    for (int s = 0; s < RACE_SEEDS; s++) {
        at[s] = number_of(&r->curves[method][s], what);
        if (what != SHARE) at[s] /= number_of(&r->curves[0][s], what);
    }
    return race_median(at);
}

static const experiment *find_experiment(const char *figure)
{
    for (size_t i = 0; i < sizeof experiments / sizeof experiments[0]; i++) {
        const char *at = strstr(experiments[i].name, figure);
        size_t n = strlen(experiments[i].name);
        if (at != NULL || (strchr(experiments[i].name, '|') == NULL && strncmp(figure, experiments[i].name, n) == 0))
            return &experiments[i];
    }
    return NULL;
}

static const struct figure_row *find_row(const char *figure)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, figure) == 0) return &rows[i];
    figure_stop("%s: no such figure", figure);
}

/* Prints of each method the loss, the bytes of a worker both ways and upwards, and the time. */
static void print_methods(const race *r, number what)
{
    static const number shown[] = { LOSS, BYTES, SENT, TIME, PEAK };
    static const char *const words[] = { "loss", "bytes", "bytes upwards", "time", "peak" };
    double at[RACE_SEEDS];

    for (int m = 0; m < r->n; m++) {
        printf("%s%s: loss %.4f, %.4f, %.4f, %d rounds, %.1f s", m == 0 ? "\t" : "; ", r->methods[m].name,
               race_final(&r->curves[m][0]), race_final(&r->curves[m][1]), race_final(&r->curves[m][2]),
               (int)r->curves[m][0].steps, r->curves[m][0].end_seconds);
        for (size_t i = 0; m > 0 && i < sizeof shown / sizeof shown[0]; i++)
            printf(", %s %.4f", words[i], measure(r, m, shown[i], at));
        if (what == SHARE) printf(", the last worker counts in %.3f", measure(r, m, SHARE, at));
    }
    printf("; medians of 3 seeds, over the first\n");
}

/* Trains models from which the jobs of an experiment begin. */
static void make_warm(warm *warmed[RACE_SEEDS])
{
    for (int s = 0; s < RACE_SEEDS; s++) {
        warmed[s] = fleet_warm((uint64_t)s + 1, WARM_STEPS, FLEET_WORKERS * BATCH, 1e-3);
        memset(warmed[s]->first, 0, sizeof warmed[s]->first);
        memset(warmed[s]->second, 0, sizeof warmed[s]->second);
        warmed[s]->steps = 0;
    }
}

/* Writes the methods of an experiment with the number of steps in their rules. */
static void set_methods(race *r, const experiment *e, int steps)
{
    static race_method methods[RACE_METHODS];
    static char rules[RACE_METHODS][128];

    for (int m = 0; m < e->n; m++) {
        methods[m] = e->methods[m];
        if (methods[m].sync.every > 0) continue;
        snprintf(rules[m], sizeof rules[m], ADAMW, steps);
        methods[m].rule = rules[m];
    }
    r->methods = methods;
    r->n = e->n;
    memcpy(r->options.step_ms, e->step_ms, sizeof r->options.step_ms);
    r->options.examples = (int64_t)FLEET_WORKERS * steps * BATCH;
}

int main(int argc, char **argv)
{
    static race r = { .options = { .batch = BATCH, .local_lr = 5e-4 } };
    const experiment *e = argc > 1 ? find_experiment(argv[1]) : NULL;
    const struct figure_row *row = e != NULL ? find_row(argv[1]) : NULL;
    const char *json = NULL;
    int steps = WARM_STEPS;
    warm *warmed[RACE_SEEDS];
    double at[RACE_SEEDS];
    pd_child daemon;

    if (row == NULL) figure_stop("expected a figure: h20_loss, dylu_time ...");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            json = argv[++i];
        else if ((steps = atoi(argv[i])) < 200)
            figure_stop("expected [--json FILE] [STEPS]");
    }
    figure_kernels(argv);
    fleet_load();
    figure_daemon(&daemon);
    make_warm(warmed);
    r.options.url = daemon.local;
    set_methods(&r, e, steps);
    race_run(&r, warmed);
    pd_child_stop(&daemon);
    if (json != NULL) race_write(&r, json);
    printf("%.4f", measure(&r, row->method, row->what, at));
    print_methods(&r, row->what);
    for (int s = 0; s < RACE_SEEDS; s++) free(warmed[s]);
    return 0;
}
