/* conversation.c - makes and frees the conversation with workers and operators, and runs each turn of its loop. */
#include "conversation.h"

#include "access.h"
#include "conn.h"
#include "handlers.h"
#include "http.h"
#include "name_hash.h"
#include "mutant.h"
#include "lifecycle.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

enum { ENDING_PLACES = 64 };
/* Most nanoseconds that one turn of the loop spends on effects. */
#define EFFECTS_NS 1000000u
/* The ticket of the daemon's own requests to the store: no connection has the number 0. */
#define OWN_TICKET ((pd_ticket){ 0, 1 })

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
    daemon->ingest.stall_over = true;
}

static void on_released(void *arg, pd_published *published)
{
    pd_daemon *daemon = arg;

    published->next_released = daemon->mail.released;
    daemon->mail.released = published;
}

/* The request has the ticket of a connection, so that the work counts for its identity. Its answer is for all. */
static int on_asks(void *arg, const pd_wait *wait, uint32_t number, uint32_t param)
{
    const pd_conn *conn = pd_pending_of((pd_wait *)wait)->conn;
    pd_request *request = pd_request_read_out(number, param);

    if (request == NULL) return PD_NO_MEMORY;
    request->ticket.conn = conn->number;
    pd_loop_post(arg, request);
    return PD_OK;
}

static bool on_may_tell(void *arg)
{
    return pd_owner_is_sure(arg);
}

/* Returns a message of the step thread as an effect. Asserts that no effect was lost, and that effects arrive in the
 * order in which pd_turn_forward numbered them. */
static pd_effect *next_effect(const pd_daemon *daemon, pd_mail *mail)
{
    pd_effect *effect = (pd_effect *)(void *)mail;

    assert(effect->number == daemon->mail.handled + 1);
    return effect;
}

/* Handles the next effect. Returns false if the turn's time is used up or no effect is left. */
static bool handle_next(pd_daemon *daemon, uint64_t until_ns)
{
    pd_mail *next;

    if (daemon->mail.backlog == NULL && (daemon->mail.backlog = pd_mailbox_take(daemon->mail.effects)) == NULL)
        return false;
    next = daemon->mail.backlog->next;
    if (!pd_effect_handle(daemon, next_effect(daemon, daemon->mail.backlog), until_ns)) return false;
    daemon->mail.handled++;
    daemon->mail.backlog = next;
    return pd_loop_clock_ns(daemon) <= until_ns;
}

/* If effects may be left, wakes the loop for its next turn: the mailbox wakes it only if mail arrives while the mailbox
 * is empty. */
void pd_conversation_take_effects(pd_daemon *daemon)
{
    uint64_t until_ns = pd_loop_clock_ns(daemon) + EFFECTS_NS;

    if (daemon->versions == NULL) return; /* the daemon has stopped: pd_conversation_dispose frees what is left */
    while (handle_next(daemon, until_ns)) continue;
    if (daemon->mail.backlog != NULL || (pd_loop_clock_ns(daemon) > until_ns && !PD_MUTANT(lost_wake_up)))
        daemon->platform.wake(daemon->platform.arg);
}

/* Tries frames again that were held back because the time for frames was used up, for at most half of a turn's time.
 * Then begins the next turn's time for frames. If some connections still wait, the loop does not sleep before that
 * turn. */
static void resume_deferred(pd_daemon *daemon)
{
    pd_pace *pace = &daemon->peers.pace;
    uint64_t now = pace->first != NULL ? pd_loop_clock_ns(daemon) : 0, end = now + PD_PACE_TURN_NS / 2;

    while (pace->first != NULL && now < end) {
        pd_pace_place *place = pd_pace_take(pace);
        pd_pace_begin(pace, now + PD_PACE_SLICE_NS < end ? now + PD_PACE_SLICE_NS : end);
        pd_conn_resume((pd_conn *)(void *)((char *)place - offsetof(pd_conn, links.pace)));
        now = pd_loop_clock_ns(daemon);
    }
    pd_pace_begin(pace, 0);
    if (pace->first != NULL) daemon->platform.wake(daemon->platform.arg);
}

static void resume_stalled(pd_daemon *daemon)
{
    while (daemon->table.waking != NULL) {
        pd_conn *conn = daemon->table.waking;
        daemon->table.waking = conn->links.next_waking;
        conn->links.waking = false;
        pd_conn_resume(conn);
    }
    if (!daemon->ingest.stall_over) return;
    daemon->ingest.stall_over = daemon->ingest.short_of_budget =
        false; /* if a connection must continue to wait, pd_conn_resume sets the flags again */
    for (size_t i = 0; i < daemon->table.capacity; i++)
        if (daemon->table.at[i] != NULL) pd_conn_resume(daemon->table.at[i]);
}

static void write_dirty(pd_daemon *daemon)
{
    while (daemon->table.dirty != NULL) {
        pd_conn *conn = daemon->table.dirty;
        daemon->table.dirty = conn->links.next_dirty;
        conn->links.dirty = false;
        pd_conn_write(conn);
    }
}

static void free_closed(pd_daemon *daemon)
{
    while (daemon->table.closed != NULL) {
        pd_conn *conn = daemon->table.closed;
        daemon->table.closed = conn->links.next_closed;
        pd_conn_free(conn);
    }
}

void pd_conversation_finish_turn(pd_daemon *daemon)
{
    resume_deferred(daemon);
    resume_stalled(daemon);
    write_dirty(daemon);
    pd_loop_flush(daemon);
    free_closed(daemon);
    pd_http_finish_turn(daemon);
    daemon->table.was_active = daemon->table.active;
    daemon->table.active = 0;
    pd_shutdown_finish(daemon);
    pd_lag_poll(&daemon->counters.lag);
}

void pd_conversation_interrupt(pd_daemon *daemon, const char *name)
{
    pd_loop_log(daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "%s", name);
    if (daemon->shutdown.begun)
        daemon->platform.stop(daemon->platform.arg);
    else
        pd_shutdown_begin(daemon);
}

void pd_conversation_end(pd_daemon *daemon, const char *reason)
{
    if (daemon->shutdown.begun) return;
    pd_loop_log(daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "%s", reason);
    pd_shutdown_begin(daemon);
}

/* Begins the shutdown if no worker has been connected for server.idle_exit. */
static void end_if_idle(pd_daemon *daemon, uint64_t now)
{
    char reason[96];

    for (size_t i = 0; i < daemon->table.capacity; i++)
        if (daemon->table.at[i] != NULL && daemon->table.at[i]->joined) daemon->counters.worker_ms = now;
    if (daemon->config.times.idle_ms == 0 || now - daemon->counters.worker_ms < daemon->config.times.idle_ms) return;
    snprintf(reason, sizeof reason, "no worker was connected for %.1f s (server.idle_exit)",
             (double)daemon->config.times.idle_ms / 1e3);
    pd_conversation_end(daemon, reason);
}

void pd_conversation_tick(pd_daemon *daemon)
{
    uint64_t now = pd_loop_now_ms(daemon);

    if (daemon->ingest.unreported) daemon->ingest.stall_over = true;
    daemon->ingest.unreported = false;
    for (size_t i = 0; i < daemon->table.capacity; i++) { /* each call may close the connection */
        if (daemon->table.at[i] != NULL) pd_tell_checkpoints(daemon->table.at[i], now);
        if (daemon->table.at[i] != NULL) pd_conn_tick(daemon->table.at[i], now);
    }
    pd_version_table_ask_again(daemon->versions);
    pd_http_tick(daemon, now);
    if (daemon->config.hooks.event != NULL) daemon->config.hooks.event(daemon->config.hooks.arg, PD_DAEMON_TURNS);
    end_if_idle(daemon, now);
    pd_shutdown_tick(daemon, now);
}

static int make_parts(pd_daemon *daemon)
{
    pd_version_table_user user = { .arg = daemon,
                                   .resolved = on_resolved,
                                   .failed = on_failed,
                                   .released = on_released,
                                   .asks = on_asks,
                                   .may_tell = on_may_tell };

    daemon->table.capacity = (size_t)daemon->config.max_connections + ENDING_PLACES;
    daemon->table.at = calloc(daemon->table.capacity, sizeof *daemon->table.at);
    daemon->table.numbers = calloc(daemon->table.capacity, sizeof *daemon->table.numbers);
    daemon->table.parties = calloc(daemon->table.capacity, sizeof *daemon->table.parties);
    daemon->mail.effects = pd_mailbox_new(daemon->platform.wake, daemon->platform.arg);
    daemon->ingest.pool = pd_pool_new(daemon->config.ingest_bytes, &daemon->platform, on_memory, daemon);
    daemon->versions = pd_version_table_new(&user);
    daemon->arena = pd_arena_new(PD_ARENA_BUDGET);
    daemon->optimizers = pd_optimizers_pack(pd_optim_at);
    daemon->mail.drain = pd_request_new(PD_REQ_DRAIN, OWN_TICKET);
    daemon->mail.roles = pd_request_new(PD_REQ_ROLES, OWN_TICKET);
    if (daemon->table.at == NULL || daemon->table.numbers == NULL || daemon->table.parties == NULL ||
        daemon->mail.effects == NULL || daemon->ingest.pool == NULL || daemon->versions == NULL ||
        daemon->arena == NULL || daemon->optimizers == NULL || daemon->mail.drain == NULL || daemon->mail.roles == NULL)
        return PD_NO_MEMORY;
    daemon->ingest.admission.budget = daemon->config.ingest_bytes;
    return pd_reply_scratch_init(&daemon->scratch, daemon->config.max_pieces);
}

int pd_conversation_make(pd_daemon **out, const pd_daemon_config *config, const pd_platform *platform, pd_error *err)
{
    pd_daemon *daemon = calloc(1, sizeof *daemon);

    assert(config->ingest_bytes >= config->max_payload &&
           config->max_payload >= config->chunk_elements * sizeof(float));
    if (daemon == NULL) {
        pd_roles_free(config->roles);
        pd_roles_free(config->store_roles);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    pd_methods_check();
    daemon->config = *config;
    if (config->tls != NULL) pd_tls_ref(config->tls);
    daemon->peers.roles = config->roles;
    daemon->peers.roles_taken = 1;
    daemon->platform = *platform;
    daemon->key = platform->random(platform->arg) | 1;
    daemon->peers.usages.hash_key[0] = daemon->peers.usages.hash_key[1] = daemon->key;
    daemon->counters.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (make_parts(daemon) != PD_OK) {
        pd_conversation_dispose(daemon);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    *out = daemon;
    return PD_OK;
}

pd_mailbox *pd_conversation_effects(pd_daemon *daemon)
{
    return daemon->mail.effects;
}
static void post_roles(pd_daemon *daemon)
{
    if (daemon->peers.roles == NULL) return;
    daemon->mail.roles->u.roles = daemon->config.store_roles;
    pd_loop_post(daemon, daemon->mail.roles);
    daemon->mail.roles = NULL;
    daemon->config.store_roles = NULL;
}

void pd_conversation_start(pd_daemon *daemon, pd_mailbox *requests)
{
    daemon->mail.requests = requests;
    daemon->counters.started_ms = daemon->counters.worker_ms = pd_loop_now_ms(daemon);
    post_roles(daemon);
    pd_reloading_start(daemon);
}

/* Counts a new connection for its peer's identity. Returns false if out of memory, or if the identity is so far beyond
 * its quota that the connection is refused without an error: errors take memory. */
static bool enter(pd_daemon *daemon, const pd_transport *transport, pd_usage **usage)
{
    pd_identity identity;

    pd_transport_identify(transport, &identity);
    if ((*usage = pd_usage_join(&daemon->peers.usages, daemon->peers.roles, identity.text)) == NULL) return false;
    if (!pd_usage_is_over(*usage, PD_USAGE_ENDING)) return true;
    pd_usage_leave(&daemon->peers.usages, *usage);
    return false;
}

/* Checks that a new connection, which is counted already, exceeds neither max_connections nor the quota of its
 * identity. */
static int check_number(const pd_daemon *daemon, const pd_usage *usage, pd_error *err)
{
    if (daemon->table.n > daemon->config.max_connections)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%u connections are already open (server.max_connections)",
                       daemon->config.max_connections);
    if (!pd_usage_is_over(usage, 0)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%llu connections of %.200s are already open (connections= of its quota in server.roles)",
                   (unsigned long long)usage->quota.connections, usage->identity);
}

/* Returns a hash of the identity of a connection, or of its address if it has proven no identity. The hash is keyed, so
 * that nobody can choose an identity or address that shares a counter with another one. */
static uint64_t origin_of(const pd_conn *conn)
{
    const pd_daemon *daemon = conn->daemon;
    const uint64_t key[2] = { daemon->key, daemon->key };
    char host[PD_LOG_PEER];
    const char *name = conn->peer.identity.text;

    pd_loop_host(host, conn->peer.address);
    if (conn->peer.identity.kind == PD_IDENTITY_NONE) name = host;
    return pd_name_hash(key, name, strlen(name));
}

int pd_conversation_accept(pd_daemon *daemon, pd_transport *transport, const char *peer)
{
    pd_brief_place *place;
    pd_conn *conn;
    pd_usage *usage;
    pd_error err;

    if (!enter(daemon, transport, &usage)) return PD_RESOURCE_EXHAUSTED;
    place = daemon->table.n >= daemon->config.max_connections ? pd_brief_first(&daemon->peers.brief) : NULL;
    if (place != NULL)
        pd_conn_close((pd_conn *)(void *)((char *)place - offsetof(pd_conn, links.brief)),
                      "closed for a new connection (server.max_connections)");
    if ((conn = pd_conn_new(daemon, &pd_incoming_frames, peer)) == NULL) {
        pd_usage_leave(&daemon->peers.usages, usage);
        return PD_NO_MEMORY;
    }
    conn->peer.usage = usage;
    pd_loop_set_party(daemon, conn->number, usage->number);
    conn->pendings.under_way = &usage->requests;
    pd_conn_attach(conn, transport);
    pd_brief_enter(&daemon->peers.brief, &conn->links.brief, origin_of(conn));
    if (check_number(daemon, usage, &err) != PD_OK) pd_conn_end(conn, NULL, &err);
    return PD_OK;
}

/* Returns to the store the published versions in effects that were taken from the mailbox but not handled, as the
 * version table does not have them. The step thread itself handles effects that are still in the mailbox. */
static void release_backlog(pd_daemon *daemon)
{
    size_t i = daemon->mail.backlog_at;

    for (pd_mail *mail = daemon->mail.backlog; mail != NULL; mail = mail->next, i = 0) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        for (; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
            if (effect->u.closed.at[i].published != NULL) on_released(daemon, effect->u.closed.at[i].published);
            effect->u.closed.at[i].published = NULL;
        }
    }
}

void pd_conversation_close_all(pd_daemon *daemon)
{
    daemon->platform.background = NULL; /* the loop no longer runs, so background tasks are run here */
    for (size_t i = 0; i < daemon->table.capacity; i++)
        if (daemon->table.at[i] != NULL) pd_conn_close(daemon->table.at[i], "the server stops");
    pd_http_close_all(daemon);
    pd_version_table_free(daemon->versions);
    daemon->versions = NULL;
    release_backlog(daemon);
    pd_loop_flush(daemon);
    free_closed(daemon);
}

/* Frees effects that nobody handles any more. Returns payload buffers in them to the pool, and logs log lines in
 * them. */
static void free_effects(pd_daemon *daemon, pd_mail *mail)
{
    while (mail != NULL) {
        pd_effect *effect = next_effect(daemon, mail);
        mail = mail->next;
        daemon->mail.handled++;
        if (effect->kind == PD_EFF_BUFFER) pd_conn_return_buffer(daemon, effect->u.buffer);
        if (effect->kind == PD_EFF_LOG) daemon->config.hooks.log(&effect->u.log);
        pd_effect_free(effect);
    }
}

void pd_conversation_dispose(pd_daemon *daemon)
{
    if (daemon == NULL) return;
    if (daemon->mail.effects != NULL) {
        free_effects(daemon, daemon->mail.backlog);
        free_effects(daemon, pd_mailbox_take(daemon->mail.effects));
    }
    pd_version_table_free(daemon->versions);
    pd_traffic_free(&daemon->traffic);
    pd_figures_free(&daemon->figures);
    pd_remarks_free(&daemon->remarks);
    pd_mailbox_free(daemon->mail.effects);
    pd_pool_free(daemon->ingest.pool);
    pd_arena_free(daemon->arena);
    pd_packed_optimizers_free(daemon->optimizers);
    pd_reply_scratch_free(&daemon->scratch);
    pd_request_free(daemon->mail.drain);
    for (pd_mail *mail = daemon->mail.first, *next; mail != NULL; mail = next) { /* if the step thread was never
                                                                                  * started */
        next = mail->next;
        pd_request_free((pd_request *)(void *)mail);
    }
    pd_request_free(daemon->mail.roles);
    pd_roles_free(daemon->peers.roles);
    pd_roles_free(daemon->config.store_roles);
    while (daemon->mail.notices != NULL)
        pd_request_free(pd_loop_take_notice(daemon, daemon->mail.notices->ticket.conn));
    free(daemon->table.at);
    free(daemon->table.numbers);
    free(daemon->table.parties);
    if (daemon->counters.statm >= 0) close(daemon->counters.statm);
    pd_tls_unref(daemon->config.tls);
    free(daemon);
}
