/* tls_why.c - says in plain words why TLS has failed. */
#include "tls_why.h"

#include <errno.h>
#include <string.h>

/* A reason of OpenSSL, and what it means here. An alert is what the peer has said of its reason. */
typedef struct reason {
    int number, code;
    const char *text;
} reason;

#define ALERT(number) (SSL_AD_REASON_OFFSET + (number))

static const reason reasons[] = {
    { ALERT(SSL_AD_CLOSE_NOTIFY), PD_UNAVAILABLE, "the peer closed the connection" },
    { ALERT(SSL_AD_HANDSHAKE_FAILURE), PD_UNAUTHENTICATED,
      "the peer refused the handshake: it knows its clients by tokens (PARAMD_TOKEN_FILE)" },
    { ALERT(SSL_AD_DECRYPT_ERROR), PD_UNAUTHENTICATED,
      "the peer refused the token: it is not one of those that it knows, or the key differs" },
    { ALERT(SSL_AD_ILLEGAL_PARAMETER), PD_UNAUTHENTICATED,
      "the peer refused the token: it is not one of those that it knows, or the key differs" },
    { ALERT(SSL_AD_BAD_CERTIFICATE), PD_UNAUTHENTICATED, "the peer refused our certificate" },
    { ALERT(SSL_AD_CERTIFICATE_EXPIRED), PD_UNAUTHENTICATED,
      "the peer refused our certificate: it has expired, or the peer's list of revoked certificates (tls.crl) has" },
    { ALERT(SSL_AD_CERTIFICATE_REVOKED), PD_UNAUTHENTICATED,
      "the peer refused our certificate: its authority has revoked it" },
    { ALERT(SSL_AD_CERTIFICATE_UNKNOWN), PD_UNAUTHENTICATED, "the peer refused our certificate" },
    { ALERT(SSL_AD_UNKNOWN_CA), PD_UNAUTHENTICATED,
      "the peer refused our certificate: it does not know the authority that signed it, or has no list (tls.crl) of "
      "the certificates that the authority has revoked" },
    { ALERT(SSL_AD_CERTIFICATE_REQUIRED), PD_UNAUTHENTICATED,
      "the server wants to know its clients: set PARAMD_TOKEN_FILE, or PARAMD_CERT_FILE and PARAMD_KEY_FILE" },
    { ALERT(SSL_AD_PROTOCOL_VERSION), PD_UNAVAILABLE, "the peer does not speak TLS 1.3" },
    { SSL_R_UNSUPPORTED_PROTOCOL, PD_UNAVAILABLE, "the peer does not speak TLS 1.3" },
    { SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, PD_UNAUTHENTICATED,
      "the client has no token: it must set PARAMD_TOKEN_FILE" },
    { SSL_R_NO_SHARED_CIPHER, PD_UNAUTHENTICATED, "the client has no token: it must set PARAMD_TOKEN_FILE" },
    { SSL_R_BINDER_DOES_NOT_VERIFY, PD_UNAUTHENTICATED,
      "the client's token is not one of those in tls.tokens, or its key differs" },
    { SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, PD_UNAUTHENTICATED, "the client has neither token nor certificate" },
    { SSL_R_WRONG_VERSION_NUMBER, PD_UNAVAILABLE, "the peer does not speak TLS: is its address a tcp:// one?" },
};

static const reason *find(int number)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].number == number) return &reasons[i];
    return NULL;
}

/* Says why a certificate is not trusted, and what to do if only its name is wrong. */
static int distrust(const pd_tls_library *library, long verified, pd_error *err)
{
    bool name = verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH;

    return pd_fail(err, PD_UNAUTHENTICATED, "the peer's certificate is not trusted: %s%s",
                   library->X509_verify_cert_error_string(verified),
                   !name
                       ? ""
                       : ": its subjectAltName must have the host of the address, as DNS:NAME or IP:ADDRESS (a common "
                         "name does not count). Issue such a certificate, or use an address that it has");
}

/* Explains an error of the protocol or of credentials. */
static int explain(const pd_tls_library *library, const SSL *ssl, pd_error *err)
{
    unsigned long why = library->ERR_peek_error();
    const reason *known = ERR_GET_LIB(why) == ERR_LIB_SSL ? find(ERR_GET_REASON(why)) : NULL;
    long verified = library->SSL_get_verify_result(ssl);
    const char *text = why != 0 ? library->ERR_reason_error_string(why) : NULL;

    if (verified != X509_V_OK && ERR_GET_REASON(why) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return distrust(library, verified, err);
    if (known != NULL) return pd_fail(err, known->code, "%s", known->text);
    return pd_fail(err, PD_UNAVAILABLE, "TLS failed: %s", text != NULL ? text : "unknown reason");
}

int pd_tls_why(const pd_tls_library *library, const SSL *ssl, int rc, pd_error *err)
{
    int error = errno;

    switch (library->SSL_get_error(ssl, rc)) {
    case SSL_ERROR_ZERO_RETURN: break;
    case SSL_ERROR_SYSCALL:
        if (error != 0) return pd_fail(err, PD_UNAVAILABLE, "%s", error == ENOMEM ? "out of memory" : strerror(error));
        break;
    default: return explain(library, ssl, err);
    }
    return pd_fail(err, PD_UNAVAILABLE, "the peer closed the connection");
}
