/* reload.h - reads the configuration again while the daemon runs, and applies the values that may change.
 *
 * A background thread reads the configuration. When it has ended, the loop thread uses the result. So the state of a
 * reload needs no lock. */
#ifndef PD_RELOAD_H
#define PD_RELOAD_H

#include "config.h"
#include "roles.h"

typedef struct pd_reload {
    pd_config *config; /* the configuration that the daemon uses now; used by the loop thread */
    char *const *argv, *const *environment;
    pd_config *fresh;    /* the new configuration; NULL: it could not be read, for the reason in `error` */
    pd_tls_context *tls; /* the new keys of tls:// addresses; NULL: there are none */
    /* the roles, and a copy for the step thread; NULL: there are none, or they could not be read */
    pd_roles *roles, *store_roles;
    char *http_token; /* the token of HTTP requests; NULL: they need none, or it could not be read */
    pd_error error;
} pd_reload;

/* Reads and checks the configuration: the file, the environment, the flags of the command line, the files of [tls], the
 * token of http.token, and the file of roles that the present configuration names. Listeners stay open, so a
 * configuration that drops the credentials of their clients is refused, unless server.insecure is set. May block on
 * files and name servers. */
void pd_reload_read(pd_reload *reload);
/* Returns the keys of tls:// addresses that were read, and gives them to the caller. NULL: there are none, or the new
 * configuration is wrong. Called before pd_reload_take. */
pd_tls_context *pd_reload_take_tls(pd_reload *reload);
/* Puts the token of HTTP requests that was read in the place of *token, which is freed, if the two differ. Returns
 * whether they do. Called before pd_reload_take. */
bool pd_reload_take_token(pd_reload *reload, char **token);
/* Applies the new values of configuration keys that may change while the daemon runs (`reload` in the table of keys),
 * and logs each change. Warns about other keys that differ. If the new configuration is wrong, the old values stay, and
 * the log gives the reason. Returns whether something has changed: a value, or roles were read. The caller then takes
 * `roles` and `store_roles` over. */
bool pd_reload_take(pd_reload *reload);
/* Reads the file of roles that a configuration names, if it names one, and makes a copy of them. Errors are those of
 * pd_roles_file_read. */
int pd_reload_read_roles(const pd_config *config, pd_roles **roles, pd_roles **copy, pd_error *err);
/* Reads the token of HTTP requests from the file that a configuration names, for the caller to free. *token is NULL if
 * it names none. Errors are those of pd_token_read. */
int pd_reload_read_token(const pd_config *config, char **token, pd_error *err);
/* Frees a configuration, keys, roles and a token that were read and not applied. */
void pd_reload_end(pd_reload *reload);

#endif
