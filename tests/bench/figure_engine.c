/* takeover_s, etcd_cost: what an engine brings and costs. Both start an etcd of one member on this machine: `etcd`, or
 * the program that the environment variable PARAMD_TEST_ETCD names. Exit status 77: there is none.
 *
 *     figure_engine takeover|cost
 *
 * takeover: the owner of a job whose weights and state of AdamW take 1 GiB is killed, and its state directory is lost.
 * A spare takes the shard over, with the state of the mirror. The figure is the time from the kill to the next new
 * step, in seconds, beyond the time of a key lease (10 s); beyond the time that the spare needs to fetch and to load
 * the state, by its own log; and beyond three steps: two that are sent again, and the next one. The bar is 2 s, for
 * which the spare would ask an owner that does not answer, and 1 s.
 *
 * cost: step time on a daemon that is registered with etcd, over that on a daemon without an engine. Leases last 1 s,
 * so renewals are ten times as many as by default. Blocks of steps of both alternate. The figure is the median, over
 * pairs of blocks, of the ratio of their median step times. */
#include "figure.h"
#include "bench_team.h"
#include "programs.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { SKIPPED = 77, PATIENCE_MS = 120000 };

static char folder[] = "/var/tmp/paramd-figure.XXXXXX";
static int first_port;

/* Returns the address of daemon i; i < 0: of etcd. The text is valid until the fourth next call. */
static const char *url_of(const char *scheme, int i)
{
    static char texts[4][48];
    static unsigned next;
    char *text = texts[next++ % 4];

    snprintf(text, sizeof texts[0], "%s://127.0.0.1:%d", scheme, first_port + 2 + i);
    return text;
}

/* Returns the path of something in the folder. The text is valid until the fourth next call. */
static const char *path_of(const char *name)
{
    static char texts[4][96];
    static unsigned next;
    char *text = texts[next++ % 4];

    snprintf(text, sizeof texts[0], "%s/%s", folder, name);
    return text;
}

/* Starts etcd. Ends this program with status 77 if it is not installed. */
static pid_t start_etcd(void)
{
    const char *named = getenv("PARAMD_TEST_ETCD"), *program = named != NULL ? named : "etcd";
    const char *clients = url_of("http", -1), *peers = url_of("http", -2);
    char command[512], data[96], cluster[64];
    pid_t pid;

    snprintf(command, sizeof command, "command -v '%.400s' > /dev/null", program);
    if (system(command) != 0) {
        fprintf(stderr, "there is no etcd: install etcd-server, or set PARAMD_TEST_ETCD\n");
        exit(SKIPPED);
    }
    snprintf(data, sizeof data, "%s", path_of("etcd"));
    snprintf(cluster, sizeof cluster, "m=%s", peers);
    if ((pid = fork()) != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen("/dev/null", "w", stderr) == NULL || dup2(fileno(stderr), STDOUT_FILENO) < 0) _exit(126);
    execlp(program, "etcd", "--name", "m", "--data-dir", data, "--listen-client-urls", clients,
           "--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
           "--initial-cluster", cluster, "--logger", "zap", (char *)NULL);
    _exit(127);
}

static void await_daemon(const char *url)
{
    double until = figure_ms() + PATIENCE_MS;
    pd_error err;

    while (pd_operator_probe(url, 1, &err) != PD_OK) {
        if (figure_ms() > until) figure_stop("%s", err.text);
        pd_pause_s(0.01);
    }
}

/* Sets what daemons that are started from now on have: a state directory in the folder, and a mirror or NULL. */
static void set_folders(const char *state, bool mirrors)
{
    setenv("PARAMD_SERVER_STATE_DIR", path_of(state), 1);
    if (mirrors)
        setenv("PARAMD_SERVER_MIRROR", path_of("mirror"), 1);
    else
        unsetenv("PARAMD_SERVER_MIRROR");
}

/* Sets which engine daemons that are started from now on have, and whether they are spares. */
static void set_engine(bool has, bool spare, const char *ttl)
{
    static const char *const keys[] = { "PARAMD_CLUSTER_ENGINE", "PARAMD_CLUSTER_SPARE", "PARAMD_CLUSTER_TTL" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) unsetenv(keys[i]);
    if (!has) return;
    setenv(keys[0], url_of("etcd", -1), 1);
    setenv(keys[1], spare ? "yes" : "no", 1);
    setenv(keys[2], ttl, 1);
}

/* ---- takeover ---- */

enum { SIDE = 1000, PARAMS = 89, WINDOW = 8, CUT = 4, RESENT = 2, TTL_MS = 10000 };

/* Waits until the mirror has the checkpoint of a step. */
static void await_mirrored(const char *url, uint64_t step)
{
    double until = figure_ms() + PATIENCE_MS;
    bool there = false;

    for (; !there; pd_pause_s(0.02)) {
        pd_operator op;
        const Paramd__StatusReply *status = figure_status(url, &op);
        there = status->n_jobs > 0 && status->jobs[0]->mirrored_step >= step;
        pd_operator_close(&op);
        if (figure_ms() > until) figure_stop("the mirror has not got step %d", (int)step);
    }
}

/* Returns the time of day, in ms, of the first line of the spare's log that has this text. */
static double ms_of_line(const char *text)
{
    FILE *file = fopen(path_of("log"), "re");
    unsigned hours, minutes;
    char line[1024];
    double seconds;

    if (file == NULL) figure_stop("the spare has no log");
    while (fgets(line, sizeof line, file) != NULL && strstr(line, text) == NULL) line[0] = '\0';
    fclose(file);
    if (sscanf(line, "%*10sT%u:%u:%lf", &hours, &minutes, &seconds) != 3)
        figure_stop("the spare's log has no line with a time and \"%s\"", text);
    return ((hours * 60 + minutes) * 60 + seconds) * 1e3;
}

/* Returns for how many ms the spare has fetched and loaded the state. *fetching: the part of it that was fetching. */
static double load_ms(double *fetching)
{
    enum { DAY_MS = 24 * 60 * 60 * 1000 };
    double begun = ms_of_line("shard 0 has no owner");

    *fetching = fmod(ms_of_line("was fetched from") - begun + DAY_MS, DAY_MS);
    return fmod(ms_of_line("job takeover: is back at step") - begun + DAY_MS, DAY_MS);
}

static team *start_large(void)
{
    static const char *const options[] = { "checkpoint_every=4", "checkpoint_keep=1", NULL };
    static int64_t elements[PARAMS];
    char urls[128];

    for (int i = 0; i < PARAMS; i++) elements[i] = (int64_t)SIDE * SIDE;
    snprintf(urls, sizeof urls, "%s,%s", url_of("tcp", 0), url_of("tcp", 1));
    return team_start(&(team_options){ .url = urls,
                                       .job = "takeover",
                                       .workers = 1,
                                       .elements = elements,
                                       .n = PARAMS,
                                       .square = true,
                                       .rule = "* adamw lr=0.001",
                                       .options = options,
                                       .window = WINDOW });
}

/* Starts the owner (0) or the spare (1), with its log in a file. */
static pid_t start_daemon(int i)
{
    char path[4096], log[96];
    pd_error err;
    pid_t pid;

    set_folders(i == 0 ? "owner" : "spare", true);
    set_engine(true, i != 0, "10s");
    if (pd_sibling_path(path, sizeof path, "paramd", &err) != PD_OK) figure_stop("%s", err.text);
    snprintf(log, sizeof log, "%s", path_of(i == 0 ? "log_of_owner" : "log"));
    if ((pid = fork()) != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen(log, "w", stderr) == NULL) _exit(126);
    execl(path, path, "--listen", url_of("tcp", i), (char *)NULL);
    _exit(127);
}

static void measure_takeover(void)
{
    double step_ms[RESENT], loading, fetching, steps, took;
    pid_t owner = start_daemon(0), spare;
    team *t;

    await_daemon(url_of("tcp", 0));
    spare = start_daemon(1);
    t = start_large();
    team_steps(t, CUT, NULL);
    await_mirrored(url_of("tcp", 0), CUT);
    team_steps(t, RESENT, step_ms);
    steps = (RESENT + 1) * figure_quantile(step_ms, RESENT, 0.5);
    took = figure_ms();
    figure_kill(owner);
    figure_remove(path_of("owner"));
    team_steps(t, 1, NULL);
    took = figure_ms() - took;
    loading = load_ms(&fetching);
    printf(
        "%.2f\t%.2f s from the kill to the next step; the spare took %.2f s to fetch the state and %.2f s to load it, "
        "three steps take %.2f s\n",
        (took - TTL_MS - loading - steps) / 1e3, took / 1e3, fetching / 1e3, (loading - fetching) / 1e3, steps / 1e3);
    team_end(t);
    figure_kill(spare);
}

/* ---- cost ---- */

enum { PAIRS = 101, STEPS = 250, TENSORS = 16, ELEMENTS = 1 << 14 };

static double median_step(team *t)
{
    double ms[STEPS];

    team_steps(t, STEPS, ms);
    return figure_quantile(ms, STEPS, 0.5);
}

static team *start_small(const char *url)
{
    static const char *const options[] = { "durability=none", NULL };
    static int64_t elements[TENSORS];

    for (int i = 0; i < TENSORS; i++) elements[i] = ELEMENTS;
    return team_start(&(team_options){
        .url = url, .job = "cost", .workers = 1, .elements = elements, .n = TENSORS, .options = options });
}

static void measure_cost(void)
{
    double ratio[PAIRS], ms[2][PAIRS], cpu[2];
    pid_t daemons[2];
    team *teams[2];

    for (int i = 0; i < 2; i++) {
        set_folders(i == 0 ? "alone" : "registered", false);
        set_engine(i == 1, false, "1s");
        daemons[i] = figure_spawn(url_of("tcp", i));
        await_daemon(url_of("tcp", i));
        teams[i] = start_small(url_of("tcp", i));
        median_step(teams[i]);
        cpu[i] = figure_cpu_ms(daemons[i]);
    }
    for (int k = 0; k < PAIRS; k++) {
        for (int i = 0; i < 2; i++) ms[(i + k) % 2][k] = median_step(teams[(i + k) % 2]);
        ratio[k] = ms[1][k] / ms[0][k];
    }
    for (int i = 0; i < 2; i++) cpu[i] = figure_cpu_ms(daemons[i]) - cpu[i];
    printf("%.3f\tpairs from %.3f to %.3f, 50 %% of them from %.3f to %.3f; ", figure_quantile(ratio, PAIRS, 0.5),
           figure_quantile(ratio, PAIRS, 0), figure_quantile(ratio, PAIRS, 1), figure_quantile(ratio, PAIRS, 0.25),
           figure_quantile(ratio, PAIRS, 0.75));
    printf("median steps of %.3f and %.3f ms; the daemons' CPU time %.3f, %.0f ms over %.0f; %d pairs of blocks of %d "
           "steps of 1 MiB, one worker, leases of 1 s\n",
           figure_quantile(ms[1], PAIRS, 0.5), figure_quantile(ms[0], PAIRS, 0.5), cpu[1] / cpu[0], cpu[1], cpu[0],
           PAIRS, STEPS);
    for (int i = 0; i < 2; i++) {
        team_end(teams[i]);
        figure_kill(daemons[i]);
    }
}

int main(int argc, char **argv)
{
    bool takeover = argc == 2 && strcmp(argv[1], "takeover") == 0;
    pid_t etcd;

    if (argc != 2 || (!takeover && strcmp(argv[1], "cost") != 0)) figure_stop("expected takeover|cost");
    figure_kernels(argv);
    first_port = 20000 + (int)getpid() % 10000;
    figure_folder(folder);
    etcd = start_etcd();
    if (takeover)
        measure_takeover();
    else
        measure_cost();
    kill(etcd, SIGKILL);
    waitpid(etcd, NULL, 0);
    figure_remove(folder);
    return 0;
}
