/* half_open: what 10,000 TLS handshakes that do not end cost. A third of the connections sends nothing, a third a part
 * of its first message, a third the whole message and nothing after it. The daemon closes them after its
 * handshake_timeout, or when others take their places; they are opened again, at most 2,000 a second.
 *
 * figure_half_open kib   the daemon's resident memory for each of them, in KiB
 * figure_half_open p99   the 99th percentile of a healthy job's step (2 workers over TLS, 20 tensors of 65,536) beside
 *                        them, over that without them; blocks of steps with and without them alternate, and with the
 *                        same flood at a process that does nothing but accept */
#include "acceptor.h"
#include "bench_team.h"
#include "figure.h"
#include "tls_stream.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { CONNECTIONS = 10000, PAIRS = 5, STEPS = 200, TENSORS = 20, A_SECOND = 2000, ROUND_MS = 20 };

typedef struct flood {
    int port, fd[CONNECTIONS];
    uint8_t hello[2000]; /* a whole first message */
    size_t hello_bytes;
    pthread_t thread;
    atomic_bool stop;
    uint64_t opened;
} flood;

/* Makes a client's first message. */
static void make_hello(flood *f, const char *token)
{
    const pd_tls_files files = { .tokens = token };
    pd_tls_context *context;
    pd_tls_stream *stream;
    pd_error err = { 0 };
    ssize_t n;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) figure_stop("no sockets");
    if (pd_tls_client(&context, &files, &err) != PD_OK ||
        pd_tls_stream_new(&stream, context, pair[0], "localhost", &err) != PD_OK)
        figure_stop("%s", err.text);
    pd_tls_handshake(stream, &err);
    n = read(pair[1], f->hello, sizeof f->hello);
    if (n < 100) figure_stop("no first message of TLS");
    f->hello_bytes = (size_t)n;
    pd_tls_stream_free(stream);
    pd_tls_unref(context);
    close(pair[0]);
    close(pair[1]);
}

/* Opens connection i, and sends what its kind sends. */
static void open_one(flood *f, int i)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)f->port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    size_t bytes = i % 3 == 0 ? 0 : i % 3 == 1 ? f->hello_bytes / 2 : f->hello_bytes;

    f->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->fd[i] < 0) figure_stop("connection %d: %s", i, strerror(errno));
    if (connect(f->fd[i], (struct sockaddr *)&address, sizeof address) != 0)
        figure_stop("connection %d: %s", i, strerror(errno));
    if (bytes > 0) send(f->fd[i], f->hello, bytes, MSG_NOSIGNAL);
    f->opened++;
}

static void open_all(flood *f)
{
    for (int i = 0; i < CONNECTIONS; i++) open_one(f, i);
}

static void close_all(flood *f)
{
    for (int i = 0; i < CONNECTIONS; i++) close(f->fd[i]);
}

static bool is_closed(int fd)
{
    uint8_t bin[4096];
    ssize_t n;

    while ((n = recv(fd, bin, sizeof bin, MSG_DONTWAIT)) > 0) continue;
    return n == 0 || (errno != EAGAIN && errno != EINTR);
}

/* Opens connections again that the daemon has closed, a few at a time. */
static void *keep_open(void *arg)
{
    flood *f = arg;
    int i = 0;

    while (!atomic_load(&f->stop)) {
        int opened = 0;
        for (int looked = 0; looked < CONNECTIONS / 10 && opened < A_SECOND * ROUND_MS / 1000; looked++) {
            i = (i + 1) % CONNECTIONS;
            if (!is_closed(f->fd[i])) continue;
            close(f->fd[i]);
            open_one(f, i);
            opened++;
        }
        usleep(ROUND_MS * 1000);
    }
    return NULL;
}

/* Starts a daemon that takes as many connections, if the system allows it. */
static void start_daemon(pd_child *daemon)
{
    struct rlimit most;
    pd_error err;

    getrlimit(RLIMIT_NOFILE, &most);
    if (most.rlim_max < CONNECTIONS + 1000)
        figure_stop("%d descriptors are needed, and the limit is %llu (ulimit -Hn)", CONNECTIONS + 1000,
                    (unsigned long long)most.rlim_max);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
    setenv("PARAMD_MAX_CONNECTIONS", "20000", 1);
    if (pd_child_start_secure(daemon, &err) != PD_OK) figure_stop("%s", err.text);
    setenv("PARAMD_TOKEN_FILE", daemon->token, 1);
}

static double resident_kib(const pd_child *daemon)
{
    char path[64], line[256];
    double kib = 0;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/status", (int)daemon->pid);
    if ((file = fopen(path, "r")) == NULL) figure_stop("%s cannot be read", path);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %lf", &kib) == 1) break;
    fclose(file);
    return kib;
}

static team *start_team(const pd_child *daemon)
{
    int64_t elements[TENSORS];

    for (int i = 0; i < TENSORS; i++) elements[i] = 65536;
    return team_start(
        &(team_options){ .url = daemon->secure, .job = "healthy", .workers = 2, .elements = elements, .n = TENSORS });
}

static void measure_memory(flood *f, const pd_child *daemon)
{
    team *workers = start_team(daemon);
    double before, kib;

    team_steps(workers, STEPS, NULL);
    before = resident_kib(daemon);
    open_all(f);
    team_steps(workers, STEPS, NULL); /* the daemon has accepted them, and answered what it answers */
    kib = resident_kib(daemon) - before;
    printf("%.2f\t%.1f MiB for %d connections, a third of which has sent a whole first message\n", kib / CONNECTIONS,
           kib / 1024, CONNECTIONS);
    close_all(f);
    team_end(workers);
}

static double block(team *workers, double part)
{
    double ms[STEPS];

    team_steps(workers, STEPS / 10, NULL);
    team_steps(workers, STEPS, ms);
    return figure_quantile(ms, STEPS, part);
}

static double block_beside(flood *f, int port, team *workers)
{
    double ms;

    f->port = port;
    open_all(f);
    atomic_store(&f->stop, false);
    if (pthread_create(&f->thread, NULL, keep_open, f) != 0) figure_stop("no thread");
    ms = block(workers, 0.99);
    atomic_store(&f->stop, true);
    pthread_join(f->thread, NULL);
    close_all(f);
    return ms;
}

/* Blocks of three kinds take turns: without the flood, with the flood at the daemon, and with the flood at a process
 * that accepts connections and does nothing for them. The last tells what the flood costs by itself. */
static void measure_steps(flood *f, const pd_child *daemon, int bare_port)
{
    int port = f->port;
    team *workers = start_team(daemon);
    double ratio[PAIRS], bare[PAIRS], alone[PAIRS], beside[PAIRS];

    block(workers, 0.5);
    for (int i = 0; i < PAIRS; i++) {
        alone[i] = block(workers, 0.99);
        beside[i] = block_beside(f, port, workers);
        bare[i] = block_beside(f, bare_port, workers) / alone[i];
        ratio[i] = beside[i] / alone[i];
    }
    double value = figure_quantile(ratio, PAIRS, 0.5);
    printf("%.3f\tratios %.3f to %.3f of %d pairs; 99th percentile alone %.2f ms, beside %.2f ms; the flood at a bare "
           "acceptor %.3f; %llu opened\n",
           value, ratio[0], ratio[PAIRS - 1], PAIRS, figure_quantile(alone, PAIRS, 0.5),
           figure_quantile(beside, PAIRS, 0.5), figure_quantile(bare, PAIRS, 0.5), (unsigned long long)f->opened);
    team_end(workers);
}

int main(int argc, char **argv)
{
    flood *f = figure_alloc(sizeof *f);
    pd_child daemon;
    pid_t bare;
    int bare_port;

    if (argc != 2 || (strcmp(argv[1], "kib") != 0 && strcmp(argv[1], "p99") != 0)) figure_stop("expected kib or p99");
    start_daemon(&daemon);
    f->port = atoi(strrchr(daemon.secure, ':') + 1);
    make_hello(f, daemon.token);
    bare = acceptor_start(&bare_port, f->hello_bytes);
    if (strcmp(argv[1], "kib") == 0)
        measure_memory(f, &daemon);
    else
        measure_steps(f, &daemon, bare_port);
    acceptor_stop(bare);
    pd_child_stop(&daemon);
    free(f);
    return 0;
}
