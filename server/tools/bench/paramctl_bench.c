/* paramctl_bench.c - the program of `paramctl bench net`: measures rounds of push and pull through a daemon, and
 * compares them with rounds of bare TCP (the yardstick).
 *
 * Each of W threads has a client handle and a yardstick connection. Rounds alternate: one round through the daemon, in
 * which every thread pushes and pulls all its tensors, then one round of the yardstick, which moves the same bytes from
 * and to the same memory. A round is timed from the moment when all threads may begin to the moment when the last
 * thread has finished. The medians are reported.
 *
 * CPU time is that of whole processes, over all rounds: the daemon's, the yardstick's server's, and that of this
 * process, which runs the clients of both. The daemon's is also compared with that of the yardstick's server plus a
 * bare pass of the arithmetic (pass.c). */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "connection.h"
#include "format.h"
#include "programs.h"
#include "result.h"

/* What the command line asks for. */
typedef struct net_bench {
    const char *server; /* address of a running daemon; NULL: starts a daemon for the measurement */
    double timeout;
    bool json;
    int64_t workers, tensors, floats, rounds;
    const char *transport; /* "tcp", "tls", "unix" or "shm": how payloads travel */
    const char *beside;    /* another transport, whose rounds alternate with those of the first; "none": there is
                            * none */
    bool copy;             /* with shm: gradients lie in the worker's own memory, and the client copies them into the
                            * segment */
} net_bench;

enum { WARM_UP = 3, CHUNK_BYTES = 4 << 20, DEADLINE_S = 120 };

/* A transport that is measured, with the job and the address that it uses. */
typedef struct lane {
    const char *transport, *url;
    char job[64];
    double *round_ms;
} lane;

/* CPU seconds, user and system, of the processes that move the bytes of the rounds. */
typedef struct cpu_use {
    double daemon, bare;          /* daemon: of the daemon; bare: of the yardstick's server */
    double clients, bare_clients; /* of this process: in rounds through the daemon; in rounds of the yardstick */
    double pass;                  /* of the arithmetic of all rounds; 0: not known */
} cpu_use;

typedef struct bench {
    const net_bench *want;
    pd_child daemon; /* the daemon that was started for this measurement, unless --server names another */
    pd_yardstick yardstick;
    lane lanes[2];
    int n_lanes;
    size_t bytes;              /* bytes of all tensors of one worker */
    pthread_barrier_t barrier; /* the workers and the timing thread wait here */
    atomic_bool failed;        /* a worker has failed: the other workers do no more work in rounds, and only pass the
                                * barriers */
    double *bare_ms;
    cpu_use cpu;
} bench;

/* A worker thread: its clients, its connection to the yardstick, and its tensors. */
typedef struct worker {
    bench *bench;
    pthread_t thread;
    int rank, rc, fd;
    pd_error err;
    pd_client *clients[2];      /* one for each lane */
    float *gradients, *weights; /* values of all tensors, one tensor after the other */
    pd_item *items[2];
    void **initial;
} worker;

static int allocate(worker *w)
{
    const net_bench *want = w->bench->want;
    size_t n = (size_t)want->tensors, floats = (size_t)want->floats;

    w->gradients = malloc(w->bench->bytes);
    w->weights = malloc(w->bench->bytes);
    w->items[0] = calloc(n, sizeof *w->items[0]);
    w->items[1] = calloc(n, sizeof *w->items[1]);
    w->initial = calloc(n, sizeof *w->initial);
    if (!w->gradients || !w->weights || !w->items[0] || !w->items[1] || !w->initial)
        return pd_fail(&w->err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n * floats; i++) {
        w->gradients[i] = (float)((i + (size_t)w->rank) % 17) * 1e-3f;
        w->weights[i] = 1;
    }
    for (size_t i = 0; i < n; i++) {
        w->initial[i] = w->weights + i * floats;
        for (int l = 0; l < 2; l++)
            w->items[l][i] = (pd_item){ .param = i, .gradient = w->gradients + i * floats, .weights = w->initial[i] };
    }
    return PD_OK;
}

/* Copies the gradients to the memory that the client shares with the daemon, as if they had been computed there. They
 * are then pushed from that memory. */
static int place_gradients(worker *w, int l)
{
    size_t bytes = (size_t)w->bench->want->floats * sizeof(float);

    for (size_t i = 0; i < (size_t)w->bench->want->tensors; i++) {
        void *buffer = pd_client_buffer(w->clients[l], i);
        if (buffer == NULL) return pd_fail(&w->err, PD_UNAVAILABLE, "the system provides no shared memory");
        w->items[l][i].gradient = memcpy(buffer, w->items[l][i].gradient, bytes);
    }
    return PD_OK;
}

static int declare(worker *w, int l)
{
    size_t n = (size_t)w->bench->want->tensors;
    pd_client_param *params = calloc(n, sizeof *params);
    char(*names)[32] = calloc(n, sizeof *names);
    int rc = params != NULL && names != NULL ? PD_OK : pd_fail(&w->err, PD_NO_MEMORY, "out of memory");

    for (size_t i = 0; rc == PD_OK && i < n; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%zu", i);
        params[i] = (pd_client_param){ .name = names[i], .shape = { .rank = 1, .dim = { w->bench->want->floats } } };
    }
    if (rc == PD_OK) rc = pd_client_declare(w->clients[l], params, n, &w->err);
    free(params);
    free(names);
    return rc;
}

static int join_lane(worker *w, int l)
{
    const bench *b = w->bench;
    bool shm = strcmp(b->lanes[l].transport, "shm") == 0;
    const char *rules[] = { "* sgd lr=0.01 momentum=0.9", NULL };
    pd_client_options options = { .urls = b->lanes[l].url,
                                  .job = b->lanes[l].job,
                                  .rank = w->rank,
                                  .world_size = (int)b->want->workers,
                                  .rules = rules,
                                  .label = "paramctl bench",
                                  .token_file = b->daemon.token,
                                  .deadline = DEADLINE_S,
                                  .no_shared_memory = !shm };
    int rc = pd_client_open(&w->clients[l], &options, &w->err);

    if (rc == PD_OK) rc = declare(w, l);
    if (rc == PD_OK) rc = pd_client_init(w->clients[l], w->initial, &w->err);
    return rc == PD_OK && shm && !b->want->copy ? place_gradients(w, l) : rc;
}

static int join(worker *w)
{
    const bench *b = w->bench;
    int rc = allocate(w);

    if (rc == PD_OK && (w->fd = pd_yardstick_connect(&b->yardstick, &w->err)) < 0) rc = w->fd;
    for (int l = 0; l < b->n_lanes && rc == PD_OK; l++) rc = join_lane(w, l);
    return rc;
}

static int lane_round(worker *w, int l)
{
    pd_ticket_id ticket;
    int rc = pd_client_push_pull(w->clients[l], w->items[l], (size_t)w->bench->want->tensors, NULL, &ticket, &w->err);

    return rc == PD_OK ? pd_client_wait(w->clients[l], ticket, 0, &w->err) : rc;
}

static int first_round(worker *w)
{
    return lane_round(w, 0);
}

static int second_round(worker *w)
{
    return lane_round(w, 1);
}

static int bare_round(worker *w)
{
    return pd_yardstick_round(&w->bench->yardstick, w->fd, w->gradients, w->weights, &w->err);
}

static void drop_jobs(const bench *b)
{
    for (int l = 0; l < b->n_lanes; l++) pd_operator_drop(b->lanes[l].url, b->want->timeout, b->lanes[l].job);
}

/* Calls `round`, which runs a worker's share of a round, between two barriers. Once any worker has failed, `round` is
 * not called, and workers only pass the barriers. The first worker that fails drops the jobs, so that no other worker
 * waits for it. */
static void keep_step(worker *w, int (*round)(worker *w))
{
    pthread_barrier_wait(&w->bench->barrier);
    if (!atomic_load(&w->bench->failed) && (w->rc = round(w)) != PD_OK && !atomic_exchange(&w->bench->failed, true))
        drop_jobs(w->bench);
    pthread_barrier_wait(&w->bench->barrier);
}

static void *run_worker(void *arg)
{
    worker *w = arg;

    keep_step(w, join);
    for (int64_t i = 0; i < WARM_UP + w->bench->want->rounds; i++) {
        keep_step(w, first_round);
        if (w->bench->n_lanes > 1) keep_step(w, second_round);
        keep_step(w, bare_round);
    }
    pd_client_close(w->clients[0]);
    pd_client_close(w->clients[1]);
    if (w->fd >= 0) close(w->fd);
    free(w->gradients);
    free(w->weights);
    free(w->items[0]);
    free(w->items[1]);
    free(w->initial);
    return NULL;
}

static double seconds(clockid_t clock)
{
    struct timespec at;

    return clock_gettime(clock, &at) == 0 ? (double)at.tv_sec + (double)at.tv_nsec / 1e9 : 0;
}

/* Returns the CPU time that a process has used. 0: there is no such process. */
static double cpu_seconds(pid_t pid)
{
    clockid_t clock;

    return pid > 0 && clock_getcpuclockid(pid, &clock) == 0 ? seconds(clock) : 0;
}

/* Lets the workers run one round. Returns how many milliseconds it takes, and adds the CPU seconds that this process
 * uses in it to *cpu. */
static double time_round(bench *b, double *cpu)
{
    double from, to, used;

    pthread_barrier_wait(&b->barrier);
    from = seconds(CLOCK_MONOTONIC);
    used = seconds(CLOCK_PROCESS_CPUTIME_ID);
    pthread_barrier_wait(&b->barrier);
    to = seconds(CLOCK_MONOTONIC);
    *cpu += seconds(CLOCK_PROCESS_CPUTIME_ID) - used;
    return (to - from) * 1e3;
}

static void time_rounds(bench *b)
{
    time_round(b, &b->cpu.clients); /* the workers join the job */
    for (int64_t i = -WARM_UP; i < b->want->rounds; i++) {
        double lanes[2], bare;
        if (i == 0) /* the warm-up rounds have ended */
            b->cpu = (cpu_use){ .daemon = -cpu_seconds(b->daemon.pid), .bare = -cpu_seconds(b->yardstick.pid) };
        for (int l = 0; l < b->n_lanes; l++) lanes[l] = time_round(b, &b->cpu.clients);
        bare = time_round(b, &b->cpu.bare_clients);
        if (i < 0) continue;
        for (int l = 0; l < b->n_lanes; l++) b->lanes[l].round_ms[i] = lanes[l];
        b->bare_ms[i] = bare;
    }
    b->cpu.daemon += cpu_seconds(b->daemon.pid);
    b->cpu.bare += cpu_seconds(b->yardstick.pid);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers and returns the median. */
static double median(double *at, size_t n)
{
    qsort(at, n, sizeof *at, by_size);
    return n % 2 == 1 ? at[n / 2] : (at[n / 2 - 1] + at[n / 2]) / 2;
}

/* Returns whether the CPU time can be reported: this program started the daemon, and only one transport is measured. */
static bool knows_cpu(const bench *b)
{
    return b->daemon.pid > 0 && b->n_lanes == 1;
}

/* Adds the CPU times to the result as JSON, in seconds per GB of payload. */
static void add_cpu(json_t *all, const bench *b, double gb)
{
    json_object_set_new(all, "bare_cpu_s_per_gb", json_real(b->cpu.bare / gb));
    json_object_set_new(all, "bare_clients_cpu_s_per_gb", json_real(b->cpu.bare_clients / gb));
    if (!knows_cpu(b)) return;
    json_object_set_new(all, "clients_cpu_s_per_gb", json_real(b->cpu.clients / gb));
    json_object_set_new(all, "cpu_s_per_gb", json_real(b->cpu.daemon / gb));
    json_object_set_new(all, "cpu_ratio", json_real(b->cpu.daemon / b->cpu.bare));
    json_object_set_new(all, "pass_cpu_s_per_gb", json_real(b->cpu.pass / gb));
    json_object_set_new(all, "work_ratio", json_real(b->cpu.daemon / (b->cpu.bare + b->cpu.pass)));
}

static void print_cpu(const bench *b, double gb)
{
    if (!knows_cpu(b)) return;
    printf("CPU       %8.3f s per GB of the daemon, %.3f of bare TCP's server, ratio %.2f\n", b->cpu.daemon / gb,
           b->cpu.bare / gb, b->cpu.daemon / b->cpu.bare);
    printf("CPU       %8.3f s per GB of a bare pass of its arithmetic, ratio with it %.2f\n", b->cpu.pass / gb,
           b->cpu.daemon / (b->cpu.bare + b->cpu.pass));
    printf("CPU       %8.3f s per GB of the clients, %.3f of bare TCP's\n", b->cpu.clients / gb,
           b->cpu.bare_clients / gb);
}

static json_t *result(const bench *b, double round_ms, double bare_ms, double beside_ms)
{
    const net_bench *want = b->want;
    size_t last = (size_t)want->rounds - 1;
    double moved = 2.0 * (double)want->workers * (double)b->bytes; /* bytes that all workers push and pull in a round */
    json_t *all =
        json_pack("{s:I, s:I, s:I, s:I, s:s, s:f, s:[f, f], s:f, s:f, s:[f, f], s:f, s:f}", "workers",
                  (json_int_t)want->workers, "tensors", (json_int_t)want->tensors, "floats", (json_int_t)want->floats,
                  "rounds", (json_int_t)want->rounds, "transport", want->transport, "round_ms", round_ms,
                  "round_ms_spread", b->lanes[0].round_ms[0], b->lanes[0].round_ms[last], "payload_gb_per_s",
                  moved / round_ms / 1e6, "bare_round_ms", bare_ms, "bare_round_ms_spread", b->bare_ms[0],
                  b->bare_ms[last], "bare_tcp_gb_per_s", moved / bare_ms / 1e6, "ratio", bare_ms / round_ms);

    add_cpu(all, b, moved * (double)want->rounds / 1e9);
    if (b->n_lanes > 1) {
        json_object_set_new(all, "beside", json_string(want->beside));
        json_object_set_new(all, "beside_round_ms", json_real(beside_ms));
        json_object_set_new(all, "beside_round_ms_spread",
                            json_pack("[f, f]", b->lanes[1].round_ms[0], b->lanes[1].round_ms[last]));
        json_object_set_new(all, "beside_ratio", json_real(beside_ms / round_ms));
    }
    return all;
}

static void print_rounds(const char *name, const double *ms, size_t n, double median_ms, double moved)
{
    printf("%-8s  %8.2f ms a round (%.2f to %.2f)   %.2f GB/s of payload\n", name, median_ms, ms[0], ms[n - 1],
           moved / median_ms / 1e6);
}

static int report(bench *b)
{
    const net_bench *want = b->want;
    size_t n = (size_t)want->rounds;
    double round_ms = median(b->lanes[0].round_ms, n), bare_ms = median(b->bare_ms, n);
    double beside_ms = b->n_lanes > 1 ? median(b->lanes[1].round_ms, n) : 0;
    double moved = 2.0 * (double)want->workers * (double)b->bytes;
    char text[PD_CELL];

    if (want->json) return pd_result_json(result(b, round_ms, bare_ms, beside_ms));
    printf("%" PRId64 " workers push and pull %" PRId64 " tensors of %s, %" PRId64 " rounds\n", want->workers,
           want->tensors, pd_bytes_text(text, (uint64_t)want->floats * sizeof(float)), want->rounds);
    print_rounds(want->transport, b->lanes[0].round_ms, n, round_ms, moved);
    if (b->n_lanes > 1) print_rounds(want->beside, b->lanes[1].round_ms, n, beside_ms, moved);
    print_rounds("bare TCP", b->bare_ms, n, bare_ms, moved);
    printf("%s is %.2f of bare TCP", want->transport, bare_ms / round_ms);
    if (b->n_lanes > 1) printf(", and %.2f of %s", beside_ms / round_ms, want->beside);
    printf("\n");
    print_cpu(b, moved * (double)n / 1e9);
    return PD_CTL_OK;
}

/* Starts the workers' threads, times the rounds, and waits until the threads have ended. */
static int run(bench *b, worker *workers, pd_error *err)
{
    int n = (int)b->want->workers, rc = PD_OK;

    if (pthread_barrier_init(&b->barrier, NULL, (unsigned)n + 1) != 0)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (int i = 0; i < n; i++) {
        workers[i] = (worker){ .bench = b, .rank = i, .fd = -1 };
        if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) != 0) {
            fprintf(stderr, "paramctl: cannot start %d threads\n", n);
            _exit(PD_CTL_FAILED); /* the threads that were started wait at the barrier, and nothing can end them but
                                    * the end of the process */
        }
    }
    time_rounds(b);
    for (int i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        if (rc == PD_OK && workers[i].rc != PD_OK) {
            rc = workers[i].rc;
            *err = workers[i].err;
        }
    }
    pthread_barrier_destroy(&b->barrier);
    drop_jobs(b);
    return rc;
}

/* Adds a transport to those that are measured. It gets an address of the daemon, and a job name of its own. */
static int make_lane(bench *b, const char *transport, pd_error *err)
{
    const char *server = b->want->server;
    lane *l = &b->lanes[b->n_lanes];
    bool secure = strcmp(transport, "tls") == 0, local = !secure && strcmp(transport, "tcp") != 0;
    uint64_t nonce;

    if (server != NULL &&
        (local != (strncmp(server, "unix://", 7) == 0) || secure != (strncmp(server, "tls://", 6) == 0)))
        return pd_fail(err, PD_INVALID_ARGUMENT, "--transport %s needs %s, and --server is %s", transport,
                       local    ? "a Unix socket (unix:///path)"
                       : secure ? "an address with TLS (tls://host:port)"
                                : "a TCP address",
                       server);
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return pd_fail(err, PD_INTERNAL, "no random numbers");
    l->transport = transport;
    l->url = server != NULL ? server : local ? b->daemon.local : secure ? b->daemon.secure : b->daemon.url;
    snprintf(l->job, sizeof l->job, "bench/%016" PRIx64, nonce);
    if ((l->round_ms = calloc((size_t)b->want->rounds, sizeof *l->round_ms)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    b->n_lanes++;
    return PD_OK;
}

/* Starts the yardstick's server and the daemon. Both calls fork, so this function is called before any thread is
 * started. */
static int start(bench *b, pd_error *err)
{
    const net_bench *want = b->want;
    int rc;

    if (__builtin_mul_overflow((size_t)want->tensors * sizeof(float), (size_t)want->floats, &b->bytes) ||
        b->bytes > (size_t)1 << 40)
        return pd_fail(err, PD_OUT_OF_RANGE, "%lld tensors of %lld floats are too many", (long long)want->tensors,
                       (long long)want->floats);
    rc = pd_yardstick_start(&b->yardstick, (int)want->workers, b->bytes, CHUNK_BYTES, err);
    if (rc == PD_OK && want->server == NULL)
        rc = strcmp(want->transport, "tls") == 0 || strcmp(want->beside, "tls") == 0
                 ? pd_child_start_secure(&b->daemon, err)
                 : pd_child_start(&b->daemon, err);
    if (rc == PD_OK && want->server != NULL) rc = pd_operator_probe(want->server, want->timeout, err);
    if (rc == PD_OK) rc = make_lane(b, want->transport, err);
    if (rc == PD_OK && strcmp(want->beside, "none") != 0) rc = make_lane(b, want->beside, err);
    return rc;
}

static int measure(const net_bench *want)
{
    bench b = { .want = want, .daemon = { .log = -1 } };
    pd_error err = { 0 };
    worker *workers = calloc((size_t)want->workers, sizeof *workers);
    int rc, status;

    b.bare_ms = calloc((size_t)want->rounds, sizeof *b.bare_ms);
    if (workers == NULL || b.bare_ms == NULL)
        rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    else
        rc = start(&b, &err);
    if (rc == PD_OK) rc = run(&b, workers, &err);
    if (rc == PD_OK && knows_cpu(&b)) b.cpu.pass = (double)want->rounds * pd_pass_seconds((int)want->workers, b.bytes);
    status = rc == PD_OK ? report(&b) : pd_result_fail(want->json, &err);
    pd_yardstick_stop(&b.yardstick);
    pd_child_stop(&b.daemon);
    free(workers);
    free(b.lanes[0].round_ms);
    free(b.lanes[1].round_ms);
    free(b.bare_ms);
    return status;
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_BENCH], argc, argv);
    net_bench want;

    pd_line_parse(&line);
    if (strcmp(line.args[0], "net") != 0) pd_line_refuse(&line, "%s: the only benchmark is net", line.args[0]);
    want = (net_bench){ .server = line.server,
                        .timeout = line.timeout,
                        .json = line.json,
                        .workers = pd_line_number(&line, "workers"),
                        .tensors = pd_line_number(&line, "tensors"),
                        .floats = pd_line_number(&line, "floats"),
                        .rounds = pd_line_number(&line, "rounds"),
                        .transport = pd_line_text(&line, "transport"),
                        .beside = pd_line_text(&line, "beside"),
                        .copy = pd_line_has(&line, "copy") };
    return measure(&want);
}
