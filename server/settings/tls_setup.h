/* tls_setup.h - reads the keys of tls:// addresses from the files that the section [tls] of the configuration names.
 * Any thread that may block on the disk. */
#ifndef PD_TLS_SETUP_H
#define PD_TLS_SETUP_H

#include "tls_context.h"

/* Makes the context of the tls:// addresses in `listen`, the setting server.listen, and of the socket named tls that
 * the service manager has opened, if `given` says that there is one. *out is NULL if there is neither. A path may begin
 * with ${CREDENTIALS_DIRECTORY}, the folder that systemd's LoadCredential= fills. Errors are those of pd_tls_server;
 * PD_INVALID_ARGUMENT also: `listen` is no list of addresses, or ${CREDENTIALS_DIRECTORY} is not set. */
int pd_tls_setup(pd_tls_context **out, const char *listen, bool given, const pd_tls_files *files, pd_error *err);

#endif
