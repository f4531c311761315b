/* yardstick.c - the yardstick of `paramctl bench`: a server process and a client that move bytes over bare TCP. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SLICE = 64 * 1024,    /* bytes of a read; also the last bytes of an answer, which are held back until all bytes have
                           * arrived */
    READS_IN_A_TURN = 16, /* most reads from one connection before the server turns to the next one */
    STALL_MS = 30 * 1000,
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Interprets the result of a call on a non-blocking socket. Returns the number of bytes, 0 if the call would block,
 * or -1 if the connection has ended. */
static ssize_t moved(ssize_t n)
{
    if (n > 0) return n;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    return -1;
}

/* A connection of the server process. `in` and `out` have room for the bytes that a round moves in one direction. */
typedef struct peer {
    int fd;                  /* descriptor; -1: the connection has ended */
    bool readable, writable; /* as epoll reported; false once a call would block */
    uint8_t *in, *out;
    size_t landed, sent; /* bytes received and sent in this round */
} peer;

/* Returns how many bytes of the answer may be sent so far: none before the first byte of the round has arrived, and all
 * but the last SLICE bytes until all have arrived. */
static size_t sendable(const pd_yardstick *y, const peer *p)
{
    if (p->landed == 0) return 0;
    return p->landed == y->bytes ? y->bytes : y->bytes - least(y->bytes, SLICE);
}

static void receive(const pd_yardstick *y, peer *p)
{
    for (int i = 0; i < READS_IN_A_TURN && p->readable && p->landed < y->bytes; i++) {
        ssize_t n = moved(recv(p->fd, p->in + p->landed, least(SLICE, y->bytes - p->landed), 0));
        if (n < 0) {
            close(p->fd);
            p->fd = -1;
            return;
        }
        p->readable = n > 0;
        p->landed += (size_t)n;
    }
}

static void answer(const pd_yardstick *y, peer *p)
{
    size_t to = sendable(y, p);

    if (p->fd < 0 || !p->writable || p->sent >= to) return;
    ssize_t n = moved(send(p->fd, p->out + p->sent, least(y->chunk, to - p->sent), MSG_NOSIGNAL));
    if (n < 0) {
        close(p->fd);
        p->fd = -1;
        return;
    }
    p->writable = n > 0;
    p->sent += (size_t)n;
    if (p->sent == y->bytes)
        p->sent = p->landed = 0; /* the answer was sent whole, so the client's bytes have all
                                                       * arrived; the next round begins */
}

static bool has_work(const pd_yardstick *y, const peer *p)
{
    return p->fd >= 0 && ((p->readable && p->landed < y->bytes) || (p->writable && p->sent < sendable(y, p)));
}

/* Serves each connection once. Returns the number of open connections. Sets *more to whether some connection can be
 * served without waiting for epoll. */
static int serve_turn(const pd_yardstick *y, peer *peers, bool *more)
{
    int left = 0;

    *more = false;
    for (int i = 0; i < y->connections; i++) {
        if (peers[i].fd >= 0) receive(y, &peers[i]);
        answer(y, &peers[i]);
        left += peers[i].fd >= 0;
        *more |= has_work(y, &peers[i]);
    }
    return left;
}

static void note_events(int epoll, peer *peers, bool wait)
{
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, 64, wait ? -1 : 0);

    for (int i = 0; i < n; i++) {
        peer *p = &peers[events[i].data.u32];
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) p->readable = true;
        if (events[i].events & EPOLLOUT) p->writable = true;
    }
}

static int accept_peer(const pd_yardstick *y, int listener, int epoll, peer *p, uint32_t index)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = index };
    int one = 1;

    *p = (peer){ .fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), .in = malloc(y->bytes), .out = malloc(y->bytes) };
    if (p->fd < 0 || p->in == NULL || p->out == NULL) return -1;
    memset(p->in, 0, y->bytes);
    memset(p->out, 1, y->bytes);
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return epoll_ctl(epoll, EPOLL_CTL_ADD, p->fd, &event);
}

/* Runs the server process. Never returns: the process exits, which frees its memory and sockets. */
static void serve(const pd_yardstick *y, int listener, pid_t parent)
{
    peer *peers = calloc((size_t)y->connections, sizeof *peers);
    int epoll = epoll_create1(0);
    bool more = false;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || peers == NULL || epoll < 0) _exit(1);
    for (int i = 0; i < y->connections; i++)
        if (accept_peer(y, listener, epoll, &peers[i], (uint32_t)i) != 0) _exit(1);
    do {
        note_events(epoll, peers, !more);
    } while (serve_turn(y, peers, &more) > 0);
    _exit(0);
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 512) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        close(fd);
        return -1;
    }
    *port = ntohs(address.sin_port);
    return fd;
}

int pd_yardstick_start(pd_yardstick *out, int connections, size_t bytes, size_t chunk, pd_error *err)
{
    pid_t parent = getpid();
    int listener;

    *out = (pd_yardstick){ .connections = connections, .bytes = bytes, .chunk = chunk };
    listener = listen_anywhere(&out->port);
    if (listener < 0) return pd_fail(err, PD_UNAVAILABLE, "yardstick: cannot listen on loopback: %s", strerror(errno));
    out->pid = fork();
    if (out->pid == 0) serve(out, listener, parent);
    close(listener);
    if (out->pid < 0) return pd_fail(err, PD_UNAVAILABLE, "yardstick: cannot start a process: %s", strerror(errno));
    return PD_OK;
}

void pd_yardstick_stop(pd_yardstick *yardstick)
{
    if (yardstick->pid <= 0) return;
    kill(yardstick->pid, SIGKILL);
    waitpid(yardstick->pid, NULL, 0);
    yardstick->pid = 0;
}

int pd_yardstick_connect(const pd_yardstick *yardstick, pd_error *err)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)yardstick->port) };
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        pd_fail(err, PD_UNAVAILABLE, "yardstick: cannot connect: %s", strerror(errno));
        if (fd >= 0) close(fd);
        return PD_UNAVAILABLE;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

int pd_yardstick_round(const pd_yardstick *yardstick, int fd, const void *out, void *in, pd_error *err)
{
    size_t bytes = yardstick->bytes, sent = 0, got = 0;

    while (sent < bytes || got < bytes) {
        ssize_t there = 0, here = 0;
        if (sent < bytes)
            there = moved(
                send(fd, (const char *)out + sent, least(yardstick->chunk, bytes - sent), MSG_DONTWAIT | MSG_NOSIGNAL));
        if (got < bytes) here = moved(recv(fd, (char *)in + got, least(SLICE, bytes - got), MSG_DONTWAIT));
        if (there < 0 || here < 0) return pd_fail(err, PD_UNAVAILABLE, "yardstick: the connection broke");
        sent += (size_t)there;
        got += (size_t)here;
        if (there == 0 && here == 0) {
            struct pollfd wait = { .fd = fd,
                                   .events = (short)((sent < bytes ? POLLOUT : 0) | (got < bytes ? POLLIN : 0)) };
            if (poll(&wait, 1, STALL_MS) == 0)
                return pd_fail(err, PD_DEADLINE_EXCEEDED, "yardstick: nothing moved for 30 seconds");
        }
    }
    return PD_OK;
}
