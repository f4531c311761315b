/* pki.c - a public key infrastructure for tests. */
#include "pki.h"

#include <sys/stat.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <sys/socket.h>

#include "test.h"

enum { DAY = 24 * 60 * 60 };

struct pki_authority {
    X509 *certificate;
    EVP_PKEY *key;
    long serial;
};

static FILE *open_new(const char *path)
{
    FILE *file;

    unlink(path);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(chmod(path, 0600), 0);
    return file;
}

/* Makes a certificate that is not signed yet. */
static X509 *blank(const char *name, EVP_PKEY *key, long serial, int days)
{
    X509 *new = X509_new();

    assert_non_null(new);
    X509_set_version(new, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(new), serial);
    X509_gmtime_adj(X509_getm_notBefore(new), -3L * DAY);
    X509_gmtime_adj(X509_getm_notAfter(new), (long)days * DAY);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(new), "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_pubkey(new, key);
    return new;
}

static void extend(X509 *certificate, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;

    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

static void write_certificate(const char *path, X509 *certificate)
{
    FILE *file = open_new(path);

    assert_int_equal(PEM_write_X509(file, certificate), 1);
    fclose(file);
}

pki_authority *pki_new(const char *name, const char *path)
{
    pki_authority *new = calloc(1, sizeof *new);

    new->key = EVP_EC_gen("P-256");
    new->certificate = blank(name, new->key, 1, 30);
    new->serial = 1;
    extend(new->certificate, NID_basic_constraints, "critical,CA:TRUE");
    X509_set_issuer_name(new->certificate, X509_get_subject_name(new->certificate));
    assert_true(X509_sign(new->certificate, new->key, EVP_sha256()) > 0);
    if (path != NULL) write_certificate(path, new->certificate);
    return new;
}

void pki_free(pki_authority *authority)
{
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    free(authority);
}

void pki_issue_common(const pki_authority *authority, const char *common, const char *names, int days,
                      const char *certificate, const char *key)
{
    EVP_PKEY *new_key = EVP_EC_gen("P-256");
    X509 *new = blank(common, new_key, ++((pki_authority *)authority)->serial, days);
    FILE *file = open_new(key);

    X509_set_issuer_name(new, X509_get_subject_name(authority->certificate));
    if (names != NULL) extend(new, NID_subject_alt_name, names);
    assert_true(X509_sign(new, authority->key, EVP_sha256()) > 0);
    write_certificate(certificate, new);
    assert_int_equal(PEM_write_PrivateKey(file, new_key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(new);
    EVP_PKEY_free(new_key);
}

void pki_issue(const pki_authority *authority, const char *names, int days, const char *certificate, const char *key)
{
    pki_issue_common(authority, "a certificate of a test", names, days, certificate, key);
}

/* Adds the certificate in a file to a list. */
static void add_revoked(X509_CRL *list, const char *path)
{
    FILE *file = fopen(path, "r");
    X509 *certificate;
    X509_REVOKED *entry = X509_REVOKED_new();
    ASN1_TIME *now = X509_gmtime_adj(NULL, 0);

    assert_non_null(file);
    certificate = PEM_read_X509(file, NULL, NULL, NULL);
    assert_true(certificate != NULL && entry != NULL);
    fclose(file);
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate));
    X509_REVOKED_set_revocationDate(entry, now);
    assert_int_equal(X509_CRL_add0_revoked(list, entry), 1);
    ASN1_TIME_free(now);
    X509_free(certificate);
}

void pki_revoke(const pki_authority *authority, const char *revoked, int days, const char *path)
{
    X509_CRL *list = X509_CRL_new();
    ASN1_TIME *from = X509_gmtime_adj(NULL, -3L * DAY), *to = X509_gmtime_adj(NULL, (long)days * DAY);
    FILE *file = open_new(path);

    assert_non_null(list);
    X509_CRL_set_version(list, 1);
    X509_CRL_set_issuer_name(list, X509_get_subject_name(authority->certificate));
    X509_CRL_set1_lastUpdate(list, from);
    X509_CRL_set1_nextUpdate(list, to);
    if (revoked != NULL) add_revoked(list, revoked);
    assert_true(X509_CRL_sign(list, authority->key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_X509_CRL(file, list), 1);
    fclose(file);
    ASN1_TIME_free(from);
    ASN1_TIME_free(to);
    X509_CRL_free(list);
}

void pki_write(const char *path, const char *text, unsigned mode)
{
    FILE *file = open_new(path);

    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

void pki_write_tokens(const char *path, const char *first, const char *second)
{
    char text[400];

    snprintf(text, sizeof text, "# tokens of a test\n%s\n%s\n", first, second != NULL ? second : "");
    pki_write(path, text, 0600);
}

pd_tls_ends tls_ends;

const char *tls_ends_path(const char *name)
{
    static char text[8][128];
    static int at;

    at = (at + 1) % 8;
    snprintf(text[at], sizeof text[at], "%s/%s", tls_ends.folder, name);
    return text[at];
}

int tls_ends_set_up(void **state)
{
    memset(&tls_ends, 0, sizeof tls_ends);
    strcpy(tls_ends.folder, "/tmp/paramd-tls-XXXXXX");
    assert_non_null(mkdtemp(tls_ends.folder));
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pd_token_new(tls_ends.token, "alice", NULL), PD_OK);
    snprintf(tls_ends.tokens, sizeof tls_ends.tokens, "%s", tls_ends_path("tokens"));
    pki_write_tokens(tls_ends.tokens, tls_ends.token, NULL);
    for (size_t i = 0; i < TLS_BYTES; i++) tls_ends.sent[i] = (uint8_t)(i * 7 + i / 251);
    *state = &tls_ends;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tls_ends.fd);
}

void tls_ends_drop(void)
{
    for (int i = 0; i < 2; i++) {
        pd_tls_stream_free(tls_ends.stream[i]);
        pd_tls_unref(tls_ends.context[i]);
        tls_ends.stream[i] = NULL;
        tls_ends.context[i] = NULL;
    }
}

int tls_ends_tear_down(void **state)
{
    char command[160];
    (void)state;

    tls_ends_drop();
    close(tls_ends.fd[0]);
    close(tls_ends.fd[1]);
    snprintf(command, sizeof command, "rm -rf %s", tls_ends.folder);
    return system(command);
}

/* Makes both sides; `host` is the name that the client expects. */
void tls_ends_make(const pd_tls_files *server, const pd_tls_files *client, const char *host)
{
    pd_error err;

    if (pd_tls_server(&tls_ends.context[TLS_SERVER], server, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_tls_client(&tls_ends.context[TLS_CLIENT], client, &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        const char *expected = i == TLS_CLIENT ? host : NULL;
        assert_int_equal(pd_tls_stream_new(&tls_ends.stream[i], tls_ends.context[i], tls_ends.fd[i], expected, &err),
                         PD_OK);
        tls_ends.step[i] = PD_TLS_READ;
    }
}

/* Lets both sides take their steps of the handshake until each is through or has failed. */
void tls_ends_shake_hands(void)
{
    for (int turn = 0; turn < 20; turn++) {
        int i = turn % 2 == 0 ? TLS_CLIENT : TLS_SERVER;
        if (tls_ends.step[i] == PD_TLS_READ || tls_ends.step[i] == PD_TLS_WRITE)
            tls_ends.step[i] = pd_tls_handshake(tls_ends.stream[i], &tls_ends.err[i]);
    }
}

void tls_ends_expect_identity(int side, const char *text)
{
    pd_identity identity;

    pd_tls_identify(tls_ends.stream[side], &identity);
    assert_string_equal(identity.text, text);
}

void tls_ends_with_token(void)
{
    pd_tls_files files = { .tokens = tls_ends.tokens };

    tls_ends_make(&files, &files, "localhost");
    tls_ends_shake_hands();
    assert_int_equal(tls_ends.step[TLS_CLIENT], PD_TLS_DONE);
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
}

void tls_ends_expect_failure(int side, const char *why)
{
    assert_int_equal(tls_ends.step[side], PD_TLS_FAILED);
    if (strstr(tls_ends.err[side].text, why) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", why, tls_ends.err[side].text);
}

/* Receives once into a buffer. Fails the test unless this gives an error with this text. */
void tls_ends_expect_receive_failure(int side, const char *why)
{
    struct iovec span = { tls_ends.got, sizeof tls_ends.got };
    pd_error err = { 0 };

    assert_int_equal(pd_tls_receive(tls_ends.stream[side], &span, 1, &err), PD_UNAVAILABLE);
    if (strstr(err.text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}
