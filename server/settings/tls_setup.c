/* tls_setup.c - reads the keys of tls:// addresses from the files that the configuration names. */
#include "tls_setup.h"

#include <stdlib.h>

#include "address.h"
#include "credential.h"

static int read_files(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    char certificate[PATH_MAX], key[PATH_MAX], ca[PATH_MAX], tokens[PATH_MAX], crl[PATH_MAX];
    const pd_tls_files all = { certificate, key, ca, tokens, crl };
    int rc = pd_credential_path(certificate, "tls.certificate", files->certificate, err);

    if (rc == PD_OK) rc = pd_credential_path(key, "tls.key", files->key, err);
    if (rc == PD_OK) rc = pd_credential_path(ca, "tls.client_ca", files->ca, err);
    if (rc == PD_OK) rc = pd_credential_path(tokens, "tls.tokens", files->tokens, err);
    if (rc == PD_OK) rc = pd_credential_path(crl, "tls.crl", files->crl, err);
    return rc == PD_OK ? pd_tls_server(out, &all, err) : rc;
}

/* Finds out whether a list of addresses has one with tls://. */
static int has_secure(bool *secure, const char *listen, pd_error *err)
{
    pd_address *addresses;
    size_t n;
    int rc;

    *secure = false;
    if (listen[0] == '\0') return PD_OK;
    if ((rc = pd_addresses_parse(&addresses, &n, listen, PD_TO_LISTEN, err)) != PD_OK) return rc;
    for (size_t i = 0; i < n; i++) *secure |= addresses[i].secure;
    free(addresses);
    return PD_OK;
}

int pd_tls_setup(pd_tls_context **out, const char *listen, bool given, const pd_tls_files *files, pd_error *err)
{
    bool secure;
    int rc = has_secure(&secure, listen, err);

    *out = NULL;
    if (rc != PD_OK || (!secure && !given)) return rc;
    if (given && files->certificate[0] == '\0' && files->key[0] == '\0' && files->tokens[0] == '\0')
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the service manager has passed a socket named tls (LISTEN_FDNAMES), which needs tls.tokens, or "
                       "tls.certificate and tls.key: set them, or remove FileDescriptorName=tls");
    return read_files(out, files, err);
}
