/* roles.h - who may do what: the roles that identities have for jobs, and the quotas of identities. Pure functions.
 *
 * Roles are a text, the file of the key server.roles. Each line is one of:
 *
 *     IDENTITY-GLOB ROLE JOB-GLOB                     # the first line that matches both decides
 *     quota IDENTITY-GLOB jobs=4 bytes=10G ingest=1G connections=64 requests=1000
 *
 * An identity is what a connection proves of its peer: "user:1000", "token:alice", "certificate:w3.example.org" or
 * "anyone" (transport.h). A glob has at most PD_GLOB_MAX bytes, and a blank within it is written as ?. A comment
 * begins with #. Each role includes those before it:
 *
 *     none    the identity has nothing to do with the job, and is not told whether it exists
 *     read    looks at the job, and exports its weights
 *     push    is a worker of the job, and creates it
 *     admin   changes and ends the job
 *
 * A pair that no line matches has the role none. What concerns the whole server (such as Shutdown) is decided by the
 * first line that matches the identity and whose JOB-GLOB is *. The first quota line that matches an identity holds for
 * it; each identity has its quota for itself.
 *
 * The loop thread and the step thread each have a copy, which nobody changes. If `roles` is NULL, the server has none:
 * everybody is admin of everything and has no quota. */
#ifndef PD_ROLES_H
#define PD_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

#define PD_ROLES_LINES 4096       /* most lines with roles and quotas */
#define PD_ROLES_BYTES (1u << 20) /* most bytes of the text */
#define PD_UNLIMITED UINT64_MAX   /* value of a quota that is not given */

typedef enum pd_role { PD_ROLE_NONE, PD_ROLE_READ, PD_ROLE_PUSH, PD_ROLE_ADMIN } pd_role;

/* The quota of an identity: how much it may have at the same time. */
typedef struct pd_allowance {
    uint64_t jobs;        /* jobs that it has created */
    uint64_t bytes;       /* bytes of these jobs, counted as for limits.max_total_bytes */
    uint64_t ingest;      /* bytes of the ingest budget that these jobs reserve (budget.h) */
    uint64_t connections; /* open connections */
    uint64_t requests;    /* requests without an answer, on all of its connections */
} pd_allowance;

typedef struct pd_roles pd_roles;

/* Reads roles from a text of n bytes. `name` is the text's name in errors, which also name the line.
 * PD_INVALID_ARGUMENT: the text is wrong; PD_RESOURCE_EXHAUSTED: it has too many lines or bytes; PD_NO_MEMORY. */
int pd_roles_parse(pd_roles **out, const char *text, size_t n, const char *name, pd_error *err);
/* Returns a copy of roles. NULL: out of memory. */
pd_roles *pd_roles_copy(const pd_roles *from);
/* Drops the owner's reference. The roles are freed together with their last view. Accepts NULL. */
void pd_roles_free(pd_roles *roles);

/* Returns the role of an identity for a job. Stores the number of the line that decides in *line, unless `line` is
 * NULL; 0: no line matches. */
pd_role pd_roles_of(const pd_roles *roles, const char *identity, const char *job, unsigned *line);
/* Returns the role of an identity for what concerns the whole server. Stores the number of the line as pd_roles_of
 * does. */
pd_role pd_roles_of_server(const pd_roles *roles, const char *identity, unsigned *line);
/* Returns whether there are jobs for which an identity has another role than none. */
bool pd_roles_know(const pd_roles *roles, const char *identity);
/* Returns the quota of an identity. Stores the number of the line that sets it in *line, as pd_roles_of does. */
pd_allowance pd_roles_allowance(const pd_roles *roles, const char *identity, unsigned *line);
const char *pd_role_name(pd_role role);

/* The lines that match one identity: they decide which jobs the identity may see. */
typedef struct pd_roles_view pd_roles_view;

/* Makes the view of an identity, which has a reference to the roles. If `roles` is NULL stores NULL in *out, which is a
 * view of all jobs. Adds the estimated time that this takes, in ns of one core, to *cost_ns. PD_NO_MEMORY. */
int pd_roles_view_new(pd_roles_view **out, pd_roles *roles, const char *identity, double *cost_ns);
void pd_roles_view_free(pd_roles_view *view); /* accepts NULL */
/* Returns whether the view's identity may know that a job exists. Adds to *cost_ns as pd_roles_view_new does. */
bool pd_roles_view_has(const pd_roles_view *view, const char *job, double *cost_ns);

#endif
