/* shutdown.c - stops the daemon: drains the store (rounds under way may finish, then jobs make their last checkpoints),
 * answers the Shutdown requests of operators, and stops the loop. */
#include "shutdown.h"

#include "conn.h"

#include <syslog.h>

enum { DRAIN_GRACE_MS = 2000, FLUSH_MS = 1000 };

static void stop(pd_daemon *daemon)
{
    daemon->platform.stop(daemon->platform.arg);
}

void pd_shutdown_begin(pd_daemon *daemon)
{
    uint64_t within_ms = daemon->config.drain_ms;
    pd_request *request = daemon->drain_request;

    if (daemon->shutdown.begun) return;
    daemon->shutdown.begun = true;
    daemon->shutdown.deadline_ms = pd_loop_now_ms(daemon) + within_ms + daemon->config.keep_ms + DRAIN_GRACE_MS;
    pd_loop_log(daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "stopping: rounds under way may finish within %.1f s",
                (double)within_ms / 1e3);
    if (daemon->config.event != NULL) daemon->config.event(daemon->config.arg, PD_DAEMON_STOPS);
    daemon->platform.end_listening(daemon->platform.arg);
    daemon->drain_request = NULL;
    request->u.drain.deadline_ns = within_ms * 1000000u;
    request->u.drain.keep_ns = daemon->config.keep_ms * (uint64_t)1000000;
    pd_loop_post(daemon, request);
}

static void answer_shutdowns(pd_daemon *daemon, const pd_error *lost)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    for (size_t i = 0; i < daemon->capacity; i++) {
        pd_conn *conn = daemon->conns[i];
        pd_pending *pending;
        while (conn != NULL && conn->operates && pd_conn_live(conn) &&
               (pending = pd_pendings_of_method(&conn->pendings, PD_SHUTDOWN)) != NULL)
            if (lost != NULL)
                pd_conn_fail(conn, pending, lost);
            else
                pd_conn_answer(conn, pending, &ok.base);
    }
}

void pd_shutdown_drained(pd_daemon *daemon, const pd_error *lost)
{
    uint64_t flushed = pd_loop_now_ms(daemon) + FLUSH_MS;

    daemon->shutdown.drained = true;
    if (daemon->shutdown.deadline_ms > flushed) daemon->shutdown.deadline_ms = flushed;
    answer_shutdowns(daemon, lost);
}

static bool all_written(const pd_daemon *daemon)
{
    for (size_t i = 0; i < daemon->capacity; i++)
        if (daemon->conns[i] != NULL && !pd_conn_has_sent(daemon->conns[i])) return false;
    return true;
}

void pd_shutdown_finish(pd_daemon *daemon)
{
    if (daemon->shutdown.drained && all_written(daemon)) stop(daemon);
}

void pd_shutdown_tick(pd_daemon *daemon, uint64_t now_ms)
{
    if (daemon->shutdown.begun && now_ms >= daemon->shutdown.deadline_ms) stop(daemon);
}
