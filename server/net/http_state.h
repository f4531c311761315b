/* http_state.h - the lists of HTTP connections that the loop thread has (http.h), and their number by peer. */
#ifndef PD_HTTP_STATE_H
#define PD_HTTP_STATE_H

#include <stdint.h>

/* Number of counters by the peer's address. Addresses that share a counter share what one address may have. */
enum { PD_HTTP_ORIGINS = 256 };

typedef struct pd_http_conn pd_http_conn;

/* All HTTP connections of the daemon. Begins zeroed. Lists are in the order in which connections came to them. */
typedef struct pd_http {
    pd_http_conn *reading;   /* the request is not complete */
    pd_http_conn *answering; /* the answer is being sent */
    pd_http_conn *ending;    /* the answer is sent, and the peer gets a moment to read it */
    pd_http_conn *closed;    /* connections that are freed at the end of this turn of the loop */
    unsigned n;              /* number of open connections */
    unsigned n_long;         /* number of long answers that are being sent */
    uint8_t heads[PD_HTTP_ORIGINS], longs[PD_HTTP_ORIGINS]; /* numbers of incomplete requests, and of long answers, by
                                                             * the hash of the peer's address */
} pd_http;

#endif
