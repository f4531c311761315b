/* race.c - connects to the address that answers first, of the several that a host may have. */
#include "race.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_START_MS = 250, MOST = 8, STOP = MOST }; /* STOP: index of the descriptor that ends the race */

typedef struct race {
    struct pollfd sockets[MOST + 1]; /* those that are not connected yet; the last one is `stop_fd` */
    int n, left;                     /* number of them; number of addresses that may be tried yet */
    const struct addrinfo *next;     /* NULL: all were tried */
    int64_t next_ms, end_ms;         /* when to try it; when to give up */
    int error;                       /* of the last address that failed */
} race;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Begins to connect to the next address. Returns the socket if it is connected at once, else -1. */
static int begin(race *r, int timeout_ms)
{
    const struct addrinfo *address = r->next;
    int one = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    r->next = --r->left > 0 ? address->ai_next : NULL;
    r->next_ms = now_ms() + HEAD_START_MS;
    r->end_ms = now_ms() + timeout_ms;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0) return fd;
    if (fd >= 0 && (errno == EINPROGRESS || errno == EINTR)) {
        r->sockets[r->n++] = (struct pollfd){ .fd = fd, .events = POLLOUT };
        return -1;
    }
    r->error = errno;
    if (fd >= 0) close(fd);
    return -1;
}

/* Takes a socket out of the race. */
static int take_out(race *r, int i)
{
    int fd = r->sockets[i].fd;

    r->sockets[i] = r->sockets[--r->n];
    return fd;
}

static void give_up(race *r, int error)
{
    r->error = error;
    r->next = NULL;
    while (r->n > 0) close(take_out(r, 0));
}

/* Waits for the sockets, until the next address is due or the time is up. Returns a socket that is connected; -1: there
 * is none. */
static int await(race *r)
{
    int64_t left = (r->next != NULL ? r->next_ms : r->end_ms) - now_ms();
    int n;

    for (int i = r->n; i < MOST; i++) r->sockets[i] = (struct pollfd){ .fd = -1 };
    n = poll(r->sockets, MOST + 1, left > 0 ? (int)left : 0);
    if (n < 0 && errno != EINTR) give_up(r, errno);
    if (n <= 0) return -1;
    for (int i = r->n - 1; i >= 0; i--) {
        socklen_t size = sizeof(int);
        int error = 0;

        if (r->sockets[i].revents == 0) continue;
        if (getsockopt(r->sockets[i].fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        if (error == 0) return take_out(r, i);
        r->error = error;
        close(take_out(r, i));
    }
    return -1;
}

/* Returns whether the next address may be tried now. */
static bool is_due(const race *r)
{
    return r->next != NULL && (r->n == 0 || now_ms() >= r->next_ms);
}

static bool is_over(const race *r)
{
    return r->sockets[STOP].revents != 0 || (r->next == NULL && (r->n == 0 || now_ms() >= r->end_ms));
}

int pd_race_connect(int *fd, const struct addrinfo *addresses, int stop_fd, int timeout_ms)
{
    race r = { .left = MOST, .next = addresses };

    r.sockets[STOP] = (struct pollfd){ .fd = stop_fd, .events = POLLIN };
    *fd = -1;
    while (*fd < 0 && !is_over(&r)) *fd = is_due(&r) ? begin(&r, timeout_ms) : await(&r);
    if (r.n > 0) give_up(&r, ETIMEDOUT);
    if (*fd >= 0) return 0;
    return r.sockets[STOP].revents != 0 ? -1 : r.error;
}
