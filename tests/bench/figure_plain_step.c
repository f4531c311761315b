/* plain_step: how long a step of a job that uses no new option takes, over the same in another build.
 *
 *     figure_plain_step PROGRAM [SECONDS]     PROGRAM: figure_plain_step of the other build; tests/bench/plain_step.sh
 *                                             makes one. SECONDS: of each shape [60]
 *
 * Each build has a process of its own, with a daemon and two workers of that build, which do nothing until they are
 * asked for a block of steps. The two take turns. Every second pair of blocks begins with the other build, so that a
 * drift cancels out. Where the memory of a process lies and which core it gets can change its speed by a tenth, so a
 * pair of processes gives one number only: its ratio, which is the median over its pairs of blocks of the ratio of
 * their median step times. After INSTANCE_MS the processes are ended and new ones started. The figure is the median
 * over the pairs of processes, of the shape where it is largest. */
#include "figure.h"
#include "bench_team.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

enum { WORKERS = 2, MOST_TENSORS = 500, MOST_PAIRS = 5000, MOST_STEPS = 200, INSTANCE_MS = 700 };

/* What a job looks like, and how many steps are a block. `shared`: through the Unix socket and shared memory. */
typedef struct shape {
    const char *name;
    size_t tensors;
    int64_t elements;
    bool shared;
    int steps;
} shape;

static const shape shapes[] = {
    { "8 tensors of 1 MiB", 8, 1 << 18, false, 5 },
    { "500 of 4 KiB", 500, 1024, false, 10 },
    { "500 of 4 KiB in shared memory", 500, 1024, true, 10 },
    { "one of 4 KiB", 1, 1024, false, 150 },
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- one build ---- */

/* Answers each line of the standard input with the median step time of a block, in ms. Returns at its end. */
static void serve(const shape *s)
{
    static int64_t elements[MOST_TENSORS];
    double ms[MOST_STEPS];
    char line[16];
    pd_child daemon;
    team *workers;

    figure_daemon(&daemon);
    for (size_t i = 0; i < s->tensors; i++) elements[i] = s->elements;
    workers = team_start(&(team_options){ .url = s->shared ? daemon.local : daemon.url,
                                          .job = "plain",
                                          .workers = WORKERS,
                                          .elements = elements,
                                          .n = s->tensors });
    while (fgets(line, sizeof line, stdin) != NULL) {
        team_steps(workers, s->steps, ms);
        printf("%.9g\n", figure_quantile(ms, (size_t)s->steps, 0.5));
        fflush(stdout);
    }
    team_end(workers);
    pd_child_stop(&daemon);
}

/* ---- both, in turn ---- */

typedef struct side {
    FILE *to, *from;
} side;

static void become(const char *program, int number, const int *in, const int *out)
{
    char text[16];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof text, "%d", number);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    close(in[1]);
    close(out[0]);
    execl(program, program, "--serve", text, NULL);
    _exit(127);
}

static void start(side *s, const char *program, int number)
{
    int in[2], out[2];
    pid_t pid;

    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || (pid = fork()) < 0)
        figure_stop("cannot start a process: %s", strerror(errno));
    if (pid == 0) become(program, number, in, out);
    close(in[0]);
    close(out[1]);
    s->to = fdopen(in[1], "w");
    s->from = fdopen(out[0], "r");
}

static double block(const side *s)
{
    double ms;

    if (fputs("go\n", s->to) < 0 || fflush(s->to) != 0 || fscanf(s->from, "%lf", &ms) != 1)
        figure_stop("a process has ended early");
    return ms;
}

/* Waits for the end of the process: it closes its output then. */
static void end(side *s)
{
    fclose(s->to);
    while (fgetc(s->from) != EOF) {}
    fclose(s->from);
}

/* Starts both builds, and gives the median ratio of their step times, and this build's median step time. */
static void measure(int number, const char *const programs[2], double *ratio, double *ms)
{
    static double ratios[MOST_PAIRS], times[MOST_PAIRS];
    double began;
    side sides[2];
    size_t n = 0;

    for (int k = 0; k < 2; k++) start(&sides[k], programs[k], number);
    for (int i = 0; i < 4; i++) block(&sides[i % 2]);
    for (began = figure_ms(); figure_ms() < began + INSTANCE_MS && n < MOST_PAIRS; n++) {
        double took[2];
        for (size_t i = 0; i < 2; i++) took[(n + i) % 2] = block(&sides[(n + i) % 2]);
        ratios[n] = took[0] / took[1];
        times[n] = took[0];
    }
    for (int k = 0; k < 2; k++) end(&sides[k]);
    *ratio = figure_quantile(ratios, n, 0.5);
    *ms = figure_quantile(times, n, 0.5);
}

/* What came of one shape. */
typedef struct result {
    double ratio, low, high; /* the median ratio, and the ends of its 95 % interval */
    double ms;               /* median step time of this build */
    int n;                   /* pairs of processes */
} result;

static result repeat(int number, const char *const programs[2], double seconds)
{
    static double ratio[MOST_PAIRS], ms[MOST_PAIRS];
    double began = figure_ms(), spread;
    result r = { 0 };

    for (; figure_ms() < began + seconds * 1e3 && r.n < MOST_PAIRS; r.n++)
        measure(number, programs, &ratio[r.n], &ms[r.n]);
    r.ms = figure_quantile(ms, (size_t)r.n, 0.5);
    r.ratio = figure_quantile(ratio, (size_t)r.n, 0.5);
    /* The order statistics between which the true median lies in 95 of 100 cases. */
    spread = 0.98 / sqrt(r.n);
    r.low = figure_quantile(ratio, (size_t)r.n, fmax(0, 0.5 - spread));
    r.high = figure_quantile(ratio, (size_t)r.n, fmin(1, 0.5 + spread));
    return r;
}

int main(int argc, char **argv)
{
    const char *const programs[2] = { "/proc/self/exe", argc > 1 ? argv[1] : "" };
    double seconds = argc > 2 ? atof(argv[2]) : 60;
    result results[SHAPES], worst = { 0 };

    if (argc == 3 && strcmp(argv[1], "--serve") == 0) {
        serve(&shapes[atoi(argv[2])]);
        return 0;
    }
    if (argc < 2 || seconds <= 0) figure_stop("expected PROGRAM [SECONDS]");
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < SHAPES; i++) {
        results[i] = repeat(i, programs, seconds);
        if (results[i].ratio > worst.ratio) worst = results[i];
    }
    printf("%.4f\t", worst.ratio);
    for (int i = 0; i < SHAPES; i++) {
        result *r = &results[i];
        printf("%s%s: %.4f (95 %%: %.4f to %.4f), steps of %.3f ms, %d pairs of processes", i == 0 ? "" : "; ",
               shapes[i].name, r->ratio, r->low, r->high, r->ms, r->n);
    }
    putchar('\n');
    return 0;
}
