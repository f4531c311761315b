/* trusted_files.h - reads the files that a configuration names for roles, for the token of http.token, for the password
 * of cluster.user, and for the certificates, keys and tokens of tls:// addresses. Checks who else may write or read
 * them. The functions may block on the disk, so the loop thread never calls them.
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

#define PD_TOKEN_LEAST 16 /* smallest length of a token, in characters */

/* Reads the first line of a file into *out, which the caller frees. `setting` is the path of the file; `key` names the
 * configuration key that has this path, for errors.
 *
 *   PD_NOT_FOUND          the file cannot be read
 *   PD_PERMISSION_DENIED  users besides its owner and its group may read it, or the group may write it
 *   PD_INVALID_ARGUMENT   ${CREDENTIALS_DIRECTORY} is not set; or the line has fewer than PD_TOKEN_LEAST characters,
 *                         more than 256, or characters other than printable ASCII without blanks; or it consists of so
 *                         few different characters that it can be guessed
 *   PD_NO_MEMORY */
int pd_token_read(char **out, const char *setting, const char *key, pd_error *err);

/* Reads the first line of a file into *out, which the caller frees with pd_secret_free: a password, whose characters
 * are not checked. Errors are those of pd_token_read, but for those of the line. */
int pd_password_read(char **out, const char *setting, const char *key, pd_error *err);

/* Reads a file with certificates or a private key in PEM, of at most 1 MiB, into *out, which the caller frees with
 * pd_secret_free. `setting` and `key` as for pd_token_read. `secret`: the file has a private key. Errors as those of
 * pd_secret_read (token.h). */
int pd_pem_read(char **out, const char *setting, const char *key, bool secret, pd_error *err);

/* Makes the TLS context of the daemon's listeners. Sets *out to NULL if no listener needs one: `listen`, the value of
 * server.listen, contains no tls:// address, and `given` is false. `given`: the service manager has opened a socket
 * named tls. Errors are those of pd_tls_server, and PD_INVALID_ARGUMENT: `listen` is not a list of addresses, or
 * ${CREDENTIALS_DIRECTORY} is not set. */
int pd_tls_setup(pd_tls_context **out, const char *listen, bool given, const pd_tls_files *files, pd_error *err);

#endif
