/* cluster_cpu, cluster_skew, settle_cost, cluster_recovery, cluster_scale: what it costs and brings that several
 * daemons share a job.
 *
 *     figure_cluster cpu|skew|settle|recovery|scale
 *
 * cpu: CPU time of two daemons for the same steps of one worker, over that of one daemon. skew: the largest load of a
 * shard over the mean, of GPT-2 small, as computed by the daemons' own map; the worst of AdamW and Shampoo on 4 and 16
 * shards, where Shampoo on 16 has split_bytes=16MiB.
 * settle: step time of a job that steps as a whole on two shards, whose steps need a verdict, over that of a job whose
 * parameters step apart; tiny tensors. recovery: time from the restart of a killed shard of three to the next step with
 * eight steps to send again from the window, over that of one daemon with as much state. scale: payload of four daemons
 * over four times that of one, with a worker for each pair of cores; needs 16 cores. */
#include "figure.h"

#include <signal.h>
#include <sys/wait.h>

#include "shapes_file.h"
#include "shard_plan.h"

enum { MOST_DAEMONS = 4, MOST_PARAMS = 64 };

/* A job of one worker on the first `daemons` daemons of a list. */
typedef struct job {
    pd_client *client;
    size_t params, elements; /* elements: of each parameter */
    float *gradient;
} job;

static void join(job *j, const char *urls, const char *name, const char *scope, uint32_t window)
{
    pd_client_param params[MOST_PARAMS];
    const char *options[] = { scope, "checkpoint_every=1000", NULL };
    void *weights[MOST_PARAMS];
    char names[MOST_PARAMS][16];
    const pd_client_options how = { .urls = urls,
                                    .job = name,
                                    .world_size = 1,
                                    .rules = (const char *const[]){ "* sgd lr=0.01 momentum=0.9", NULL },
                                    .options = options,
                                    .window = window,
                                    .deadline = 60 };
    pd_error err = { 0 };

    j->gradient = figure_alloc(j->elements * sizeof(float));
    for (size_t i = 0; i < j->elements; i++) j->gradient[i] = 0.001f * (float)(i % 17);
    for (size_t i = 0; i < j->params; i++) {
        snprintf(names[i], sizeof names[i], "p%zu", i);
        params[i] = (pd_client_param){ .name = names[i], .shape = { 1, { (int64_t)j->elements } } };
        weights[i] = j->gradient;
    }
    if (pd_client_open(&j->client, &how, &err) != PD_OK ||
        pd_client_declare(j->client, params, j->params, &err) != PD_OK ||
        pd_client_init(j->client, weights, &err) != PD_OK)
        figure_stop("%s: %s", urls, err.text);
}

static void step(job *j)
{
    pd_item items[MOST_PARAMS];
    pd_push_options options = { 0 };
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (size_t i = 0; i < j->params; i++) items[i] = (pd_item){ .param = (uint32_t)i, .gradient = j->gradient };
    if (pd_client_push(j->client, items, j->params, &options, &ticket, &err) != PD_OK ||
        pd_client_wait(j->client, ticket, 60, &err) != PD_OK)
        figure_stop("%s", err.text);
}

static void leave(job *j)
{
    pd_client_leave(j->client, NULL);
    pd_client_close(j->client);
    free(j->gradient);
}

static double median_step_ms(job *j, int steps)
{
    double *at = figure_alloc((size_t)steps * sizeof *at), value;

    for (int s = 0; s < 10; s++) step(j);
    for (int s = 0; s < steps; s++) {
        double begun = figure_ms();
        step(j);
        at[s] = figure_ms() - begun;
    }
    value = figure_quantile(at, (size_t)steps, 0.5);
    free(at);
    return value;
}

/* Daemons that this program has started, and the list of the first n of them. */
typedef struct daemons {
    pd_child at[MOST_DAEMONS];
    int n;
} daemons;

static void start(daemons *d, int n)
{
    for (d->n = 0; d->n < n; d->n++) figure_daemon(&d->at[d->n]);
}

static void stop(daemons *d)
{
    while (d->n > 0) pd_child_stop(&d->at[--d->n]);
}

static const char *list_of(const daemons *d, int n, char text[512])
{
    size_t used = 0;

    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, 512 - used, "%s%s", i > 0 ? " " : "", d->at[i].url);
    return text;
}

/* Returns the CPU time in ms that the first n daemons take for a number of steps of 64 MiB. */
static double cpu_of(const daemons *d, int n)
{
    enum { STEPS = 40 };
    job j = { .params = 16, .elements = 1 << 20 };
    double before = 0, after = 0;
    char list[512], name[16];

    snprintf(name, sizeof name, "cpu%d", n);
    join(&j, list_of(d, n, list), name, "nonfinite_scope=job", 0);
    for (int s = 0; s < 5; s++) step(&j);
    for (int i = 0; i < n; i++) before += figure_cpu_ms(d->at[i].pid);
    for (int s = 0; s < STEPS; s++) step(&j);
    for (int i = 0; i < n; i++) after += figure_cpu_ms(d->at[i].pid);
    leave(&j);
    return after - before;
}

static void measure_cpu(void)
{
    daemons d;
    double one, two;

    start(&d, 2);
    (void)cpu_of(&d, 2); /* the first job pays for the memory of all */
    one = cpu_of(&d, 1);
    two = cpu_of(&d, 2);
    printf("%.3f\t%.0f ms on two daemons, %.0f on one; 40 steps of 64 MiB, momentum SGD, one worker\n", two / one, two,
           one);
    stop(&d);
}

/* Returns the skew of GPT-2 small on some shards with one rule and one value of the job key split_bytes. */
static double skew_of(const char *rule, uint32_t shards, const char *split)
{
    static const pd_speeds speeds = { 2e9, 1e11 };
    char *const rules[] = { (char *)rule };
    pd_sizing sizing = pd_forecast_job();
    pd_forecast forecast;
    pd_shard_plan plan;
    pd_shapes shapes;
    pd_error err = { 0 };

    if (pd_job_values_set(&sizing.values, "nonfinite_scope", "job", &err) != PD_OK ||
        pd_job_values_set(&sizing.values, "split_bytes", split, &err) != PD_OK ||
        pd_shapes_read(&shapes, "tests/support/gpt2_small.shapes", &err) != PD_OK ||
        pd_forecast_make(&forecast, &sizing, &shapes, rules, 1, pd_optimizer_table, &err) != PD_OK ||
        pd_shard_plan_make(&plan, NULL, &forecast, shards, &speeds, &err) != PD_OK)
        figure_stop("%s", err.text);
    pd_forecast_free(&forecast);
    pd_shapes_free(&shapes);
    return plan.skew.over_mean;
}

static void measure_skew(void)
{
    static const char adamw[] = "* adamw", shampoo[] = "* shampoo precondition_frequency=50 root_delay=50";
    double few[2] = { skew_of(adamw, 4, "32MiB"), skew_of(shampoo, 4, "32MiB") };
    double many[2] = { skew_of(adamw, 16, "32MiB"), skew_of(shampoo, 16, "16MiB") };

    printf("%.3f\tcomputed: 4 shards AdamW %.3f, Shampoo %.3f; 16 shards AdamW %.3f, Shampoo with split_bytes=16MiB "
           "%.3f\n",
           fmax(fmax(few[0], few[1]), fmax(many[0], many[1])), few[0], few[1], many[0], many[1]);
}

static void measure_settle(void)
{
    enum { STEPS = 2000 };
    job apart = { .params = 8, .elements = 256 }, whole = { .params = 8, .elements = 256 };
    double apart_ms, whole_ms;
    char list[512];
    daemons d;

    start(&d, 2);
    join(&apart, list_of(&d, 2, list), "apart", "nonfinite_scope=parameter", 0);
    apart_ms = median_step_ms(&apart, STEPS);
    leave(&apart);
    join(&whole, list_of(&d, 2, list), "whole", "nonfinite_scope=job", 0);
    whole_ms = median_step_ms(&whole, STEPS);
    leave(&whole);
    printf("%.3f\tsteps of %.3f ms with a verdict, %.3f without; 8 tensors of 1 KiB, two shards, one worker\n",
           whole_ms / apart_ms, whole_ms, apart_ms);
    stop(&d);
}

static void await_daemon(const char *url)
{
    double until = figure_ms() + 20000;
    pd_error err;

    while (pd_operator_probe(url, 1, &err) != PD_OK) {
        if (figure_ms() > until) figure_stop("%s", err.text);
        pd_pause_s(0.01);
    }
}

/* Starts a daemon at an address with its checkpoints in a folder. */
static pid_t spawn(const char *url, const char *folder)
{
    pid_t pid;

    setenv("PARAMD_SERVER_STATE_DIR", folder, 1);
    pid = figure_spawn(url);
    await_daemon(url);
    return pid;
}

/* A daemon with its checkpoints in a folder. */
typedef struct keeper {
    char url[28], folder[40];
    pid_t pid;
} keeper;

enum { SHARDS = 3, REPEATS = 7 };

/* Kills the last of n daemons in a job that has 8 MiB of weights on each, starts it again, and returns the ms from its
 * restart to the end of the next step. */
static double recover(keeper *keepers, int n, int round)
{
    enum { DURABLE = 16, AGAIN = 8 };
    job j = { .params = 8 * (size_t)n, .elements = 1 << 18 };
    keeper *last = &keepers[n - 1];
    char name[32], list[SHARDS * 32] = "";
    pd_error err = { 0 };
    double begun;

    for (int i = 0; i < n; i++) {
        if (i > 0) strcat(list, " ");
        strcat(list, keepers[i].url);
    }
    snprintf(name, sizeof name, "r%d-%d", n, round);
    join(&j, list, name, "nonfinite_scope=job", 64);
    for (int s = 0; s < DURABLE; s++) step(&j);
    if (pd_client_sync(j.client, DURABLE, &err) != PD_OK) figure_stop("%s", err.text);
    for (int s = 0; s < AGAIN; s++) step(&j);
    figure_kill(last->pid);
    begun = figure_ms();
    last->pid = spawn(last->url, last->folder);
    step(&j);
    begun = figure_ms() - begun;
    leave(&j);
    return begun;
}

static void measure_recovery(void)
{
    double ratio[REPEATS], three[REPEATS], one[REPEATS];
    int port = 20000 + (int)getpid() % 10000;
    keeper keepers[SHARDS];

    for (int i = 0; i < SHARDS; i++) {
        strcpy(keepers[i].folder, "/tmp/paramd-cluster-XXXXXX");
        figure_folder(keepers[i].folder);
        snprintf(keepers[i].url, sizeof keepers[i].url, "tcp://127.0.0.1:%d", port + i);
        keepers[i].pid = spawn(keepers[i].url, keepers[i].folder);
    }
    for (int i = 0; i < REPEATS; i++) {
        three[i] = recover(keepers, SHARDS, i);
        one[i] = recover(keepers, 1, i);
        ratio[i] = three[i] / one[i];
    }
    printf("%.3f\tmedians %.3f s with three shards, %.3f s with one daemon; ", figure_quantile(ratio, REPEATS, 0.5),
           figure_quantile(three, REPEATS, 0.5) / 1e3, figure_quantile(one, REPEATS, 0.5) / 1e3);
    printf("8 tensors of 1 MiB on each, 8 steps to send again; pairs from %.2f to %.2f\n",
           figure_quantile(ratio, REPEATS, 0), figure_quantile(ratio, REPEATS, 1));
    for (int i = 0; i < SHARDS; i++) {
        figure_kill(keepers[i].pid);
        figure_remove(keepers[i].folder);
    }
}

/* Returns the payload in GB/s of one worker with the first n daemons. */
static double payload_of(const daemons *d, int n)
{
    enum { STEPS = 30 };
    job j = { .params = 64, .elements = 1 << 20 };
    char list[512], name[16];
    double begun;

    snprintf(name, sizeof name, "scale%d", n);
    join(&j, list_of(d, n, list), name, "nonfinite_scope=job", 0);
    for (int s = 0; s < 3; s++) step(&j);
    begun = figure_ms();
    for (int s = 0; s < STEPS; s++) step(&j);
    begun = figure_ms() - begun;
    leave(&j);
    return STEPS * 2.0 * 64 * 4 * (1 << 20) / (begun * 1e6);
}

static int measure_scale(void)
{
    enum { CORES = 16 };
    double one, four;
    daemons d;

    if (sysconf(_SC_NPROCESSORS_ONLN) < CORES) {
        fprintf(stderr, "cluster_scale needs %d cores: four daemons and their worker must not share any\n", CORES);
        return 77;
    }
    start(&d, 4);
    one = payload_of(&d, 1);
    four = payload_of(&d, 4);
    printf("%.3f\t%.2f GB/s with four daemons, %.2f with one; one worker, 64 tensors of 4 MiB\n", four / one / 4, four,
           one);
    stop(&d);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    figure_kernels(argv);
    if (strcmp(what, "cpu") == 0)
        measure_cpu();
    else if (strcmp(what, "skew") == 0)
        measure_skew();
    else if (strcmp(what, "settle") == 0)
        measure_settle();
    else if (strcmp(what, "recovery") == 0)
        measure_recovery();
    else if (strcmp(what, "scale") == 0)
        return measure_scale();
    else
        figure_stop("expected cpu|skew|settle|recovery|scale");
    return 0;
}
