/* access.c - decides whether a connection may send a request, by the roles of its identity. */
#include "access.h"

#include <stdio.h>
#include <string.h>

int pd_access_take(pd_daemon *daemon, pd_roles *roles, pd_roles *store_roles)
{
    pd_request *request = pd_request_new(PD_REQ_ROLES, (pd_ticket){ 0, 0 });

    if (request == NULL) {
        pd_roles_free(roles);
        pd_roles_free(store_roles);
        return PD_NO_MEMORY;
    }
    request->u.roles = store_roles;
    pd_loop_post(daemon, request);
    pd_roles_free(daemon->peers.roles);
    daemon->peers.roles = roles;
    daemon->peers.roles_taken++;
    pd_usages_limit(&daemon->peers.usages, roles);
    return PD_OK;
}

/* Looks up the roles of the connection's identity, unless that was done since the roles last changed. */
static void look_up(pd_conn *conn)
{
    const pd_daemon *daemon = conn->daemon;

    if (conn->peer.access.roles_taken == daemon->peers.roles_taken) return;
    conn->peer.access =
        (pd_conn_access){ .roles_taken = daemon->peers.roles_taken,
                          .known = pd_roles_know(daemon->peers.roles, conn->peer.identity.text),
                          .server = pd_roles_of_server(daemon->peers.roles, conn->peer.identity.text, NULL) };
    if (conn->job_name != NULL)
        conn->peer.access.role = pd_roles_of(daemon->peers.roles, conn->peer.identity.text, conn->job_name, NULL);
}

int pd_access_check_peer(pd_conn *conn, pd_error *err)
{
    if (conn->daemon->peers.roles == NULL) return PD_OK;
    look_up(conn);
    if (!conn->peer.access.known)
        return pd_fail(err, PD_PERMISSION_DENIED, "%.200s no longer has a role on this server (server.roles)",
                       conn->peer.identity.text);
    if (conn->job_name != NULL && conn->peer.access.role < PD_ROLE_PUSH)
        return pd_fail(err, PD_PERMISSION_DENIED,
                       "%.100s may no longer be a worker of job %.200s: that needs the role push (server.roles)",
                       conn->peer.identity.text, conn->job_name);
    return PD_OK;
}

bool pd_access_has_server(pd_conn *conn, pd_role role)
{
    look_up(conn);
    return conn->peer.access.server >= role;
}

/* Returns the identity's role for a job, whose name has at most PD_NAME_MAX bytes. Stores the job and the role in the
 * connection, so that many requests about one job search the roles once. */
static pd_role role_of(pd_conn *conn, const char *job)
{
    pd_conn_access *access = &conn->peer.access;

    look_up(conn);
    if (strcmp(access->asked, job) == 0) return access->asked_role;
    snprintf(access->asked, sizeof access->asked, "%s", job);
    return access->asked_role = pd_roles_of(conn->daemon->peers.roles, conn->peer.identity.text, job, NULL);
}

/* Logs that the request `what` about a job ("": about none) was refused, and who sent it. Returns the code of *err. */
static int refuse(const pd_conn *conn, const char *job, const char *what, const pd_error *err)
{
    pd_conn_log_command(conn, job, "%.30s was refused", what);
    return err->code;
}

static int check_hello(pd_conn *conn, pd_role role, const char *job, pd_error *err)
{
    if (strlen(job) > PD_NAME_MAX) return PD_OK; /* too long for a name: pd_run_hello refuses it */
    if (job[0] == '\0' && !pd_roles_know(conn->daemon->peers.roles, conn->peer.identity.text))
        return pd_fail(err, PD_PERMISSION_DENIED, "%.200s has no role on this server (server.roles)",
                       conn->peer.identity.text);
    if (job[0] == '\0' || role_of(conn, job) >= role) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   "%.100s may neither join nor create job %.200s: that needs the role %s (server.roles)",
                   conn->peer.identity.text, job, pd_role_name(role));
}

bool pd_access_has_job(pd_conn *conn, pd_role needed, const char *job)
{
    /* No job has a longer name, and comparing such a name with the patterns of the roles would take long. */
    return conn->daemon->peers.roles == NULL || (strlen(job) <= PD_NAME_MAX && role_of(conn, job) >= needed);
}

int pd_access_check_job(pd_conn *conn, const char *what, pd_role needed, const char *job, pd_error *err)
{
    pd_role role;

    if (conn->daemon->peers.roles == NULL) return PD_OK;
    /* No job has a longer name, and comparing such a name with the patterns of the roles would take long. */
    role = strlen(job) <= PD_NAME_MAX ? role_of(conn, job) : PD_ROLE_NONE;
    if (role >= needed) return PD_OK;
    if (role == PD_ROLE_NONE)
        pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", job); /* the same text as the store has for an unknown
                                                                    * job */
    else
        pd_fail(err, PD_PERMISSION_DENIED, "%s of job %.100s needs the role %s, %.100s has %s (server.roles)", what,
                job, pd_role_name(needed), conn->peer.identity.text, pd_role_name(role));
    return refuse(conn, job, what, err);
}

static int check_server(pd_conn *conn, const char *what, pd_role needed, pd_error *err)
{
    if (pd_access_has_server(conn, needed)) return PD_OK;
    pd_fail(err, PD_PERMISSION_DENIED,
            "%s needs the role %s of all jobs (*), which %.100s does not have (server.roles)", what,
            pd_role_name(needed), conn->peer.identity.text);
    return refuse(conn, "", what, err);
}

int pd_access_check(pd_conn *conn, const char *what, const pd_may *may, const void *message, pd_error *err)
{
    const char *job = "";

    if (conn->daemon->peers.roles == NULL) return PD_OK;
    if (may->job_at > 0) memcpy(&job, (const char *)message + may->job_at, sizeof job);
    if (may->joins) return check_hello(conn, may->named, job, err);
    if (may->server > PD_ROLE_NONE) return check_server(conn, what, may->server, err);
    return job[0] != '\0' ? pd_access_check_job(conn, what, may->named, job, err) : PD_OK;
}

int pd_access_check_quota(const pd_conn *conn, const char *what, pd_error *err)
{
    const pd_usage *usage = conn->peer.usage;

    if (usage->requests < usage->quota.requests) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "%s: %zu requests of %.100s are under way on its connections, %llu are allowed (requests= of its "
                   "quota in server.roles): wait for answers",
                   what, usage->requests, usage->identity, (unsigned long long)usage->quota.requests);
}
