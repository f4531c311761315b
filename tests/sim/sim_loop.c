/* sim_loop.c - the server's loop thread as events. Random draws decide when the loop runs and whether it takes its
 * mail. */
#include "server_state.h"

#include "conn.h"
#include "http.h"
#include "sim_disk.h"
#include "sim_owner.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

enum { TICK_MS = 250, HANDSHAKE_MS = 2000, SILENCE_MS = 3000, HEARTBEAT_MS = 1000, DRAIN_MS = 2000, KEEP_MS = 1500 };
/* Limits of the memory that an idle server may use besides the memory committed to jobs: a constant, and bytes for each
 * connection and for each parameter of the plan. An idle server keeps tables, and memory for the next batch of work. */
enum { LOOP_BYTES = 128 * 1024, CONN_BYTES = 10 * 1024, PARAM_BYTES = 1024 };
/* Bytes of the figures of one job, with points of its past. */
enum { FIGURE_BYTES = 40 * 1024 };
/* Payloads in shared memory take no quota, so all of them may wait for the last rank at once. This is the limit of what
 * the server keeps of each beside it: the request and its pieces. */
enum { SHARED_BYTES = 1408 };
/* For each chunk and rank of a job, whose sums may all be in one batch (pd_sums). In a job with open sets each rank's
 * part of a chunk may be a sum of its own. */
enum { SUM_BYTES = 64 };

static uint64_t now_ms(void *arg)
{
    return ((sim_server *)arg)->s->now_ns / 1000000;
}

/* Returns the loop's time. In a slow turn each call adds 0.3 ms. */
static uint64_t clock_ns(void *arg)
{
    sim_server *server = arg;

    if (server->slow) server->loop_spent_ns += 300000;
    return server->s->now_ns + server->loop_spent_ns;
}

static uint64_t secret(void *arg)
{
    (void)arg;
    return 0x5eed;
}

static void wake(void *arg)
{
    sim_server *server = arg;

    server->mail_due = true;
    sim_server_wake_loop(server);
}

static void stop(void *arg)
{
    sim_server *server = arg;

    server->stopped = true;
    sim_note(server->s, "server", 0, "stops", 0, 0);
}

static void end_listening(void *arg)
{
    ((sim_server *)arg)->listens = false;
}

static void finish(sim_server *server, uint32_t errand)
{
    pd_background *work = server->errands[errand];

    server->errands[errand] = server->errands[--server->n_background];
    work->run(work);
    work->done(work);
}

/* Finishes a background task, unless the server has finished it at its end. */
static void finish_background(sim *s, void *who, uint64_t what)
{
    sim_server *server = s->servers[what];
    sim_side before = sim_enter(SIM_SERVER);
    uint32_t errand = 0;

    while (errand < server->n_background && server->errands[errand] != who) errand++;
    if (errand < server->n_background) finish(server, errand);
    sim_enter(before);
    sim_server_wake_loop(server);
}

static bool background(void *arg, pd_background *work)
{
    sim_server *server = arg;

    if (server->n_background == SIM_ERRANDS) return false;
    server->errands[server->n_background++] = work;
    sim_after(server->s, sim_draw(server->s, 20 * SIM_MS), finish_background, work, server->number);
    return true;
}

/* The worker's client releases answers as soon as it has read them. So the server must never close it for being slow,
 * unless its connection is silent, or one of the two is stopped for a while. */
static bool excuses_slow_workers; /* of this run */

static void log_line(const pd_log_entry *entry)
{
    if (excuses_slow_workers || strstr(entry->text, "did not release") == NULL) return;
    if (strstr(entry->text, "(sim, ") != NULL) sim_fail("liveness", "a worker is closed: %s", entry->text);
}

static void drop_closed_ends(sim_server *server)
{
    size_t kept = 0;

    for (size_t i = 0; i < server->n_ends; i++)
        if (sim_end_open(server->ends[i])) server->ends[kept++] = server->ends[i];
    server->n_ends = kept;
}

/* Polls the server's ends in a random order. Returns whether any end had an event. */
static bool poll_ends(sim_server *server)
{
    bool any = false;

    for (size_t i = server->n_ends; i > 1; i--) {
        size_t k = (size_t)sim_draw(server->s, i);
        pd_transport *swap = server->ends[k];
        server->ends[k] = server->ends[i - 1];
        server->ends[i - 1] = swap;
    }
    for (size_t i = 0; i < server->n_ends; i++) any = sim_end_poll(server->ends[i]) || any;
    drop_closed_ends(server);
    return any;
}

static void loop_turn(sim *s, void *who, uint64_t what)
{
    sim_server *server = who;
    sim_side before = sim_enter(SIM_SERVER);
    bool mail = server->mail_due && !sim_chance(s, 4), any;

    (void)what;
    server->loop_due = false;
    server->loop_spent_ns = 0;
    server->slow = sim_chance(s, 4);
    if (!server->stopped) {
        any = poll_ends(server);
        if (mail) {
            server->mail_due = false;
            pd_conversation_take_effects(server->daemon);
        }
        pd_conversation_finish_turn(server->daemon);
        if (any || server->mail_due) sim_server_wake_loop(server);
    }
    sim_enter(before);
}

void sim_server_wake_loop(sim_server *server)
{
    sim *s = server->s;
    uint64_t delay = sim_draw(s, sim_chance(s, 16) ? 5 * SIM_MS : 100000);

    if (server->loop_due || server->stopped) return;
    server->loop_due = true;
    if (server->loop_not_before > s->now_ns + delay) delay = server->loop_not_before - s->now_ns;
    sim_after(s, delay, loop_turn, server, 0);
}

/* Checks that nobody keeps answers that were lent longer than the server allows. */
static void check_lent(const sim_server *server)
{
    const pd_daemon *daemon = server->daemon;
    uint64_t now = now_ms((void *)server);

    for (size_t i = 0; i < daemon->table.capacity; i++) {
        const pd_conn *conn = daemon->table.at[i];
        if (conn == NULL || conn->output.outstanding.n == 0) continue;
        if (now > conn->output.outstanding.since_ms + 2 * SILENCE_MS + 4000)
            sim_fail("liveness", "%llu answers are lent since %.1f s", (unsigned long long)conn->output.outstanding.n,
                     (double)(now - conn->output.outstanding.since_ms) / 1e3);
        if (conn->output.outstanding.bytes == 0) sim_fail("accounting", "answers are lent, and take no memory");
    }
}

static void loop_tick(sim *s, void *who, uint64_t what)
{
    sim_server *server = who;
    sim_side before;

    (void)what;
    if (server->stopped) return;
    before = sim_enter(SIM_SERVER);
    if (s->now_ns >= server->loop_not_before) {
        pd_conversation_tick(server->daemon);
        pd_conversation_finish_turn(server->daemon);
        check_lent(server);
    }
    sim_enter(before);
    sim_after(s, TICK_MS * SIM_MS, loop_tick, server, 0);
}

static pd_transport *connect_to(sim_server *server, bool http, bool is_local, sim_link **link)
{
    pd_transport *ours, *theirs;
    sim_side before;
    int rc;

    if (server->stopped || server->n_ends == SIM_ENDS) return NULL;
    *link = sim_link_new(server, server->s, is_local, &ours, &theirs);
    before = sim_enter(SIM_SERVER);
    rc = http ? pd_http_accept(server->daemon, ours, server->n_ends % 3)
              : pd_conversation_accept(server->daemon, ours, "sim");
    sim_enter(before);
    if (rc != PD_OK) {
        ours->ops->close(ours);
        return NULL;
    }
    server->ends[server->n_ends++] = ours;
    sim_server_wake_loop(server);
    return theirs;
}

pd_transport *sim_server_connect(sim_server *server, bool is_local, sim_link **link)
{
    return server->listens ? connect_to(server, false, is_local, link) : NULL;
}

pd_transport *sim_server_connect_http(sim_server *server)
{
    sim_link *link;

    return connect_to(server, true, false, &link);
}

void sim_server_stall(sim_server *server, bool loop, uint64_t ns)
{
    if (loop)
        server->loop_not_before = server->s->now_ns + ns;
    else
        server->step_not_before = server->s->now_ns + ns;
}

void sim_server_interrupt(sim_server *server)
{
    sim_side before = sim_enter(SIM_SERVER);

    sim_note(server->s, "server", 0, "is told to stop", 0, 0);
    server->stop_asked_ns = server->s->now_ns;
    pd_conversation_interrupt(server->daemon, "SIGTERM");
    sim_enter(before);
    sim_server_wake_loop(server);
}

bool sim_server_stopped(const sim_server *server)
{
    return server->stopped;
}
bool sim_server_draining(const sim_server *server)
{
    return server->stop_asked_ns != 0;
}
uint32_t sim_server_number(const sim_server *server)
{
    return server->number;
}
pd_store *sim_server_store(sim_server *server)
{
    return server->store;
}

uint64_t sim_bytes_in_flight(const sim_server *server)
{
    return server->daemon->ingest.admission.used;
}

static bool rests(const pd_conn *conn)
{
    return conn->pendings.n == 0 && pd_output_empty(&conn->output) && !conn->incoming.begun;
}

/* Returns how many chunks all ranks of a job may have contributed to a round. */
static uint64_t chunks_of(const sim_plan *plan, const sim_job *job)
{
    uint64_t chunks = 0;

    for (uint32_t p = 0; p < job->n_params; p++) chunks += (uint64_t)job->params[p].n / plan->chunk + 1;
    return chunks * job->world;
}

/* The limit in *bytes includes the buffers that the payload pool keeps, and a fixed amount for each connection. */
bool sim_loop_rests(const sim_server *server, uint64_t *bytes)
{
    const pd_daemon *daemon = server->daemon;

    *bytes = LOOP_BYTES + pd_pool_kept(daemon->ingest.pool);
    for (uint32_t j = 0; j < server->s->plan->n_jobs; j++)
        *bytes += SUM_BYTES * chunks_of(server->s->plan, &server->s->plan->jobs[j]) *
                  (server->s->plan->jobs[j].open.on ? server->s->plan->jobs[j].world : 1);
    for (uint32_t j = 0; j < server->s->plan->n_jobs; j++)
        *bytes += server->s->plan->jobs[j].n_params * (uint64_t)PARAM_BYTES +
                  (server->s->plan->shares ? SHARED_BYTES * chunks_of(server->s->plan, &server->s->plan->jobs[j]) : 0);
    for (const pd_figure *figure = daemon->figures.first; figure != NULL; figure = figure->next) *bytes += FIGURE_BYTES;
    if (server->loop_due || server->mail_due || daemon->ingest.admission.used > 0 || daemon->http.n > 0) return false;
    for (size_t i = 0; i < server->n_ends; i++)
        if (sim_end_is_lent(server->ends[i])) return false;
    for (size_t i = 0; i < daemon->table.capacity; i++) {
        if (daemon->table.at[i] == NULL) continue;
        if (!rests(daemon->table.at[i])) return false;
        *bytes += CONN_BYTES + daemon->table.at[i]->output.outstanding.bytes;
    }
    return true;
}

bool sim_waits_for_memory(const sim_server *server, uint64_t number)
{
    const pd_conn *conn = pd_loop_find(server->daemon, number);

    return conn != NULL && pd_conn_live(conn) && pd_framer_stalled(conn->framer) && conn->incoming.request != NULL &&
           !conn->incoming.asked;
}

void sim_server_describe(sim_server *server)
{
    const pd_daemon *daemon = server->daemon;

    sim_step_describe(server);
    printf("the loop at the end: %llu of %llu bytes in flight, %llu reserved by %u ranks\n",
           (unsigned long long)daemon->ingest.admission.used, (unsigned long long)daemon->ingest.admission.budget,
           (unsigned long long)daemon->ingest.admission.reserved, daemon->ingest.admission.ranks);
    for (size_t i = 0; i < daemon->table.capacity; i++) {
        const pd_conn *conn = daemon->table.at[i];
        if (conn == NULL) continue;
        printf("  connection %llu: state %d, job %u rank %u, %s, %llu of its %llu bytes in flight, %zu requests under "
               "way\n",
               (unsigned long long)conn->number, (int)conn->state, conn->job, conn->rank,
               pd_framer_stalled(conn->framer) ? "stalled" : "reads", (unsigned long long)conn->params.quota.charged,
               (unsigned long long)conn->params.quota.reserve, conn->pendings.n);
    }
}

/* Returns how many ranks may have a frame in flight beyond the budget. A rank with nothing in flight may always send
 * one frame, even if other ranks have used the whole budget. */
static uint64_t most_ranks(const sim_plan *plan)
{
    uint64_t ranks = plan->n_faults;

    for (uint32_t j = 0; j < plan->n_jobs; j++) ranks += sim_most_world(&plan->jobs[j]);
    return ranks;
}

void sim_server_check(sim_server *server)
{
    const pd_admission *admission = &server->daemon->ingest.admission;
    uint64_t deadline = server->stop_asked_ns + (DRAIN_MS + 4000) * SIM_MS;

    if (server->daemon->http.n > PD_HTTP_MOST)
        sim_fail("accounting", "%u HTTP connections are open", server->daemon->http.n);
    if (admission->used > admission->budget + server->s->plan->payload * most_ranks(server->s->plan))
        sim_fail("accounting", "%llu bytes are in flight, the budget is %llu", (unsigned long long)admission->used,
                 (unsigned long long)admission->budget);
    sim_step_check(server);
    sim_pressure_check(server);
    if (server->stop_asked_ns != 0 && !server->stopped && server->s->now_ns > deadline &&
        server->s->now_ns > server->loop_not_before + 6 * SIM_S)
        sim_fail("liveness", "the server was told to stop %.1f s ago and still runs",
                 (double)(server->s->now_ns - server->stop_asked_ns) / 1e9);
}

void sim_server_check_rest(sim_server *server)
{
    sim_step_check_rest(server);
    sim_check_zero("bytes in flight", server->daemon->ingest.admission.used);
    sim_check_zero("ingest reserved by connections", server->daemon->ingest.admission.reserved);
    sim_check_zero("ranks with a share", server->daemon->ingest.admission.ranks);
    sim_check_zero("bytes of payload buffers", pd_pool_used(server->daemon->ingest.pool));
    sim_check_zero("HTTP connections", server->daemon->http.n);
}

static pd_daemon_config daemon_config(const sim_plan *plan)
{
    return (pd_daemon_config){
        .listen = "",
        .max_connections = 256,
        .times.handshake_ms = HANDSHAKE_MS,
        .times.heartbeat_ms = HEARTBEAT_MS,
        .times.silence_ms = SILENCE_MS,
        .times.read_ms = SILENCE_MS,
        .times.write_ms = SILENCE_MS,
        .times.drain_ms = DRAIN_MS,
        .times.keep_ms = plan->crashes ? KEEP_MS : 0,
        .ingest_bytes = plan->ingest,
        .chunk_elements = plan->chunk,
        .max_payload = plan->payload,
        .max_pieces = (uint32_t)plan->pieces,
        .max_params = 64,
        .max_header = 65536,
        .hello_bytes = 4096,
        .shared_memory = plan->server_shares,
        .least_shared = plan->least_shared,
        .movers = plan->movers,
        .least_lent = plan->least_lent,
        .blas_core = "none",
        .hooks.log = log_line,
    };
}

bool sim_loop_is_caught_up(const sim_server *server)
{
    return server->daemon->mail.backlog == NULL;
}

void sim_loop_end_movers(sim_server *server)
{
    for (size_t i = 0; i < server->n_ends; i++) sim_end_finish_passes(server->ends[i]);
}

void sim_loop_finish_background(sim_server *server)
{
    while (server->n_background > 0) finish(server, 0);
}

/* Gives the server roles: workers and operators may do everything, a trespasser nothing with the plan's jobs. */
static void add_roles(pd_daemon_config *daemon)
{
    static const char text[] = "token:trespasser admin trespass-*\n"
                               "token:trespasser none *\n"
                               "* admin *\n"
                               "quota * jobs=1000 bytes=1T ingest=1T\n";
    bool held = sim_hold_failures(true);

    if (pd_roles_parse(&daemon->roles, text, sizeof text - 1, "roles", NULL) != PD_OK ||
        (daemon->store_roles = pd_roles_copy(daemon->roles)) == NULL)
        sim_fail("harness", "the server's roles cannot be made");
    sim_hold_failures(held);
}

void sim_loop_make(sim_server *server)
{
    pd_platform platform = { .arg = server,
                             .now_ms = now_ms,
                             .clock_ns = clock_ns,
                             .random = secret,
                             .wake = wake,
                             .stop = stop,
                             .end_listening = end_listening,
                             .background = background,
                             .table = server->owner != NULL ? sim_owner_table : NULL };
    pd_daemon_config daemon = daemon_config(server->s->plan);
    pd_error err;

    if (server->s->plan->roles) add_roles(&daemon);
    if (pd_conversation_make(&server->daemon, &daemon, &platform, &err) != PD_OK)
        sim_fail("harness", "the server cannot be made: %s", err.text);
    pd_conversation_start(server->daemon, server->requests);
    if (!server->s->plan->scrapes) return;
    close(server->daemon->counters.statm); /* the memory of the process is another number in each run */
    server->daemon->counters.statm = -1;
}

sim_server *sim_server_new(sim *s, uint32_t number)
{
    sim_server *server = sim_must(calloc(1, sizeof *server));
    sim_side before = sim_enter(SIM_SERVER);

    server->s = s;
    server->number = number;
    server->shard = s->plan->spares > 0 ? -1 : (int)number;
    server->listens = s->plan->spares == 0;
    server->owner = s->plan->spares > 0 ? sim_owner_new(server) : NULL;
    server->disk = s->plan->crashes ? sim_disk_new(s, number, SIM_STATE_DIR) : NULL;
    excuses_slow_workers = false;
    for (uint32_t f = 0; f < s->plan->n_faults; f++) {
        sim_fault_kind kind = s->plan->faults[f].kind;
        if (kind == SIM_HOLE || kind == SIM_STALL_LOOP || kind == SIM_NO_MEMORY || kind == SIM_SLEEP)
            excuses_slow_workers = true;
    }
    sim_step_make(server);
    sim_loop_make(server);
    sim_enter(before);
    sim_after(s, TICK_MS * SIM_MS, loop_tick, server, 0);
    return server;
}

void sim_server_free(sim_server *server)
{
    sim_side before;

    before = sim_enter(SIM_SERVER);
    sim_fail_allocations(0, 0);
    sim_loop_end_movers(server);
    pd_conversation_close_all(server->daemon);
    sim_loop_finish_background(server);
    sim_step_end(server);
    pd_conversation_dispose(server->daemon);
    sim_enter(before);
    sim_owner_free(server->owner);
    sim_disk_free(server->disk);
    server->s->n_servers--;
    if (server->s->n_servers == 0 && sim_live_bytes(SIM_SERVER) != 0)
        sim_fail("accounting", "the server is gone and %lld bytes of its memory are left",
                 (long long)sim_live_bytes(SIM_SERVER));
    free(server);
}
