/* tls_setup.c - reads the keys of tls:// addresses from the files that the configuration names. */
#include "tls_setup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"

#define VARIABLE "CREDENTIALS_DIRECTORY"

/* Writes the path of a file to `to`, with the folder of credentials in place of its variable. */
static int expand(char to[PATH_MAX], const char *setting, const char *path, pd_error *err)
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

static int read_files(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    char certificate[PATH_MAX], key[PATH_MAX], ca[PATH_MAX], tokens[PATH_MAX];
    const pd_tls_files all = { certificate, key, ca, tokens };
    int rc = expand(certificate, "tls.certificate", files->certificate, err);

    if (rc == PD_OK) rc = expand(key, "tls.key", files->key, err);
    if (rc == PD_OK) rc = expand(ca, "tls.client_ca", files->ca, err);
    if (rc == PD_OK) rc = expand(tokens, "tls.tokens", files->tokens, err);
    return rc == PD_OK ? pd_tls_server(out, &all, err) : rc;
}

int pd_tls_setup(pd_tls_context **out, const char *listen, const pd_tls_files *files, pd_error *err)
{
    pd_address *addresses;
    bool secure = false;
    size_t n;
    int rc;

    *out = NULL;
    if (listen[0] == '\0') return PD_OK;
    if ((rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, err)) != PD_OK) return rc;
    for (size_t i = 0; i < n; i++) secure |= addresses[i].secure;
    free(addresses);
    return secure ? read_files(out, files, err) : PD_OK;
}
