/* tls_stream.c - does the handshake of TLS 1.3 on a non-blocking socket, sends and receives encrypted bytes, and
 * explains the errors of OpenSSL. */
#include "tls_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tls_inside.h"
#include "transport.h"

/* A row of the table that translates OpenSSL's reasons for an error: the reason's number, our error code, and our text.
 * By an alert the peer tells its own reason; ALERT() has the number of that reason here. */
typedef struct reason {
    int number, code;
    const char *text;
} reason;

#define ALERT(number) (SSL_AD_REASON_OFFSET + (number))

static const reason reasons[] = {
    { ALERT(SSL_AD_CLOSE_NOTIFY), PD_UNAVAILABLE, "the peer closed the connection" },
    { ALERT(SSL_AD_HANDSHAKE_FAILURE), PD_UNAUTHENTICATED,
      "the peer refused the handshake: it expects a token (PARAMD_TOKEN_FILE)" },
    { ALERT(SSL_AD_DECRYPT_ERROR), PD_UNAUTHENTICATED, "the peer refused the token: unknown token, or another key" },
    { ALERT(SSL_AD_ILLEGAL_PARAMETER), PD_UNAUTHENTICATED,
      "the peer refused the token: unknown token, or another key" },
    { ALERT(SSL_AD_BAD_CERTIFICATE), PD_UNAUTHENTICATED, "the peer refused our certificate" },
    { ALERT(SSL_AD_CERTIFICATE_EXPIRED), PD_UNAUTHENTICATED,
      "the peer refused our certificate: it has expired, or the peer's list of revoked certificates (tls.crl) has "
      "expired" },
    { ALERT(SSL_AD_CERTIFICATE_REVOKED), PD_UNAUTHENTICATED,
      "the peer refused our certificate: its authority has revoked it" },
    { ALERT(SSL_AD_CERTIFICATE_UNKNOWN), PD_UNAUTHENTICATED, "the peer refused our certificate" },
    { ALERT(SSL_AD_UNKNOWN_CA), PD_UNAUTHENTICATED,
      "the peer refused our certificate: unknown authority, or no list of revoked certificates of that authority "
      "(tls.crl)" },
    { ALERT(SSL_AD_CERTIFICATE_REQUIRED), PD_UNAUTHENTICATED,
      "the server requires authentication: set PARAMD_TOKEN_FILE, or PARAMD_CERT_FILE and PARAMD_KEY_FILE" },
    { ALERT(SSL_AD_PROTOCOL_VERSION), PD_UNAVAILABLE, "the peer does not support TLS 1.3" },
    { SSL_R_UNSUPPORTED_PROTOCOL, PD_UNAVAILABLE, "the peer does not support TLS 1.3" },
    { SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, PD_UNAUTHENTICATED,
      "the client has no token: it must set PARAMD_TOKEN_FILE" },
    { SSL_R_NO_SHARED_CIPHER, PD_UNAUTHENTICATED, "the client has no token: it must set PARAMD_TOKEN_FILE" },
    { SSL_R_BINDER_DOES_NOT_VERIFY, PD_UNAUTHENTICATED, "the client's token is not in tls.tokens, or its key differs" },
    { SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, PD_UNAUTHENTICATED, "the client has neither token nor certificate" },
    { SSL_R_WRONG_VERSION_NUMBER, PD_UNAVAILABLE, "the peer does not use TLS: should the address be tcp://?" },
};

static const reason *find(int number)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].number == number) return &reasons[i];
    return NULL;
}

/* Fills *err with why a certificate is not trusted, and with what to do if only its name is wrong. Returns
 * PD_UNAUTHENTICATED. */
static int distrust(const pd_tls_library *library, long verified, pd_error *err)
{
    bool name = verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH;

    return pd_fail(
        err, PD_UNAUTHENTICATED, "the peer's certificate is not trusted: %s%s",
        library->X509_verify_cert_error_string(verified),
        !name ? ""
              : ": its subjectAltName must contain the host of the address, as DNS:NAME or IP:ADDRESS (a common "
                "name does not count). Issue such a certificate, or use an address that it contains");
}

/* Fills *err with the meaning of OpenSSL's last error, and returns its code, if the error is about the protocol or
 * credentials. */
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

/* Fills *err with why a call of OpenSSL failed with the result `rc`. Must be called right after that call. Returns the
 * code. PD_UNAUTHENTICATED: one side does not trust the other. PD_UNAVAILABLE: anything else. */
static int why_failed(const pd_tls_library *library, const SSL *ssl, int rc, pd_error *err)
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

enum {
    RECORD = 16 * 1024, /* most bytes of data in one TLS record */
    MOST_READS = 256    /* most calls of SSL_read for one receive, as a peer may send records of a single byte */
};

struct pd_tls_stream {
    pd_tls_context *context;
    SSL *ssl;          /* NULL until the first step of the handshake makes it, which takes time and tens of KiB */
    char *host;        /* the name that the server's certificate must have; NULL: this side is the server */
    pd_tls_wire *wire; /* NULL: the handshake is not complete */
    int fd;
    pd_tls_seen seen;
    bool shutting, said, shut; /* shutting: our side must end once no bytes wait; said: the peer was told so; shut: the
                                * socket is shut for writing */
    uint8_t *owed;             /* `owes` bytes that OpenSSL could not write yet, and must be given again; NULL: none */
    size_t owes;
    bool answers;     /* the peer has asked for a new key, and OpenSSL must send its answer before it receives */
    uint64_t records; /* number of TLS records that were sent with the present key */
    pd_error broken;  /* why the connection is broken; code PD_OK: it is not */
};

/* Tells OpenSSL which host name or IP address the server's certificate must have in its subjectAltName; the subject's
 * common name does not count. Does nothing for a client with a token, which needs no certificate. Returns false after
 * an error. */
static bool expect_host(const pd_tls_stream *stream, const char *host)
{
    const pd_tls_library *lib = &stream->context->library;
    uint8_t number[16];

    if (stream->context->tokens.n > 0) return true;
    if (inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1)
        return lib->X509_VERIFY_PARAM_set1_ip_asc(lib->SSL_get0_param(stream->ssl), host) == 1;
    lib->SSL_set_hostflags(stream->ssl, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return lib->SSL_set1_host(stream->ssl, host) == 1 &&
           lib->SSL_ctrl(stream->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, (void *)host) == 1;
}

static bool set_up(pd_tls_stream *stream)
{
    const pd_tls_library *lib = &stream->context->library;

    if ((stream->ssl = lib->SSL_new(stream->context->ssl)) == NULL) return false;
    if (lib->SSL_set_fd(stream->ssl, stream->fd) != 1) return false;
    if (stream->context->serves) {
        lib->SSL_set_accept_state(stream->ssl);
        return true;
    }
    lib->SSL_set_connect_state(stream->ssl);
    return expect_host(stream, stream->host);
}

int pd_tls_stream_new(pd_tls_stream **out, pd_tls_context *context, int fd, const char *host, pd_error *err)
{
    pd_tls_stream *stream = calloc(1, sizeof *stream);

    if (stream == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (host != NULL && (stream->host = strdup(host)) == NULL) {
        free(stream);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    stream->context = pd_tls_ref(context);
    stream->seen.context = context;
    stream->fd = fd;
    *out = stream;
    return PD_OK;
}

void pd_tls_stream_free(pd_tls_stream *stream)
{
    if (stream == NULL) return;
    if (stream->ssl != NULL) stream->context->library.SSL_free(stream->ssl);
    pd_tls_wire_free(stream->wire);
    pd_tls_unref(stream->context);
    free(stream->host);
    free(stream->owed);
    free(stream);
}

/* Ends the handshake. Checks what OpenSSL does not check: that the server knows our token, and that a client has an
 * identity. Then makes the wire. */
static pd_tls_step finish(pd_tls_stream *stream, pd_error *err)
{
    const pd_tls_context *context = stream->context;
    pd_identity identity;

    if (!context->serves && context->tokens.n > 0 && context->library.SSL_session_reused(stream->ssl) != 1) {
        pd_fail(err, PD_UNAUTHENTICATED,
                "the server accepts no tokens, but PARAMD_TOKEN_FILE is set: "
                "use PARAMD_CA_FILE, or give the server tls.tokens");
        return PD_TLS_FAILED;
    }
    pd_tls_identify(stream, &identity);
    if (context->serves && context->wants_identity && identity.kind == PD_IDENTITY_NONE) {
        pd_fail(err, PD_UNAUTHENTICATED,
                "the client's certificate has no name: expected a subjectAltName of type DNS, "
                "URI or email");
        return PD_TLS_FAILED;
    }
    if (pd_tls_wire_new(&stream->wire, stream->context, stream->ssl, stream->fd, err) != PD_OK) return PD_TLS_FAILED;
    return PD_TLS_DONE;
}

pd_tls_step pd_tls_handshake(pd_tls_stream *stream, pd_error *err)
{
    const pd_tls_library *lib = &stream->context->library;
    int rc;

    if (stream->ssl == NULL && !set_up(stream)) {
        pd_fail(err, PD_NO_MEMORY, "out of memory");
        return PD_TLS_FAILED;
    }
    lib->ERR_clear_error();
    errno = 0;
    if ((rc = pd_tls_do_handshake(&stream->seen, stream->ssl)) == 1) return finish(stream, err);
    switch (lib->SSL_get_error(stream->ssl, rc)) {
    case SSL_ERROR_WANT_READ: return PD_TLS_READ;
    case SSL_ERROR_WANT_WRITE: return PD_TLS_WRITE;
    default: why_failed(lib, stream->ssl, rc, err); return PD_TLS_FAILED;
    }
}

/* Copies the first name of a type (such as GEN_DNS) in the certificate's subjectAltName. Returns false if there is
 * none, or it does not fit. */
static bool copy_name(const pd_tls_library *lib, const void *names, int type, char *to, size_t size)
{
    for (int i = 0; i < lib->OPENSSL_sk_num(names); i++) {
        const GENERAL_NAME *name = lib->OPENSSL_sk_value(names, i);
        size_t n;
        if (name->type != type) continue;
        n = (size_t)lib->ASN1_STRING_length(name->d.ia5);
        if (n >= size || memchr(lib->ASN1_STRING_get0_data(name->d.ia5), '\0', n) != NULL) return false;
        memcpy(to, lib->ASN1_STRING_get0_data(name->d.ia5), n);
        to[n] = '\0';
        return true;
    }
    return false;
}

static void identify_certificate(const pd_tls_library *lib, const X509 *certificate, pd_identity *identity)
{
    GENERAL_NAMES *names = lib->X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    char text[sizeof identity->text] = "";

    if (names == NULL) return;
    if (copy_name(lib, names, GEN_DNS, text, sizeof text) || copy_name(lib, names, GEN_URI, text, sizeof text) ||
        copy_name(lib, names, GEN_EMAIL, text, sizeof text))
        pd_identity_set(identity, PD_IDENTITY_CERTIFICATE, text);
    lib->GENERAL_NAMES_free(names);
}

void pd_tls_identify(const pd_tls_stream *stream, pd_identity *identity)
{
    const pd_tls_library *lib = &stream->context->library;
    char id[PD_TOKEN_NAME];
    const X509 *certificate;

    pd_identity_set(identity, PD_IDENTITY_NONE, "");
    if (stream->seen.token != NULL && lib->SSL_session_reused(stream->ssl) == 1) {
        pd_token_id(stream->seen.token, id);
        pd_identity_set(identity, PD_IDENTITY_TOKEN, id);
    } else if (lib->SSL_get_verify_result(stream->ssl) == X509_V_OK &&
               (certificate = lib->SSL_get0_peer_certificate(stream->ssl)) != NULL) {
        identify_certificate(lib, certificate, identity);
    }
}

/* Stores in stream->broken why the connection is broken, because OpenSSL tells it only once. Sends the alert that tells
 * the peer the reason, if the socket takes it now. Returns PD_UNAVAILABLE. */
static int break_off(pd_tls_stream *stream, int rc)
{
    why_failed(&stream->context->library, stream->ssl, rc, &stream->broken);
    pd_tls_wire_flush(stream->wire);
    return stream->broken.code = PD_UNAVAILABLE;
}

/* Reads up to `size` bytes, at most those of one TLS record. The results are those of pd_tls_receive. */
static ssize_t read_some(pd_tls_stream *stream, void *to, size_t size)
{
    const pd_tls_library *lib = &stream->context->library;
    int n, why;

    pd_tls_wire_use(stream->wire);
    lib->ERR_clear_error();
    errno = 0;
    n = lib->SSL_read(stream->ssl, to, size < RECORD ? (int)size : RECORD);
    why = n > 0 ? SSL_ERROR_NONE : lib->SSL_get_error(stream->ssl, n);
    stream->answers = why == SSL_ERROR_WANT_WRITE;
    switch (why) {
    case SSL_ERROR_NONE: return n;
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return 0;
    case SSL_ERROR_ZERO_RETURN: return PD_CANCELLED;
    default: return break_off(stream, n);
    }
}

/* Fills one span with received bytes. Makes at most *reads calls of read_some, and subtracts their number from *reads.
 * Adds the number of received bytes to *got. Returns 1 if the span is full, 0 if no call is left, otherwise the last
 * result of read_some. */
static ssize_t fill(pd_tls_stream *stream, const struct iovec *span, size_t *got, int *reads)
{
    size_t filled = 0;

    while (filled < span->iov_len) {
        ssize_t n = (*reads)-- > 0 ? read_some(stream, (char *)span->iov_base + filled, span->iov_len - filled) : 0;
        if (n <= 0) return n;
        filled += (size_t)n;
        *got += (size_t)n;
    }
    return 1;
}

ssize_t pd_tls_receive(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err)
{
    size_t got = 0;
    int reads = MOST_READS;
    ssize_t rc = stream->broken.code == PD_OK ? 1 : PD_UNAVAILABLE;

    pd_tls_wire_ask(stream->wire);
    for (int i = 0; i < n && rc > 0; i++) rc = fill(stream, &iov[i], &got, &reads);
    pd_tls_wire_rest(stream->wire);
    if (got > 0) return (ssize_t)got; /* the next call reports an error */
    if (rc >= 0) return 0;
    if (rc == PD_CANCELLED) return pd_fail(err, PD_CANCELLED, "the peer closed the connection");
    return pd_fail(err, PD_UNAVAILABLE, "%s", stream->broken.text);
}

void pd_tls_part(pd_tls_stream *stream)
{
    pd_tls_wire_part(stream->wire);
}

void pd_tls_join(pd_tls_stream *stream)
{
    pd_tls_wire_join(stream->wire);
}

/* An incomplete TLS record does not count: when its other bytes arrive, the socket becomes readable. */
bool pd_tls_has_more(const pd_tls_stream *stream)
{
    if (stream->broken.code != PD_OK) return true;
    return !stream->answers &&
           (stream->context->library.SSL_pending(stream->ssl) > 0 || pd_tls_wire_has_record(stream->wire));
}

unsigned pd_tls_events(const pd_tls_stream *stream, unsigned wanted)
{
    if (pd_tls_owes(stream) || stream->answers) wanted |= PD_ON_WRITE;
    return stream->answers ? wanted & ~(unsigned)PD_ON_READ : wanted;
}

/* Changes the key before the next TLS record, if the present key has sent as many records as a key may. */
static void renew_key(pd_tls_stream *stream)
{
    const pd_tls_library *lib = &stream->context->library;

    if (stream->records < stream->context->key_records || !pd_tls_wire_sends(stream->wire)) return;
    /* This fails while OpenSSL has a record that the wire has not taken yet. Then the next record tries again. */
    if (lib->SSL_key_update(stream->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) stream->records = 0;
}

/* Writes n bytes as one TLS record. Returns the number of bytes that OpenSSL has taken: all, or 0 if the socket takes
 * none now. */
static ssize_t write_record(pd_tls_stream *stream, const void *at, size_t n)
{
    const pd_tls_library *lib = &stream->context->library;
    int written;

    pd_tls_wire_use(stream->wire);
    renew_key(stream);
    lib->ERR_clear_error();
    errno = 0;
    written = lib->SSL_write(stream->ssl, at, (int)n);
    stream->records += written > 0;
    if (written > 0) return written;
    switch (lib->SSL_get_error(stream->ssl, written)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return 0;
    default: return break_off(stream, written);
    }
}

/* Copies bytes that OpenSSL could not write, so that the caller may free its own. OpenSSL must be given the same bytes
 * again before any others. PD_UNAVAILABLE: out of memory, so the connection is broken. */
static int owe(pd_tls_stream *stream, const void *at, size_t n)
{
    if ((stream->owed = malloc(n)) == NULL)
        return pd_fail(&stream->broken, PD_UNAVAILABLE, "out of memory for the bytes to send");
    memcpy(stream->owed, at, n);
    stream->owes = n;
    return PD_OK;
}

/* Sends the TLS records that wait in the wire. Stores an error in stream->broken. */
static void flush_wire(pd_tls_stream *stream)
{
    int error = stream->broken.code == PD_OK ? pd_tls_wire_flush(stream->wire) : 0;

    if (error != 0) pd_fail(&stream->broken, PD_UNAVAILABLE, "%s", strerror(error));
}

/* Ends our side of the connection, if pd_tls_shut was called. Once no bytes wait for OpenSSL, tells the peer that no
 * more follow; once no TLS records wait for the socket either, shuts it for writing. */
static void end_side(pd_tls_stream *stream)
{
    const pd_tls_library *lib = &stream->context->library;

    if (!stream->shutting || stream->shut || stream->owed != NULL) return;
    if (!stream->said && pd_tls_wire_has_room(stream->wire)) {
        stream->said = true;
        pd_tls_wire_use(stream->wire);
        lib->ERR_clear_error();
        if (stream->broken.code == PD_OK) lib->SSL_shutdown(stream->ssl);
        flush_wire(stream);
    }
    if (stream->broken.code == PD_OK && pd_tls_wire_owes(stream->wire)) return;
    stream->shut = true;
    shutdown(stream->fd, SHUT_WR);
}

void pd_tls_flush(pd_tls_stream *stream)
{
    ssize_t written;

    flush_wire(stream);
    if (pd_tls_wire_has_room(stream->wire)) stream->answers = false;
    if (stream->owed != NULL && stream->broken.code == PD_OK) {
        if ((written = write_record(stream, stream->owed, stream->owes)) == 0) return;
        if (written > 0 && (size_t)written < stream->owes) {
            stream->owes -= (size_t)written;
            memmove(stream->owed, stream->owed + written, stream->owes);
            return;
        }
    }
    free(stream->owed);
    stream->owed = NULL;
    stream->owes = 0;
    end_side(stream);
}

bool pd_tls_owes(const pd_tls_stream *stream)
{
    return stream->broken.code == PD_OK && (stream->owed != NULL || pd_tls_wire_owes(stream->wire));
}

size_t pd_tls_held(const pd_tls_stream *stream)
{
    return stream->owes + (stream->wire != NULL ? pd_tls_wire_held(stream->wire) : 0);
}

void pd_tls_shut(pd_tls_stream *stream)
{
    stream->shutting = true;
    end_side(stream);
}

/* The position of the next byte to send in the caller's spans. */
typedef struct place {
    const struct iovec *at, *end;
    size_t offset; /* bytes of the span *at that were taken already */
} place;

/* Copies at most RECORD bytes from the caller's spans, and moves *p past them. Returns their number. */
static size_t gather(place *p, uint8_t record[RECORD])
{
    size_t n = 0;

    while (p->at < p->end && n < RECORD) {
        size_t left = p->at->iov_len - p->offset, part = left < RECORD - n ? left : RECORD - n;
        if (part > 0) memcpy(record + n, (const char *)p->at->iov_base + p->offset, part);
        n += part;
        p->offset += part;
        if (p->offset == p->at->iov_len) *p = (place){ p->at + 1, p->end, 0 };
    }
    return n;
}

/* Sends the next TLS record, from *p on: directly from the caller's memory if one span has all of its bytes, else from
 * a copy. Returns how many bytes were sent, or were stored to be sent later. */
static ssize_t send_record(pd_tls_stream *stream, place *p)
{
    uint8_t record[RECORD];
    const void *at = record;
    size_t n;
    ssize_t written;

    if (p->at->iov_len - p->offset >= RECORD) {
        at = (const char *)p->at->iov_base + p->offset;
        p->offset += n = RECORD;
        if (p->offset == p->at->iov_len) *p = (place){ p->at + 1, p->end, 0 };
    } else if ((n = gather(p, record)) == 0) {
        return 0;
    }
    if ((written = write_record(stream, at, n)) < 0) return written;
    if ((size_t)written == n) return (ssize_t)n;
    return owe(stream, (const char *)at + written, n - (size_t)written) == PD_OK ? (ssize_t)n : PD_UNAVAILABLE;
}

ssize_t pd_tls_send(pd_tls_stream *stream, const struct iovec *iov, int n, pd_error *err)
{
    place p = { iov, iov + n, 0 };
    size_t sent = 0;
    ssize_t now = 1;

    pd_tls_flush(stream);
    if (pd_tls_owes(stream)) now = 0;
    while (now > 0 && stream->owed == NULL && stream->broken.code == PD_OK && p.at < p.end &&
           pd_tls_wire_has_room(stream->wire))
        if ((now = send_record(stream, &p)) > 0) sent += (size_t)now;
    flush_wire(stream);
    if (stream->broken.code != PD_OK) return pd_fail(err, PD_UNAVAILABLE, "%s", stream->broken.text);
    return (ssize_t)sent;
}
