/* Tests the parser of HTTP requests: what it reads, what it refuses, and that the result does not depend on how the
 * bytes come. */
#include "test.h"
#include "http_request.h"

#define HOST "Host: localhost\r\n"

typedef struct test_case {
    const char *text;
    pd_http_parsed expected;
} test_case;

static const test_case cases[] = {
    { "GET / HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_COMPLETE },
    { "HEAD /metrics?x=1 HTTP/1.1\r\n" HOST "Accept: */*\r\n\r\n", PD_HTTP_COMPLETE },
    { "GET /metrics HTTP/1.0\r\n\r\n", PD_HTTP_COMPLETE },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", PD_HTTP_COMPLETE },
    { "GET / HTTP/1.1\r\n\r\n", PD_HTTP_BAD },              /* no Host */
    { "GET / HTTP/1.1\r\n" HOST HOST "\r\n", PD_HTTP_BAD }, /* two of them */
    { "GET / HTTP/1.1\r\n" HOST "Authorization: Bearer a\r\nauthorization: Bearer b\r\n\r\n", PD_HTTP_BAD },
    { "GET / HTTP/1.1\n" HOST "\r\n", PD_HTTP_BAD },              /* a line feed alone */
    { "GET / HTTP/1.1\r\n" HOST "A: b\rc\r\n\r\n", PD_HTTP_BAD }, /* a carriage return alone */
    { "GET / HTTP/1.1\r\n" HOST " folded\r\n\r\n", PD_HTTP_BAD },
    { "GET / HTTP/1.1\r\n" HOST "Name : x\r\n\r\n", PD_HTTP_BAD },
    { "GET / HTTP/1.1\r\n" HOST "nothing\r\n\r\n", PD_HTTP_BAD },
    { "GET  / HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_BAD },
    { "GET http://x/ HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_BAD },
    { "GET /a\tb HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_BAD },
    { "\r\nGET / HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_BAD },
    { "GET /\r\n\r\n", PD_HTTP_BAD },
    { "GET / HTTP/2.0\r\n" HOST "\r\n", PD_HTTP_VERSION },
    { "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", PD_HTTP_METHOD },
    { "get / HTTP/1.1\r\n" HOST "\r\n", PD_HTTP_METHOD },
    { "GET / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", PD_HTTP_BODY },
    { "GET / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", PD_HTTP_BODY },
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static pd_http_parsed parse(const char *text, size_t n, pd_http_request *request)
{
    const char *why = NULL;
    char *copy = malloc(n + 1); /* exactly as long, so that a sanitizer sees reads beyond it */
    pd_http_parsed parsed;

    memcpy(copy, text, n);
    parsed = pd_http_parse(request, copy, n, &why);
    if (parsed != PD_HTTP_COMPLETE && parsed != PD_HTTP_MORE) assert_non_null(why);
    free(copy);
    return parsed;
}

TEST(each_request_is_read_or_refused_as_the_table_says)
{
    pd_http_request request;

    for (size_t i = 0; i < N_CASES; i++)
        if (parse(cases[i].text, strlen(cases[i].text), &request) != cases[i].expected)
            fail_msg("%s: not %d", cases[i].text, (int)cases[i].expected);
}

TEST(a_part_of_a_request_is_unfinished_or_refused_already_at_every_split)
{
    pd_http_request request;

    for (size_t i = 0; i < N_CASES; i++) {
        bool finished = false;
        for (size_t n = 0; n <= strlen(cases[i].text); n++) {
            pd_http_parsed parsed = parse(cases[i].text, n, &request);
            if (parsed != PD_HTTP_MORE) finished = true;
            if (finished && parsed != cases[i].expected)
                fail_msg("%s: %d after %zu bytes", cases[i].text, (int)parsed, n);
            if (!finished) assert_int_equal(parsed, PD_HTTP_MORE);
        }
        assert_true(finished);
    }
}

TEST(a_request_tells_its_path_method_and_version)
{
    static const char text[] = "HEAD /jobs.json?since=3 HTTP/1.0\r\n\r\n";
    pd_http_request request;

    assert_int_equal(parse(text, sizeof text - 1, &request), PD_HTTP_COMPLETE);
    assert_string_equal(request.path, "/jobs.json");
    assert_true(request.head && request.old && request.numeric_host && !request.open_metrics);
}

TEST(a_head_that_is_too_long_is_refused_by_what_is_long)
{
    static char text[PD_HTTP_REQUEST_MAX];
    pd_http_request request;

    memset(text, 'a', sizeof text);
    assert_int_equal(parse(text, sizeof text, &request), PD_HTTP_LONG_PATH);
    assert_int_equal(parse(text, sizeof text - 1, &request), PD_HTTP_MORE);
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    assert_int_equal(parse(text, sizeof text, &request), PD_HTTP_LONG_HEAD);
    memcpy(text, "GET /", 5);
    memset(text + 5, 'b', 300);
    memcpy(text + 305, " HTTP/1.1\r\n" HOST "\r\n", 30);
    assert_int_equal(parse(text, 305 + 30, &request), PD_HTTP_LONG_PATH);
}

/* Returns whether a request with this field prefers OpenMetrics. */
static bool prefers(const char *accept)
{
    char text[512];
    pd_http_request request;

    snprintf(text, sizeof text, "GET /metrics HTTP/1.1\r\n" HOST "accept: %s\r\n\r\n", accept);
    assert_int_equal(parse(text, strlen(text), &request), PD_HTTP_COMPLETE);
    return request.open_metrics;
}

TEST(open_metrics_is_chosen_only_if_the_peer_would_rather_have_it)
{
    assert_true(prefers("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
    assert_true(prefers("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert_false(prefers("text/plain;version=0.0.4"));
    assert_false(prefers("*/*"));
    assert_false(prefers("application/openmetrics-text;version=1.0.0;q=0.3, text/plain;q=0.9"));
    assert_false(prefers("application/openmetrics-text;q=0"));
    assert_false(prefers("application/openmetrics-text;version=0.0.1"));
    assert_false(prefers("application/openmetrics-text;q=nan"));
}

/* Returns the secret of a request with this field Authorization. */
static const char *secret_of(const char *authorization)
{
    static pd_http_request request;
    char text[1024];

    snprintf(text, sizeof text, "GET / HTTP/1.1\r\n" HOST "Authorization: %s\r\n\r\n", authorization);
    assert_int_equal(parse(text, strlen(text), &request), PD_HTTP_COMPLETE);
    return request.secret;
}

TEST(the_secret_is_the_bearers_token_or_the_password)
{
    assert_string_equal(secret_of("Bearer abc123"), "abc123");
    assert_string_equal(secret_of("bearer  abc123 "), "abc123");
    assert_string_equal(secret_of("Basic dXNlcjpzZWNyZXQ="), "secret"); /* user:secret */
    assert_string_equal(secret_of("Basic dXNlcg=="), "");               /* user, without a password */
    assert_string_equal(secret_of("Basic !!!!"), "");
    assert_string_equal(secret_of("Digest abc123"), "");
}

TEST(secrets_are_equal_only_if_all_their_bytes_are)
{
    assert_true(pd_http_secret_is("abcdef", "abcdef"));
    assert_false(pd_http_secret_is("abcdeX", "abcdef"));
    assert_false(pd_http_secret_is("Xbcdef", "abcdef"));
    assert_false(pd_http_secret_is("abcde", "abcdef"));
    assert_false(pd_http_secret_is("abcdefabcdef", "abcdef"));
    assert_false(pd_http_secret_is("", "abcdef"));
    assert_true(pd_http_secret_is("ABCdef0123456789", "abcDEF0123456789"));
    assert_false(pd_http_secret_is("ABCdef0123456788", "abcDEF0123456789"));
    assert_true(pd_http_secret_is("correct-Horse", "correct-Horse"));
    assert_false(pd_http_secret_is("correct-horse", "correct-Horse"));
}

static bool is_numeric(const char *host)
{
    char text[256];
    pd_http_request request;

    snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    assert_int_equal(parse(text, strlen(text), &request), PD_HTTP_COMPLETE);
    return request.numeric_host;
}

TEST(names_of_strangers_are_no_numeric_hosts)
{
    assert_true(is_numeric("localhost") && is_numeric("LOCALHOST:7072") && is_numeric("127.0.0.1:7072") &&
                is_numeric("[::1]:7072"));
    assert_false(is_numeric("example.org") || is_numeric("127.0.0.1.example.org") || is_numeric("") ||
                 is_numeric("localhost.example.org:80"));
}
