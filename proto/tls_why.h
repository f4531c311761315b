/* tls_why.h - says in plain words why TLS has failed. */
#ifndef PD_TLS_WHY_H
#define PD_TLS_WHY_H

#include "tls_library.h"

/* Fills *err for a call of OpenSSL that has failed with `rc`. Must follow that call at once. PD_UNAUTHENTICATED: one
 * side does not trust the other. PD_UNAVAILABLE: anything else. Returns the code. */
int pd_tls_why(const pd_tls_library *library, const SSL *ssl, int rc, pd_error *err);

#endif
