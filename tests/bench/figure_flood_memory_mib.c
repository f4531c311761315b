/* flood_memory_mib: the growth of the daemon's resident memory while a client sends requests in bulk. There are three
 * cases, and the largest growth counts: 6,000 List and 4,000 Status at once beside a job of 20,000 parameters; pulls
 * whose answers are never read; pulls for a step that never comes. */
#include "figure.h"
#include "flood.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { WANTS = 1024, ELEMENTS = 16, PULL_MIB = 57, PATIENCE_MS = 6000 };

typedef struct watch {
    pid_t pid;
    double most;
    atomic_bool over;
    pthread_t thread;
} watch;

static void *look(void *arg)
{
    watch *w = arg;

    while (!atomic_load(&w->over)) {
        double mib = flood_resident_mib(w->pid);
        if (mib > w->most) w->most = mib;
        usleep(5000);
    }
    return NULL;
}

static double begin_watch(watch *w, pid_t pid)
{
    double now = flood_resident_mib(pid);

    *w = (watch){ .pid = pid, .most = now };
    if (pthread_create(&w->thread, NULL, look, w) != 0) figure_stop("cannot start a thread");
    return now;
}

static double end_watch(watch *w)
{
    atomic_store(&w->over, true);
    pthread_join(w->thread, NULL);
    return w->most;
}

static void initialise(int fd)
{
    static Paramd__Piece at[WANTS], *list[WANTS];
    Paramd__InitRequest request = PARAMD__INIT_REQUEST__INIT;

    for (uint32_t i = 0; i < WANTS; i++) {
        paramd__piece__init(&at[i]);
        at[i].handle = i;
        at[i].dtype = 1;
        at[i].count = ELEMENTS;
        at[i].offset = i * ELEMENTS * sizeof(float);
        list[i] = &at[i];
    }
    request.pieces = list;
    request.n_pieces = WANTS;
    wire_ask(fd, PD_INIT, 3, &request.base, WANTS * ELEMENTS * sizeof(float));
}

/* Joins a job as its only worker, and sends initial weights. Returns the socket. */
static int join(const char *url, const char *job)
{
    int fd = wire_connect(url);

    wire_hello(fd, job, 0, 1, 9);
    wire_receive(fd, NULL);
    wire_declare(fd, 2, 0, WANTS, ELEMENTS, true);
    wire_receive(fd, NULL);
    initialise(fd);
    wire_receive(fd, NULL);
    return fd;
}

/* Returns the frame of a pull of all parameters with request id `id`. The caller frees it. */
static uint8_t *pack_pull(uint64_t id, uint64_t min_step, size_t *bytes)
{
    static Paramd__Want at[WANTS], *list[WANTS];
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    uint8_t *frame;

    for (uint32_t i = 0; i < WANTS; i++) {
        paramd__want__init(&at[i]);
        at[i].handle = i;
        at[i].count = ELEMENTS;
        list[i] = &at[i];
    }
    pull.min_step = min_step;
    pull.wants = list;
    pull.n_wants = WANTS;
    if (pd_frame_pack(&frame, bytes, PD_PULL, 0, id, &pull.base, NULL, 0, 0) != PD_OK)
        figure_stop("no memory for a frame");
    return frame;
}

/* Sends bytes as long as the daemon reads them. Returns false if the daemon has read nothing for a while, or has
 * ended the connection. */
static bool push_out(int fd, const uint8_t *at, size_t bytes)
{
    double since = figure_ms();

    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return false;
        if (n <= 0 && figure_ms() - since > PATIENCE_MS) return false;
        if (n <= 0) usleep(1000);
        if (n <= 0) continue;
        since = figure_ms();
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Returns by how many MiB the daemon grows while a client sends PULL_MIB of pull requests and reads no answer. */
static double pull_and_never_read(const pd_child *daemon, const char *job, uint64_t min_step)
{
    int fd = join(daemon->url, job);
    watch w;
    double before = begin_watch(&w, daemon->pid);
    size_t bytes, sent = 0;
    bool taken = true;

    for (uint64_t id = 10; taken && sent < (size_t)PULL_MIB << 20; id++, sent += bytes) {
        uint8_t *frame = pack_pull(id, min_step, &bytes);
        taken = push_out(fd, frame, bytes);
        free(frame);
    }
    usleep(500000);
    close(fd);
    return end_watch(&w) - before;
}

int main(void)
{
    pd_child daemon;
    watch w;
    double ms[1000], whole, before, growth[3], most = 0;
    int job;

    figure_daemon(&daemon);
    job = flood_job(daemon.url);
    growth[1] = pull_and_never_read(&daemon, "reads nothing", 0);
    growth[2] = pull_and_never_read(&daemon, "waits for ever", 1000);
    before = begin_watch(&w, daemon.pid);
    flood_run(daemon.url, ms, sizeof ms / sizeof *ms, &whole);
    growth[0] = end_watch(&w) - before;
    for (int i = 0; i < 3; i++) most = growth[i] > most ? growth[i] : most;
    printf("%.1f\tList and Status %.1f, pulls that nobody reads %.1f, pulls of what is never there %.1f MiB\n", most,
           growth[0], growth[1], growth[2]);
    close(job);
    pd_child_stop(&daemon);
    return 0;
}
