/* access.h - decides whether a connection may send a request, by the roles of its identity (roles.h). Loop thread.
 *
 * Roles are checked before the request is posted to the store. So the answer about a job for which the identity has no
 * role is the same, and takes the same time, as that about a job that does not exist. A daemon without roles allows
 * everything. */
#ifndef PD_ACCESS_H
#define PD_ACCESS_H

#include "conn.h"

/* The roles that an identity needs to send a request of one method. pd_access_check_peer has checked before that the
 * identity has some role, and that a worker's identity may push to its job. */
typedef struct pd_may {
    pd_role named;  /* role needed for the job that the request names, if it names one */
    size_t job_at;  /* offset, in the request's unpacked message, of the pointer to the job's name; 0: it names no
                     * job */
    bool joins;     /* the request is a Hello, which joins or creates the job that it names */
    pd_role server; /* role needed for the whole server; PD_ROLE_NONE: none is */
} pd_may;

/* Replaces the roles of the daemon by `roles`, and posts `store_roles`, a copy of them, to the step thread. Takes over
 * both. Open connections are checked against the new roles at their next requests. PD_NO_MEMORY: the old roles stay,
 * and `roles` and `store_roles` are freed. */
int pd_access_take(pd_daemon *daemon, pd_roles *roles, pd_roles *store_roles);

/* Checks that the identity of a connection that has said Hello may still be connected: it has some role, and a worker's
 * identity may push to its job. PD_PERMISSION_DENIED: it has lost its role, and the connection should end. */
int pd_access_check_peer(pd_conn *conn, pd_error *err);
/* Checks that the identity of a connection may send a request, whose method needs the roles in `may`. `what` is the
 * word for the request in the error, `message` its unpacked header.
 *
 *   PD_NOT_FOUND          it has no role for the job that the request names
 *   PD_PERMISSION_DENIED  its role is too low, or it may not join or create the job that its Hello names */
int pd_access_check(pd_conn *conn, const char *what, const pd_may *may, const void *message, pd_error *err);
/* Checks that the identity of a connection has at least the role `needed` for `job`. `what` and the errors are those of
 * pd_access_check. */
int pd_access_check_job(pd_conn *conn, const char *what, pd_role needed, const char *job, pd_error *err);
/* Returns whether pd_access_check_job would succeed. Logs nothing. */
bool pd_access_has_job(pd_conn *conn, pd_role needed, const char *job);
/* Checks that the quota of the connection's identity has room for one more open request. `what` is the word for the
 * request in the error. PD_RESOURCE_EXHAUSTED: it has none. */
int pd_access_check_quota(const pd_conn *conn, const char *what, pd_error *err);
/* Returns whether the connection's identity has at least `role` for the whole server. */
bool pd_access_has_server(pd_conn *conn, pd_role role);

#endif
