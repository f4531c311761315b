/* tls_setup.c - reads the keys of tls:// addresses from the files that the configuration names. */
#include "tls_setup.h"

#include <stdlib.h>

#include "address.h"
#include "credential.h"

static int read_files(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    char certificate[PATH_MAX], key[PATH_MAX], ca[PATH_MAX], tokens[PATH_MAX];
    const pd_tls_files all = { certificate, key, ca, tokens };
    int rc = pd_credential_path(certificate, "tls.certificate", files->certificate, err);

    if (rc == PD_OK) rc = pd_credential_path(key, "tls.key", files->key, err);
    if (rc == PD_OK) rc = pd_credential_path(ca, "tls.client_ca", files->ca, err);
    if (rc == PD_OK) rc = pd_credential_path(tokens, "tls.tokens", files->tokens, err);
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
