/* http_request.h - parses the head of an HTTP request: method, path, and the few header fields that the daemon needs.
 * Pure functions.
 *
 * A request that could be read in two ways is refused: if a proxy reads a request differently than the daemon, an
 * attacker can use the difference. A request has no body, its lines end with CR LF, and its head has at most
 * PD_HTTP_REQUEST_MAX bytes. */
#ifndef PD_HTTP_REQUEST_H
#define PD_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define PD_HTTP_REQUEST_MAX 8192

typedef struct pd_http_request {
    bool head;         /* the method is HEAD: the answer has no body */
    bool old;          /* HTTP/1.0: the answer is not sent in chunks */
    bool open_metrics; /* the peer prefers OpenMetrics to Prometheus' text */
    bool numeric_host; /* the field Host is "localhost" or an IP address, or is missing in a request of HTTP/1.0 */
    char path[256];    /* path without query */
    char secret[512];  /* secret in the field Authorization: the text after "Bearer ", or the password of "Basic "; "":
                        * there is none */
} pd_http_request;

/* The result of parsing the first bytes of a request. The numbers are HTTP status codes, except 0. */
typedef enum pd_http_parsed {
    PD_HTTP_MORE = 0, /* the head is not complete */
    PD_HTTP_COMPLETE = 200,
    PD_HTTP_BAD = 400,       /* the text is not an HTTP request, or could be read in two ways */
    PD_HTTP_METHOD = 405,    /* the method is neither GET nor HEAD */
    PD_HTTP_BODY = 413,      /* the request has a body */
    PD_HTTP_LONG_PATH = 414, /* the path does not fit into pd_http_request.path, or the first line is too long */
    PD_HTTP_LONG_HEAD = 431, /* the head has more than PD_HTTP_REQUEST_MAX bytes */
    PD_HTTP_VERSION = 505,   /* neither HTTP/1.0 nor HTTP/1.1 */
} pd_http_parsed;

/* Parses a request from its first n bytes. If it returns PD_HTTP_MORE, the caller calls it again with all bytes when
 * more have arrived. Every other result is final: more bytes do not change it. If the request is refused, sets *why to
 * a sentence for the peer. */
pd_http_parsed pd_http_parse(pd_http_request *out, const char *at, size_t n, const char **why);

/* Returns whether `given` is the secret `wanted`. If `wanted` has only hexadecimal digits, case is ignored. The time
 * depends on `given` and on the length of `wanted`, but not on where the two differ. */
bool pd_http_secret_is(const char *given, const char *wanted);

#endif
