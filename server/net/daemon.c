#include "loop.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <syslog.h>
#include <unistd.h>

enum { TICK_MS = 250, ENDING_PLACES = 64, DRAIN_GRACE_MS = 2000, FLUSH_MS = 1000 };
#define EFFECTS_NS 1000000u             /* time that one turn of the loop may spend on effects */
#define OWN_TICKET ((pd_ticket){ 0, 1 })        /* no connection has number 0 */

/* ---- connections by number: its place is number % capacity ---- */

pd_conn *pd_daemon_find(pd_daemon *daemon, uint64_t number)
{
    pd_conn *conn = daemon->conns[number % daemon->capacity];
    return conn != NULL && conn->number == number ? conn : NULL;
}

int pd_daemon_place(pd_daemon *daemon, pd_conn *conn)
{
    size_t place = daemon->next_place;

    if (daemon->n_conns == daemon->capacity) return PD_RESOURCE_EXHAUSTED;
    while (daemon->conns[place] != NULL) place = (place + 1) % daemon->capacity;
    conn->number = ++daemon->serial * daemon->capacity + place;
    daemon->conns[place] = conn;
    daemon->n_conns++;
    daemon->next_place = (place + 1) % daemon->capacity;
    return PD_OK;
}

void pd_daemon_gone(pd_daemon *daemon, pd_conn *conn)
{
    daemon->conns[conn->number % daemon->capacity] = NULL;
    daemon->n_conns--;
    if (conn->dirty) {
        pd_conn **at = &daemon->dirty;
        while (*at != conn) at = &(*at)->next_dirty;
        *at = conn->next_dirty;
    }
    if (conn->waking) {
        pd_conn **at = &daemon->waking;
        while (*at != conn) at = &(*at)->next_waking;
        *at = conn->next_waking;
    }
}

size_t pd_daemon_quota(const pd_daemon *daemon)
{
    size_t quota = PD_TURN_BYTES / (daemon->was_active > 0 ? daemon->was_active : 1);

    if (quota > PD_MOST_QUOTA) return PD_MOST_QUOTA;
    return quota < PD_LEAST_QUOTA ? PD_LEAST_QUOTA : quota;
}

/* ---- to the store ---- */

void pd_daemon_post(pd_daemon *daemon, pd_request *request)
{
    request->mail.next = NULL;
    if (daemon->post_first == NULL) daemon->post_first = &request->mail;
    else daemon->post_last->next = &request->mail;
    daemon->post_last = &request->mail;
}

void pd_daemon_keep_farewell(pd_daemon *daemon, pd_request *farewell)
{
    farewell->mail.next = daemon->farewells != NULL ? &daemon->farewells->mail : NULL;
    daemon->farewells = farewell;
}

pd_request *pd_daemon_take_farewell(pd_daemon *daemon, uint64_t number)
{
    pd_request *before = NULL, *farewell = daemon->farewells, *next;

    for (; farewell != NULL && farewell->ticket.conn != number; farewell = (pd_request *)(void *)farewell->mail.next) before = farewell;
    if (farewell == NULL) return NULL;
    next = (pd_request *)(void *)farewell->mail.next;
    if (before == NULL) daemon->farewells = next;
    else before->mail.next = farewell->mail.next;
    return farewell;
}

static void post_released(pd_daemon *daemon)
{
    pd_request *request;

    if (daemon->released == NULL) return;
    request = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
    if (request == NULL) return;        /* the next turn tries again */
    request->u.released.first = daemon->released;
    daemon->released = NULL;
    pd_daemon_post(daemon, request);
}

/* One post for all requests of a turn: one wake-up of the step thread. */
static void flush(pd_daemon *daemon)
{
    int rc;

    post_released(daemon);
    if (daemon->post_first == NULL) return;
    rc = pd_mailbox_post(daemon->requests, daemon->post_first, daemon->post_last);
    assert(rc == PD_OK);                /* closed only after this thread has ended */
    (void)rc;
    daemon->post_first = daemon->post_last = NULL;
}

static void wake_up(pd_daemon *daemon, pd_conn *conn)
{
    if (conn->waking) return;
    conn->waking = true;
    conn->next_waking = daemon->waking;
    daemon->waking = conn;
}

void pd_daemon_home(pd_daemon *daemon, pd_buffer *buffer)
{
    pd_conn *conn = pd_daemon_find(daemon, buffer->conn);

    pd_admission_give(&daemon->admission, conn != NULL ? &conn->share : NULL, buffer->charged);
    pd_pool_put(daemon->pool, buffer);
    if (conn == NULL) daemon->stall_over = true;
    else if (pd_framer_stalled(conn->framer)) wake_up(daemon, conn);
}

/* ---- from the board ---- */

static void on_resolved(void *arg, pd_wait *wait)
{
    pd_pending *pending = pd_pending_of(wait);
    pd_conn *conn = pending->conn;

    (void)arg;
    pd_pendings_remove(&conn->pendings, pending);
    pd_output_reply(&conn->output, pending);
    pd_conn_touch(conn);
}

static void on_failed(void *arg, pd_wait *wait, const pd_error *err)
{
    pd_pending *pending = pd_pending_of(wait);

    (void)arg;
    pd_conn_fail(pending->conn, pending, err);
}

static void on_memory(void *arg)
{
    pd_daemon *daemon = arg;
    daemon->stall_over = true;
}

static void on_released(void *arg, pd_snapshot *snapshot)
{
    pd_daemon *daemon = arg;

    snapshot->next_released = daemon->released;
    daemon->released = snapshot;
}

/* ---- a turn of the loop ---- */

static void on_wake(uv_async_t *wake)
{
    pd_daemon *daemon = wake->data;
    uint64_t until = uv_hrtime() + EFFECTS_NS;

    do {
        if (daemon->backlog == NULL) daemon->backlog = pd_mailbox_take(daemon->effects);
        while (daemon->backlog != NULL) {
            pd_mail *next = daemon->backlog->next;
            if (!pd_handle_effect(daemon, (pd_effect *)(void *)daemon->backlog, until)) break;
            daemon->backlog = next;
            if (uv_hrtime() > until) break;
        }
    } while (daemon->backlog == NULL && uv_hrtime() < until && (daemon->backlog = pd_mailbox_take(daemon->effects)) != NULL);
    if (daemon->backlog != NULL) uv_async_send(&daemon->wake);
}

static void wake_loop(void *arg)
{
    pd_daemon *daemon = arg;
    uv_async_send(&daemon->wake);
}

static void resume_stalled(pd_daemon *daemon)
{
    while (daemon->waking != NULL) {
        pd_conn *conn = daemon->waking;
        daemon->waking = conn->next_waking;
        conn->waking = false;
        pd_conn_resume(conn);
    }
    if (!daemon->stall_over) return;
    daemon->stall_over = false;
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) pd_conn_resume(daemon->conns[i]);
}

static void write_dirty(pd_daemon *daemon)
{
    while (daemon->dirty != NULL) {
        pd_conn *conn = daemon->dirty;
        daemon->dirty = conn->next_dirty;
        conn->dirty = false;
        pd_conn_write(conn);
    }
}

static bool all_written(const pd_daemon *daemon)
{
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL && !pd_output_empty(&daemon->conns[i]->output)) return false;
    return true;
}

/* Just before the loop waits: everything this turn has produced goes out. */
static void on_prepare(uv_prepare_t *prepare)
{
    pd_daemon *daemon = prepare->data;

    resume_stalled(daemon);
    write_dirty(daemon);
    flush(daemon);
    daemon->was_active = daemon->active;
    daemon->active = 0;
    if (daemon->drain.stops && daemon->drain.done && all_written(daemon)) uv_stop(&daemon->loop);
    pd_lag_poll(&daemon->lag);
}

/* ---- draining ---- */

void pd_daemon_stop(pd_daemon *daemon)
{
    uv_stop(&daemon->loop);
}

void pd_daemon_drain(pd_daemon *daemon, bool stops, uint64_t within_ms)
{
    pd_request *request = daemon->drain_request;

    if (stops && !daemon->drain.stops) {
        daemon->drain.stops = true;
        daemon->config.log(LOG_NOTICE, "stopping: rounds under way may finish within %.1f s", (double)within_ms / 1e3);
        if (daemon->config.event != NULL) daemon->config.event(daemon->config.arg, PD_DAEMON_STOPS);
        pd_listen_end(daemon);
    }
    if (request == NULL) return;        /* it is on its way already */
    daemon->drain_request = NULL;
    daemon->drain.begun = true;
    daemon->drain.deadline_ms = uv_now(&daemon->loop) + within_ms + DRAIN_GRACE_MS;
    request->u.drain.deadline_ns = within_ms * 1000000u;
    pd_daemon_post(daemon, request);
}

/* The daemon's own drain has been answered: so are those who asked for the shutdown. */
static void answer_shutdowns(pd_daemon *daemon)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    for (size_t i = 0; i < daemon->capacity; i++) {
        pd_conn *conn = daemon->conns[i];
        pd_pending *pending;
        while (conn != NULL && conn->operates && pd_conn_live(conn)
               && (pending = pd_pendings_of_method(&conn->pendings, PD_SHUTDOWN)) != NULL) pd_conn_answer(conn, pending, &ok.base);
    }
}

void pd_daemon_drained(pd_daemon *daemon)
{
    uint64_t flushed = uv_now(&daemon->loop) + FLUSH_MS;

    daemon->drain.done = true;
    if (daemon->drain.deadline_ms > flushed) daemon->drain.deadline_ms = flushed;
    answer_shutdowns(daemon);
}

static void on_signal(uv_signal_t *handle, int number)
{
    pd_daemon *daemon = handle->data;

    daemon->config.log(LOG_NOTICE, "%s", strsignal(number));
    if (daemon->drain.stops) pd_daemon_stop(daemon);
    else pd_daemon_drain(daemon, true, daemon->config.drain_ms);
}

static void on_tick(uv_timer_t *timer)
{
    pd_daemon *daemon = timer->data;
    uint64_t now = uv_now(&daemon->loop);

    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) pd_conn_tick(daemon->conns[i], now);
    if (daemon->paused) pd_listen_begin(daemon);
    if (daemon->config.event != NULL) daemon->config.event(daemon->config.arg, PD_DAEMON_TURNS);
    if (daemon->drain.stops && now >= daemon->drain.deadline_ms) pd_daemon_stop(daemon);
}

/* ---- life ---- */

static int make_parts(pd_daemon *daemon)
{
    pd_board_user user = { .arg = daemon, .resolved = on_resolved, .failed = on_failed, .released = on_released };

    daemon->capacity = (size_t)daemon->config.max_connections + ENDING_PLACES;
    daemon->conns = calloc(daemon->capacity, sizeof *daemon->conns);
    daemon->effects = pd_mailbox_new(wake_loop, daemon);
    daemon->pool = pd_pool_new(daemon->config.ingest_bytes, &daemon->loop, on_memory, daemon);
    daemon->board = pd_board_new(&user);
    daemon->arena = pd_arena_new(PD_ARENA_BUDGET);
    daemon->drain_request = pd_request_new(PD_REQ_DRAIN, OWN_TICKET);
    if (daemon->conns == NULL || daemon->effects == NULL || daemon->pool == NULL || daemon->board == NULL || daemon->arena == NULL
        || daemon->drain_request == NULL) return PD_NO_MEMORY;
    daemon->admission.budget = daemon->config.ingest_bytes;
    return pd_reply_scratch_init(&daemon->scratch, daemon->config.max_pieces);
}

static void make_handles(pd_daemon *daemon)
{
    uv_async_init(&daemon->loop, &daemon->wake, on_wake);
    uv_prepare_init(&daemon->loop, &daemon->prepare);
    uv_timer_init(&daemon->loop, &daemon->timer);
    uv_signal_init(&daemon->loop, &daemon->signal[0]);
    uv_signal_init(&daemon->loop, &daemon->signal[1]);
    daemon->wake.data = daemon->prepare.data = daemon->timer.data = daemon->signal[0].data = daemon->signal[1].data = daemon;
}

static uint64_t secret_odd(void)
{
    uint64_t key = 0x9e3779b97f4a7c15u;

    if (getrandom(&key, sizeof key, GRND_NONBLOCK) != sizeof key) key ^= uv_hrtime();
    return key | 1;
}

int pd_daemon_new(pd_daemon **out, const pd_daemon_config *config, pd_error *err)
{
    pd_daemon *daemon = calloc(1, sizeof *daemon);
    int rc;

    assert(config->ingest_bytes >= config->max_payload && config->max_payload >= config->chunk_elements * sizeof(float));
    if (daemon == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_dispatch_check();
    daemon->config = *config;
    daemon->spare_fd = -1;
    daemon->key = secret_odd();
    daemon->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (uv_loop_init(&daemon->loop) != 0) {
        free(daemon);
        return pd_fail(err, PD_NO_MEMORY, "the event loop cannot be made");
    }
    make_handles(daemon);
    rc = make_parts(daemon);
    if (rc == PD_OK) rc = pd_listen(daemon, err);
    else pd_fail(err, rc, "out of memory");
    if (rc != PD_OK) {
        pd_listen_end(daemon);
        pd_daemon_free(daemon);
        return rc;
    }
    *out = daemon;
    return PD_OK;
}

pd_mailbox *pd_daemon_effects(pd_daemon *daemon) { return daemon->effects; }
unsigned    pd_daemon_port(const pd_daemon *daemon) { return daemon->port; }
uint64_t    pd_daemon_calls(const pd_daemon *daemon, unsigned method) { return daemon->calls[method]; }

void pd_daemon_begin(pd_daemon *daemon, pd_mailbox *requests)
{
    daemon->requests = requests;
    uv_update_time(&daemon->loop);
    daemon->started_ms = uv_now(&daemon->loop);
    pd_listen_begin(daemon);
    uv_prepare_start(&daemon->prepare, on_prepare);
    uv_timer_start(&daemon->timer, on_tick, TICK_MS, TICK_MS);
    if (!daemon->config.signals) return;
    uv_signal_start(&daemon->signal[0], on_signal, SIGTERM);
    uv_signal_start(&daemon->signal[1], on_signal, SIGINT);
}

int pd_daemon_adopt(pd_daemon *daemon, int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return pd_conn_new(daemon, fd, "adopted") != NULL ? PD_OK : PD_NO_MEMORY;
}

bool pd_daemon_turn(pd_daemon *daemon)
{
    uv_run(&daemon->loop, UV_RUN_NOWAIT);
    return daemon->n_conns > 0;
}

/* The store gets back what it has lent and hears of everybody who goes. */
void pd_daemon_end(pd_daemon *daemon)
{
    pd_listen_end(daemon);
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) pd_conn_close(daemon->conns[i], "the server stops");
    pd_board_free(daemon->board);
    daemon->board = NULL;
    flush(daemon);
    uv_prepare_stop(&daemon->prepare);
    uv_timer_stop(&daemon->timer);
    uv_run(&daemon->loop, UV_RUN_NOWAIT);
}

bool pd_daemon_run(pd_daemon *daemon, pd_mailbox *requests)
{
    pd_daemon_begin(daemon, requests);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    pd_daemon_end(daemon);
    return daemon->drain.done;
}

static void free_effects(pd_daemon *daemon, pd_mail *mail)
{
    while (mail != NULL) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        mail = mail->next;
        if (effect->kind == PD_EFF_BUFFER) pd_daemon_home(daemon, effect->u.buffer);
        if (effect->kind == PD_EFF_LOG) daemon->config.log(effect->u.log.level, "%s", effect->u.log.text);
        pd_effect_free(effect);
    }
}

void pd_daemon_free(pd_daemon *daemon)
{
    if (daemon == NULL) return;
    if (daemon->effects != NULL) {
        free_effects(daemon, daemon->backlog);
        free_effects(daemon, pd_mailbox_take(daemon->effects));
    }
    uv_close((uv_handle_t *)&daemon->wake, NULL);
    uv_close((uv_handle_t *)&daemon->prepare, NULL);
    uv_close((uv_handle_t *)&daemon->timer, NULL);
    uv_close((uv_handle_t *)&daemon->signal[0], NULL);
    uv_close((uv_handle_t *)&daemon->signal[1], NULL);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    uv_loop_close(&daemon->loop);
    pd_board_free(daemon->board);
    pd_mailbox_free(daemon->effects);
    pd_pool_free(daemon->pool);
    pd_arena_free(daemon->arena);
    pd_reply_scratch_free(&daemon->scratch);
    pd_request_free(daemon->drain_request);
    while (daemon->farewells != NULL) pd_request_free(pd_daemon_take_farewell(daemon, daemon->farewells->ticket.conn));
    free(daemon->conns);
    if (daemon->statm >= 0) close(daemon->statm);
    free(daemon);
}
