/* tls_context.c - loads OpenSSL, and the keys and rules by which one side of TLS makes its connections. */
#define _DEFAULT_SOURCE /* explicit_bzero */
#include "tls_context.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "token.h"
#include "tls_inside.h"

#define FILE_NAME "libssl.so.3"

static const struct {
    const char *name;
    size_t offset; /* offset of the function's pointer in pd_tls_library */
} functions[] = {
#define ENTRY(name) { #name, offsetof(pd_tls_library, name) },
    PD_TLS_FUNCTIONS(ENTRY)
#undef ENTRY
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* Stores the address of each function in *library. libssl depends on libcrypto, so the handle of libssl also finds the
 * functions of libcrypto. PD_UNIMPLEMENTED: a function is missing. */
static int look_up(pd_tls_library *library, pd_error *err)
{
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        void *found = dlsym(library->handle, functions[i].name);
        if (found == NULL)
            return pd_fail(err, PD_UNIMPLEMENTED, FILE_NAME " has no function %s: install OpenSSL 3.0 or newer",
                           functions[i].name);
        memcpy((char *)library + functions[i].offset, &found, sizeof found);
    }
    return PD_OK;
}

static void close_library(pd_tls_library *library)
{
    if (library->own != NULL) library->OSSL_LIB_CTX_free(library->own);
    if (library->handle != NULL) dlclose(library->handle);
    memset(library, 0, sizeof *library);
}

/* Loads OpenSSL 3. If `own` is set, also makes an OSSL_LIB_CTX. Only one thread may use it: objects that OpenSSL makes
 * in it for other threads would live longer than the OSSL_LIB_CTX. */
static int open_library(pd_tls_library *out, bool own, pd_error *err)
{
    int rc;

    /* RTLD_NODELETE: the library must stay loaded, because OpenSSL has registered functions that run when threads and
     * the process end. */
    if ((out->handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "tls:// needs OpenSSL 3, in Debian the package libssl3: %s", dlerror());
    rc = look_up(out, err);
    if (rc == PD_OK && own && (out->own = out->OSSL_LIB_CTX_new()) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) close_library(out);
    return rc;
}

int pd_tls_find_version(pd_tls_version *out, pd_error *err)
{
    pd_tls_library library = { 0 };
    int rc = open_library(&library, false, err);

    if (rc != PD_OK) return rc;
    *out = (pd_tls_version){ library.OPENSSL_version_major(), library.OPENSSL_version_minor(),
                             library.OPENSSL_version_patch() };
    close_library(&library);
    return PD_OK;
}

/* Both cipher suites use SHA-256, because a token's key works only with this hash. */
#define SUITES "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
/* Number of TLS records after which the key is changed: 128 GiB, which a training job sends in minutes. RFC 8446,
 * section 5.5: with AES-GCM a key is safe for 2^24.5 records of 16 KiB. OpenSSL does not count them. */
#define KEY_RECORDS (UINT64_C(1) << 23)
/* SSL_OP_IGNORE_UNEXPECTED_EOF: if a TCP stream ends without TLS's closing alert, its end counts as a normal one.
 * Nobody can cut off bytes unseen, because frames have their lengths. */
#define OPTIONS                                                                                                        \
    (SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF |               \
     SSL_OP_ENABLE_KTLS)
#define MODES (SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS)

/* Names of the settings that name the files, for error texts. */
typedef struct setting_names {
    const char *certificate, *key, *ca, *tokens, *crl;
} setting_names;

static const setting_names server_names = { "tls.certificate", "tls.key", "tls.client_ca", "tls.tokens", "tls.crl" };
static const setting_names client_names = {
    .certificate = "PARAMD_CERT_FILE", .key = "PARAMD_KEY_FILE", .ca = "PARAMD_CA_FILE", .tokens = "PARAMD_TOKEN_FILE"
};

static bool given(const char *path)
{
    return path != NULL && path[0] != '\0';
}

static _Thread_local pd_tls_seen *handshaking;

int pd_tls_do_handshake(pd_tls_seen *seen, SSL *ssl)
{
    int rc;

    handshaking = seen;
    rc = seen->context->library.SSL_do_handshake(ssl);
    handshaking = NULL;
    return rc;
}

/* Makes the TLS session through which OpenSSL uses a token's key. Returns NULL if that fails. */
static SSL_SESSION *make_session(SSL *ssl, const uint8_t secret[PD_TOKEN_BYTES])
{
    static const unsigned char suite[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */
    const pd_tls_library *lib = &handshaking->context->library;
    const SSL_CIPHER *cipher = lib->SSL_CIPHER_find(ssl, suite);
    SSL_SESSION *session = lib->SSL_SESSION_new();

    if (session != NULL && cipher != NULL && lib->SSL_SESSION_set1_master_key(session, secret, PD_TOKEN_BYTES) &&
        lib->SSL_SESSION_set_cipher(session, cipher) && lib->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
        return session;
    lib->SSL_SESSION_free(session);
    return NULL;
}

/* OpenSSL calls this on a server: finds the key whose name a client has sent. For an unknown name, makes a random key.
 * Then the handshake fails as it does with a wrong key, so nobody can find out which names exist. Returns 0 after an
 * error. */
static int find_session(SSL *ssl, const unsigned char *name, size_t n, SSL_SESSION **session)
{
    const pd_token *token = pd_tokens_find(&handshaking->context->tokens, name, n);
    uint8_t secret[PD_TOKEN_BYTES];

    *session = NULL;
    handshaking->token = token;
    if (token != NULL)
        memcpy(secret, token->secret, sizeof secret);
    else if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return 0;
    *session = make_session(ssl, secret);
    explicit_bzero(secret, sizeof secret);
    return *session != NULL;
}

/* OpenSSL calls this on a client: offers the client's token to the server. Returns 0 after an error. */
static int use_session(SSL *ssl, const EVP_MD *hash, const unsigned char **name, size_t *n, SSL_SESSION **session)
{
    const pd_token *token = pd_tokens_first(&handshaking->context->tokens);

    (void)hash;
    handshaking->token = token;
    *name = (const unsigned char *)token->name;
    *n = strlen(token->name);
    *session = make_session(ssl, token->secret);
    return *session != NULL;
}

static int read_tokens(pd_tls_context *context, const char *path, const char *setting, pd_error *err)
{
    char *text = NULL;
    int rc;

    if (!given(path)) return PD_OK;
    if ((rc = pd_secret_read(&text, path, setting, err)) != PD_OK) return rc;
    rc = pd_tokens_parse(&context->tokens, text, path, err);
    pd_secret_free(text);
    if (rc != PD_OK) return rc;
    if (context->serves)
        context->library.SSL_CTX_set_psk_find_session_callback(context->ssl, find_session);
    else
        context->library.SSL_CTX_set_psk_use_session_callback(context->ssl, use_session);
    return PD_OK;
}

/* Fills *err with the reason why OpenSSL cannot use a file, and returns PD_INVALID_ARGUMENT. */
static int bad_file(const pd_tls_context *context, const char *setting, const char *path, const char *expected,
                    pd_error *err)
{
    unsigned long why = context->library.ERR_peek_error();
    const char *reason = why != 0 ? context->library.ERR_reason_error_string(why) : NULL;

    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: %s: expected %s: %s", setting, path, expected,
                   reason != NULL ? reason : "cannot be read");
}

/* Tells OpenSSL that there is no pass phrase. Otherwise OpenSSL would ask for one on the terminal. */
static int no_pass_phrase(char *text, int size, int writes, void *arg)
{
    (void)text, (void)size, (void)writes, (void)arg;
    return 0;
}

static int read_certificate(const pd_tls_context *context, const pd_tls_files *files, const setting_names *names,
                            pd_error *err)
{
    const pd_tls_library *lib = &context->library;
    int rc;

    if (given(files->certificate) != given(files->key))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s is set without %s: a certificate and its key go together",
                       given(files->key) ? names->key : names->certificate,
                       given(files->key) ? names->certificate : names->key);
    if (!given(files->certificate)) return PD_OK;
    if ((rc = pd_secret_check(files->key, names->key, err)) != PD_OK) return rc;
    lib->ERR_clear_error();
    if (lib->SSL_CTX_use_certificate_chain_file(context->ssl, files->certificate) != 1)
        return bad_file(context, names->certificate, files->certificate, "a certificate and its chain (PEM)", err);
    lib->SSL_CTX_set_default_passwd_cb(context->ssl, no_pass_phrase);
    if (lib->SSL_CTX_use_PrivateKey_file(context->ssl, files->key, SSL_FILETYPE_PEM) != 1 ||
        lib->SSL_CTX_check_private_key(context->ssl) != 1)
        return bad_file(context, names->key, files->key, "the key of that certificate (PEM, without a pass phrase)",
                        err);
    return PD_OK;
}

static int read_ca(const pd_tls_context *context, const char *path, const char *setting, pd_error *err)
{
    const pd_tls_library *lib = &context->library;

    lib->ERR_clear_error();
    if (given(path) && lib->SSL_CTX_load_verify_file(context->ssl, path) != 1)
        return bad_file(context, setting, path, "certificates of authorities (PEM)", err);
    return PD_OK;
}

/* Reads lists of revoked certificates. From then on a client's certificate is accepted only if its authority has a list
 * that is valid now and does not contain the certificate. */
static int read_crl(const pd_tls_context *context, const pd_tls_files *files, const setting_names *names, pd_error *err)
{
    const pd_tls_library *lib = &context->library;
    X509_STORE *store = lib->SSL_CTX_get_cert_store(context->ssl);
    X509_LOOKUP *lookup;

    if (!given(files->crl)) return PD_OK;
    if (!given(files->ca))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s is set without %s: it lists certificates that the authorities there have revoked",
                       names->crl, names->ca);
    lib->ERR_clear_error();
    if ((lookup = lib->X509_STORE_add_lookup(store, lib->X509_LOOKUP_file())) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (lib->X509_load_crl_file(lookup, files->crl, X509_FILETYPE_PEM) <= 0)
        return bad_file(context, names->crl, files->crl, "lists of revoked certificates (PEM)", err);
    lib->X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
    return PD_OK;
}

static int set_up(pd_tls_context *context, pd_error *err)
{
    pd_tls_library *lib = &context->library;
    /* Only a client gets an OSSL_LIB_CTX: nothing else in the daemon uses OpenSSL, and several threads of the daemon
     * compute handshakes. */
    int rc = open_library(lib, !context->serves, err);

    if (rc != PD_OK) return rc;
    context->ssl =
        lib->SSL_CTX_new_ex(lib->own, NULL, context->serves ? lib->TLS_server_method() : lib->TLS_client_method());
    if (context->ssl == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    context->key_records = KEY_RECORDS;
    lib->SSL_CTX_set_options(context->ssl, OPTIONS);
    lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_MODE, MODES, NULL);
    /* Makes SSL_read return after each message that is not data. Otherwise a peer that sends only changes of its key
     * keeps the caller in SSL_read as long as it likes. */
    lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY, NULL);
    lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /* OpenSSL requires this name for the sessions of a server that asks for certificates, although no session is
     * kept. */
    if (context->serves)
        lib->SSL_CTX_set_session_id_context(context->ssl, (const unsigned char *)"paramd", strlen("paramd"));
    if (lib->SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        lib->SSL_CTX_set_ciphersuites(context->ssl, SUITES) != 1 || lib->SSL_CTX_set_num_tickets(context->ssl, 0) != 1)
        return pd_fail(err, PD_UNIMPLEMENTED, "this OpenSSL does not support TLS 1.3");
    return pd_tls_wire_open(context, err);
}

static int read_files(pd_tls_context *context, const pd_tls_files *files, const setting_names *names, pd_error *err)
{
    int rc = set_up(context, err);

    if (rc == PD_OK) rc = read_tokens(context, files->tokens, names->tokens, err);
    if (rc == PD_OK) rc = read_certificate(context, files, names, err);
    if (rc == PD_OK) rc = read_ca(context, files->ca, names->ca, err);
    return rc == PD_OK ? read_crl(context, files, names, err) : rc;
}

static pd_tls_context *new_context(bool serves)
{
    pd_tls_context *context = calloc(1, sizeof *context);

    if (context != NULL) context->refs = 1;
    if (context != NULL) context->serves = serves;
    return context;
}

/* Stores the context in *out if rc is PD_OK, otherwise frees it. Returns rc. */
static int hand_over(pd_tls_context **out, pd_tls_context *context, int rc)
{
    if (rc == PD_OK)
        *out = context;
    else
        pd_tls_unref(context);
    return rc;
}

int pd_tls_server(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    pd_tls_context *context;
    int rc;

    if (!given(files->certificate) && !given(files->key) && !given(files->tokens))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a tls:// address needs tls.tokens, or tls.certificate and tls.key: without them no client can "
                       "authenticate the server");
    if ((context = new_context(true)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = read_files(context, files, &server_names, err);
    context->wants_identity = given(files->tokens) || given(files->ca);
    /* A client with a token is not asked for a certificate. */
    if (rc == PD_OK && context->wants_identity)
        context->library.SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return hand_over(out, context, rc);
}

int pd_tls_client(pd_tls_context **out, const pd_tls_files *files, pd_error *err)
{
    pd_tls_context *context = new_context(false);
    int rc;

    if (context == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = read_files(context, files, &client_names, err);
    if (rc == PD_OK && context->tokens.n == 0) {
        if (!given(files->ca)) context->library.SSL_CTX_set_default_verify_paths(context->ssl);
        context->library.SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    }
    return hand_over(out, context, rc);
}

bool pd_tls_identifies(const pd_tls_context *context)
{
    return context->wants_identity;
}

pd_tls_context *pd_tls_ref(pd_tls_context *context)
{
    context->refs++;
    return context;
}

void pd_tls_unref(pd_tls_context *context)
{
    if (context == NULL || --context->refs > 0) return;
    pd_tls_wire_close(context);
    if (context->ssl != NULL) context->library.SSL_CTX_free(context->ssl);
    pd_tokens_free(&context->tokens);
    close_library(&context->library);
    free(context);
}
