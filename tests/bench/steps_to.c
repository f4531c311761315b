/* steps_to - measures how many steps an optimizer needs until the quickstart's model has the training loss that
 * momentum SGD has after its last epoch.
 *
 *     figure_steps_to scalable_shampoo kron [--json FILE] [--tune]
 *
 * The training loss is the loss of 10,000 training images, always the same ones. It is measured every 26 steps, and
 * the mean of the last 3 measurements counts. First, every optimizer, including SGD, is tuned on a seed of its own
 * over a grid of 12 candidates (the table below). SGD is tuned for the lowest loss after its last epoch, the other
 * optimizers for the fewest steps to that loss. Then all optimizers train with five other seeds. For each seed, the
 * initial weights and the order of images are the same for all. The value is the median number of steps, divided by
 * SGD's median.
 *
 * Prints "VALUE<tab>NOTE" for each optimizer. --json writes every curve. --tune ends after the tuning and prints its
 * results. */
#include <argp.h>

#include "figure.h"
#include "trial.h"

enum { AXES = 3, MOST_VALUES = 6, CANDIDATES = 12, SEEDS = 5, MOST_SIDES = 4, KEY_JSON = 256, KEY_TUNE };
static const uint64_t tuning_seed = 100, seeds[SEEDS] = { 1, 2, 3, 4, 5 };

/* An optimizer to compare: the part of the rule that its candidates share, and the hyperparameters to tune with
 * their values. Each combination of values is a candidate. */
typedef struct contender {
    const char *name, *rule;
    struct axis {
        const char *hyper, *value[MOST_VALUES];
    } axis[AXES];
} contender;

static const contender contenders[] = {
    { "sgd",
      "sgd",
      { { "lr", { "0.02", "0.05", "0.1" } }, { "momentum", { "0.9", "0.95" } }, { "nesterov", { "no", "yes" } } } },
    { "scalable_shampoo",
      "scalable_shampoo block_size=128 preconditioning_compute_steps=20 root_method=eigh",
      { { "learning_rate", { "0.02", "0.05", "0.1" } },
        { "beta1", { "0.9", "0.95" } },
        { "beta2", { "0.99", "0.999" } } } },
    { "kron",
      "kron merge_small_dims=no partition_grads_into_blocks=no preconditioner_update_probability=0.2",
      { { "learning_rate", { "0.0003", "0.001", "0.003" } },
        { "b1", { "0.9", "0.95" } },
        { "preconditioner_lr", { "0.1", "0.3" } } } },
    { "adafactor",
      "adafactor",
      { { "learning_rate", { "0.01", "0.02", "0.04" } },
        { "beta1", { "0", "0.9" } },
        { "decay_rate", { "0.8", "0.95" } } } },
};

typedef struct arguments {
    const contender *who[MOST_SIDES]; /* the optimizers to compare; the first is SGD */
    int n;
    const char *json;
    bool tune;
} arguments;

static const contender *find(const char *name)
{
    char names[512] = "";
    size_t used = 0;

    for (size_t i = 1; i < sizeof contenders / sizeof *contenders; i++) {
        if (strcmp(contenders[i].name, name) == 0) return &contenders[i];
        used += (size_t)snprintf(names + used, sizeof names - used, " %s", contenders[i].name);
        if (used >= sizeof names) break;
    }
    figure_stop("%s has no grid; there are:%s", name, names);
}

static int values(const struct axis *axis)
{
    int n = 0;

    while (n < MOST_VALUES && axis->value[n] != NULL) n++;
    return n > 0 ? n : 1; /* an axis without values counts as one value in the number of combinations */
}

/* Writes the rule of candidate number `index`. Candidates are numbered so that the value of the last hyperparameter
 * changes fastest. */
static void write_rule(const contender *who, int index, char *rule, size_t size)
{
    const char *chosen[AXES];
    size_t used = (size_t)snprintf(rule, size, "%s", who->rule);

    for (int a = AXES - 1; a >= 0; a--) {
        chosen[a] = who->axis[a].value[index % values(&who->axis[a])];
        index /= values(&who->axis[a]);
    }
    if (index != 0) figure_stop("%s: a grid of fewer than %d candidates", who->name, CANDIDATES);
    for (int a = 0; a < AXES && chosen[a] != NULL; a++)
        used += (size_t)snprintf(rule + used, size > used ? size - used : 0, " %s=%s", who->axis[a].hyper, chosen[a]);
    if (used >= size) figure_stop("%s: the rule is too long", who->name);
}

static void grid_trials(const contender *who, trial *trials)
{
    int product = 1;

    for (int a = 0; a < AXES; a++) product *= values(&who->axis[a]);
    if (product != CANDIDATES) figure_stop("%s: a grid of %d candidates, expected %d", who->name, product, CANDIDATES);
    for (int c = 0; c < CANDIDATES; c++) {
        trials[c].seed = tuning_seed;
        write_rule(who, c, trials[c].rule, sizeof trials[c].rule);
    }
}

static int lowest(const trial *trials)
{
    int best = 0;

    for (int c = 1; c < CANDIDATES; c++)
        if (trial_final(&trials[c]) < trial_final(&trials[best])) best = c;
    return best;
}

/* Returns the index of the candidate that reaches the loss `level` in the fewest steps. Among equals, the lower loss
 * at the end wins. */
static int quickest(const trial *trials, double level)
{
    int best = 0;

    for (int c = 1; c < CANDIDATES; c++) {
        double steps = trial_reaches(&trials[c], level), least = trial_reaches(&trials[best], level);
        if (steps < least || (steps == least && trial_final(&trials[c]) < trial_final(&trials[best]))) best = c;
    }
    return best;
}

static void show_grid(const contender *who, const trial *trials, double level)
{
    fprintf(stderr, "%s, tuned on seed %llu: steps to %.4f, loss after the last epoch\n", who->name,
            (unsigned long long)tuning_seed, level);
    for (int c = 0; c < CANDIDATES; c++)
        fprintf(stderr, "  %6.0f  %.4f  %s\n", trial_reaches(&trials[c], level), trial_final(&trials[c]),
                trials[c].rule);
}

/* Tries all candidates of n optimizers. Points best[k] to the best candidate of optimizer k, which is one of
 * trials[k]. */
static void tune(const contender *const *side, int n, trial trials[][CANDIDATES], const trial_data *data, int threads,
                 trial **best)
{
    double level;

    for (int k = 0; k < n; k++) grid_trials(side[k], trials[k]);
    trial_run(trials[0], (size_t)n * CANDIDATES, data, threads);
    best[0] = &trials[0][lowest(trials[0])];
    level = trial_final(best[0]);
    for (int k = 1; k < n; k++) best[k] = &trials[k][quickest(trials[k], level)];
    for (int k = 0; k < n; k++) show_grid(side[k], trials[k], level);
}

/* The trials of one tuned optimizer, one for each of five seeds. */
typedef struct side {
    const contender *who;
    trial trials[SEEDS];
    double steps[SEEDS]; /* steps[i]: steps to the final loss of SGD with the same seed */
} side;

static double median_of(const double *at)
{
    double sorted[SEEDS];

    memcpy(sorted, at, sizeof sorted);
    return figure_quantile(sorted, SEEDS, 0.5);
}

static double median_by(const side *s, double (*of)(const trial *))
{
    double value[SEEDS];

    for (int i = 0; i < SEEDS; i++) value[i] = of(&s->trials[i]);
    return median_of(value);
}

static double accuracy_of(const trial *t)
{
    return t->accuracy;
}
static double gradient_ms_of(const trial *t)
{
    return t->gradient_ms;
}
static double optimizer_ms_of(const trial *t)
{
    return t->optimizer_ms;
}

static void measure(side *sides, int n, trial *const *rule, const trial_data *data, int threads)
{
    static trial all[MOST_SIDES * SEEDS];

    for (int i = 0; i < n * SEEDS; i++) {
        all[i].seed = seeds[i / n];
        all[i].tested = true;
        strcpy(all[i].rule, rule[i % n]->rule);
    }
    trial_run(all, (size_t)(n * SEEDS), data, threads);
    for (int i = 0; i < n * SEEDS; i++) {
        sides[i % n].trials[i / n] = all[i];
        sides[i % n].steps[i / n] = trial_reaches(&all[i], trial_final(&all[i - i % n]));
    }
}

/* Formats a median and its range: "864 (846-900)". */
static const char *spread(const double *at, char text[64])
{
    double least = at[0], most = at[0];

    for (int i = 1; i < SEEDS; i++) {
        least = fmin(least, at[i]);
        most = fmax(most, at[i]);
    }
    snprintf(text, 64, "%.0f (%.0f-%.0f)", median_of(at), least, most);
    return text;
}

/* Returns the ratio of the two optimizers' steps to a loss of `factor` times SGD's final loss. Near its end, SGD's
 * curve is flat, so the ratio for the final loss alone says little. */
static double ratio_at(const side *sgd, const side *other, double factor)
{
    double steps[2][SEEDS];

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < SEEDS; i++)
            steps[k][i] = trial_reaches(&(k == 0 ? sgd : other)->trials[i], factor * trial_final(&sgd->trials[i]));
    return median_of(steps[1]) / median_of(steps[0]);
}

static void print_value(const side *sgd, const side *other)
{
    const side *const sides[2] = { other, sgd };
    double ratio = ratio_at(sgd, other, 1.0);
    char text[64];

    printf(isfinite(ratio) ? "%.3f\t" : "999\tnever reached; ", ratio);
    printf("steps of %d seeds, median (min-max): %s", SEEDS, spread(other->steps, text));
    printf(" to %s of SGD; by seed", spread(sgd->steps, text));
    for (int i = 0; i < SEEDS; i++) printf(" %.0f/%.0f", other->steps[i], sgd->steps[i]);
    printf("; with levels 2 %% and 10 %% higher %.3f and %.3f", ratio_at(sgd, other, 1.02), ratio_at(sgd, other, 1.1));
    printf("; tuned over %d candidates each: %s, %s", CANDIDATES, other->trials[0].rule, sgd->trials[0].rule);
    for (int k = 0; k < 2; k++)
        printf("; %s: loss %.4f and test accuracy %.4f at the end, CPU time of a step %.2f ms for gradients + %.2f ms "
               "for the optimizer",
               sides[k]->who->name, median_by(sides[k], trial_final), median_by(sides[k], accuracy_of),
               median_by(sides[k], gradient_ms_of), median_by(sides[k], optimizer_ms_of));
    putchar('\n');
}

/* Writes one field of measurement number i: the values of all seeds as a list, and their median. */
static void write_field(FILE *file, const side *s, int i, const char *name, size_t offset)
{
    double value[SEEDS];

    fprintf(file, ", \"%s_by_seed\": [", name);
    for (int k = 0; k < SEEDS; k++) {
        value[k] = *(const double *)((const char *)&s->trials[k].look[i] + offset);
        fprintf(file, "%s%.6g", k == 0 ? "" : ", ", value[k]);
    }
    fprintf(file, "], \"%s\": %.6g", name, median_of(value));
}

/* Writes a file with one JSON object a line, one for each measurement of each optimizer. paramd-plot reads it. */
static void write_json(const side *sides, int n, const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) figure_stop("%s: cannot write", path);
    for (const side *s = sides; s < sides + n; s++) {
        int looks = TRIAL_LOOKS;
        for (int k = 0; k < SEEDS; k++) looks = s->trials[k].looks < looks ? s->trials[k].looks : looks;
        for (int i = 0; i < looks; i++) {
            fprintf(file, "{\"optimizer\": \"%s\", \"step\": %d", s->who->name, s->trials[0].look[i].step);
            write_field(file, s, i, "train_loss", offsetof(trial_look, train_loss));
            write_field(file, s, i, "test_loss", offsetof(trial_look, test_loss));
            write_field(file, s, i, "cpu_seconds", offsetof(trial_look, cpu_seconds));
            fputs("}\n", file);
        }
    }
    if (fclose(file) != 0) figure_stop("%s: cannot write", path);
}

static error_t on_option(int key, char *text, struct argp_state *state)
{
    arguments *args = state->input;

    switch (key) {
    case KEY_JSON: args->json = text; return 0;
    case KEY_TUNE: args->tune = true; return 0;
    case ARGP_KEY_ARG:
        if (args->n == MOST_SIDES) argp_error(state, "at most %d optimizers", MOST_SIDES - 1);
        args->who[args->n++] = find(text);
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "which optimizer?"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "json", KEY_JSON, "FILE", 0, "write every curve, one JSON object a line", 0 },
        { "tune", KEY_TUNE, NULL, 0, "only tune, and show the results of the grids", 0 },
        { 0 },
    };
    static const struct argp argp = {
        options, on_option, "OPTIMIZER...", "Steps to the training loss that momentum SGD ends at.", NULL, NULL, NULL
    };
    static trial tuning[MOST_SIDES][CANDIDATES];
    static side sides[MOST_SIDES];
    arguments args = { .who = { &contenders[0] }, .n = 1 };
    trial_data *data;
    trial *best[MOST_SIDES];
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);

    argp_parse(&argp, argc, argv, 0, NULL, &args);
    figure_kernels(argv);
    for (int k = 0; k < args.n; k++) sides[k].who = args.who[k];
    data = trial_load();
    tune(args.who, args.n, tuning, data, threads, best);
    if (!args.tune) {
        measure(sides, args.n, best, data, threads);
        if (args.json != NULL) write_json(sides, args.n, args.json);
        for (int k = 1; k < args.n; k++) print_value(&sides[0], &sides[k]);
    }
    free(data);
    return 0;
}
