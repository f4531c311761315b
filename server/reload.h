/* reload.h - reads the configuration again while the daemon runs, and applies the values that may change.
 *
 * A background thread reads the configuration. When it has ended, the loop thread uses the result. So the state of a
 * reload needs no lock. */
#ifndef PD_RELOAD_H
#define PD_RELOAD_H

#include "config.h"

typedef struct pd_reload {
    pd_config *config; /* the configuration that the daemon uses now; used by the loop thread */
    char *const *argv, *const *environment;
    pd_config *fresh;    /* the new configuration; NULL: it could not be read, and `error` says why */
    pd_tls_context *tls; /* the new keys of tls:// addresses; NULL: there are none */
    pd_error error;
} pd_reload;

/* Reads and checks the configuration: the file, the environment, the flags of the command line, and the files of
 * [tls]. May block on
 * files and name servers. */
void pd_reload_read(pd_reload *reload);
/* Returns the keys of tls:// addresses that were read, and gives them to the caller. NULL: there are none, or the new
 * configuration is wrong. Called before pd_reload_take. */
pd_tls_context *pd_reload_take_tls(pd_reload *reload);
/* Applies the new values of configuration keys that may change while the daemon runs (`reload` in the table of keys),
 * and logs each change. Warns about other keys that differ. If the new configuration is wrong, the old values stay, and
 * the log gives the reason. Returns whether a value has changed. */
bool pd_reload_take(pd_reload *reload);
/* Frees a configuration, and keys, that were read and not applied. */
void pd_reload_end(pd_reload *reload);

#endif
