/* handshake.c - performs the TLS handshakes of connections on tls:// addresses, and passes each connection on when its
 * handshake is complete. */
#include "uvloop.h"

#include "loop.h"
#include "thread.h"
#include "tls_stream.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>
#include <utlist.h>

/* Added to the daemon's nice value for the thread that computes handshakes. On a core that a step needs too, the thread
 * gets about a tenth of the time; on a free core, all of it. */
enum { NICER = 10 };

/* Tasks of the thread, in the order in which they were posted or finished. */
typedef struct tasks {
    pd_background *at[PD_MOST_COMPUTED];
    int n;
} tasks;

struct pd_handshake_thread {
    pd_side_thread side;    /* its lock protects `posted` and `finished` */
    tasks posted, finished; /* a posted task stays in the list until it is finished */
    uv_async_t wakes;       /* wakes the loop when a task is finished */
};

static void append(tasks *list, pd_background *work)
{
    assert(list->n < PD_MOST_COMPUTED);
    list->at[list->n++] = work;
}

/* Waits for a posted task and returns the first one; NULL: the thread must end. */
static pd_background *next_task(pd_handshake_thread *thread)
{
    pd_background *work;

    pd_side_lock(&thread->side);
    while (thread->posted.n == 0 && !thread->side.stop) pd_side_wait(&thread->side);
    work = thread->posted.n > 0 ? thread->posted.at[0] : NULL;
    pd_side_unlock(&thread->side);
    return work;
}

static void finish_task(pd_handshake_thread *thread)
{
    pd_side_lock(&thread->side);
    append(&thread->finished, thread->posted.at[0]);
    thread->posted.n--;
    for (int i = 0; i < thread->posted.n; i++) thread->posted.at[i] = thread->posted.at[i + 1];
    pd_side_unlock(&thread->side);
    uv_async_send(&thread->wakes);
}

static void *run_tasks(void *arg)
{
    pd_handshake_thread *thread = arg;
    pd_background *work;

    pd_thread_lower(NICER);
    while ((work = next_task(thread)) != NULL) {
        work->run(work);
        finish_task(thread);
    }
    return NULL;
}

/* Calls `done` of the finished tasks, which may post other tasks. */
static void on_finished(uv_async_t *handle)
{
    pd_handshake_thread *thread = handle->data;
    tasks all;

    pd_side_lock(&thread->side);
    all = thread->finished;
    thread->finished.n = 0;
    pd_side_unlock(&thread->side);
    for (int i = 0; i < all.n; i++) all.at[i]->done(all.at[i]);
}

static void free_thread(uv_handle_t *handle)
{
    free(handle->data);
}

pd_handshake_thread *pd_handshake_thread_new(pd_uvloop *loop)
{
    pd_handshake_thread *thread = calloc(1, sizeof *thread);

    if (thread == NULL) return NULL;
    uv_async_init(&loop->uv, &thread->wakes, on_finished);
    thread->wakes.data = thread;
    if (pd_side_start(&thread->side, run_tasks, thread, "thread of TLS handshakes", NULL) == PD_OK) return thread;
    uv_close((uv_handle_t *)&thread->wakes, free_thread);
    return NULL;
}

void pd_handshake_thread_free(pd_handshake_thread *thread)
{
    if (thread == NULL) return;
    pd_side_stop(&thread->side); /* waits until the thread has run its tasks */
    for (int i = 0; i < thread->finished.n; i++) thread->finished.at[i]->done(thread->finished.at[i]);
    uv_close((uv_handle_t *)&thread->wakes, free_thread);
}

void pd_handshake_thread_post(pd_handshake_thread *thread, pd_background *work)
{
    pd_side_lock(&thread->side);
    append(&thread->posted, work);
    pd_side_unlock(&thread->side);
}

enum {
    MOST_ANSWERED = 512, /* most handshakes that wait with the state of TLS in memory, which takes tens of KiB each */
    MOST_ENDING = 512,   /* most failed handshakes whose client gets a moment to read why */
    LINGER_MS = 2000,    /* ms that such a client gets to read the error */
    TELL_MS = 1000,      /* the log reports dropped handshakes at most once in so many ms */
    RECORD_HEAD = 5,     /* bytes of the header of a TLS record */
    MOST_RECORD = 16 * 1024, /* most bytes of the contents of a TLS record */
    TYPE_HANDSHAKE = 22      /* type of a TLS record with a handshake message */
};

typedef struct pd_handshake {
    struct pd_handshake *prev, *next; /* neighbours in the list of its state */
    pd_uvloop *loop;
    uv_poll_t poll;
    int fd, state;
    bool dropped;      /* dropped while the thread had it: closed when the thread is done */
    bool told_size;    /* the kernel was told how long the first message is, and wakes the loop when it is complete */
    uint64_t begun_ms; /* when (ms) the handshake began; in the state PD_HANDSHAKE_ENDING, when it failed */
    char peer[72];
    pd_tls_stream *stream; /* NULL until the thread must work on the first message */
    pd_background work;
    pd_tls_step step;
    pd_error err;
} pd_handshake;

static pd_handshakes *all_of(const pd_handshake *h)
{
    return &h->loop->handshakes;
}

static void leave(pd_handshake *h)
{
    DL_DELETE(all_of(h)->list[h->state], h);
    all_of(h)->n[h->state]--;
}

static void enter(pd_handshake *h, int state)
{
    h->state = state;
    DL_APPEND(all_of(h)->list[state], h);
    all_of(h)->n[state]++;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Stops polling the socket of a handshake, and frees the handshake, but not its socket and stream. */
static void forget(pd_handshake *h)
{
    leave(h);
    uv_close((uv_handle_t *)&h->poll, on_closed);
}

/* Closes the connection of a handshake, and frees the handshake. If the thread works on the handshake, this happens
 * when the thread is done. */
static void drop(pd_handshake *h)
{
    h->dropped = true;
    if (h->state == PD_HANDSHAKE_COMPUTED) return;
    pd_tls_stream_free(h->stream);
    uv_poll_stop(&h->poll);
    close(h->fd);
    forget(h);
}

/* Makes the kernel report the socket as readable when this many bytes have arrived. */
static void wake_at(const pd_handshake *h, int bytes)
{
    setsockopt(h->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

/* Reads and discards what the client still sends. Drops the handshake when the client ends its side. */
static void on_rest(uv_poll_t *poll, int status, int events)
{
    uint8_t bin[4096];
    ssize_t n = 1;

    (void)status, (void)events;
    for (int i = 0; i < 4 && n > 0; i++) n = recv(((pd_handshake *)poll->data)->fd, bin, sizeof bin, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) drop(poll->data);
}

/* Ends the sending side of a handshake that has failed, and logs the reason `why`. The socket stays open for LINGER_MS:
 * closing a socket with unread bytes would destroy the alert in which TLS has told the client the reason. */
static void fail(pd_handshake *h, const char *why)
{
    pd_handshakes *all = all_of(h);
    char host[PD_LOG_PEER];

    pd_loop_host(host, h->peer);
    pd_loop_log(h->loop->daemon, LOG_WARNING, (pd_log_facts){ .code = PD_UNAUTHENTICATED, .peer = host },
                "%s: TLS handshake ended: %s", h->peer, why);
    pd_tls_stream_free(h->stream);
    h->stream = NULL;
    shutdown(h->fd, SHUT_WR);
    wake_at(h, 1);
    h->begun_ms = pd_loop_now_ms(h->loop->daemon);
    leave(h);
    enter(h, PD_HANDSHAKE_ENDING);
    if (all->n[PD_HANDSHAKE_ENDING] > MOST_ENDING) drop(all->list[PD_HANDSHAKE_ENDING]);
    uv_poll_start(&h->poll, UV_READABLE, on_rest);
}

static void succeed(pd_handshake *h)
{
    pd_uvloop *loop = h->loop;
    pd_tls_stream *stream = h->stream;
    int fd = h->fd;

    forget(h); /* the handle that polls the socket is removed first: a socket can have only one */
    if (pd_socket_adopt(loop, fd, stream, h->peer) == PD_OK) return;
    pd_tls_stream_free(stream);
    close(fd);
}

static void compute_next(pd_uvloop *loop);
static void on_answer(uv_poll_t *poll, int status, int events);

static void run(pd_background *work)
{
    pd_handshake *h = (pd_handshake *)(void *)((char *)work - offsetof(pd_handshake, work));

    h->step = pd_tls_handshake(h->stream, &h->err);
}

static void await_answer(pd_handshake *h, int events)
{
    pd_handshakes *all = all_of(h);

    leave(h);
    enter(h, PD_HANDSHAKE_ANSWERED);
    uv_poll_start(&h->poll, events, on_answer);
    if (all->n[PD_HANDSHAKE_ANSWERED] <= MOST_ANSWERED) return;
    all->dropped++;
    drop(all->list[PD_HANDSHAKE_ANSWERED]);
}

static void done(pd_background *work)
{
    pd_handshake *h = (pd_handshake *)(void *)((char *)work - offsetof(pd_handshake, work));
    pd_uvloop *loop = h->loop;

    if (h->dropped) {
        leave(h);
        enter(h, PD_HANDSHAKE_QUEUED); /* the thread has returned it, so drop() can close it */
        drop(h);
    } else if (h->step == PD_TLS_DONE) {
        succeed(h);
    } else if (h->step == PD_TLS_FAILED) {
        fail(h, h->err.text);
    } else {
        await_answer(h, h->step == PD_TLS_READ ? UV_READABLE : UV_WRITABLE);
    }
    compute_next(loop);
}

/* Gives a queued handshake to the thread. Makes its TLS state only now, because many handshakes may be queued. */
static void compute(pd_handshake *h)
{
    pd_handshakes *all = all_of(h);
    pd_tls_context *keys = h->loop->daemon->config.tls;

    if (all->thread == NULL && (all->thread = pd_handshake_thread_new(h->loop)) == NULL) {
        fail(h, "cannot start the handshake thread: out of memory or threads (ulimit -u, TasksMax=)");
        return;
    }
    if (h->stream == NULL && pd_tls_stream_new(&h->stream, keys, h->fd, NULL, &h->err) != PD_OK) {
        fail(h, h->err.text);
        return;
    }
    leave(h);
    enter(h, PD_HANDSHAKE_COMPUTED);
    h->work = (pd_background){ .run = run, .done = done };
    pd_handshake_thread_post(all->thread, &h->work);
}

static void compute_next(pd_uvloop *loop)
{
    pd_handshakes *all = &loop->handshakes;

    while (!all->ended && all->list[PD_HANDSHAKE_QUEUED] != NULL && all->n[PD_HANDSHAKE_COMPUTED] < PD_MOST_COMPUTED)
        compute(all->list[PD_HANDSHAKE_QUEUED]);
}

/* Puts a handshake whose client has answered the server at the head of the queue: an honest client need not wait for a
 * flood of clients that send only a first message. */
static void on_answer(uv_poll_t *poll, int status, int events)
{
    pd_handshake *h = poll->data;

    (void)status, (void)events; /* pd_tls_handshake finds out if the connection is broken */
    uv_poll_stop(&h->poll);
    leave(h);
    enter(h, PD_HANDSHAKE_QUEUED);
    DL_DELETE(all_of(h)->list[PD_HANDSHAKE_QUEUED], h);
    DL_PREPEND(all_of(h)->list[PD_HANDSHAKE_QUEUED], h);
    compute_next(h->loop);
}

/* Refuses a client that does not use TLS. If it sent a frame, it gets a frame with the error. */
static void refuse_plain(pd_handshake *h, const uint8_t *head)
{
    static const char text[] = "TLS required: connect to tls://host:port";
    uint8_t *at = NULL;
    size_t bytes = 0;

    if (memcmp(head, "PDF1", 4) == 0 && pd_frame_pack_error(&at, &bytes, 0, 0, 0, PD_UNAUTHENTICATED, text, 0) == PD_OK)
        send(h->fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    free(at);
    fail(h, "the client does not use TLS: it must connect to tls://host:port");
}

/* Looks at the first bytes that a client has sent, and leaves them in the socket. They are a TLS record: its type, two
 * bytes of a version, two of its length, and then its contents. */
static void on_first(uv_poll_t *poll, int status, int events)
{
    pd_handshake *h = poll->data;
    uint8_t head[RECORD_HEAD] = { 0 };
    ssize_t n = recv(h->fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    int length = head[3] << 8 | head[4], here = 0;
    bool fits = n == RECORD_HEAD && length <= MOST_RECORD;

    (void)status, (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        drop(h); /* the client has disconnected */
    } else if (head[0] != TYPE_HANDSHAKE) {
        refuse_plain(h, head);
    } else if (fits && ioctl(h->fd, FIONREAD, &here) == 0 && here >= RECORD_HEAD + length) {
        wake_at(h, 1);
        uv_poll_stop(&h->poll);
        leave(h);
        enter(h, PD_HANDSHAKE_QUEUED);
        compute_next(h->loop);
    } else if (!fits || h->told_size) {
        fail(h, "incomplete first message"); /* told_size: the loop was woken although the message is incomplete, as the
                                              * client has ended its side */
    } else {
        h->told_size = true;
        wake_at(h, RECORD_HEAD + length);
    }
}

/* Returns the oldest handshake whose client has sent at most its first message. If there is none, returns the first
 * handshake in the queue. */
static pd_handshake *oldest_unanswered(const pd_handshakes *all)
{
    pd_handshake *h;

    if (all->list[PD_HANDSHAKE_SILENT] != NULL) return all->list[PD_HANDSHAKE_SILENT];
    DL_FOREACH(all->list[PD_HANDSHAKE_QUEUED], h)
    {
        if (h->stream == NULL) return h;
    }
    return all->list[PD_HANDSHAKE_QUEUED];
}

/* Drops a handshake if server.max_connections handshakes are silent or queued, to make room for one more. */
static void give_way(pd_uvloop *loop)
{
    pd_handshakes *all = &loop->handshakes;
    const pd_daemon_config *config = &loop->daemon->config;

    if (all->n[PD_HANDSHAKE_SILENT] + all->n[PD_HANDSHAKE_QUEUED] < config->max_connections) return;
    all->dropped++;
    drop(oldest_unanswered(all));
}

void pd_handshake_begin(pd_uvloop *loop, int fd, const char *peer)
{
    pd_handshake *h = calloc(1, sizeof *h);

    if (h == NULL || uv_poll_init(&loop->uv, &h->poll, fd) != 0) {
        close(fd);
        free(h);
        return;
    }
    give_way(loop);
    h->loop = loop;
    h->fd = fd;
    h->poll.data = h;
    h->begun_ms = pd_loop_now_ms(loop->daemon);
    snprintf(h->peer, sizeof h->peer, "%s", peer);
    enter(h, PD_HANDSHAKE_SILENT);
    wake_at(h, RECORD_HEAD);
    uv_poll_start(&h->poll, UV_READABLE, on_first);
}

/* Logs how many handshakes were dropped, in one line for many of them. */
static void tell(pd_uvloop *loop, uint64_t now)
{
    pd_handshakes *all = &loop->handshakes;

    if (all->dropped == 0 || now - all->logged_ms < TELL_MS) return;
    pd_loop_log(loop->daemon, LOG_WARNING, (pd_log_facts){ .code = PD_RESOURCE_EXHAUSTED },
                "dropped %u pending TLS handshakes: too many are under way", all->dropped);
    all->dropped = 0;
    all->logged_ms = now;
}

void pd_handshakes_tick(pd_uvloop *loop)
{
    uint64_t now = pd_loop_now_ms(loop->daemon), most = loop->daemon->config.times.handshake_ms;
    pd_handshake *h, *next;

    tell(loop, now);
    while ((h = loop->handshakes.list[PD_HANDSHAKE_SILENT]) != NULL && now - h->begun_ms > most) drop(h);
    DL_FOREACH_SAFE(loop->handshakes.list[PD_HANDSHAKE_QUEUED], h, next)
    {
        if (now - h->begun_ms <= most) continue; /* older ones may follow: an answer moves a handshake to the front */
        loop->handshakes.dropped++;
        drop(h);
    }
    while ((h = loop->handshakes.list[PD_HANDSHAKE_ENDING]) != NULL && now - h->begun_ms > LINGER_MS) drop(h);
    DL_FOREACH_SAFE(loop->handshakes.list[PD_HANDSHAKE_ANSWERED], h, next)
    {
        if (now - h->begun_ms > most) fail(h, "timeout (server.handshake_timeout)");
    }
}

void pd_handshakes_end(pd_uvloop *loop)
{
    pd_handshake *h, *next;

    loop->handshakes.ended = true;
    for (int state = 0; state < PD_HANDSHAKE_STATES; state++)
        DL_FOREACH_SAFE(loop->handshakes.list[state], h, next) drop(h);
    pd_handshake_thread_free(loop->handshakes.thread);
    loop->handshakes.thread = NULL;
}
