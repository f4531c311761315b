#include "crowd.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "figure.h"
#include "wire.h"

enum { JOB_SIZE = 100 };

struct crowd {
    int        n, epoll;
    int       *fd;
    double    *due;                 /* when a member sends its next heartbeat, ms */
    double     interval;
    uint8_t   *heartbeat;
    size_t     heartbeat_bytes;
    pthread_t  thread;
    atomic_bool over;
};

static void say_hello(int fd, int index)
{
    char job[32];

    snprintf(job, sizeof job, "crowd/%d", index / JOB_SIZE);
    wire_hello(fd, job, (uint32_t)(index % JOB_SIZE), JOB_SIZE, 1000 + (uint64_t)index);       /* the same process comes back each time */
}

/* Reads the welcome; gives how often the daemon wants a heartbeat, in ms. */
static double read_welcome(int fd)
{
    static uint8_t header[PD_MAX_HEADER_BYTES];
    pd_prefix prefix = wire_hear(fd, header);
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    pd_error err = { 0 };
    void *reply;
    double interval;

    if (arena == NULL || pd_reply_unpack(arena, PD_HELLO, header, prefix.header_bytes, &reply, &err) != PD_OK) figure_stop("crowd: %s", err.text);
    interval = ((const Paramd__HelloReply *)reply)->heartbeat_ms;
    pd_arena_free(arena);
    return interval;
}

/* What the daemon answers is read and thrown away. */
static void drain_answers(crowd *c, int wait_ms)
{
    struct epoll_event events[256];
    uint8_t waste[4096];
    int n = epoll_wait(c->epoll, events, 256, wait_ms);

    for (int i = 0; i < n; i++) {
        if (recv(c->fd[events[i].data.u32], waste, sizeof waste, MSG_DONTWAIT) == 0) figure_stop("crowd: the daemon ended a connection");
    }
}

static void *keep_alive(void *arg)
{
    crowd *c = arg;

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

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < (rlim_t)n + 100) figure_stop("crowd: %d descriptors are not allowed", n);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

crowd *crowd_gather(const char *url, int members)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    crowd *c = figure_alloc(sizeof *c);

    allow_descriptors(members);
    c->n = members;
    c->fd = figure_alloc((size_t)members * sizeof *c->fd);
    c->due = figure_alloc((size_t)members * sizeof *c->due);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (pd_frame_pack(&c->heartbeat, &c->heartbeat_bytes, PD_HEARTBEAT, 0, 2, &empty.base, NULL, 0, 0) != PD_OK) figure_stop("crowd: no memory");
    for (int i = 0; i < members; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
        c->fd[i] = wire_connect(url);
        say_hello(c->fd[i], i);
        c->interval = read_welcome(c->fd[i]);
        if (epoll_ctl(c->epoll, EPOLL_CTL_ADD, c->fd[i], &event) != 0) figure_stop("crowd: %s", strerror(errno));
    }
    for (int i = 0; i < members; i++) c->due[i] = figure_ms() + c->interval * i / members;
    if (pthread_create(&c->thread, NULL, keep_alive, c) != 0) figure_stop("crowd: cannot start a thread");
    return c;
}

void crowd_disperse(crowd *c)
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
