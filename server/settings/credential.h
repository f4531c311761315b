/* credential.h - paths of secrets that systemd hands to a service (LoadCredential=). */
#ifndef PD_CREDENTIAL_H
#define PD_CREDENTIAL_H

#include <limits.h>

#include "paramd/error.h"

/* Writes a path to `to`. If it begins with ${CREDENTIALS_DIRECTORY}, the folder in this environment variable takes the
 * place of these characters. `setting` names the setting that has the path, for errors. PD_INVALID_ARGUMENT: the
 * variable is not set, or the path is too long. */
int pd_credential_path(char to[PATH_MAX], const char *setting, const char *path, pd_error *err);

#endif
