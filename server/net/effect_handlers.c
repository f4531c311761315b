/* effect_handlers.c - handles the effects of the step thread: answers requests, publishes rounds, ends connections. */
#include "handlers.h"

#include "conn.h"
#include "lifecycle.h"
#include "mutant.h"
#include "text.h"

#include <string.h>
#include <syslog.h>

/* Returns the connection whose request an effect answers, and sets *pending to the request. Returns NULL if the
 * connection is closed or the request has ended. */
static pd_conn *addressee(pd_daemon *daemon, const pd_effect *effect, pd_pending **pending)
{
    pd_conn *conn = pd_loop_find(daemon, effect->ticket.conn);

    *pending = conn != NULL ? pd_pendings_find_serial(&conn->pendings, effect->ticket.id) : NULL;
    return *pending != NULL ? conn : NULL;
}

static void on_hello(pd_daemon *daemon, const pd_effect *effect)
{
    pd_request *notice;
    pd_pending *pending;
    pd_conn *conn = addressee(daemon, effect, &pending);

    if (conn == NULL) { /* the connection closed before this answer, which brings the job's number: post its disconnect
                         * notice */
        if ((notice = pd_loop_take_notice(daemon, effect->ticket.conn)) == NULL) return;
        notice->job = effect->job;
        pd_loop_post(daemon, notice);
        return;
    }
    conn->rank = effect->u.hello.rank;
    pd_loop_log(daemon, LOG_DEBUG, (pd_log_facts){ .rank = &conn->rank }, "%s (%s) is rank %u of job %u",
                conn->peer.address, conn->peer.label, conn->rank, effect->job);
    pd_reply_hello(conn, pending, effect);
}

/* Removes a connection from its job: its worker has left, or the job has ended. A frame that is being received is
 * refused with `why`. The store need not be told when the connection ends. */
static void left(pd_conn *conn, const pd_error *why)
{
    /* The frame that the connection is receiving was meant for a job that the connection no longer belongs to. */
    if (!PD_MUTANT(leave_incoming) && conn->incoming.begun && conn->incoming.refusal.code == PD_OK)
        conn->incoming.refusal = *why;
    conn->joined = false;
    conn->job = 0;
    pd_conn_undeclare(conn);
}

static void on_ok(pd_daemon *daemon, const pd_effect *effect)
{
    Paramd__Ok ok = PARAMD__OK__INIT;
    pd_pending *pending;
    pd_conn *conn = addressee(daemon, effect, &pending);
    pd_error why;
    unsigned method;

    if (effect->ticket.conn == 0) { /* the daemon itself requested this drain, so no connection waits for an answer */
        pd_shutdown_drained(daemon, NULL);
        return;
    }
    if (conn == NULL) return;
    method = pending->method;
    if (PD_MUTANT(lost_ack) && method == PD_INIT && conn->rank == 1) return;
    pd_conn_answer(conn, pending, &ok.base);
    if (method != PD_LEAVE || !pd_conn_live(conn)) return;
    conn->has_left = true;
    pd_fail(&why, PD_FAILED_PRECONDITION, "this worker has left the job: reconnect to join it again");
    left(conn, &why);
}

/* Refuses all Declare requests of a connection, because the store accepts or refuses their parameters as a whole.
 * Removes the parameters, so that the worker may declare them again. */
static void refuse_set(pd_conn *conn, const pd_error *err)
{
    pd_pending *pending;

    while ((pending = pd_pendings_of_method(&conn->pendings, PD_DECLARE)) != NULL) pd_conn_fail(conn, pending, err);
    if (!pd_conn_live(conn)) return;
    pd_conn_undeclare(conn);
    pd_conn_resume(conn);
}

/* Answers the Declare requests of a connection, after the store has accepted its set of parameters. Gives the
 * connection its reserve in the ingest budget. If worker states that are being received have taken the last bytes of
 * the budget, refuses the Declare requests. */
static void on_declared(pd_daemon *daemon, const pd_effect *effect)
{
    pd_pending *pending;
    pd_conn *conn = addressee(daemon, effect, &pending);
    pd_conn *same = pd_loop_find(daemon, effect->ticket.conn); /* the connection, also if its request has ended;
                                                                * NULL: it is closed */
    pd_error err;

    /* Payload bytes of earlier connections of the rank that are still in flight are charged to this connection.
     * Otherwise a worker that reconnects again and again could use up the ingest budget. */
    if (same != NULL) same->params.quota.charged += effect->u.declared.held;
    if (conn == NULL) return;
    for (size_t i = 0; i < effect->u.declared.n; i++)
        if (effect->u.declared.params[i].note != NULL) pd_text_mend(effect->u.declared.params[i].note);
    if (pd_admission_join(&daemon->ingest.admission, &conn->params.quota, effect->u.declared.reserve, &err) != PD_OK) {
        refuse_set(conn, &err);
        return;
    }
    conn->params.reserve = effect->u.declared.reserve;
    conn->files = effect->u.declared.files;
    if (conn->leases.n == 0) { /* otherwise the step thread has told of later leases */
        conn->leases = effect->u.declared.leases;
        conn->leases.step = 0;
    }
    pd_reply_declare(conn, effect);
}

static void on_error(pd_daemon *daemon, const pd_effect *effect)
{
    pd_pending *pending;
    pd_conn *conn = addressee(daemon, effect, &pending);
    pd_prefix asked;

    if (effect->ticket.conn == 0) { /* the daemon itself requested this drain. It did not end before its deadline, or
                                     * its last checkpoints have failed */
        pd_loop_log(daemon, LOG_WARNING, (pd_log_facts){ .code = effect->u.error.code }, "%s", effect->u.error.text);
        pd_shutdown_drained(daemon, effect->u.error.code == PD_ABORTED ? &effect->u.error : NULL);
        return;
    }
    if (conn == NULL) {
        /* the store refused the Hello of this closed connection, so its disconnect notice is not needed */
        pd_request_free(pd_loop_take_notice(daemon, effect->ticket.conn));
        return;
    }
    asked = pd_pending_asked(pending);
    if (asked.method == PD_HELLO) { /* the store does not know the connection, so it need not be told when the
                                     * connection ends */
        conn->joined = false;
        pd_conn_end(conn, &asked, &effect->u.error);
        return;
    }
    pd_conn_fail(conn, pending, &effect->u.error);
    if (asked.method == PD_DECLARE) refuse_set(conn, &effect->u.error);
}

static void on_fenced(pd_daemon *daemon, const pd_effect *effect)
{
    pd_conn *conn = pd_loop_find(daemon, effect->ticket.conn);

    if (conn == NULL) return;
    conn->joined =
        false; /* another connection has taken the rank, or none has it: the store knows that this one ends */
    /* UNAVAILABLE: the worker is to connect again. It then sends requests without an answer once more. */
    if (effect->u.error.code != PD_UNAVAILABLE) pd_conn_fail_all(conn, &effect->u.error);
    pd_conn_end(conn, NULL, &effect->u.error);
}

/* Tells the store that the version table no longer refers to the weights of a job: from now on only unsent answers do.
 * Without memory for the message, the store does not count these weights as unread. */
static void report_forgotten(pd_daemon *daemon, uint32_t job)
{
    pd_request *request = pd_request_new(PD_REQ_FORGOTTEN, (pd_ticket){ 0, 0 });

    pd_loop_post_released(daemon);
    if (request == NULL) return;
    request->job = job;
    pd_loop_post(daemon, request);
}

static void on_job_gone(pd_daemon *daemon, const pd_effect *effect)
{
    pd_version_table_drop(daemon->versions, effect->job, &effect->u.error);
    report_forgotten(daemon, effect->job);
    pd_traffic_remove(&daemon->traffic, effect->job);
    pd_figures_remove(&daemon->figures, effect->job);
    for (size_t i = 0; i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
        if (conn == NULL || conn->job != effect->job || conn->job == 0 || !pd_conn_live(conn)) continue;
        left(conn, &effect->u.error);
        pd_conn_fail_all(conn, &effect->u.error);
        if (conn->state != PD_CLOSED) pd_conn_resume(conn);
    }
}

/* Tells the version table in which step a push may count. */
static void on_filed(pd_daemon *daemon, const pd_effect *effect)
{
    pd_pending *pending;

    if (addressee(daemon, effect, &pending) == NULL) return;
    pd_version_table_filed(daemon->versions, effect->job, &pending->wait, effect->u.filed.how, effect->u.filed.step);
}

/* Takes over the members of a job. A new leader gets the warnings about the job that it does not have. */
static void on_members(pd_daemon *daemon, pd_effect *effect)
{
    bool told = effect->u.members.set != NULL;

    pd_version_table_note_members(daemon->versions, effect->job, effect->u.members.set, effect->u.members.leader,
                                  effect->u.members.epoch, effect->u.members.course);
    effect->u.members.set = NULL;
    for (size_t i = 0; told && i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
        if (conn != NULL && conn->job == effect->job) pd_conn_tell_remarks(conn);
    }
}

static void on_leases(pd_daemon *daemon, const pd_effect *effect)
{
    pd_conn *conn = pd_loop_find(daemon, effect->ticket.conn);

    if (conn != NULL && conn->job == effect->job) conn->leases = effect->u.leases;
}

static void on_timed_out(pd_daemon *daemon, const pd_effect *effect)
{
    daemon->mark++;
    (void)pd_version_table_time_out(daemon->versions, effect->job, effect->u.timed_out.fragment,
                                    effect->u.timed_out.step, &effect->u.timed_out.error);
    for (size_t i = 0; i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
        if (conn == NULL || conn->job != effect->job || !pd_conn_live(conn) || !pd_framer_stalled(conn->framer))
            continue;
        /* The held-back frame is refused now. Later frames for that round are refused when they are read
         * (pd_conn_is_late). */
        conn->overdue =
            (pd_overdue){ .since = daemon->mark, .step = effect->u.timed_out.step, .error = effect->u.timed_out.error };
        if (pd_conn_is_late(conn)) pd_conn_resume(conn);
    }
}

/* Answers the request to which an effect belongs, if it is still open. */
static void answer(pd_daemon *daemon, pd_effect *effect,
                   void (*reply)(pd_conn *conn, pd_pending *pending, pd_effect *effect))
{
    pd_pending *pending;
    pd_conn *conn = addressee(daemon, effect, &pending);

    if (conn != NULL) reply(conn, pending, effect);
}

/* Keeps the answer to a worker's Checkpoint while the daemon may not tell that steps are durable. Returns whether it is
 * kept. */
static bool withhold(pd_daemon *daemon, pd_effect *effect)
{
    pd_pending *pending;
    const pd_conn *conn = addressee(daemon, effect, &pending);

    if (conn == NULL || conn->operates || pd_owner_is_sure(daemon)) return false;
    pending->withheld = effect;
    return true;
}

/* Sends a warning about a job to its leader. */
static void take_remark(pd_daemon *daemon, const pd_log_entry *entry)
{
    const pd_remark *remark = pd_remarks_add(&daemon->remarks, entry);

    for (size_t i = 0; remark != NULL && i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
        if (conn != NULL && conn->job_name != NULL && strcmp(conn->job_name, remark->job) == 0)
            pd_conn_tell_remarks(conn);
    }
}

/* Makes sure that the version table has room for a closed round. After a restart the rounds of all portions come before
 * the answer to the first Declare, and a shard may have more portions than a worker has declared parameters. */
static bool has_room(pd_daemon *daemon, const pd_effect *effect)
{
    size_t n = effect->u.closed.at[daemon->mail.backlog_at].param + (size_t)1;

    if (n < effect->u.closed.n) n = effect->u.closed.n;
    return pd_version_table_reserve(daemon->versions, effect->job, n) == PD_OK;
}

/* Stores the closed rounds that an effect reports in the version table, as many as the turn's time allows, or as there
 * is memory for. `backlog_at` counts the stored rounds. Returns false if some are left. */
static bool on_closed(pd_daemon *daemon, const pd_effect *effect, uint64_t until_ns)
{
    if (effect->u.closed.course > 0)
        pd_version_table_note_course(daemon->versions, effect->job, effect->u.closed.course);
    while (daemon->mail.backlog_at < effect->u.closed.n && has_room(daemon, effect)) {
        pd_closed *closed = &effect->u.closed.at[daemon->mail.backlog_at++];
        pd_version_table_close(daemon->versions, effect->job, closed);
        if (daemon->mail.backlog_at % 16 == 0 && pd_loop_clock_ns(daemon) > until_ns) break;
    }
    if (daemon->mail.backlog_at < effect->u.closed.n) return false;
    daemon->mail.backlog_at = 0;
    return true;
}

bool pd_effect_handle(pd_daemon *daemon, pd_effect *effect, uint64_t until_ns)
{
    switch (effect->kind) {
    case PD_EFF_HELLO: on_hello(daemon, effect); break;
    case PD_EFF_DECLARED: on_declared(daemon, effect); break;
    case PD_EFF_OK: on_ok(daemon, effect); break;
    case PD_EFF_ERROR: on_error(daemon, effect); break;
    case PD_EFF_CLOSED:
        if (!on_closed(daemon, effect, until_ns)) return false;
        break;
    case PD_EFF_FILED: on_filed(daemon, effect); break;
    case PD_EFF_MEMBERS: on_members(daemon, effect); break;
    case PD_EFF_LEASES: on_leases(daemon, effect); break;
    case PD_EFF_TIMED_OUT: on_timed_out(daemon, effect); break;
    case PD_EFF_BUFFER: pd_conn_return_buffer(daemon, effect->u.buffer); break;
    case PD_EFF_FENCED: on_fenced(daemon, effect); break;
    case PD_EFF_JOB_GONE: on_job_gone(daemon, effect); break;
    case PD_EFF_INFO: answer(daemon, effect, pd_reply_info); break;
    case PD_EFF_SET: answer(daemon, effect, pd_reply_set); break;
    case PD_EFF_EXPORT: answer(daemon, effect, pd_reply_export); break;
    case PD_EFF_SHARE: answer(daemon, effect, pd_reply_share); break;
    case PD_EFF_LOG:
        daemon->config.hooks.log(&effect->u.log);
        take_remark(daemon, &effect->u.log);
        break;
    case PD_EFF_DURABLE:
        pd_version_table_note_durable(daemon->versions, effect->job, effect->u.durable.step, effect->u.durable.unbroken,
                                      effect->u.durable.mirrored);
        break;
    case PD_EFF_STATS:
        pd_figures_take(&daemon->figures, effect->job, effect->u.stats);
        effect->u.stats = NULL;
        break;
    case PD_EFF_WORKER_STATE: answer(daemon, effect, pd_reply_worker_state); break;
    case PD_EFF_SETTLED: answer(daemon, effect, pd_reply_settled); break;
    case PD_EFF_CHECKPOINT:
        if (withhold(daemon, effect)) return true;
        answer(daemon, effect, pd_reply_checkpoint);
        break;
    /* these effects are for other threads: preconditioner tasks for the preconditioner pool, checkpoints for the
     * checkpoint writer, records for the WAL thread */
    case PD_EFF_TASK:
    case PD_EFF_WRITE_CHECKPOINT:
    case PD_EFF_GO_BACK:
    case PD_EFF_WAL: break;
    }
    pd_effect_free(effect);
    return true;
}
