/* tls_inside.h - declarations that the files tls_*.c share: OpenSSL's functions, a context's members, and the wire. */
#ifndef PD_TLS_INSIDE_H
#define PD_TLS_INSIDE_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdint.h>

#include "paramd/error.h"
#include "token.h"

/* The functions of OpenSSL 3 that this project calls, as X(name). Their types are those of OpenSSL's headers.
 *
 * A program without a tls:// address does not load OpenSSL. Otherwise OpenSSL is loaded with RTLD_LOCAL, and its
 * functions are called through a table. A client also uses an OSSL_LIB_CTX of its own. So a Python process is not
 * disturbed if its ssl module uses another OpenSSL, or the same one with other settings. */
#define PD_TLS_FUNCTIONS(X)                                                                                            \
    X(OPENSSL_version_major)                                                                                           \
    X(OPENSSL_version_minor)                                                                                           \
    X(OPENSSL_version_patch)                                                                                           \
    X(OSSL_LIB_CTX_new)                                                                                                \
    X(OSSL_LIB_CTX_free)                                                                                               \
    X(ERR_clear_error)                                                                                                 \
    X(ERR_peek_error)                                                                                                  \
    X(ERR_reason_error_string)                                                                                         \
    X(BIO_new_ex)                                                                                                      \
    X(BIO_free)                                                                                                        \
    X(BIO_up_ref)                                                                                                      \
    X(BIO_ctrl)                                                                                                        \
    X(BIO_set_init)                                                                                                    \
    X(BIO_set_flags)                                                                                                   \
    X(BIO_clear_flags)                                                                                                 \
    X(BIO_meth_new)                                                                                                    \
    X(BIO_meth_free)                                                                                                   \
    X(BIO_meth_set_read)                                                                                               \
    X(BIO_meth_set_write)                                                                                              \
    X(BIO_meth_set_ctrl)                                                                                               \
    X(TLS_client_method)                                                                                               \
    X(TLS_server_method)                                                                                               \
    X(SSL_CTX_new_ex)                                                                                                  \
    X(SSL_CTX_free)                                                                                                    \
    X(SSL_CTX_ctrl)                                                                                                    \
    X(SSL_CTX_set_options)                                                                                             \
    X(SSL_CTX_set_ciphersuites)                                                                                        \
    X(SSL_CTX_set_session_id_context)                                                                                  \
    X(SSL_CTX_set_num_tickets)                                                                                         \
    X(SSL_CTX_set_verify)                                                                                              \
    X(SSL_CTX_load_verify_file)                                                                                        \
    X(SSL_CTX_get_cert_store)                                                                                          \
    X(X509_STORE_add_lookup)                                                                                           \
    X(X509_STORE_set_flags)                                                                                            \
    X(X509_LOOKUP_file)                                                                                                \
    X(X509_load_crl_file)                                                                                              \
    X(SSL_CTX_set_default_verify_paths)                                                                                \
    X(SSL_CTX_use_certificate_chain_file)                                                                              \
    X(SSL_CTX_use_PrivateKey_file)                                                                                     \
    X(SSL_CTX_check_private_key)                                                                                       \
    X(SSL_CTX_set_default_passwd_cb)                                                                                   \
    X(SSL_CTX_set_psk_find_session_callback)                                                                           \
    X(SSL_CTX_set_psk_use_session_callback)                                                                            \
    X(SSL_new)                                                                                                         \
    X(SSL_free)                                                                                                        \
    X(SSL_ctrl)                                                                                                        \
    X(SSL_set_fd)                                                                                                      \
    X(SSL_get_rbio)                                                                                                    \
    X(SSL_get_wbio)                                                                                                    \
    X(SSL_set0_rbio)                                                                                                   \
    X(SSL_set0_wbio)                                                                                                   \
    X(SSL_set_accept_state)                                                                                            \
    X(SSL_set_connect_state)                                                                                           \
    X(SSL_set1_host)                                                                                                   \
    X(SSL_set_hostflags)                                                                                               \
    X(SSL_get0_param)                                                                                                  \
    X(SSL_do_handshake)                                                                                                \
    X(SSL_read)                                                                                                        \
    X(SSL_write)                                                                                                       \
    X(SSL_pending)                                                                                                     \
    X(SSL_get_error)                                                                                                   \
    X(SSL_key_update)                                                                                                  \
    X(SSL_shutdown)                                                                                                    \
    X(SSL_session_reused)                                                                                              \
    X(SSL_get_verify_result)                                                                                           \
    X(SSL_get0_peer_certificate)                                                                                       \
    X(SSL_SESSION_new)                                                                                                 \
    X(SSL_SESSION_free)                                                                                                \
    X(SSL_SESSION_set1_master_key)                                                                                     \
    X(SSL_SESSION_set_cipher)                                                                                          \
    X(SSL_SESSION_set_protocol_version)                                                                                \
    X(SSL_CIPHER_find)                                                                                                 \
    X(X509_VERIFY_PARAM_set1_ip_asc)                                                                                   \
    X(X509_verify_cert_error_string)                                                                                   \
    X(X509_get_ext_d2i)                                                                                                \
    X(GENERAL_NAMES_free)                                                                                              \
    X(OPENSSL_sk_num)                                                                                                  \
    X(OPENSSL_sk_value)                                                                                                \
    X(ASN1_STRING_get0_data)                                                                                           \
    X(ASN1_STRING_length)

/* OpenSSL as it was loaded: its handle, and a pointer to each function that is called. */
typedef struct pd_tls_library {
    void *handle;      /* handle of libssl from dlopen(); NULL: not loaded */
    OSSL_LIB_CTX *own; /* OpenSSL's settings and tables of this client; NULL: those of the process are used */
#define PD_TLS_MEMBER(name) __typeof__(name) *name;
    PD_TLS_FUNCTIONS(PD_TLS_MEMBER)
#undef PD_TLS_MEMBER
} pd_tls_library;

typedef struct pd_tls_context pd_tls_context;
typedef struct pd_tls_buffer pd_tls_buffer;

/* A list of n buffers that no wire uses now. */
typedef struct pd_tls_spares {
    pd_tls_buffer *first;
    unsigned n;
} pd_tls_spares;

/* A context: the keys and rules of one side (tls_context.h). Its connections share it. */
struct pd_tls_context {
    pd_tls_library library;
    SSL_CTX *ssl;
    BIO_METHOD *method;   /* the functions of a wire that OpenSSL calls instead of reading and writing the socket */
    pd_tls_spares spares; /* buffers for the next wire that needs one */
    pd_tokens tokens;     /* a server's: the tokens of all workers; a client's: the tokens of its file */
    uint64_t key_records; /* most TLS records that a connection sends with one key */
    bool serves;          /* true: the context of a server; false: of a client */
    bool wants_identity;  /* for a server: every client must prove its identity */
    uint32_t refs;
};

/* What our callbacks need and find out while OpenSSL does the handshake of one connection. */
typedef struct pd_tls_seen {
    const pd_tls_context *context;
    const pd_token *token; /* the token by which both sides prove their identities; NULL: they use none, or the server
                            * has no token of the name that the client sent */
} pd_tls_seen;

/* Calls SSL_do_handshake, and returns its result. OpenSSL passes our callbacks no pointer of ours, so they find `seen`
 * in a variable of this thread. */
int pd_tls_do_handshake(pd_tls_seen *seen, SSL *ssl);

/* A wire carries the TLS records of one connection between OpenSSL and the socket, many with one system call. It
 * replaces the socket in OpenSSL once the handshake is complete. */
typedef struct pd_tls_wire pd_tls_wire;

/* Makes the context's BIO_METHOD, by which OpenSSL calls its wires. PD_NO_MEMORY. */
int pd_tls_wire_open(pd_tls_context *context, pd_error *err);
/* Frees the BIO_METHOD and the spare buffers. All wires must be freed before. */
void pd_tls_wire_close(pd_tls_context *context);

/* Makes a wire, and puts it between OpenSSL and a socket whose handshake is complete. Free the wire after the SSL.
 * PD_NO_MEMORY. */
int pd_tls_wire_new(pd_tls_wire **out, pd_tls_context *context, SSL *ssl, int fd, pd_error *err);
/* Frees a wire. Accepts NULL. */
void pd_tls_wire_free(pd_tls_wire *wire);

/* Prepares the wire for another thread: it takes a buffer for each direction along, so that the thread does not touch
 * those of the context. */
void pd_tls_wire_part(pd_tls_wire *wire);
/* Ends what pd_tls_wire_part has begun, once the thread is done. Both are called by the context's thread. */
void pd_tls_wire_join(pd_tls_wire *wire);

/* Stores the wire in a variable of this thread, where the callbacks that OpenSSL makes find it. Must be called before
 * each function of OpenSSL that reads or writes. */
void pd_tls_wire_use(pd_tls_wire *wire);
/* Lets the wire read the socket again. Once a wire has found the socket empty, it reads it no more until this function
 * is called. */
void pd_tls_wire_ask(pd_tls_wire *wire);
/* Returns the receive buffer to the context's spare buffers, if it is empty. */
void pd_tls_wire_rest(pd_tls_wire *wire);
/* Returns whether the receive buffer has a whole TLS record. Call it only when OpenSSL has read the previous record to
 * its end. */
bool pd_tls_wire_has_record(const pd_tls_wire *wire);
/* Returns whether the send buffer has room for one more TLS record. If it has none, the wire first tries to send the
 * buffer. */
bool pd_tls_wire_has_room(pd_tls_wire *wire);
/* Returns true if OpenSSL writes TLS records into the wire, false if the kernel encrypts (kTLS). Then the key cannot be
 * changed. */
bool pd_tls_wire_sends(const pd_tls_wire *wire);
/* Returns whether TLS records in the send buffer wait for the socket. */
bool pd_tls_wire_owes(const pd_tls_wire *wire);
/* Returns how many bytes of memory the buffers have that the wire uses now. */
size_t pd_tls_wire_held(const pd_tls_wire *wire);
/* Sends the TLS records that wait, as far as the socket takes them. Returns 0, or the errno of a broken socket. */
int pd_tls_wire_flush(pd_tls_wire *wire);

#endif
