/* idle_workers.c - connects many workers that only send heartbeats. */
#include "idle_workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "figure.h"
#include "wire.h"

enum { JOB_SIZE = 100 };

struct idle_workers {
    int n, epoll;
    int *fd;
    double *due; /* due[i]: time of worker i's next heartbeat, in ms */
    double interval;
    uint8_t *heartbeat;
    size_t heartbeat_bytes;
    pthread_t thread;
    atomic_bool over;
};

static void say_hello(int fd, int index)
{
    char job[32];

    snprintf(job, sizeof job, "idle_workers/%d", index / JOB_SIZE);
    wire_hello(fd, job, (uint32_t)(index % JOB_SIZE), JOB_SIZE,
               /* the nonce is the same when a worker connects again, so that the daemon takes it for the same
                * process */
               1000 + (uint64_t)index);
}

/* Reads the daemon's answer to the Hello. Returns the heartbeat interval that the daemon asks for, in ms. */
static double read_welcome(int fd)
{
    static uint8_t header[PD_MAX_HEADER_BYTES];
    pd_prefix prefix = wire_receive(fd, header);
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    pd_error err = { 0 };
    void *reply;
    double interval;

    if (arena == NULL || pd_reply_unpack(arena, PD_HELLO, header, prefix.header_bytes, &reply, &err) != PD_OK)
        figure_stop("idle_workers: %s", err.text);
    interval = ((const Paramd__HelloReply *)reply)->heartbeat_ms;
    pd_arena_free(arena);
    return interval;
}

/* Reads the daemon's answers and discards them. */
static void drain_answers(idle_workers *c, int wait_ms)
{
    struct epoll_event events[256];
    uint8_t waste[4096];
    int n = epoll_wait(c->epoll, events, 256, wait_ms);

    for (int i = 0; i < n; i++) {
        if (recv(c->fd[events[i].data.u32], waste, sizeof waste, MSG_DONTWAIT) == 0)
            figure_stop("idle_workers: the daemon ended a connection");
    }
}

static void *keep_alive(void *arg)
{
    idle_workers *c = arg;

    while (!atomic_load(&c->over)) {
        double now = figure_ms();
        for (int i = 0; i < c->n; i++) {
            if (c->due[i] > now) continue;
            wire_send(c->fd[i], c->heartbeat, c->heartbeat_bytes);
            c->due[i] += c->interval;
        }
        drain_answers(c, 5);
    }
    return NULL;
}

static void allow_descriptors(int n)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < (rlim_t)n + 100)
        figure_stop("idle_workers: %d descriptors are not allowed", n);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

idle_workers *idle_workers_connect(const char *url, int members)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    idle_workers *c = figure_alloc(sizeof *c);

    allow_descriptors(members);
    c->n = members;
    c->fd = figure_alloc((size_t)members * sizeof *c->fd);
    c->due = figure_alloc((size_t)members * sizeof *c->due);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (pd_frame_pack(&c->heartbeat, &c->heartbeat_bytes, PD_HEARTBEAT, 0, 2, &empty.base, NULL, 0, 0) != PD_OK)
        figure_stop("idle_workers: no memory");
    for (int i = 0; i < members; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
        c->fd[i] = wire_connect(url);
        say_hello(c->fd[i], i);
        c->interval = read_welcome(c->fd[i]);
        if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->fd[i], &event) != 0) figure_stop("idle_workers: %s", strerror(errno));
    }
    for (int i = 0; i < members; i++) c->due[i] = figure_ms() + c->interval * i / members;
    if (pthread_create(&c->thread, NULL, keep_alive, c) != 0) figure_stop("idle_workers: cannot start a thread");
    return c;
}

void idle_workers_close(idle_workers *c)
{
    atomic_store(&c->over, true);
    pthread_join(c->thread, NULL);
    for (int i = 0; i < c->n; i++) close(c->fd[i]);
    close(c->epoll);
    free(c->heartbeat);
    free(c->fd);
    free(c->due);
    free(c);
}
