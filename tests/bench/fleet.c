/* fleet.c - starts, kills and watches worker processes, and tests the weights that they leave. */
#include "fleet.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "figure.h"

enum { TEST_IMAGES = 5000 };

static const char folder[] = "/usr/share/datasets/fashion-mnist";
static images *train, *test;

void fleet_load(void)
{
    pd_error err = { 0 };

    train = figure_alloc(sizeof *train);
    test = figure_alloc(sizeof *test);
    if (images_load(train, folder, "train", &err) != PD_OK || images_load(test, folder, "t10k", &err) != PD_OK)
        figure_stop("%s", err.text);
    images_shuffle(train, 1, 0);
    test->n = TEST_IMAGES; /* the first of them: a look takes 50 ms */
}

void fleet_sleep_until(double ms)
{
    struct timespec due = { .tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(fmod(ms, 1e3) * 1e6) };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {}
}

/* ---- processes ---- */

static void launch(fleet *f, int rank)
{
    static int lives;
    int life = ++lives;
    pid_t parent = getpid(), pid = fork();

    if (pid < 0) figure_stop("cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        fleet_work(&f->options, f->state, rank, life);
    }
    f->pids[rank] = pid;
}

fleet *fleet_start(const fleet_options *options)
{
    fleet *f = figure_alloc(sizeof *f);

    f->options = *options;
    f->state = mmap(NULL, sizeof *f->state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->state == MAP_FAILED) figure_stop("no memory to share");
    for (int rank = 0; rank < FLEET_WORKERS; rank++) launch(f, rank);
    while (atomic_load(&f->state->ready) < FLEET_WORKERS) {
        fleet_over(f);
        fleet_sleep_until(figure_ms() + 2);
    }
    return f;
}

void fleet_go(fleet *f)
{
    f->state->began_ms = figure_ms();
    atomic_store(&f->state->go, true);
}

double fleet_ms(const fleet *f)
{
    return figure_ms() - f->state->began_ms;
}

bool fleet_over(fleet *f)
{
    for (int rank = 0; rank < FLEET_WORKERS; rank++) {
        if (f->pids[rank] == 0 || waitpid(f->pids[rank], NULL, WNOHANG) != f->pids[rank]) continue;
        f->pids[rank] = 0;
        if (!atomic_load(&f->state->workers[rank].gone)) figure_stop("worker %d of %s failed", rank, f->options.name);
    }
    return f->options.examples > 0 && atomic_load(&f->state->examples) >= f->options.examples;
}

void fleet_signal(const fleet *f, int rank, int number)
{
    if (f->pids[rank] > 0) kill(f->pids[rank], number);
}

void fleet_kill(fleet *f, int rank)
{
    fleet_signal(f, rank, SIGKILL);
    if (f->pids[rank] > 0) waitpid(f->pids[rank], NULL, 0);
    f->pids[rank] = 0;
}

void fleet_revive(fleet *f, int rank)
{
    atomic_store(&f->state->workers[rank].gone, false);
    launch(f, rank);
}

void fleet_halt(fleet *f)
{
    for (int rank = 0; rank < FLEET_WORKERS; rank++) fleet_kill(f, rank);
}

void fleet_end(fleet *f)
{
    fleet_halt(f);
    munmap(f->state, sizeof *f->state);
    free(f);
}

/* ---- the model ---- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void fleet_batch(mlp *net, const fleet_options *options, uint64_t seed, uint64_t number)
{
    uint64_t place = mix(mix(mix(options->seed) ^ seed) ^ number) % (uint64_t)(train->n - options->batch);

    images_take(train, (int)place, (int)place + options->batch, 1, net->out[0], net->label);
}

void fleet_adamw(float *value, const float *gradient, float *first, float *second, int64_t step, double lr)
{
    const float b1 = 0.9f, b2 = 0.99f, decay = (float)(1 - lr * 0.01);
    const float c1 = (float)(lr / (1 - pow(b1, (double)step))), c2 = (float)(1 / (1 - pow(b2, (double)step)));

    for (int i = 0; i < FLEET_VALUES; i++) {
        first[i] += (1 - b1) * (gradient[i] - first[i]);
        second[i] += (1 - b2) * (gradient[i] * gradient[i] - second[i]);
        value[i] = decay * value[i] - c1 * first[i] / (sqrtf(c2 * second[i]) + 1e-8f);
    }
}

double fleet_loss(const float *value)
{
    static mlp *net;
    double accuracy;

    if (net == NULL) net = figure_alloc(sizeof *net);
    memcpy(net->value, value, sizeof net->value);
    return mlp_test(net, test, &accuracy);
}

warm *fleet_warm(uint64_t seed, int steps, int batch, double lr)
{
    fleet_options options = { .seed = seed, .batch = batch };
    mlp *net = figure_alloc(sizeof *net);
    warm *w = figure_alloc(sizeof *w);

    mlp_init(net, (int)seed);
    for (w->steps = 1; w->steps <= steps; w->steps++) {
        fleet_batch(net, &options, FLEET_WORKERS, (uint64_t)w->steps);
        mlp_differentiate(net, batch);
        fleet_adamw(net->value, net->gradient, w->first, w->second, w->steps, lr);
    }
    w->steps = steps;
    memcpy(w->value, net->value, sizeof w->value);
    free(net);
    return w;
}
