/* http_request.c - parses the head of an HTTP request. */
#define _GNU_SOURCE /* memmem */
#include "http_request.h"

#include "base64.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* A range of bytes in the head of a request. */
typedef struct span {
    const char *at;
    size_t n;
} span;

static bool is(span text, const char *word)
{
    return text.n == strlen(word) && memcmp(text.at, word, text.n) == 0;
}

static bool is_alike(span text, const char *word)
{
    return text.n == strlen(word) && strncasecmp(text.at, word, text.n) == 0;
}

static bool begins(span text, const char *word)
{
    return text.n >= strlen(word) && strncasecmp(text.at, word, strlen(word)) == 0;
}

static span after(span text, size_t n)
{
    return (span){ text.at + n, text.n - n };
}

static span trim(span text)
{
    while (text.n > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) text = after(text, 1);
    while (text.n > 0 && (text.at[text.n - 1] == ' ' || text.at[text.n - 1] == '\t')) text.n--;
    return text;
}

/* Removes the text up to and including the first `mark` from *text, and returns it without the mark. Without a mark,
 * removes and returns the whole text. */
static span cut(span *text, char mark)
{
    const char *found = memchr(text->at, mark, text->n);
    span first = { text->at, found != NULL ? (size_t)(found - text->at) : text->n };

    *text = after(*text, first.n + (found != NULL));
    return first;
}

/* Returns whether a byte may stand in a token, such as a method or the name of a field. */
static bool is_token_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_token(span text)
{
    for (size_t i = 0; i < text.n; i++)
        if (!is_token_byte(text.at[i])) return false;
    return text.n > 0;
}

/* Returns whether a text has only printable bytes, blanks and bytes above 127. */
static bool is_field_text(span text)
{
    for (size_t i = 0; i < text.n; i++)
        if (((unsigned char)text.at[i] < ' ' && text.at[i] != '\t') || text.at[i] == 0x7f) return false;
    return true;
}

static pd_http_parsed read_path(pd_http_request *out, span target, const char **why)
{
    span path = cut(&target, '?');

    *why = "expected a path such as /metrics";
    for (size_t i = 0; i < path.n; i++)
        if ((unsigned char)path.at[i] <= ' ' || (unsigned char)path.at[i] >= 0x7f) return PD_HTTP_BAD;
    if (path.n == 0 || path.at[0] != '/') return PD_HTTP_BAD;
    *why = "the path is too long: expected at most 255 bytes";
    if (path.n >= sizeof out->path) return PD_HTTP_LONG_PATH;
    memcpy(out->path, path.at, path.n);
    out->path[path.n] = '\0';
    return PD_HTTP_COMPLETE;
}

static pd_http_parsed read_first_line(pd_http_request *out, span line, const char **why)
{
    span method = cut(&line, ' '), target = cut(&line, ' ');

    *why = "expected a first line such as GET /metrics HTTP/1.1";
    if (!is_token(method) || target.n == 0 || !begins(line, "HTTP/")) return PD_HTTP_BAD;
    *why = "expected HTTP/1.1 or HTTP/1.0";
    if (!is(line, "HTTP/1.1") && !is(line, "HTTP/1.0")) return PD_HTTP_VERSION;
    out->old = is(line, "HTTP/1.0");
    out->head = is(method, "HEAD");
    *why = "expected the method GET or HEAD: nothing can be changed here";
    if (!out->head && !is(method, "GET")) return PD_HTTP_METHOD;
    return read_path(out, target, why);
}

/* Returns the number in a text such as "1" or "0.75", times 1000; 0 if the text is not such a number. */
static int thousandths(span text)
{
    int value = 0, scale = 1000;

    for (size_t i = 0; i < text.n && scale > 0; i++) {
        if (i == 1 && text.at[i] == '.') continue;
        if (text.at[i] < '0' || text.at[i] > '9') return 0;
        value += (text.at[i] - '0') * scale;
        scale /= 10;
    }
    return value;
}

/* Returns the parameter q of an item of the field Accept, times 1000; 1000 if it has none. */
static int quality(span parameters)
{
    while (parameters.n > 0) {
        span one = trim(cut(&parameters, ';'));
        if (begins(one, "q=")) return thousandths(after(one, 2));
    }
    return 1000;
}

/* Returns whether an item of the field Accept asks for another version of OpenMetrics than 1.0.0. */
static bool is_other_version(span parameters)
{
    while (parameters.n > 0) {
        span one = trim(cut(&parameters, ';'));
        if (begins(one, "version=")) return !is(one, "version=1.0.0");
    }
    return false;
}

static bool prefers_open_metrics(span accept)
{
    int open = 0, plain = 0;

    while (accept.n > 0) {
        span item = cut(&accept, ','), type = trim(cut(&item, ';'));
        if (is_alike(type, "application/openmetrics-text") && !is_other_version(item) && quality(item) > open)
            open = quality(item);
        if (is_alike(type, "text/plain") && quality(item) > plain) plain = quality(item);
    }
    return open > 0 && open >= plain;
}

/* Reads the secret in the field Authorization: a bearer token, or the password of Basic. Other values are ignored. */
static void read_secret(pd_http_request *out, span value)
{
    char pair[sizeof out->secret];
    const char *colon;
    span text;

    if (begins(value, "Bearer ")) {
        text = trim(after(value, 7));
        if (text.n >= sizeof out->secret) return;
        memcpy(out->secret, text.at, text.n);
        out->secret[text.n] = '\0';
    } else if (begins(value, "Basic ")) {
        text = trim(after(value, 6));
        colon = pd_base64_decode(pair, sizeof pair, NULL, text.at, text.n) ? strchr(pair, ':') : NULL;
        if (colon != NULL) memcpy(out->secret, colon + 1, strlen(colon + 1) + 1);
    }
}

/* Returns whether the value of the field Host is "localhost" or an IP address, with or without a port. A page in a
 * browser could reach this listener under a host name that its author controls (DNS rebinding). */
static bool is_numeric_host(span host)
{
    if (host.n > 0 && host.at[0] == '[') return true;
    host = cut(&host, ':');
    if (is_alike(host, "localhost")) return true;
    for (size_t i = 0; i < host.n; i++)
        if ((host.at[i] < '0' || host.at[i] > '9') && host.at[i] != '.') return false;
    return host.n > 0;
}

/* The fields of a request that were read so far: number of Host and of Authorization fields, and whether a body
 * follows. */
typedef struct fields {
    size_t hosts, secrets;
    bool body;
} fields;

static void read_field(pd_http_request *out, fields *seen, span name, span value)
{
    if (is_alike(name, "Host")) {
        seen->hosts++;
        out->numeric_host = is_numeric_host(value);
    } else if (is_alike(name, "Accept")) {
        out->open_metrics = prefers_open_metrics(value);
    } else if (is_alike(name, "Authorization")) {
        seen->secrets++;
        read_secret(out, value);
    } else if (is_alike(name, "Transfer-Encoding") || (is_alike(name, "Content-Length") && !is(value, "0"))) {
        seen->body = true;
    }
}

static pd_http_parsed read_fields(pd_http_request *out, span head, const char **why)
{
    fields seen = { 0 };

    *why = "expected fields such as Name: value";
    while (head.n > 0) {
        span line = cut(&head, '\n'), name;
        line.n--; /* remove the CR; has_whole_lines has checked that there is one */
        name = cut(&line, ':');
        if (!is_token(name) || !is_field_text(line) || name.at + name.n == line.at) return PD_HTTP_BAD;
        read_field(out, &seen, name, trim(line));
    }
    *why = "expected exactly one field Host";
    if (seen.hosts > 1 || (seen.hosts == 0 && !out->old)) return PD_HTTP_BAD;
    if (seen.hosts == 0) out->numeric_host = true;
    *why = "expected at most one field Authorization";
    if (seen.secrets > 1) return PD_HTTP_BAD;
    *why = "expected a request without a body";
    return seen.body ? PD_HTTP_BODY : PD_HTTP_COMPLETE;
}

/* Returns whether each LF follows a CR, and each CR is followed by a LF, except at the end of the text. */
static bool has_whole_lines(span text)
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.at[i] == '\n' && (i == 0 || text.at[i - 1] != '\r')) return false;
        if (text.at[i] == '\r' && i + 1 < text.n && text.at[i + 1] != '\n') return false;
    }
    return true;
}

static pd_http_parsed judge_unfinished(span text, const char **why)
{
    *why = "expected lines that end with CR LF";
    if (!has_whole_lines(text)) return PD_HTTP_BAD;
    if (text.n < PD_HTTP_REQUEST_MAX) return PD_HTTP_MORE;
    if (memchr(text.at, '\n', text.n) == NULL) {
        *why = "the first line is too long: expected at most 8192 bytes";
        return PD_HTTP_LONG_PATH;
    }
    *why = "the request's head is too long: expected at most 8192 bytes";
    return PD_HTTP_LONG_HEAD;
}

pd_http_parsed pd_http_parse(pd_http_request *out, const char *at, size_t n, const char **why)
{
    const char *end = memmem(at, n, "\r\n\r\n", 4);
    span text = { at, end != NULL ? (size_t)(end - at) + 2 : n }, line;
    pd_http_parsed parsed;

    *out = (pd_http_request){ 0 };
    if (end == NULL) return judge_unfinished(text, why);
    *why = "expected lines that end with CR LF";
    if (!has_whole_lines(text)) return PD_HTTP_BAD;
    line = cut(&text, '\n');
    line.n--;
    parsed = read_first_line(out, line, why);
    return parsed == PD_HTTP_COMPLETE ? read_fields(out, text, why) : parsed;
}

/* Returns a character; upper case becomes lower case if `fold` is set. */
static unsigned folded(char c, bool fold)
{
    return (unsigned char)c | (fold && c >= 'A' && c <= 'Z' ? 0x20u : 0u);
}

bool pd_http_secret_is(const char *given, const char *wanted)
{
    size_t n = strlen(given), m = strlen(wanted);
    bool hexadecimal = strspn(wanted, "0123456789abcdefABCDEF") == m;
    unsigned differs = n != m;

    for (size_t i = 0; i < n; i++)
        differs |= folded(given[i], hexadecimal) ^ folded(wanted[m > 0 ? i % m : 0], hexadecimal);
    return differs == 0;
}
