/* connect.c - looks up names of hosts on threads of their own, and connects to the address that answers first. */
#include "connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_LOOKUPS = 16 }; /* most threads of the process that look up names at once */

uint64_t pd_clock_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A lookup: its thread and all callers that have joined it share it. */
struct pd_lookup {
    char host[sizeof((pd_address *)0)->host], port[sizeof((pd_address *)0)->port];
    int done_fd; /* event descriptor that stays readable once the lookup is done; -1: a numeric address, done at once */
    /* The result: getaddrinfo's error (0: none), and the addresses. The thread writes both before it removes the lookup
     * from the list. */
    int error;
    struct addrinfo *addresses;
    /* Guarded by `lock`. Number of users: the thread, and each caller that has started or joined the lookup. */
    int shares;
    pd_lookup *next; /* next in the list `under_way` */
};

/* List and number of this process's lookups that are under way, and their lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pd_lookup *under_way;
static int n_under_way;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Forgets the lookups that were under way: the child of a fork does not have their threads. */
static void begin_child(void)
{
    under_way = NULL;
    n_under_way = 0;
    pthread_mutex_unlock(&lock);
}

static void survive_fork(void)
{
    pthread_atfork(before_fork, after_fork, begin_child);
}

static void dispose(pd_lookup *lookup)
{
    if (lookup->addresses != NULL) freeaddrinfo(lookup->addresses);
    if (lookup->done_fd >= 0) close(lookup->done_fd);
    free(lookup);
}

static pd_lookup *make(const pd_address *url)
{
    pd_lookup *lookup = calloc(1, sizeof *lookup);

    if (lookup == NULL) return NULL;
    memcpy(lookup->host, url->host, sizeof lookup->host);
    memcpy(lookup->port, url->port, sizeof lookup->port);
    lookup->done_fd = -1;
    lookup->shares = 1;
    return lookup;
}

void pd_lookup_leave(pd_lookup *lookup)
{
    bool last;

    if (lookup == NULL) return;
    pthread_mutex_lock(&lock);
    last = --lookup->shares == 0;
    pthread_mutex_unlock(&lock);
    if (last) dispose(lookup);
}

static int ask(pd_lookup *lookup, int flags)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC, .ai_flags = flags };

    return getaddrinfo(lookup->host, lookup->port, &hints, &lookup->addresses);
}

/* Removes a lookup from the list `under_way`. In the child of a fork, the list may not have it. */
static void remove_from_list(const pd_lookup *lookup)
{
    pd_lookup **at = &under_way;

    while (*at != NULL && *at != lookup) at = &(*at)->next;
    if (*at == NULL) return;
    *at = lookup->next;
    n_under_way--;
}

static void *run(void *arg)
{
    pd_lookup *lookup = arg;

    lookup->error = ask(lookup, 0);
    pthread_mutex_lock(&lock);
    remove_from_list(lookup);
    pthread_mutex_unlock(&lock);
    eventfd_write(lookup->done_fd, 1);
    pd_lookup_leave(lookup);
    return NULL;
}

/* Starts a detached thread with all signals blocked, so that signals go to the program's own threads. */
static int spawn(pd_lookup *lookup)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    int rc;

    if ((rc = pthread_attr_init(&attr)) != 0) return rc;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, run, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

static pd_lookup *find(const pd_address *url)
{
    pd_lookup *at = under_way;

    while (at != NULL && (strcmp(at->host, url->host) != 0 || strcmp(at->port, url->port) != 0)) at = at->next;
    return at;
}

/* Starts the thread of a new lookup, and adds the lookup to the list. `lock` is held. */
static int begin(pd_lookup *lookup, pd_error *err)
{
    int rc = 0;

    if (n_under_way >= MOST_LOOKUPS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%s: this process is already looking up %d other names",
                       lookup->host, MOST_LOOKUPS);
    if ((lookup->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0) rc = errno;
    if (rc == 0) lookup->shares = 2;
    if (rc == 0) rc = spawn(lookup);
    if (rc != 0) return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%s: looking up the name: %s", lookup->host, strerror(rc));
    lookup->next = under_way;
    under_way = lookup;
    n_under_way++;
    return PD_OK;
}

static int join_or_begin(pd_lookup **out, const pd_address *url, pd_error *err)
{
    pd_lookup *lookup = find(url);
    int rc;

    if (lookup != NULL) {
        lookup->shares++;
    } else if ((lookup = make(url)) == NULL) {
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    } else if ((rc = begin(lookup, err)) != PD_OK) {
        dispose(lookup);
        return rc;
    }
    *out = lookup;
    return PD_OK;
}

/* Finishes a lookup whose host is a numeric address, without a thread. Returns false if the host is a name. */
static bool take_number(pd_lookup *lookup)
{
    lookup->error = ask(lookup, AI_NUMERICHOST | AI_NUMERICSERV);
    return lookup->error != EAI_NONAME;
}

int pd_lookup_start(pd_lookup **out, const pd_address *url, pd_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pd_lookup *lookup = make(url);
    int rc;

    if (lookup == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (take_number(lookup)) {
        *out = lookup;
        return PD_OK;
    }
    dispose(lookup);
    pthread_once(&once, survive_fork);
    pthread_mutex_lock(&lock);
    rc = join_or_begin(out, url, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

static int await(const pd_lookup *lookup, int stop_fd, int timeout_ms, pd_error *err)
{
    struct pollfd wait[2] = { { .fd = lookup->done_fd, .events = POLLIN }, { .fd = stop_fd, .events = POLLIN } };
    int n;

    do n = poll(wait, 2, timeout_ms);
    while (n < 0 && errno == EINTR);
    if (n < 0) return pd_fail(err, PD_UNAVAILABLE, "waiting for the name servers: %s", strerror(errno));
    if (wait[1].revents != 0) return pd_fail(err, PD_CANCELLED, "told to stop");
    if (n == 0)
        return pd_fail(err, PD_DEADLINE_EXCEEDED, "looking up %s: no answer from the name servers yet", lookup->host);
    pthread_mutex_lock(&lock); /* the thread has had it since it wrote the result, which is seen now */
    pthread_mutex_unlock(&lock);
    return PD_OK;
}

int pd_lookup_wait(pd_lookup *lookup, const struct addrinfo **out, int stop_fd, int timeout_ms, pd_error *err)
{
    int rc = lookup->done_fd >= 0 ? await(lookup, stop_fd, timeout_ms, err) : PD_OK;

    if (rc != PD_OK) return rc;
    if (lookup->error != 0) return pd_fail(err, PD_UNAVAILABLE, "%s", gai_strerror(lookup->error));
    *out = lookup->addresses;
    return PD_OK;
}

enum {
    HEAD_START_MS = 250,
    MOST_SOCKETS = 8,
    STOP = MOST_SOCKETS
}; /* STOP: index in `sockets` of the descriptor that ends the attempts */

/* The attempts to connect of one pd_race_connect. Times are in ms of the monotonic clock. */
typedef struct pd_race {
    struct pollfd sockets[MOST_SOCKETS + 1]; /* `n` sockets that are not connected yet; at STOP: `stop_fd` */
    int n, left;                             /* number of sockets; number of addresses that may still be tried */
    const struct addrinfo *next;             /* next address to try; NULL: all were tried */
    int64_t next_ms, end_ms;                 /* when to try `next`; when to give up */
    int error;                               /* errno of the last address that failed */
} pd_race;

/* Begins to connect to the next address. Returns the socket if it is connected at once, else -1. */
static int try_next(pd_race *r, int timeout_ms)
{
    const struct addrinfo *address = r->next;
    int one = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    r->next = --r->left > 0 ? address->ai_next : NULL;
    r->next_ms = pd_clock_ms() + HEAD_START_MS;
    r->end_ms = pd_clock_ms() + timeout_ms;
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

/* Removes socket number i from the race, and returns it. The others stay in their order. */
static int take_out(pd_race *r, int i)
{
    int fd = r->sockets[i].fd;

    r->n--;
    memmove(&r->sockets[i], &r->sockets[i + 1], (size_t)(r->n - i) * sizeof r->sockets[i]);
    return fd;
}

static void give_up(pd_race *r, int error)
{
    r->error = error;
    r->next = NULL;
    while (r->n > 0) close(take_out(r, 0));
}

/* Waits until a socket is connected, the next address is due or the time is up. Returns the connected socket, the one
 * of the earliest address if there are several; -1: there is none. */
static int await_sockets(pd_race *r)
{
    int64_t left = (r->next != NULL ? r->next_ms : r->end_ms) - pd_clock_ms();
    int n;

    for (int i = r->n; i < MOST_SOCKETS; i++) r->sockets[i] = (struct pollfd){ .fd = -1 };
    n = poll(r->sockets, MOST_SOCKETS + 1, left > 0 ? (int)left : 0);
    if (n < 0 && errno != EINTR) give_up(r, errno);
    if (n <= 0) return -1;
    for (int i = 0; i < r->n; i++) {
        socklen_t size = sizeof(int);
        int error = 0;

        if (r->sockets[i].revents == 0) continue;
        if (getsockopt(r->sockets[i].fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        if (error == 0) return take_out(r, i);
        r->error = error;
        close(take_out(r, i--));
    }
    return -1;
}

/* Returns whether the next address may be tried now. */
static bool is_due(const pd_race *r)
{
    return r->next != NULL && (r->n == 0 || pd_clock_ms() >= r->next_ms);
}

static bool is_over(const pd_race *r)
{
    return r->sockets[STOP].revents != 0 || (r->next == NULL && (r->n == 0 || pd_clock_ms() >= r->end_ms));
}

int pd_race_connect(int *fd, const struct addrinfo *addresses, int stop_fd, int timeout_ms)
{
    pd_race r = { .left = MOST_SOCKETS, .next = addresses };

    r.sockets[STOP] = (struct pollfd){ .fd = stop_fd, .events = POLLIN };
    *fd = -1;
    while (*fd < 0 && !is_over(&r)) *fd = is_due(&r) ? try_next(&r, timeout_ms) : await_sockets(&r);
    if (r.n > 0) give_up(&r, ETIMEDOUT);
    if (*fd >= 0) return 0;
    return r.sockets[STOP].revents != 0 ? -1 : r.error;
}
