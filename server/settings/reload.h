/* reload.h - reads the configuration again while the daemon runs, and applies the values that may change.
 *
 * A background thread calls pd_reload_read. When that thread has ended, the loop thread calls the other functions. So
 * pd_reload needs no lock. */
#ifndef PD_RELOAD_H
#define PD_RELOAD_H

#include "config.h"
#include "roles.h"

/* A reload: what pd_reload_read needs, and what it has read. */
typedef struct pd_reload {
    pd_config *config; /* the configuration that the daemon uses now; used by the loop thread */
    char *const *argv, *const *environment;
    pd_config *fresh;    /* the new configuration; NULL: it could not be read, for the reason in `error` */
    pd_tls_context *tls; /* new certificates, keys and tokens of tls:// addresses; NULL: there are no such addresses */
    /* the new roles, and a copy of them for the step thread; NULL: no file of roles is configured, or it could not be
     * read */
    pd_roles *roles, *store_roles;
    char *http_token; /* the new token of HTTP requests; NULL: requests need none, or it could not be read */
    pd_error error;   /* why the new configuration could not be read; undefined if `fresh` is not NULL */
} pd_reload;

/* Reads and checks the new configuration: the file, the environment, the flags of the command line, the files of [tls],
 * the token of http.token, and the file of roles that the present configuration names. Stores the result, or an error,
 * in *reload. Listeners stay open, so a configuration whose clients would no longer need credentials is refused, unless
 * server.insecure is set. May block on files and name servers. */
void pd_reload_read(pd_reload *reload);
/* Returns the new certificates, keys and tokens of tls:// addresses, which the caller then owns. NULL: there are no
 * such addresses, or the new configuration is wrong. Called before pd_reload_take. */
pd_tls_context *pd_reload_take_tls(pd_reload *reload);
/* Compares the new token of HTTP requests with *token. If they differ, frees *token, replaces it by the new token, and
 * returns true. Called before pd_reload_take. */
bool pd_reload_take_token(pd_reload *reload, char **token);
/* Applies the new values of configuration keys that may change while the daemon runs (pd_key.reload), and logs each
 * change. Warns about other keys that differ. If the new configuration is wrong, the old values stay, and the log gives
 * the reason. Returns true if a value has changed or roles were read; then the caller takes over `roles` and
 * `store_roles`. */
bool pd_reload_take(pd_reload *reload);
/* Reads the file of roles that a configuration names into *roles and *copy. Both become NULL if it names none. Errors
 * are those of pd_roles_file_read. */
int pd_reload_read_roles(const pd_config *config, pd_roles **roles, pd_roles **copy, pd_error *err);
/* Reads the token of HTTP requests from the file that a configuration names into *token, which the caller frees. *token
 * becomes NULL if it names none. Errors are those of pd_token_read. */
int pd_reload_read_token(const pd_config *config, char **token, pd_error *err);
/* Frees what pd_reload_read has read and nobody has taken: the configuration, the tls context, the roles and the
 * token. */
void pd_reload_end(pd_reload *reload);

#endif
