/* reloading.c - reloads the configuration: reads it on another thread, and applies its limits on the loop thread. */
#include "reloading.h"

#include "access.h"

#include <stddef.h>
#include <syslog.h>

static pd_daemon *daemon_of(pd_background *work)
{
    return (pd_daemon *)(void *)((char *)work - offsetof(pd_daemon, reload.work));
}

/* Sends the new limits of jobs and memory to the store. If there is no memory for the message, the store goes on with
 * the old limits. */
static void post(pd_daemon *daemon, const pd_daemon_limits *limits)
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

static void take(pd_daemon *daemon, const pd_daemon_limits *limits)
{
    if (limits->tls != NULL) {
        pd_tls_unref(daemon->config.tls);
        daemon->config.tls = limits->tls;
    }
    daemon->config.handshake_ms = limits->handshake_ms;
    daemon->config.read_ms = limits->read_ms;
    daemon->config.write_ms = limits->write_ms;
    daemon->config.drain_ms = limits->drain_ms;
    daemon->config.keep_ms = limits->keep_ms;
    daemon->config.http_token = limits->http_token;
    daemon->config.settings = limits->settings;
    post(daemon, limits);
    if (limits->roles == NULL || pd_access_take(daemon, limits->roles, limits->store_roles) == PD_OK) return;
    pd_loop_log(daemon, LOG_ERR, (pd_log_facts){ .code = PD_NO_MEMORY },
                "out of memory: the old roles stay, reload again");
}

/* Reads the configuration again, for a reload. Runs on another thread than the loop thread. */
static void run(pd_background *work)
{
    const pd_daemon *daemon = daemon_of(work);

    daemon->config.reload(daemon->config.arg);
}

static void done(pd_background *work)
{
    pd_daemon *daemon = daemon_of(work);
    pd_daemon_limits limits;
    bool again = daemon->reload.again;

    daemon->reload.busy = daemon->reload.again = false;
    if (daemon->shutdown.begun) return;
    if (daemon->config.reloaded(daemon->config.arg, &limits)) take(daemon, &limits);
    if (again) pd_reloading_begin(daemon);
}

void pd_reloading_begin(pd_daemon *daemon)
{
    if (daemon->config.reload == NULL || daemon->shutdown.begun) return;
    /* Before the start another thread reads the configuration, and the first roles are not posted yet. */
    if (daemon->reload.busy || daemon->requests == NULL) {
        daemon->reload.again = true;
        return;
    }
    daemon->reload.work = (pd_background){ .run = run, .done = done };
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
