/* http_state.h - the list of HTTP connections that the loop thread has (http.h). */
#ifndef PD_HTTP_STATE_H
#define PD_HTTP_STATE_H

typedef struct pd_http_conn pd_http_conn;

/* All HTTP connections of the daemon. Begins zeroed. */
typedef struct pd_http {
    pd_http_conn *first;
    pd_http_conn *closed; /* connections that are freed at the end of this turn of the loop */
    unsigned n;
} pd_http;

#endif
