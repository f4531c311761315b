/* tls_library.h - OpenSSL's functions, loaded when the first tls:// address needs them.
 *
 * A program without a tls:// address does not load OpenSSL at all. The functions are looked up in a table of our own
 * (RTLD_LOCAL), and a client's have an OSSL_LIB_CTX of their own: a Python process whose own ssl module uses another
 * OpenSSL, or the same one with other settings, is not disturbed. Each table belongs to one tls context
 * (tls_context.h). */
#ifndef PD_TLS_LIBRARY_H
#define PD_TLS_LIBRARY_H

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <stdbool.h>

#include "paramd/error.h"

/* The functions of OpenSSL 3 that this project calls, as X(name). Their types are those of OpenSSL's headers. */
#define PD_TLS_FUNCTIONS(X)                                                                                            \
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

typedef struct pd_tls_library {
    void *handle;      /* of dlopen() */
    OSSL_LIB_CTX *own; /* NULL: the default of the process */
#define PD_TLS_MEMBER(name) __typeof__(name) *name;
    PD_TLS_FUNCTIONS(PD_TLS_MEMBER)
#undef PD_TLS_MEMBER
} pd_tls_library;

/* Loads OpenSSL 3. `out` is zeroed memory. `own`: with an OSSL_LIB_CTX of its own, which one thread alone may use:
 * what other threads have there would stay when it is freed. PD_UNIMPLEMENTED: libssl.so.3 is not installed, or lacks
 * a function; the error names it. PD_NO_MEMORY. */
int pd_tls_library_open(pd_tls_library *out, bool own, pd_error *err);
/* Gives back what pd_tls_library_open has taken. All objects of the library must be freed before. Does nothing for
 * zeroed memory. */
void pd_tls_library_close(pd_tls_library *library);

#endif
