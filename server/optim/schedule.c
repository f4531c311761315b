/* schedule.c - reads schedules of hyperparameters, and computes their value at a step. */
#include "schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hyper_text.h"

/* Interpolates between two numbers: returns `from` if `share` is 0, and `to` if it is 1. The result is exact at both
 * ends, and lies between them even after rounding. */
static double between(double from, double to, double share)
{
    double value = from * (1 - share) + to * share;

    return fmax(fmin(from, to), fmin(fmax(from, to), value));
}

static double linear_warmup(const double *arg, double count)
{
    enum { PEAK, WARMUP };

    return between(0, arg[PEAK], fmin(1, (count + 1) / arg[WARMUP]));
}

static double warmup_linear(const double *arg, double count)
{
    enum { PEAK, WARMUP, STEPS, END };

    if (count < arg[WARMUP]) return between(0, arg[PEAK], (count + 1) / arg[WARMUP]);
    return between(arg[END], arg[PEAK], fmax(0, (arg[STEPS] - count) / (arg[STEPS] - arg[WARMUP])));
}

static double polynomial_share(double count, double begin, double steps, double power)
{
    return pow(1 - fmin(steps, fmax(0, count - begin)) / steps, power);
}

static double linear(const double *arg, double count)
{
    enum { INIT, END, STEPS, BEGIN };

    return between(arg[END], arg[INIT], polynomial_share(count, arg[BEGIN], arg[STEPS], 1));
}

static double polynomial(const double *arg, double count)
{
    enum { INIT, END, POWER, STEPS, BEGIN };

    return between(arg[END], arg[INIT], polynomial_share(count, arg[BEGIN], arg[STEPS], arg[POWER]));
}

static double cosine(const double *arg, double count)
{
    enum { PEAK, STEPS, WARMUP, INIT, END, EXPONENT };
    double done = fmin(1, (count - arg[WARMUP]) / (arg[STEPS] - arg[WARMUP]));

    if (count < arg[WARMUP]) return between(arg[INIT], arg[PEAK], count / arg[WARMUP]);
    return between(arg[END], arg[PEAK], pow(0.5 * (1 + cos(M_PI * done)), arg[EXPONENT]));
}

static double inverse_sqrt(const double *arg, double count)
{
    enum { PEAK, WARMUP };
    double step = count + 1;

    if (step <= arg[WARMUP]) return between(0, arg[PEAK], step / arg[WARMUP]);
    return arg[PEAK] * sqrt(arg[WARMUP] / step);
}

static double rsqrt(const double *arg, double count)
{
    enum { BASE, WARMUP };

    return arg[BASE] / sqrt(fmax(count, arg[WARMUP]));
}

/* Computes the update probability as the schedule of the program distributed_kron does. That program counts the first
 * step as 1, but `count` is 0 in the first step: hence count + 1. */
static double anneal(const double *arg, double count)
{
    enum { MAX, MIN, DECAY, FLAT };

    return fmin(arg[MAX], fmax(arg[MIN], arg[MAX] * exp(-arg[DECAY] * (count + 1 - arg[FLAT]))));
}

double pd_schedule_anneal(int64_t count)
{
    static const double upstream[] = { 1, 0.03, 0.001, 500 };

    return anneal(upstream, (double)count);
}

/* An argument that a kind of schedule takes. */
typedef struct argument {
    const char *name;
    double preset;      /* default value of the argument; NAN: the argument is required */
    double least, most; /* range of the argument's value */
    bool whole;         /* whether the argument is a number of steps, a whole number */
} argument;

typedef enum form { NAMED, TABLE, PIECEWISE } form;

struct pd_schedule_kind {
    const char *name, *help;
    form form;
    /* The arguments of a NAMED schedule. If there are fewer than PD_SCHEDULE_ARGS, an entry without a name ends the
     * list. */
    argument args[PD_SCHEDULE_ARGS];
    double (*at)(const double *arg, double count);
};

/* 2^53, the largest number of steps in a schedule: every whole number up to it is exact in a double */
#define MOST_STEPS 9007199254740992.0
#define VALUE(name, preset)                                                                                            \
    {                                                                                                                  \
        name, preset, -1e300, 1e300, false                                                                             \
    }
#define SHARE(name, preset)                                                                                            \
    {                                                                                                                  \
        name, preset, 0, 1, false                                                                                      \
    }
#define RATE(name, preset)                                                                                             \
    {                                                                                                                  \
        name, preset, 0, 1e300, false                                                                                  \
    }
#define POWER(name, preset)                                                                                            \
    {                                                                                                                  \
        name, preset, 1e-3, 1e3, false                                                                                 \
    }
#define STEPS(name, preset, least)                                                                                     \
    {                                                                                                                  \
        name, preset, least, MOST_STEPS, true                                                                          \
    }

static const pd_schedule_kind kinds[] = {
    { "linear_warmup",
      "peak min(1, (count + 1) / warmup_steps)",
      NAMED,
      { VALUE("peak", NAN), STEPS("warmup_steps", NAN, 1) },
      linear_warmup },
    { "warmup_linear",
      "linear_warmup, then linear from peak to end, which is reached at count = steps",
      NAMED,
      { VALUE("peak", NAN), STEPS("warmup_steps", NAN, 0), STEPS("steps", NAN, 1), VALUE("end", 0) },
      warmup_linear },
    { "linear",
      "linear from init to end in `steps` steps, beginning at count = begin",
      NAMED,
      { VALUE("init", NAN), VALUE("end", NAN), STEPS("steps", NAN, 1), STEPS("begin", 0, 0) },
      linear },
    { "polynomial",
      "end + (init - end) (1 - (count - begin) / steps)^power",
      NAMED,
      { VALUE("init", NAN), VALUE("end", NAN), POWER("power", NAN), STEPS("steps", NAN, 1), STEPS("begin", 0, 0) },
      polynomial },
    { "cosine",
      "linear from init to peak in warmup_steps, then half a cosine to end, which is reached at count = steps",
      NAMED,
      { VALUE("peak", NAN), STEPS("steps", NAN, 1), STEPS("warmup_steps", 0, 0), VALUE("init", 0), VALUE("end", 0),
        POWER("exponent", 1) },
      cosine },
    { "inverse_sqrt",
      "linear_warmup, then peak sqrt(warmup_steps / (count + 1))",
      NAMED,
      { VALUE("peak", NAN), STEPS("warmup_steps", NAN, 1) },
      inverse_sqrt },
    { "rsqrt",
      "base / sqrt(max(count, warmup_steps))",
      NAMED,
      { VALUE("base", NAN), STEPS("warmup_steps", NAN, 1) },
      rsqrt },
    { "precond_update_prob_schedule",
      "max_prob exp(-decay (count + 1 - flat_start)), between min_prob and max_prob",
      NAMED,
      { SHARE("max_prob", 1), SHARE("min_prob", 0.03), RATE("decay", 0.001), VALUE("flat_start", 500) },
      anneal },
    { "piecewise",
      "the first value, then from each COUNT on the value V after its colon",
      PIECEWISE,
      { { .name = NULL } },
      NULL },
    { "table", "one value for each step; the last one stays", TABLE, { { .name = NULL } }, NULL },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int count_args(const pd_schedule_kind *kind)
{
    int n = 0;

    while (n < PD_SCHEDULE_ARGS && kind->args[n].name != NULL) n++;
    return n;
}

/* Appends to `text` how this kind of schedule is written, for error texts: "cosine(peak=,steps=,warmup_steps=0,...)".
 * Arguments without a value are required. Truncates the text if it is too long. */
static void add_usage(char *text, size_t size, const pd_schedule_kind *kind)
{
    size_t used = strlen(text);
    char preset[PD_NUMBER_TEXT];

    if (kind->form != NAMED) {
        snprintf(text + used, size - used, "%s(%s)", kind->name, kind->form == TABLE ? "V,V,..." : "V,COUNT:V,...");
        return;
    }
    snprintf(text + used, size - used, "%s(", kind->name);
    for (int i = 0; i < count_args(kind); i++) {
        const argument *arg = &kind->args[i];
        used = strlen(text);
        snprintf(text + used, size - used, "%s%s=%s", i > 0 ? "," : "", arg->name,
                 isnan(arg->preset) ? "" : pd_number_text(arg->preset, preset, sizeof preset));
    }
    used = strlen(text);
    snprintf(text + used, size - used, ")");
}

static int unknown_kind(const char *text, size_t length, pd_error *err)
{
    char list[400] = "";

    for (int i = 0; i < KINDS; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "", kinds[i].name);
    }
    return pd_fail(err, PD_INVALID_ARGUMENT, "there is no schedule %.*s; there are: %s", length < 40 ? (int)length : 40,
                   text, list);
}

/* Fills an error from a problem (`what`), the wrong `word`, and the correct form of this kind of schedule. Returns
 * PD_INVALID_ARGUMENT. */
static int misused(const pd_schedule_kind *kind, const char *what, const char *word, pd_error *err)
{
    char usage[200] = "";

    add_usage(usage, sizeof usage, kind);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s \"%.40s\"; the form is %s: %s", what, word, usage, kind->help);
}

static int read_argument(pd_schedule *schedule, int i, const char *text, pd_error *err)
{
    const argument *arg = &schedule->kind->args[i];
    int rc = arg->whole ? pd_number_read_whole(text, &schedule->arg[i]) : pd_number_read(text, &schedule->arg[i]);

    if (rc != PD_OK)
        return pd_fail(err, rc, "%s of %s: expected %s, got \"%.40s\"", arg->name, schedule->kind->name,
                       arg->whole ? "a whole number" : "a finite number", text);
    if (schedule->arg[i] < arg->least || schedule->arg[i] > arg->most)
        return pd_fail(err, PD_OUT_OF_RANGE, "%s of %s: %.40s is outside its range, %.17g to %.17g", arg->name,
                       schedule->kind->name, text, arg->least, arg->most);
    return PD_OK;
}

static int argument_called(const pd_schedule_kind *kind, const char *name)
{
    for (int i = 0; i < count_args(kind); i++)
        if (strcmp(kind->args[i].name, name) == 0) return i;
    return -1;
}

/* Checks that `steps` is more than `warmup_steps`, if the schedule has both arguments. */
static int check_arguments(const pd_schedule *schedule, pd_error *err)
{
    int steps = argument_called(schedule->kind, "steps"), warmup = argument_called(schedule->kind, "warmup_steps");

    if (steps < 0 || warmup < 0 || schedule->arg[warmup] < schedule->arg[steps]) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s: steps counts the warm-up too: expected more than warmup_steps = %.17g, got %.17g",
                   schedule->kind->name, schedule->arg[warmup], schedule->arg[steps]);
}

static int read_named(pd_schedule *schedule, char *words, pd_error *err)
{
    const pd_schedule_kind *kind = schedule->kind;
    bool given[PD_SCHEDULE_ARGS] = { false };
    char *word;
    int rc;

    if (*words == '\0') words = NULL; /* no arguments are given: all have their defaults */
    while ((word = strsep(&words, ",")) != NULL) {
        char *equals = strchr(word, '=');
        int i;
        if (equals == NULL) return misused(kind, "expected name=value, got", word, err);
        *equals = '\0';
        if ((i = argument_called(kind, word)) < 0) return misused(kind, "unknown argument", word, err);
        if (given[i]) return misused(kind, "given twice: argument", word, err);
        if ((rc = read_argument(schedule, i, equals + 1, err)) != PD_OK) return rc;
        given[i] = true;
    }
    for (int i = 0; i < count_args(kind); i++) {
        if (!given[i] && isnan(kind->args[i].preset)) return misused(kind, "missing argument", kind->args[i].name, err);
        if (!given[i]) schedule->arg[i] = kind->args[i].preset;
    }
    return check_arguments(schedule, err);
}

/* Reads the step count before value i of a piecewise schedule, "COUNT:". Moves *word after the colon. The first value
 * has no count. */
static int read_boundary(pd_schedule *schedule, size_t i, char **word, pd_error *err)
{
    char *colon = strchr(*word, ':');
    double from;

    schedule->from[i] = 0;
    if ((i == 0) != (colon == NULL))
        return misused(schedule->kind,
                       i == 0 ? "expected no count before the first value, got" : "expected a count before the value",
                       *word, err);
    if (i == 0) return PD_OK;
    *colon = '\0';
    if (pd_number_read_whole(*word, &from) != PD_OK || from > MOST_STEPS)
        return misused(schedule->kind, "expected a count, got", *word, err);
    if (from <= (double)schedule->from[i - 1])
        return misused(schedule->kind, "expected ascending counts from 1 on, got", *word, err);
    schedule->from[i] = (int64_t)from;
    *word = colon + 1;
    return PD_OK;
}

static size_t count_words(const char *words)
{
    size_t n = 1;

    for (; *words != '\0'; words++) n += *words == ',';
    return n;
}

static int read_list(pd_schedule *schedule, char *words, pd_error *err)
{
    size_t n = count_words(words);
    bool piecewise = schedule->kind->form == PIECEWISE;
    char *word;

    schedule->value = malloc(n * sizeof *schedule->value);
    if (piecewise) schedule->from = malloc(n * sizeof *schedule->from);
    if (schedule->value == NULL || (piecewise && schedule->from == NULL))
        return pd_fail(err, PD_NO_MEMORY, "out of memory for a schedule");
    for (size_t i = 0; (word = strsep(&words, ",")) != NULL; i++) {
        int rc = piecewise ? read_boundary(schedule, i, &word, err) : PD_OK;
        if (rc != PD_OK) return rc;
        if (pd_number_read(word, &schedule->value[i]) != PD_OK)
            return misused(schedule->kind, "expected a finite number, got", word, err);
    }
    schedule->n = n;
    return PD_OK;
}

/* Reads the arguments of a schedule: the text between its parentheses, which the function cuts into words. */
static int read_words(pd_schedule *schedule, char *words, pd_error *err)
{
    return schedule->kind->form == NAMED ? read_named(schedule, words, err) : read_list(schedule, words, err);
}

bool pd_schedule_is_text(const char *text)
{
    return strchr(text, '(') != NULL;
}

static const pd_schedule_kind *find_kind(const char *name, size_t length)
{
    for (int i = 0; i < KINDS; i++)
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0) return &kinds[i];
    return NULL;
}

int pd_schedule_read(pd_schedule **out, const char *text, pd_error *err)
{
    size_t length = strlen(text), name = strcspn(text, "(");
    const pd_schedule_kind *kind = find_kind(text, name);
    pd_schedule *schedule;
    char *words;
    int rc;

    if (kind == NULL) return unknown_kind(text, name, err);
    if (length < name + 2 || text[length - 1] != ')')
        return misused(kind, "expected a closing parenthesis at the end of", text, err);
    schedule = calloc(1, sizeof *schedule);
    words = strndup(text + name + 1, length - name - 2);
    if (schedule == NULL || words == NULL || (schedule->text = strdup(text)) == NULL) {
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory for a schedule");
    } else {
        schedule->kind = kind;
        rc = read_words(schedule, words, err);
    }
    free(words);
    if (rc == PD_OK)
        *out = schedule;
    else
        pd_schedule_free(schedule);
    return rc;
}

void pd_schedule_free(pd_schedule *schedule)
{
    if (schedule == NULL) return;
    free(schedule->value);
    free(schedule->from);
    free(schedule->text);
    free(schedule);
}

/* Returns the index of the value that a piecewise schedule has at `count`: the last i with from[i] <= count. */
static size_t piece_at(const pd_schedule *schedule, int64_t count)
{
    size_t low = 0, high = schedule->n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (schedule->from[middle] <= count)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double pd_schedule_at(const pd_schedule *schedule, int64_t count)
{
    switch (schedule->kind->form) {
    case NAMED: return schedule->kind->at(schedule->arg, (double)count);
    case PIECEWISE: return schedule->value[piece_at(schedule, count)];
    case TABLE: break;
    }
    return schedule->value[(size_t)count < schedule->n ? (size_t)count : schedule->n - 1];
}

bool pd_schedule_is_list(const pd_schedule *schedule)
{
    return schedule->kind->form != NAMED;
}

/* Stores corner number i of a schedule in *count. Returns false if the schedule has fewer corners. Corners are counts
 * of steps: between two neighbouring corners the schedule's value only rises or only falls. The corners of a schedule
 * with a formula are: 0, each argument that is a number of steps, that number minus 1, the sum of these arguments, and
 * a count beyond all of them. */
bool pd_schedule_corner(const pd_schedule *schedule, size_t i, int64_t *count)
{
    double corner[2 * PD_SCHEDULE_ARGS + 3] = { 0 }, sum = 0;
    size_t n = 1;

    if (schedule->kind->form != NAMED) {
        if (i < schedule->n) *count = schedule->kind->form == TABLE ? (int64_t)i : schedule->from[i];
        return i < schedule->n;
    }
    for (int a = 0; a < count_args(schedule->kind); a++) {
        if (!schedule->kind->args[a].whole) continue;
        corner[n++] = fmax(0, schedule->arg[a] - 1);
        corner[n++] = schedule->arg[a];
        sum += schedule->arg[a];
    }
    corner[n++] = sum;
    corner[n++] = 2 * MOST_STEPS;
    if (i < n) *count = (int64_t)corner[i];
    return i < n;
}
