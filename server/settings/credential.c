/* credential.c - finds the folder of the secrets that systemd hands to a service. */
#include "credential.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "CREDENTIALS_DIRECTORY"

int pd_credential_path(char to[PATH_MAX], const char *setting, const char *path, pd_error *err)
{
    const char *folder = getenv(VARIABLE);
    size_t n = strlen("${" VARIABLE "}");
    int length;

    if (strncmp(path, "${" VARIABLE "}", n) != 0) {
        folder = "";
        n = 0;
    } else if (folder == NULL) {
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s = %s: " VARIABLE " is not set; systemd sets it for a unit with LoadCredential=", setting,
                       path);
    }
    length = snprintf(to, PATH_MAX, "%s%s", folder, path + n);
    if (length >= 0 && length < PATH_MAX) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: the path is longer than %d bytes", setting, PATH_MAX - 1);
}
