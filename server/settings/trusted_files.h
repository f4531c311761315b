/* trusted_files.h - reads the files that a configuration names and that the daemon must be able to trust: roles, the
 * token of http.token, and the keys of tls:// addresses. All of it may block on the disk, so the loop thread never
 * calls it.
 *
 * A path of a secret may begin with ${CREDENTIALS_DIRECTORY}, the folder that systemd's LoadCredential= fills. */
#ifndef PD_TRUSTED_FILES_H
#define PD_TRUSTED_FILES_H

#include "paramd/error.h"
#include "roles.h"
#include "tls_context.h"

/* Reads roles from a file. Errors name the file, and a wrong line by its number:
 *
 *   PD_NOT_FOUND          the file cannot be read
 *   PD_PERMISSION_DENIED  others than its owner may write to it, or it is not a file; the error says what to do
 *
 * and those of pd_roles_parse. */
int pd_roles_file_read(pd_roles **out, const char *path, pd_error *err);

#define PD_TOKEN_LEAST 16 /* fewest characters of a token */

/* Reads the first line of a file into *out, which the caller frees. `key` names the setting that has the path, for
 * errors.
 *
 *   PD_NOT_FOUND          the file cannot be read
 *   PD_PERMISSION_DENIED  users besides its owner and its group may read it, or the group may write it
 *   PD_INVALID_ARGUMENT   ${CREDENTIALS_DIRECTORY} is not set; or the line has fewer than PD_TOKEN_LEAST characters,
 *                         more than 256, or others than printable ASCII without blanks, or it repeats so few that it
 *                         can be guessed
 *   PD_NO_MEMORY */
int pd_token_read(char **out, const char *setting, const char *key, pd_error *err);

/* Makes the context of the tls:// addresses in `listen`, the setting server.listen, and of the socket named tls that
 * the service manager has opened, if `given` says that there is one. *out is NULL if there is neither. Errors are those
 * of pd_tls_server; PD_INVALID_ARGUMENT also: `listen` is not a list of addresses, or ${CREDENTIALS_DIRECTORY} is not
 * set. */
int pd_tls_setup(pd_tls_context **out, const char *listen, bool given, const pd_tls_files *files, pd_error *err);

#endif
