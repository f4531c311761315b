/* daemon.c - the conversation as a whole: connections by number, a turn of the loop, draining. It runs on any platform (platform.h). */
#include "loop.h"
#include "plant.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

enum { ENDING_PLACES = 64, DRAIN_GRACE_MS = 2000, FLUSH_MS = 1000 };
#define EFFECTS_NS 1000000u             /* time that one turn of the loop may spend on effects */
#define OWN_TICKET ((pd_ticket){ 0, 1 })        /* no connection has number 0 */

uint64_t pd_daemon_now_ms(const pd_daemon *daemon)   { return daemon->platform.now_ms(daemon->platform.arg); }
uint64_t pd_daemon_clock_ns(const pd_daemon *daemon) { return daemon->platform.clock_ns(daemon->platform.arg); }

const pd_daemon_config *pd_daemon_settings(const pd_daemon *daemon) { return &daemon->config; }
const pd_platform      *pd_daemon_platform(const pd_daemon *daemon) { return &daemon->platform; }

/* Lines of the store pass through here: each bears the site that the log's limit of repetitions counts. */
void pd_daemon_log(const pd_daemon *daemon, const pd_effect *effect)
{
    if (daemon->config.log_text != NULL) daemon->config.log_text(effect->u.log.level, effect->u.log.site, effect->u.log.text);
    else daemon->config.log(effect->u.log.level, "%s", effect->u.log.text);
}

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

void pd_daemon_wake(pd_daemon *daemon, pd_conn *conn)
{
    if (conn->waking || conn->state == PD_CLOSED) return;
    conn->waking = true;
    conn->next_waking = daemon->waking;
    daemon->waking = conn;
}

void pd_daemon_home(pd_daemon *daemon, pd_buffer *buffer)
{
    pd_conn *conn = pd_daemon_find(daemon, buffer->conn);

    if (PD_PLANTED(buffer_lost) && buffer->size % 101 == 0) return;
    pd_admission_give(&daemon->admission, conn != NULL ? &conn->share : NULL, buffer->charged);
    pd_pool_put(daemon->pool, buffer);
    if (conn == NULL || (daemon->short_of_budget && !PD_PLANTED(wake_own_only))) daemon->stall_over = true;
    else if (pd_framer_stalled(conn->framer)) pd_daemon_wake(daemon, conn);
}

/* ---- from the board ---- */

static void on_resolved(void *arg, pd_wait *wait)
{
    pd_pending *pending = pd_pending_of(wait);
    pd_conn *conn = pending->conn;

    (void)arg;
    pd_pendings_remove(&conn->pendings, pending);
    pd_conn_data_reply(conn, pending);
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

/* False: the time is up, or nothing is left. */
static bool handle_next(pd_daemon *daemon, uint64_t until_ns)
{
    pd_mail *next;

    if (daemon->backlog == NULL && (daemon->backlog = pd_mailbox_take(daemon->effects)) == NULL) return false;
    next = daemon->backlog->next;
    if (!pd_handle_effect(daemon, (pd_effect *)(void *)daemon->backlog, until_ns)) return false;
    daemon->backlog = next;
    return pd_daemon_clock_ns(daemon) <= until_ns;
}

/* The mailbox wakes us only for mail that finds it empty. So unless it was seen empty after the last effect, we are called again. */
void pd_daemon_take_effects(pd_daemon *daemon)
{
    uint64_t until_ns = pd_daemon_clock_ns(daemon) + EFFECTS_NS;

    while (handle_next(daemon, until_ns)) continue;
    if (daemon->backlog != NULL || (pd_daemon_clock_ns(daemon) > until_ns && !PD_PLANTED(lost_wake_up))) daemon->platform.wake(daemon->platform.arg);
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
    daemon->stall_over = daemon->short_of_budget = false;       /* those that still wait say so again */
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

static void stop(pd_daemon *daemon) { daemon->platform.stop(daemon->platform.arg); }

static bool all_written(const pd_daemon *daemon)
{
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL && !pd_output_empty(&daemon->conns[i]->output)) return false;
    return true;
}

static void free_closed(pd_daemon *daemon)
{
    while (daemon->closed != NULL) {
        pd_conn *conn = daemon->closed;
        daemon->closed = conn->next_closed;
        pd_conn_free(conn);
    }
}

/* Everything that this turn has produced goes out. */
void pd_daemon_finish_turn(pd_daemon *daemon)
{
    resume_stalled(daemon);
    write_dirty(daemon);
    flush(daemon);
    free_closed(daemon);
    daemon->was_active = daemon->active;
    daemon->active = 0;
    if (daemon->drain.stops && daemon->drain.done && all_written(daemon)) stop(daemon);
    pd_lag_poll(&daemon->lag);
}

/* ---- draining ---- */

void pd_daemon_drain(pd_daemon *daemon, bool stops, uint64_t within_ms)
{
    pd_request *request = daemon->drain_request;

    if (stops && !daemon->drain.stops) {
        daemon->drain.stops = true;
        daemon->config.log(LOG_NOTICE, "stopping: rounds under way may finish within %.1f s", (double)within_ms / 1e3);
        if (daemon->config.event != NULL) daemon->config.event(daemon->config.arg, PD_DAEMON_STOPS);
        daemon->platform.end_listening(daemon->platform.arg);
    }
    if (request == NULL) return;        /* it is on its way already */
    daemon->drain_request = NULL;
    daemon->drain.begun = true;
    daemon->drain.deadline_ms = pd_daemon_now_ms(daemon) + within_ms + DRAIN_GRACE_MS;
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
    uint64_t flushed = pd_daemon_now_ms(daemon) + FLUSH_MS;

    daemon->drain.done = true;
    if (daemon->drain.deadline_ms > flushed) daemon->drain.deadline_ms = flushed;
    answer_shutdowns(daemon);
}

void pd_daemon_interrupt(pd_daemon *daemon, const char *name)
{
    daemon->config.log(LOG_NOTICE, "%s", name);
    if (daemon->drain.stops) stop(daemon);
    else pd_daemon_drain(daemon, true, daemon->config.drain_ms);
}

void pd_daemon_tick(pd_daemon *daemon)
{
    uint64_t now = pd_daemon_now_ms(daemon);

    if (daemon->stall_untold) daemon->stall_over = true;
    daemon->stall_untold = false;
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) pd_conn_tick(daemon->conns[i], now);
    if (daemon->config.event != NULL) daemon->config.event(daemon->config.arg, PD_DAEMON_TURNS);
    if (daemon->drain.stops && now >= daemon->drain.deadline_ms) stop(daemon);
}

/* ---- life ---- */

static int make_parts(pd_daemon *daemon)
{
    pd_board_user user = { .arg = daemon, .resolved = on_resolved, .failed = on_failed, .released = on_released };

    daemon->capacity = (size_t)daemon->config.max_connections + ENDING_PLACES;
    daemon->conns = calloc(daemon->capacity, sizeof *daemon->conns);
    daemon->effects = pd_mailbox_new(daemon->platform.wake, daemon->platform.arg);
    daemon->pool = pd_pool_new(daemon->config.ingest_bytes, &daemon->platform, on_memory, daemon);
    daemon->board = pd_board_new(&user);
    daemon->arena = pd_arena_new(PD_ARENA_BUDGET);
    daemon->drain_request = pd_request_new(PD_REQ_DRAIN, OWN_TICKET);
    if (daemon->conns == NULL || daemon->effects == NULL || daemon->pool == NULL || daemon->board == NULL || daemon->arena == NULL
        || daemon->drain_request == NULL) return PD_NO_MEMORY;
    daemon->admission.budget = daemon->config.ingest_bytes;
    return pd_reply_scratch_init(&daemon->scratch, daemon->config.max_pieces);
}

int pd_daemon_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err)
{
    pd_daemon *daemon = calloc(1, sizeof *daemon);

    assert(config->ingest_bytes >= config->max_payload && config->max_payload >= config->chunk_elements * sizeof(float));
    if (daemon == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_dispatch_check();
    daemon->config = *config;
    daemon->platform = *platform;
    daemon->key = platform->random(platform->arg) | 1;
    daemon->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (make_parts(daemon) != PD_OK) {
        pd_daemon_dispose(daemon);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    *out = daemon;
    return PD_OK;
}

pd_mailbox *pd_daemon_effects(pd_daemon *daemon) { return daemon->effects; }
uint64_t    pd_daemon_calls(const pd_daemon *daemon, unsigned method) { return daemon->calls[method]; }
bool        pd_daemon_is_drained(const pd_daemon *daemon) { return daemon->drain.done; }
bool        pd_daemon_has_conns(const pd_daemon *daemon) { return daemon->n_conns > 0; }

void pd_daemon_start(pd_daemon *daemon, pd_mailbox *requests)
{
    daemon->requests = requests;
    daemon->started_ms = pd_daemon_now_ms(daemon);
}

int pd_daemon_accept(pd_daemon *daemon, pd_transport *transport, const char *peer)
{
    pd_conn *conn = pd_conn_new(daemon, transport, peer);
    pd_error err;

    if (conn == NULL) return PD_NO_MEMORY;
    if (daemon->n_conns <= daemon->config.max_connections) return PD_OK;
    pd_fail(&err, PD_RESOURCE_EXHAUSTED, "%u connections are open already (server.max_connections)", daemon->config.max_connections);
    pd_conn_end(conn, NULL, &err);
    return PD_OK;
}

/* The store gets back what it has lent and hears of everybody who goes. */
void pd_daemon_close_all(pd_daemon *daemon)
{
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL) pd_conn_close(daemon->conns[i], "the server stops");
    pd_board_free(daemon->board);
    daemon->board = NULL;
    flush(daemon);
    free_closed(daemon);
}

static void free_effects(pd_daemon *daemon, pd_mail *mail)
{
    while (mail != NULL) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        mail = mail->next;
        if (effect->kind == PD_EFF_BUFFER) pd_daemon_home(daemon, effect->u.buffer);
        if (effect->kind == PD_EFF_LOG) pd_daemon_log(daemon, effect);
        pd_effect_free(effect);
    }
}

void pd_daemon_dispose(pd_daemon *daemon)
{
    if (daemon == NULL) return;
    if (daemon->effects != NULL) {
        free_effects(daemon, daemon->backlog);
        free_effects(daemon, pd_mailbox_take(daemon->effects));
    }
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
