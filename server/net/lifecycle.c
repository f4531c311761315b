/* lifecycle.c - drains and stops the daemon, and applies the limits of a reloaded configuration. */
#include "lifecycle.h"

#include "access.h"
#include "conn.h"

#include <stddef.h>
#include <syslog.h>

enum { DRAIN_GRACE_MS = 2000, FLUSH_MS = 1000 };

static void stop(pd_daemon *daemon)
{
    daemon->platform.stop(daemon->platform.arg);
}

void pd_shutdown_begin(pd_daemon *daemon)
{
    uint64_t within_ms = daemon->config.times.drain_ms;
    pd_request *request = daemon->mail.drain;

    if (daemon->shutdown.begun) return;
    daemon->shutdown.begun = true;
    daemon->shutdown.deadline_ms = pd_loop_now_ms(daemon) + within_ms + daemon->config.times.keep_ms + DRAIN_GRACE_MS;
    pd_loop_log(daemon, LOG_NOTICE, (pd_log_facts){ 0 }, "stopping: open rounds may finish within %.1f s",
                (double)within_ms / 1e3);
    if (daemon->config.hooks.event != NULL) daemon->config.hooks.event(daemon->config.hooks.arg, PD_DAEMON_STOPS);
    daemon->platform.end_listening(daemon->platform.arg);
    daemon->mail.drain = NULL;
    request->u.drain.deadline_ns = within_ms * 1000000u;
    request->u.drain.keep_ns = daemon->config.times.keep_ms * (uint64_t)1000000;
    pd_loop_post(daemon, request);
}

static void answer_shutdowns(pd_daemon *daemon, const pd_error *lost)
{
    Paramd__Ok ok = PARAMD__OK__INIT;

    for (size_t i = 0; i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
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
    for (size_t i = 0; i < daemon->table.capacity; i++)
        if (daemon->table.at[i] != NULL && !pd_conn_has_sent(daemon->table.at[i])) return false;
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

static pd_daemon *daemon_of(pd_background *work)
{
    return (pd_daemon *)(void *)((char *)work - offsetof(pd_daemon, reload.work));
}

/* Posts the new limits of jobs and memory to the store. Without memory for the message, the store keeps the old
 * limits. */
static void post_limits(pd_daemon *daemon, const pd_daemon_limits *limits)
{
    pd_request *request = pd_request_new(PD_REQ_LIMITS, (pd_ticket){ 0, 0 });

    if (request == NULL) {
        pd_loop_log(daemon, LOG_ERR, (pd_log_facts){ .code = PD_NO_MEMORY },
                    "out of memory: max_jobs and max_total_bytes stay as they are, reload again");
        return;
    }
    request->u.limits.max_jobs = limits->max_jobs;
    request->u.limits.max_total_bytes = limits->max_total_bytes;
    pd_loop_post(daemon, request);
}

static void apply_limits(pd_daemon *daemon, const pd_daemon_limits *limits)
{
    if (limits->tls != NULL) {
        pd_tls_unref(daemon->config.tls);
        daemon->config.tls = limits->tls;
    }
    daemon->config.times = limits->times;
    daemon->config.http_token = limits->http_token;
    daemon->config.settings = limits->settings;
    post_limits(daemon, limits);
    if (limits->roles == NULL || pd_access_take(daemon, limits->roles, limits->store_roles) == PD_OK) return;
    pd_loop_log(daemon, LOG_ERR, (pd_log_facts){ .code = PD_NO_MEMORY },
                "out of memory: the old roles stay in use, reload again");
}

/* Reads the configuration again, for a reload. Runs on another thread than the loop thread. */
static void read_again(pd_background *work)
{
    const pd_daemon *daemon = daemon_of(work);

    daemon->config.hooks.reload(daemon->config.hooks.arg);
}

static void read_done(pd_background *work)
{
    pd_daemon *daemon = daemon_of(work);
    pd_daemon_limits limits;
    bool again = daemon->reload.again;

    daemon->reload.busy = daemon->reload.again = false;
    if (daemon->shutdown.begun) return;
    if (daemon->config.hooks.reloaded(daemon->config.hooks.arg, &limits)) apply_limits(daemon, &limits);
    if (again) pd_reloading_begin(daemon);
}

void pd_reloading_begin(pd_daemon *daemon)
{
    if (daemon->config.hooks.reload == NULL || daemon->shutdown.begun) return;
    /* Before the start, another thread reads the configuration, and the first roles are not posted yet: the reload must
     * wait. */
    if (daemon->reload.busy || daemon->mail.requests == NULL) {
        daemon->reload.again = true;
        return;
    }
    daemon->reload.work = (pd_background){ .run = read_again, .done = read_done };
    daemon->reload.busy = daemon->platform.background(daemon->platform.arg, &daemon->reload.work);
    if (!daemon->reload.busy)
        pd_loop_log(daemon, LOG_ERR, (pd_log_facts){ .code = PD_NO_MEMORY },
                    "the configuration was not reloaded: out of memory, try again");
}

void pd_reloading_start(pd_daemon *daemon)
{
    if (!daemon->reload.again || daemon->reload.busy) return;
    daemon->reload.again = false;
    pd_reloading_begin(daemon);
}
