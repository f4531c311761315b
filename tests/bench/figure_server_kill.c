/* server_kill: whether a daemon that is killed again and again changes the weights of a training by DiLoCo.
 *
 *     figure_server_kill [KILLS] [SECONDS]     [60] [5]
 *
 * Four workers train the quickstart's model, with a sync after 20 inner steps of AdamW, durability=log and a window of
 * two steps. A kill (SIGKILL) comes every SECONDS; the daemon is started again at once. Inner steps take so long that
 * the training lasts as long as the kills. The same training then runs without kills, as fast as it can. Prints the
 * number of values in which the final weights differ, of all workers. */
#include "figure.h"
#include "fleet.h"
#include "paramd/diloco.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { EVERY = 20, STEPS = 6000, BATCH = 8 };

/* What the workers of a run leave. */
typedef struct outcome {
    float value[FLEET_WORKERS][FLEET_VALUES], global[FLEET_WORKERS][FLEET_VALUES];
    uint64_t connects[FLEET_WORKERS], replayed[FLEET_WORKERS];
    _Atomic int over;
} outcome;

static char folder[] = "/var/tmp/paramd-figure.XXXXXX", url[64];

static void check(int rc, const pd_error *err)
{
    if (rc != PD_OK) figure_stop("a worker: %s", err->text);
}

static pd_client *join(const char *job, int rank, float *weights[TENSORS])
{
    static const char *const rules[] = { "* sgd lr=0.9 momentum=0.5 nesterov=yes", NULL };
    static const char *const options[] = { "durability=log", NULL };
    pd_client_param params[TENSORS] = { 0 };
    pd_client_options me = { .urls = url,
                             .job = job,
                             .rank = rank,
                             .world_size = FLEET_WORKERS,
                             .options = options,
                             .rules = rules,
                             .window = 2,
                             .run = "server_kill",
                             .quiet = true };
    pd_client *client;
    pd_error err = { 0 };

    for (int t = 0; t < TENSORS; t++) {
        params[t].name = tensor_name[t];
        params[t].shape = (pd_shape){ 2 - t % 2, { width[t / 2 + 1], t % 2 == 0 ? width[t / 2] : 0 } };
    }
    check(pd_client_open(&client, &me, &err), &err);
    check(pd_client_declare(client, params, TENSORS, &err), &err);
    check(pd_client_init(client, (void *const *)weights, &err), &err);
    check(pd_client_sync(client, 0, &err), &err);
    return client;
}

/* The life of a worker. step_ms: duration of an inner step; 0: as short as it can be. */
static _Noreturn void work(const char *job, int rank, double step_ms, outcome *out)
{
    static const fleet_options batches = { .seed = 1, .batch = BATCH };
    pd_diloco_options how = { .sync_every = EVERY };
    mlp *net = figure_alloc(sizeof *net);
    warm *moments = figure_alloc(sizeof *moments);
    float *weights[TENSORS];
    pd_client *client;
    pd_client_stats stats;
    pd_diloco *outer;
    pd_error err = { 0 };

    for (int t = 0; t < TENSORS; t++) weights[t] = net->value + tensor_at[t];
    mlp_init(net, 1);
    client = join(job, rank, weights);
    check(pd_diloco_make(&outer, client, weights, &how, &err), &err);
    for (int i = 1; i <= STEPS; i++) {
        double begun = figure_ms();
        fleet_batch(net, &batches, (uint64_t)rank, (uint64_t)i);
        mlp_differentiate(net, BATCH);
        fleet_adamw(net->value, net->gradient, moments->first, moments->second, i, 1e-3);
        fleet_sleep_until(begun + step_ms);
        check(pd_diloco_step(outer, weights, 0, &err), &err);
    }
    memcpy(out->value[rank], net->value, sizeof net->value);
    for (size_t t = 0; t < TENSORS; t++)
        memcpy(out->global[rank] + tensor_at[t], pd_diloco_global(outer, t),
               (size_t)(tensor_at[t + 1] - tensor_at[t]) * sizeof(float));
    stats = pd_client_count(client);
    out->connects[rank] = stats.connects;
    out->replayed[rank] = stats.replayed;
    atomic_fetch_add(&out->over, 1);
    _exit(0);
}

static outcome *start_workers(const char *job, double step_ms)
{
    outcome *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (out == MAP_FAILED) figure_stop("no memory to share");
    for (int rank = 0; rank < FLEET_WORKERS; rank++) {
        pid_t pid = fork();
        if (pid < 0) figure_stop("cannot start a process: %s", strerror(errno));
        if (pid > 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        work(job, rank, step_ms, out);
    }
    return out;
}

/* Waits until all workers are over, and fails if one has failed. Kills the daemon meanwhile, `kills` times. */
static pid_t await_workers(const outcome *out, pid_t daemon, int kills, double seconds)
{
    double next = figure_ms() + seconds * 1e3;
    int status;

    while (atomic_load(&out->over) < FLEET_WORKERS) {
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == daemon || (ended > 0 && status != 0)) figure_stop("a worker or the daemon has failed");
        fleet_sleep_until(figure_ms() + 5);
        if (kills == 0 || figure_ms() < next) continue;
        figure_kill(daemon);
        daemon = figure_spawn(url);
        next += seconds * 1e3;
        kills--;
    }
    return daemon;
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 60, differ = 0;
    double seconds = argc > 2 ? atof(argv[2]) : 5;
    outcome *killed, *calm;
    pid_t daemon;

    if (kills < 1 || !(seconds > 0)) figure_stop("expected [KILLS] [SECONDS]");
    figure_kernels(argv);
    fleet_load();
    figure_folder(folder);
    snprintf(url, sizeof url, "unix://%s/socket", folder);
    daemon = figure_spawn(url);
    killed = start_workers("killed", 1e3 * seconds * (kills + 1) / STEPS);
    daemon = await_workers(killed, daemon, kills, seconds);
    calm = start_workers("calm", 0);
    daemon = await_workers(calm, daemon, 0, 0);
    figure_kill(daemon);
    for (int rank = 0; rank < FLEET_WORKERS; rank++)
        for (int i = 0; i < FLEET_VALUES; i++)
            differ += killed->value[rank][i] != calm->value[rank][i] || killed->global[rank][i] != calm->global[0][i];
    figure_remove(folder);
    printf(
        "%d\tof %d values of 4 workers differ after %d kills, %d syncs; each worker connected %d times, the first has "
        "sent %d frames again; test loss %.4f\n",
        differ, FLEET_WORKERS * FLEET_VALUES, kills, STEPS / EVERY, (int)killed->connects[0], (int)killed->replayed[0],
        fleet_loss(calm->global[0]));
    return 0;
}
