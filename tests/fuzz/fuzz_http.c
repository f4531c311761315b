/* Reads any bytes as an HTTP request. The parser keeps within the bytes, a request that is complete or refused is so
 * whatever follows, and what it says of a request is printable. */
#include <stdlib.h>
#include <string.h>

#include "http_request.h"
#include "seed.h"

static pd_http_parsed parse(pd_http_request *out, const uint8_t *data, size_t size)
{
    char *copy = malloc(size + (size == 0)); /* exactly as long, so that reads beyond it are seen */
    const char *why = NULL;
    pd_http_parsed parsed;

    if (size > 0) memcpy(copy, data, size);
    parsed = pd_http_parse(out, copy, size, &why);
    MUST(parsed == PD_HTTP_MORE || parsed == PD_HTTP_COMPLETE || (why != NULL && why[0] != '\0'));
    free(copy);
    return parsed;
}

static void look_at(const pd_http_request *request)
{
    MUST(request->path[0] == '/' && strlen(request->path) < sizeof request->path);
    for (const char *at = request->path; *at != '\0'; at++) MUST(*at > ' ' && *at < 0x7f);
    MUST(strnlen(request->secret, sizeof request->secret) < sizeof request->secret);
    MUST(pd_http_secret_is(request->secret, request->secret));
}

static void make_seeds(const char *folder)
{
    static const char get[] =
        "GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:7072\r\nAccept: application/openmetrics-text;"
        "version=1.0.0;q=0.9,text/plain;q=0.5\r\nAuthorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n";
    static const char head[] = "HEAD / HTTP/1.0\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
    static const char post[] = "POST / HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 3\r\n\r\nabc";

    write_seed(folder, "get", (const uint8_t *)get, sizeof get - 1);
    write_seed(folder, "head", (const uint8_t *)head, sizeof head - 1);
    write_seed(folder, "post", (const uint8_t *)post, sizeof post - 1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pd_http_request whole, part;
    pd_http_parsed parsed, before = PD_HTTP_MORE;

    if (size > PD_HTTP_REQUEST_MAX) size = PD_HTTP_REQUEST_MAX;
    parsed = parse(&whole, data, size);
    for (size_t n = 0; n <= size; n += 1 + size / 16) {
        before = parse(&part, data, n);
        if (before != PD_HTTP_MORE) break;
    }
    MUST(before == PD_HTTP_MORE || before == parsed);
    if (parsed == PD_HTTP_COMPLETE) look_at(&whole);
    return 0;
}
