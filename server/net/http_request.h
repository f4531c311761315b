/* http_request.h - reads the head of an HTTP request: method, path, and the few header fields that matter here. Pure
 * functions.
 *
 * What is not understood exactly is refused, since two programs that read a request differently are a way in. A request
 * has no body, its lines end with CR LF, and its head has at most PD_HTTP_REQUEST_MAX bytes. */
#ifndef PD_HTTP_REQUEST_H
#define PD_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define PD_HTTP_REQUEST_MAX 8192

typedef struct pd_http_request {
    bool head;         /* the method is HEAD: the answer has no body */
    bool old;          /* HTTP/1.0: the answer is not sent in chunks */
    bool open_metrics; /* the peer would rather have OpenMetrics than Prometheus' text */
    bool numeric_host; /* the field Host is "localhost" or an IP address, or HTTP/1.0 has none */
    char path[256];    /* path without query */
    char secret[512];  /* Authorization: what follows "Bearer ", or the password of "Basic "; "": none came */
} pd_http_request;

/* The result of reading some bytes of a request. Its numbers are statuses of HTTP. */
typedef enum pd_http_parsed {
    PD_HTTP_MORE = 0, /* the head is not complete */
    PD_HTTP_COMPLETE = 200,
    PD_HTTP_BAD = 400,       /* this is not an HTTP request that has one meaning */
    PD_HTTP_METHOD = 405,    /* the method is neither GET nor HEAD */
    PD_HTTP_BODY = 413,      /* the request has a body */
    PD_HTTP_LONG_PATH = 414, /* the path does not fit into pd_http_request.path, or the first line is too long */
    PD_HTTP_LONG_HEAD = 431, /* the head has more than PD_HTTP_REQUEST_MAX bytes */
    PD_HTTP_VERSION = 505,   /* neither HTTP/1.0 nor HTTP/1.1 */
} pd_http_parsed;

/* Reads a request from its first n bytes. The result does not depend on how the bytes come: as long as the head is not
 * complete, more bytes can only turn PD_HTTP_MORE into something else. Sets *why, unless the request is complete or
 * more bytes are needed, to a sentence for the peer. */
pd_http_parsed pd_http_parse(pd_http_request *out, const char *at, size_t n, const char **why);

/* Returns whether a secret is the one that is wanted. If that one has hexadecimal digits alone, they are compared by
 * their values: upper and lower case are the same. The time depends on `given` and on the length of `wanted`, not on
 * where the two differ. */
bool pd_http_secret_is(const char *given, const char *wanted);

#endif
