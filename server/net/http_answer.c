/* http_answer.c - writes answers to HTTP requests: heads, short bodies, and the pieces of long ones. */
#include "http_answer.h"

#include "dashboard.h"
#include "server_figures.h"

#include <stdio.h>
#include <string.h>

typedef struct status {
    int code;
    const char *reason;
} status;

static const status reasons[] = {
    { 200, "OK" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 421, "Misdirected Request" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 503, "Service Unavailable" },
    { 505, "HTTP Version Not Supported" },
};

static const char *reason_of(int code)
{
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code) return reasons[i].reason;
    return "Unknown";
}

/* ---- heads ---- */

/* Writes the first lines of an answer. Nothing may be stored by caches, and no browser may guess another type. */
static void put_head(pd_document *out, int code, const char *type)
{
    pd_document_put(out,
                    "HTTP/1.1 %d %s\r\n"
                    "Content-Type: %s\r\n"
                    "Cache-Control: no-store\r\n"
                    "X-Content-Type-Options: nosniff\r\n"
                    "Connection: close\r\n",
                    code, reason_of(code), type);
    if (code == 405) pd_document_put(out, "Allow: GET, HEAD\r\n");
    if (code == 429) pd_document_put(out, "Retry-After: 1\r\n");
    if (code == 401) pd_document_put(out, "WWW-Authenticate: Basic realm=\"paramd\", Bearer\r\n");
}

/* Writes a whole answer with a short body. */
static void put_short(pd_document *out, int code, const char *text, bool head)
{
    put_head(out, code, "text/plain; charset=utf-8");
    pd_document_put(out, "Content-Length: %zu\r\n\r\n", strlen(text) + 1);
    if (!head) pd_document_put(out, "%s\n", text);
}

static void begin_pieces(pd_http_answer *answer, const pd_http_request *request, const char *type, pd_document *out)
{
    put_head(out, 200, type);
    answer->chunked = !request->old;
    if (answer->chunked) pd_document_put(out, "Transfer-Encoding: chunked\r\n");
    pd_document_put(out, "\r\n");
    answer->ended = request->head;
}

/* ---- the paths and their answers ---- */

static void answer_metrics(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                           pd_document *out)
{
    (void)daemon;
    answer->metrics = true;
    answer->metrics_cursor.open = request->open_metrics;
    begin_pieces(answer, request,
                 request->open_metrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                       : "text/plain; version=0.0.4; charset=utf-8",
                 out);
}

static void answer_jobs(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                        pd_document *out)
{
    (void)daemon;
    answer->jobs = true;
    begin_pieces(answer, request, "application/json", out);
}

static void answer_health(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                          pd_document *out)
{
    bool healthy = pd_server_is_healthy(daemon);

    answer->ended = true;
    put_short(out, healthy ? 200 : 503,
              healthy ? "ok" : "the step thread has been at one piece of work for over a minute", request->head);
}

static void answer_ready(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                         pd_document *out)
{
    const char *state = pd_server_state(daemon);

    answer->ended = true;
    put_short(out, strcmp(state, "ready") == 0 ? 200 : 503, state, request->head);
}

/* Answers with the dashboard. The policy lets the page run its own script and style, found by their hashes, and fetch
 * from this listener alone. */
static void answer_dashboard(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                             pd_document *out)
{
    char script[PD_DASHBOARD_HASH], style[PD_DASHBOARD_HASH];

    (void)daemon;
    answer->ended = true;
    pd_dashboard_hash(script, pd_dashboard_script_sha256);
    pd_dashboard_hash(style, pd_dashboard_style_sha256);
    put_head(out, 200, "text/html; charset=utf-8");
    pd_document_put(out,
                    "Content-Security-Policy: default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; "
                    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
                    "Referrer-Policy: no-referrer\r\n"
                    "Content-Length: %zu\r\n\r\n",
                    script, style, pd_dashboard_bytes);
    if (!request->head) pd_document_add(out, (const char *)pd_dashboard, pd_dashboard_bytes);
}

typedef struct path {
    const char *path;
    bool open; /* needs no token: it tells one word */
    void (*answer)(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request, pd_document *out);
} path;

static const path paths[] = {
    { "/metrics", false, answer_metrics }, { "/healthz", true, answer_health }, { "/readyz", true, answer_ready },
    { "/jobs.json", false, answer_jobs },  { "/", false, answer_dashboard },
};

static const path *find(const char *wanted)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(paths[i].path, wanted) == 0) return &paths[i];
    return NULL;
}

/* ---- answers ---- */

void pd_http_answer_refuse(pd_http_answer *answer, int code, const char *why, bool head, pd_document *out)
{
    answer->ended = true;
    put_short(out, code, why, head);
}

void pd_http_answer_begin(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                          pd_document *out)
{
    const path *found = find(request->path);
    const char *token = daemon->config.http_token;

    if (found == NULL || !found->open) {
        if (token != NULL && !pd_http_secret_is(request->secret, token)) {
            pd_http_answer_refuse(
                answer, 401,
                "expected the token of http.token: Authorization: Bearer TOKEN, or the password of any "
                "user",
                request->head, out);
            return;
        }
        if (token == NULL && !daemon->config.insecure && !request->numeric_host) {
            pd_http_answer_refuse(answer, 421,
                                  "without a token, expected the field Host to be localhost or an IP address: set "
                                  "http.token to be called by another name",
                                  request->head, out);
            return;
        }
    }
    if (found != NULL)
        found->answer(answer, daemon, request, out);
    else
        pd_http_answer_refuse(answer, 404, "expected one of /metrics, /healthz, /readyz, /jobs.json, /", request->head,
                              out);
}

static bool next_item(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    if (answer->metrics) return pd_metrics_next(&answer->metrics_cursor, daemon, out);
    return answer->jobs && pd_jobs_json_next(&answer->jobs_cursor, daemon, out);
}

/* The size of a chunk is written in so many bytes, before the chunk is there. */
#define SIZE_LINE "00000000\r\n"

/* Writes items until they are a piece. Returns whether there was any. */
static bool put_items(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    size_t begin = out->n;

    while (out->n - begin < PD_HTTP_PIECE && next_item(answer, daemon, out)) continue;
    return out->n > begin;
}

static bool put_chunk(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    size_t begin = out->n, head = sizeof SIZE_LINE - 1;
    char size[16];

    pd_document_put(out, SIZE_LINE);
    if (!put_items(answer, daemon, out) || out->failed) {
        out->n = begin;
        return false;
    }
    snprintf(size, sizeof size, "%08zx", out->n - begin - head);
    memcpy(out->at + begin, size, 8);
    pd_document_put(out, "\r\n");
    return true;
}

bool pd_http_answer_next(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out)
{
    if (answer->ended) return false;
    if (answer->chunked ? put_chunk(answer, daemon, out) : put_items(answer, daemon, out)) return true;
    answer->ended = true;
    if (answer->chunked) pd_document_put(out, "0\r\n\r\n");
    return answer->chunked;
}
