/* io.c - the I/O thread of a client handle: moves bytes between the core and the sockets, and connects again when a
 * connection breaks. */
#include "io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "congestion.h"
#include "follow.h"

enum { SENDS = 2 }; /* number of batches (of about 1 MiB) that the I/O thread sends in a row before it receives again */
/* An attempt to connect waits at most CONNECT_MS each for the name servers, for each address, and for the TLS
 * handshake. If name servers take longer than SLOW_MS, the error text of a waiting call says so. LONGEST_MS: longest
 * sleep of the I/O thread. */
enum { CONNECT_MS = 5000, SLOW_MS = 500, LONGEST_MS = 3600 * 1000 };
/* The same for an address whose shard may have moved: the machine there may be gone, and answer nothing. */
enum { FOLLOWED_CONNECT_MS = 2000 };

static int until_ms(uint64_t when_ns)
{
    uint64_t now = pd_clock_now_ns();

    if (when_ns <= now) return 0;
    if (when_ns - now > LONGEST_MS * UINT64_C(1000000)) return LONGEST_MS;
    return (int)((when_ns - now + 999999) / 1000000);
}

void pd_io_enter(pd_io *io)
{
    pthread_mutex_lock(&io->lock);
}

/* Rings the bell of a thread that waits for several cores, and notes how its operation has ended. */
static void ring(const pd_core *core, pd_waiter *waiter)
{
    const pd_op *op = pd_op_find(core, waiter->ticket);

    pthread_mutex_lock(&waiter->bell->lock);
    waiter->failed = op != NULL && op->error.code != PD_OK;
    waiter->told = true;
    pthread_cond_broadcast(&waiter->bell->rung);
    pthread_mutex_unlock(&waiter->bell->lock);
}

/* Returns whether a ticket is done for which a thread of the user waits. Rings the bells of the threads that wait for
 * several cores. Only threads that hold io->lock write `told` there, so it may be read without the bell's lock. */
static bool has_waited(const pd_io *io)
{
    bool waited = false;

    for (pd_waiter *waiter = io->waiters; waiter != NULL; waiter = waiter->next) {
        if (waiter->told || !pd_core_done(io->core, waiter->ticket)) continue;
        if (waiter->bell == NULL)
            waited = true;
        else
            ring(io->core, waiter);
    }
    return waited;
}

/* Unlocks the core, and tells the user of tickets that are done: by waking the threads that wait for them, and by the
 * event descriptor, if the user has asked for it. */
static void unlock(pd_io *io)
{
    bool wake = has_waited(io), news = io->done_fd >= 0 && io->core->calls.ended != io->told;
    int fd = io->done_fd;

    io->told = io->core->calls.ended;
    pthread_mutex_unlock(&io->lock);
    if (wake) pthread_cond_broadcast(&io->changed);
    if (news) eventfd_write(fd, 1);
}

void pd_io_leave(pd_io *io)
{
    bool wake = io->idle && (pd_core_has_output(io->core) || pd_core_next(io->core) < io->until_ns);

    if (wake) io->idle = false;
    unlock(io);
    if (wake) eventfd_write(io->wake_fd, 1);
}

int pd_io_done_fd(pd_io *io)
{
    if (io->done_fd < 0) io->done_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    return io->done_fd;
}

void pd_io_watch(pd_io *io, pd_waiter *waiter)
{
    pd_io_enter(io);
    pd_waiter_add(&io->waiters, waiter);
    pd_io_leave(io);
}

void pd_io_unwatch(pd_io *io, pd_waiter *waiter)
{
    pd_io_enter(io);
    pd_waiter_remove(&io->waiters, waiter);
    pthread_mutex_unlock(&io->lock);
}

void pd_io_lend_fd(pd_io *io, int fd)
{
    pd_io_enter(io);
    io->done_fd = fd;
    io->borrows_fd = true;
    pthread_mutex_unlock(&io->lock);
}

bool pd_io_wait(pd_io *io, pd_ticket_id ticket, double seconds)
{
    uint64_t deadline = pd_clock_now_ns() + (uint64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9);
    struct timespec until = { .tv_sec = (time_t)(deadline / 1000000000u), .tv_nsec = (long)(deadline % 1000000000u) };
    pd_waiter waiter = { .ticket = ticket };
    int rc = 0;

    pd_waiter_add(&io->waiters, &waiter);
    while (!pd_core_done(io->core, ticket) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&io->changed, &io->lock, &until);
    pd_waiter_remove(&io->waiters, &waiter);
    return pd_core_done(io->core, ticket);
}

/* Unlocks the core. Called by the I/O thread. */
static void leave_thread(void *arg)
{
    unlock(arg);
}

static void enter_thread(void *arg)
{
    pd_io_enter(arg);
}

/* Returns for how many milliseconds the I/O thread may sleep; 0 if there are bytes to send. A call of the user that
 * queues bytes wakes the thread earlier. */
static int sleep_ms(pd_io *io)
{
    bool sendable;
    int timeout_ms;

    pd_io_enter(io);
    sendable = !io->pump.blocked && pd_core_has_output(io->core);
    io->idle = !sendable && !io->pump.blocked;
    io->until_ns = pd_core_next(io->core);
    timeout_ms = sendable || io->stop ? 0 : until_ms(io->until_ns);
    unlock(io);
    return timeout_ms;
}

/* Makes a transport of a connected socket; for a tls:// address makes the TLS handshake before. NULL: it failed, *error
 * says why. */
static pd_transport *make_transport(const pd_io *io, const pd_address *url, int fd, pd_error *error)
{
    pd_tls_stream *tls = NULL;
    pd_transport *transport;
    pd_error why;

    if (url->secure && pd_secure_connect(io->secure, &tls, fd, url->host, io->stop_fd, CONNECT_MS, &why) != PD_OK) {
        char text[PD_ADDRESS_TEXT];
        pd_fail(error, why.code, "%s: %s", pd_address_text(url, text), why.text);
        return NULL;
    }
    if ((transport = pd_sock_transport(fd, tls)) != NULL) return transport;
    pd_tls_stream_free(tls);
    pd_fail(error, PD_NO_MEMORY, "out of memory");
    return NULL;
}

/* Tells the core why there is no connection yet (`why`; NULL: unknown), for the error text of a call that times out. */
static void explain(pd_io *io, const pd_address *url, const pd_error *why)
{
    char text[PD_ADDRESS_TEXT], reason[PD_ERROR_TEXT] = "";

    if (why != NULL) snprintf(reason, sizeof reason, "%s: %.300s", pd_address_text(url, text), why->text);
    pd_io_enter(io);
    snprintf(io->core->link.reason, sizeof io->core->link.reason, "%s", reason);
    unlock(io);
}

/* Waits for the addresses of a host. A lookup that takes too long continues, and the next attempt waits for it
 * again. */
static int look_up(pd_io *io, size_t url, const struct addrinfo **addresses, pd_error *err)
{
    pd_lookup **lookup = &io->lookups[url];
    int rc = *lookup == NULL ? pd_lookup_start(lookup, &io->urls[url], err) : PD_OK;

    if (rc == PD_OK) rc = pd_lookup_wait(*lookup, addresses, io->stop_fd, SLOW_MS, err);
    if (rc != PD_DEADLINE_EXCEEDED) return rc;
    explain(io, &io->urls[url], err);
    rc = pd_lookup_wait(*lookup, addresses, io->stop_fd, CONNECT_MS - SLOW_MS, err);
    if (rc == PD_OK) explain(io, &io->urls[url], NULL);
    return rc;
}

static int connect_to(pd_io *io, size_t url, bool may_move, int *fd, pd_error *err)
{
    const struct addrinfo *addresses = NULL;
    char text[PD_ADDRESS_TEXT];
    pd_error why;
    int rc = io->urls[url].local ? PD_OK : look_up(io, url, &addresses, &why);

    if (rc != PD_OK)
        pd_fail(err, rc, "%s: %.300s", pd_address_text(&io->urls[url], text), why.text);
    else
        rc = pd_sock_connect(fd, &io->urls[url], addresses, io->move_fd, may_move ? FOLLOWED_CONNECT_MS : CONNECT_MS,
                             err);
    if (rc == PD_DEADLINE_EXCEEDED) return rc;
    pd_lookup_leave(io->lookups[url]);
    io->lookups[url] = NULL;
    return rc;
}

/* Begins to use a connected socket, of a new or a spare connection. For a tls:// address makes the TLS handshake
 * before. */
static void begin(pd_io *io, size_t url, int fd)
{
    pd_error error;
    int rc = pd_congestion_set(fd, io->core->setup.congestion, &error);
    pd_transport *transport = NULL;

    if (!io->urls[url].secure) pd_congestion_local(fd, io->core->setup.congestion);
    if (rc == PD_OK) transport = make_transport(io, &io->urls[url], fd, &error);
    if (transport == NULL) {
        close(fd);
        pd_pump_lose(&io->pump, pd_clock_now_ns(), error.text);
        return;
    }
    pd_pump_open(&io->pump, transport, pd_clock_now_ns());
    if (io->pump.transport != NULL && io->watches) pd_path_begin(&io->path, fd, pd_clock_now_ns());
}

/* Forgets the lookups of all addresses. */
static void leave_lookups(pd_io *io)
{
    for (size_t i = 0; i < io->n_lookups; i++) {
        pd_lookup_leave(io->lookups[i]);
        io->lookups[i] = NULL;
    }
}

/* Lets the core follow its shard, if the table of shards has changed. */
static void follow(pd_io *io)
{
    const pd_shard_table *table = io->core->following.table;
    uint64_t changes = table != NULL ? pd_shard_table_changes(table) : 0;
    eventfd_t count;

    if (changes == io->followed) return;
    io->followed = changes;
    eventfd_read(io->move_fd, &count);
    pd_io_enter(io);
    if (pd_core_follow(io->core, pd_clock_now_ns())) {
        io->urls = io->core->setup.addresses;
        leave_lookups(io);
    }
    unlock(io);
}

static void make(pd_io *io)
{
    pd_error error;
    bool may_move;
    size_t url;
    int fd;

    pd_io_enter(io);
    url = io->core->link.url;
    may_move = io->core->following.tenure > 0;
    pthread_mutex_unlock(&io->lock);
    if (connect_to(io, url, may_move, &fd, &error) == PD_OK)
        begin(io, url, fd);
    else
        pd_pump_lose(&io->pump, pd_clock_now_ns(), error.text);
}

/* Sleeps while there is no connection, until it is time to connect again. A call of the user that makes this time
 * earlier (a restart of the job, for instance) wakes the thread. */
static void rest(pd_io *io)
{
    struct pollfd wait[2] = { { .fd = io->stop_fd, .events = POLLIN }, { .fd = io->wake_fd, .events = POLLIN } };
    eventfd_t count;

    pd_io_enter(io);
    io->until_ns = pd_core_next(io->core);
    io->idle = true;
    pthread_mutex_unlock(&io->lock);
    if (poll(wait, 2, until_ms(io->until_ns)) > 0 && wait[1].revents != 0) eventfd_read(io->wake_fd, &count);
}

/* Replaces the connection, whose path is cut, by the spare connection. If the core next wants another address, closes
 * the spare connection. */
static void replace(pd_io *io)
{
    int fd = pd_path_take(&io->path);
    size_t url, next;
    bool ended;

    pd_io_enter(io);
    url = io->core->link.url;
    pthread_mutex_unlock(&io->lock);
    pd_path_end(&io->path);
    pd_pump_lose(&io->pump, pd_clock_now_ns(), "the network path is broken");
    pd_io_enter(io);
    next = io->core->link.url;
    ended = io->core->end.error.code != PD_OK;
    pthread_mutex_unlock(&io->lock);
    if (ended || url != next)
        close(fd);
    else
        begin(io, url, fd);
}

/* Looks whether the network still carries the connection. */
static void watch_path(pd_io *io, const struct pollfd *polled)
{
    switch (pd_path_look(&io->path, polled, pd_clock_now_ns())) {
    case PD_PATH_GO_ON: break;
    case PD_PATH_REPLACE: replace(io); break;
    case PD_PATH_ASK:
        pd_io_enter(io);
        pd_core_ask(io->core);
        unlock(io);
        break;
    }
}

/* Returns for how many milliseconds the I/O thread may sleep with a connection. */
static int rest_ms(pd_io *io)
{
    uint64_t path_ns = io->path.next_ns, pump_ns = pd_pump_next(&io->pump);
    int core_ms = sleep_ms(io), own_ms = until_ms(path_ns < pump_ns ? path_ns : pump_ns);

    return core_ms < own_ms ? core_ms : own_ms;
}

/* Sends queued bytes, sleeps until a socket event, a call of the user or the time that the core gives, then
 * receives. */
static void converse(pd_io *io)
{
    struct pollfd wait[3] = { { .fd = -1 }, { .fd = io->wake_fd, .events = POLLIN }, pd_path_poll(&io->path) };
    eventfd_t count;
    bool more;
    int sends = 0;

    while (sends < SENDS && pd_pump_send(&io->pump, pd_clock_now_ns())) sends++;
    if (io->pump.transport == NULL) return;
    wait[0] = pd_sock_poll(io->pump.transport);
    more = pd_sock_has_more(io->pump.transport);
    if (poll(wait, 3, more ? 0 : rest_ms(io)) < 0) return;
    if (wait[1].revents != 0) eventfd_read(io->wake_fd, &count);
    if (wait[0].revents != 0 || more)
        pd_pump_ready(&io->pump, pd_sock_events(io->pump.transport, &wait[0]) | (more ? PD_ON_READ : 0),
                      pd_clock_now_ns());
    if (io->pump.transport != NULL) watch_path(io, &wait[2]);
}

static bool stopped(pd_io *io, pd_link *link)
{
    bool stop;

    follow(io);
    pd_io_enter(io);
    stop = io->stop;
    *link = pd_core_link(io->core, pd_clock_now_ns());
    pthread_mutex_unlock(&io->lock);
    return stop;
}

static void *run(void *arg)
{
    pd_io *io = arg;
    pd_link link;

    while (!stopped(io, &link)) {
        switch (link) {
        case PD_LINK_REST: rest(io); break;
        case PD_LINK_CONNECT: make(io); break;
        case PD_LINK_KEEP: converse(io); break;
        case PD_LINK_DROP: pd_pump_lose(&io->pump, pd_clock_now_ns(), "dropped"); break;
        }
        if (io->pump.transport == NULL) pd_path_end(&io->path);
    }
    pd_path_end(&io->path);
    pd_pump_lose(&io->pump, pd_clock_now_ns(), "closed");
    return NULL;
}

/* Starts the I/O thread with all signals blocked, so that signals go to the program's other threads. */
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
    leave_lookups(io);
    free(io->lookups);
    if (io->wake_fd >= 0) close(io->wake_fd);
    if (io->stop_fd >= 0) close(io->stop_fd);
    if (io->move_fd >= 0) close(io->move_fd);
    if (io->done_fd >= 0 && !io->borrows_fd) close(io->done_fd);
    pthread_cond_destroy(&io->changed);
    pthread_mutex_destroy(&io->lock);
}

int pd_io_start(pd_io *io, pd_core *core, const pd_address *urls, size_t n_urls, const pd_secure *secure, pd_error *err)
{
    pthread_condattr_t attr;
    int rc;

    memset(io, 0, sizeof *io);
    io->n_lookups = n_urls + core->following.n_named + 2 * PD_MOST_FOLLOWED;
    if ((io->lookups = calloc(io->n_lookups, sizeof *io->lookups)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    io->done_fd = -1;
    io->core = core;
    io->urls = urls;
    io->secure = secure;
    io->watches = !core->setup.impatient;
    pd_path_init(&io->path);
    io->pump = (pd_pump){ .core = core, .enter = enter_thread, .leave = leave_thread, .arg = io };
    pthread_mutex_init(&io->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&io->changed, &attr);
    pthread_condattr_destroy(&attr);
    io->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    io->stop_fd = io->wake_fd >= 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    io->move_fd = io->stop_fd >= 0 ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    rc = io->move_fd < 0 ? errno : spawn(io);
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
    eventfd_write(io->move_fd, 1);
    eventfd_write(io->wake_fd, 1);
    pthread_join(io->thread, NULL);
    dispose(io);
}
