#include "io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Payload is read in slices that stay in the cache on their way; a turn of the loop reads and sends no more than so many, so that neither
 * direction waits for the other. */
enum { READ_BYTES = 64 * 1024, READS = 8, READ_IOV = 256, SEND_BYTES = 1024 * 1024, SENDS = 2, SEND_IOV = 1024 };
enum { CONNECT_MS = 5000, LONGEST_MS = 3600 * 1000 };
#define MAX_ANSWER (UINT64_MAX / 2)         /* every answer's length is compared with what was asked for */

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int until_ms(uint64_t when_ns)
{
    uint64_t now = now_ns();

    if (when_ns <= now) return 0;
    if (when_ns - now > LONGEST_MS * UINT64_C(1000000)) return LONGEST_MS;
    return (int)((when_ns - now + 999999) / 1000000);
}

/* ---- both threads ---- */

void pd_io_enter(pd_io *io)
{
    pthread_mutex_lock(&io->lock);
}

void pd_io_leave(pd_io *io)
{
    bool wake = io->idle && (pd_core_has_output(io->core) || pd_core_link(io->core, 0) == PD_LINK_DROP);

    if (wake) io->idle = false;
    pthread_mutex_unlock(&io->lock);
    if (wake) eventfd_write(io->wake_fd, 1);
}

bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds)
{
    uint64_t deadline = now_ns() + (uint64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9);
    struct timespec until = { .tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u) };
    int rc = 0;

    io->awaited = ticket;
    while (!pd_core_done(io->core, ticket) && rc != ETIMEDOUT) rc = pthread_cond_timedwait(&io->changed, &io->lock, &until);
    io->awaited = 0;
    return pd_core_done(io->core, ticket);
}

/* I/O thread, after anything that may have ended an operation. */
static void leave_telling(pd_io *io)
{
    bool tell = io->awaited != 0 && pd_core_done(io->core, io->awaited);

    pthread_mutex_unlock(&io->lock);
    if (tell) pthread_cond_signal(&io->changed);
}

/* ---- what comes (I/O thread, from here on) ---- */

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    pd_io *io = arg;
    int rc;

    pd_io_enter(io);
    rc = pd_core_header(io->core, prefix, header, spans, n);
    leave_telling(io);
    return rc;
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    pd_io *io = arg;
    int rc;

    pd_io_enter(io);
    rc = pd_core_frame(io->core, prefix, header);
    leave_telling(io);
    return rc;
}

static void lose(pd_io *io, const char *reason)
{
    if (io->fd >= 0) close(io->fd);
    io->fd = -1;
    pd_io_enter(io);
    pd_core_down(io->core, now_ns(), reason);
    leave_telling(io);
    pd_framer_free(io->framer);         /* after the core knows: what it was landing is nobody's now */
    io->framer = NULL;
}

/* False: the connection is lost. */
static bool receive(pd_io *io)
{
    struct iovec iov[READ_IOV];
    pd_error error;

    for (int i = 0; i < READS; i++) {
        int n = pd_framer_space(io->framer, iov, READ_IOV, READ_BYTES);
        ssize_t got = pd_sock_recv(io->fd, iov, n, &error);
        size_t room = 0;

        if (got == 0) return true;
        if (got > 0 && pd_framer_fed(io->framer, (size_t)got) != PD_OK) {
            error = *pd_framer_error(io->framer);
            got = -1;
        }
        if (got < 0) {
            lose(io, error.text);
            return false;
        }
        io->heard += (size_t)got;
        for (int k = 0; k < n; k++) room += iov[k].iov_len;
        if ((size_t)got < room) return true;
    }
    return true;
}

/* ---- what goes ---- */

/* Tells the core of the time and asks it what to send. Returns how many entries; *timeout_ms: how long to sleep if there are none. */
static int prepare(pd_io *io, struct iovec *iov, int *timeout_ms)
{
    uint64_t now = now_ns();
    int n = 0;

    pd_io_enter(io);
    if (io->heard > 0) pd_core_heard(io->core, io->heard, now);
    io->heard = 0;
    pd_core_tick(io->core, now);
    if (!io->blocked) n = pd_core_output(io->core, iov, SEND_IOV, SEND_BYTES);
    *timeout_ms = n > 0 ? 0 : until_ms(pd_core_next(io->core));
    io->idle = n == 0 && !io->blocked;
    if (io->stop) *timeout_ms = 0;
    leave_telling(io);
    return n;
}

/* False: the connection is lost. */
static bool send_some(pd_io *io, const struct iovec *iov, int n)
{
    pd_error error;
    ssize_t sent = pd_sock_send(io->fd, iov, n, &error);
    size_t all = 0;

    if (sent < 0) {
        lose(io, error.text);
        return false;
    }
    for (int i = 0; i < n; i++) all += iov[i].iov_len;
    io->blocked = (size_t)sent < all;
    if (sent == 0) return true;
    pd_io_enter(io);
    pd_core_sent(io->core, (size_t)sent, now_ns());
    leave_telling(io);
    return true;
}

/* One turn while connected: send, then see what has come. */
static void converse(pd_io *io)
{
    struct iovec iov[SEND_IOV];
    struct pollfd wait[2] = { { .fd = io->fd, .events = POLLIN }, { .fd = io->wake_fd, .events = POLLIN } };
    int timeout_ms = 0;
    eventfd_t count;

    for (int i = 0, n = 1; i < SENDS && n > 0; i++) {
        n = prepare(io, iov, &timeout_ms);
        if (n > 0 && !send_some(io, iov, n)) return;
    }
    if (io->blocked) wait[0].events |= POLLOUT;
    if (poll(wait, 2, timeout_ms) <= 0) return;
    if (wait[1].revents != 0) eventfd_read(io->wake_fd, &count);
    if ((wait[0].revents & POLLOUT) != 0) io->blocked = false;
    if ((wait[0].revents & ~POLLOUT) != 0) receive(io);
}

/* ---- connections ---- */

static void make(pd_io *io)
{
    static const pd_framer_user callbacks = { .header = on_header, .frame = on_frame };
    pd_framer_user user = callbacks;
    pd_error error;
    size_t url;

    pd_io_enter(io);
    url = pd_core_url(io->core);
    pthread_mutex_unlock(&io->lock);
    if (pd_sock_connect(&io->fd, &io->urls[url], io->stop_fd, CONNECT_MS, &error) != PD_OK) {
        lose(io, error.text);
        return;
    }
    user.arg = io;
    if ((io->framer = pd_framer_new(&user, MAX_ANSWER)) == NULL) {
        lose(io, "out of memory");
        return;
    }
    io->blocked = false;
    pd_io_enter(io);
    pd_core_up(io->core, now_ns());
    leave_telling(io);
}

static void rest(pd_io *io)
{
    struct pollfd wait = { .fd = io->stop_fd, .events = POLLIN };
    uint64_t next;

    pd_io_enter(io);
    next = pd_core_next(io->core);
    pthread_mutex_unlock(&io->lock);
    poll(&wait, 1, until_ms(next));
}

static bool stopped(pd_io *io, pd_link *link)
{
    bool stop;

    pd_io_enter(io);
    stop = io->stop;
    *link = pd_core_link(io->core, now_ns());
    pthread_mutex_unlock(&io->lock);
    return stop;
}

static void *run(void *arg)
{
    pd_io *io = arg;
    pd_link link;

    while (!stopped(io, &link)) {
        switch (link) {
        case PD_LINK_REST:    rest(io); break;
        case PD_LINK_CONNECT: make(io); break;
        case PD_LINK_KEEP:    converse(io); break;
        case PD_LINK_DROP:    lose(io, "dropped"); break;
        }
    }
    lose(io, "closed");
    return NULL;
}

/* ---- life (user's thread) ---- */

/* Signals are the program's business, not this thread's. */
static int spawn(pd_io *io)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&io->thread, NULL, run, io);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void dispose(pd_io *io)
{
    if (io->wake_fd >= 0) close(io->wake_fd);
    if (io->stop_fd >= 0) close(io->stop_fd);
    pthread_cond_destroy(&io->changed);
    pthread_mutex_destroy(&io->lock);
}

int pd_io_start(pd_io *io, pd_core *core, const pd_url *urls, pd_error *err)
{
    pthread_condattr_t attr;
    int rc;

    memset(io, 0, sizeof *io);
    io->core = core;
    io->urls = urls;
    io->fd = -1;
    pthread_mutex_init(&io->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&io->changed, &attr);
    pthread_condattr_destroy(&attr);
    io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->stop_fd = io->wake_fd >= 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    rc = io->stop_fd < 0 ? errno : spawn(io);
    if (rc == 0) return PD_OK;
    dispose(io);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "starting the I/O thread: %s", strerror(rc));
}

void pd_io_stop(pd_io *io)
{
    pd_io_enter(io);
    io->stop = true;
    pthread_mutex_unlock(&io->lock);
    eventfd_write(io->stop_fd, 1);
    eventfd_write(io->wake_fd, 1);
    pthread_join(io->thread, NULL);
    dispose(io);
}
