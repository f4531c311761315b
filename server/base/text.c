/* text.c - makes text printable, writes JSON strings, finds the nearest known word, reads sizes and durations, and
 * makes error texts (pd_fail). */
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The forms of a UTF-8 character of 1 to 4 bytes: mask and value of the first byte's marker bits, how many bytes
 * follow, and the smallest code point that needs this form. */
static const struct {
    uint8_t mask, lead, more;
    uint32_t least;
} forms[] = {
    { 0x80, 0x00, 0, 0x0 },
    { 0xe0, 0xc0, 1, 0x80 },
    { 0xf0, 0xe0, 2, 0x800 },
    { 0xf8, 0xf0, 3, 0x10000 },
};
enum { FORMS = sizeof forms / sizeof forms[0] };

size_t pd_utf8_next(const char *at, size_t n, uint32_t *point)
{
    const uint8_t *byte = (const uint8_t *)at;
    size_t form = 0;

    if (n == 0) return 0;
    while (form < FORMS && (byte[0] & forms[form].mask) != forms[form].lead) form++;
    if (form == FORMS || n <= forms[form].more) return 0;
    *point = byte[0] & (uint8_t)~forms[form].mask;
    for (size_t k = 1; k <= forms[form].more; k++) {
        if ((byte[k] & 0xc0) != 0x80) return 0;
        *point = *point << 6 | (byte[k] & 0x3f);
    }
    if (*point < forms[form].least || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000)) return 0;
    return forms[form].more + 1u;
}

/* Ranges of code points that are not printable, in ascending order. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    { 0x0, 0x1f },      { 0x7f, 0x9f },     { 0x61c, 0x61c },   { 0x200b, 0x200f },   { 0x2028, 0x202e },
    { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
};
enum { HIDDEN = sizeof hidden / sizeof hidden[0] };

bool pd_point_printable(uint32_t point)
{
    for (int i = 0; i < HIDDEN && hidden[i].first <= point; i++)
        if (point <= hidden[i].last) return false;
    return true;
}

size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point)
{
    unsigned rest = point - 0x10000;

    if (point < 0x10000) return (size_t)snprintf(out, PD_ESCAPE, "\\u%04x", (unsigned)point);
    return (size_t)snprintf(out, PD_ESCAPE, "\\u%04x\\u%04x", (0xd800 | rest >> 10) & 0xffff, 0xdc00 | (rest & 0x3ff));
}

size_t pd_json_next(char out[PD_ESCAPE], const char *at, size_t n, size_t *used)
{
    uint32_t point;
    size_t bytes = *used = pd_utf8_next(at, n, &point);

    if (bytes > 0 && !pd_point_printable(point)) return pd_point_escape(out, point);
    if (bytes == 0) *used = bytes = 1;
    if (*at == '"' || *at == '\\') {
        out[0] = '\\';
        out[1] = *at;
        return 2;
    }
    memcpy(out, at, bytes);
    if ((unsigned char)*at > 0x7f && bytes == 1) out[0] = '?';
    return bytes;
}

/* Returns whether `text`, of `left` bytes, is only the beginning of a UTF-8 character, because a longer text was cut
 * there. */
static bool is_cut(const char *text, size_t left)
{
    size_t form = 1;

    while (form < FORMS && ((uint8_t)text[0] & forms[form].mask) != forms[form].lead) form++;
    if (form == FORMS || left > forms[form].more) return false;
    for (size_t k = 1; k < left; k++)
        if (((uint8_t)text[k] & 0xc0) != 0x80) return false;
    return true;
}

/* Copies whole characters as long as they fit into `out`, and writes '?' in place of characters that are not printable.
 * `out` may be `text`, since no character becomes longer. */
static void print(char *out, size_t size, const char *text)
{
    size_t left = strlen(text), used = 0;

    while (left > 0) {
        uint32_t point;
        size_t bytes = pd_utf8_next(text, left, &point), taken = bytes > 0 ? bytes : 1;
        bool good = bytes > 0 && pd_point_printable(point);
        if (used + (good ? bytes : 1) >= size || (bytes == 0 && is_cut(text, left))) break;
        if (good)
            memmove(out + used, text, bytes);
        else
            out[used] = '?';
        used += good ? bytes : 1;
        text += taken;
        left -= taken;
    }
    out[used] = '\0';
}

char *pd_text_print(char *out, size_t size, const char *text)
{
    print(out, size, text);
    return out;
}

void pd_text_mend(char *text)
{
    print(text, strlen(text) + 1, text);
}

size_t pd_text_printable(const char *text, size_t n)
{
    size_t at = 0, bytes;
    uint32_t point;

    while (at < n && (bytes = pd_utf8_next(text + at, n - at, &point)) > 0 && pd_point_printable(point)) at += bytes;
    return at;
}

int pd_text_check(const char *what, const char *text, pd_error *err)
{
    size_t n = strlen(text), good = pd_text_printable(text, n);
    uint32_t point;

    if (good == n) return PD_OK;
    if (pd_utf8_next(text + good, n - good, &point) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s is not UTF-8 at byte %zu", what, good);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s has a control character at byte %zu: U+%04X cannot be printed", what,
                   good, (unsigned)point);
}

enum { LONGEST = 32 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Returns how many letters must be inserted, deleted or replaced to turn one word into the other (Levenshtein
 * distance). Both words have at most LONGEST letters. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[LONGEST + 1];

    for (size_t k = 0; k <= nb; k++) row[k] = k;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= nb; k++) {
            size_t replaced = diagonal + (a[i - 1] != b[k - 1]);
            diagonal = row[k];
            row[k] = least(replaced, least(row[k], row[k - 1]) + 1);
        }
    }
    return row[nb];
}

pd_nearest pd_nearest_begin(const char *word, size_t n)
{
    return (pd_nearest){ .word = word, .n = n, .distance = (size_t)-1 };
}

void pd_nearest_offer(pd_nearest *search, const char *candidate)
{
    size_t n = strlen(candidate), d;

    if (search->n == 0 || search->n > LONGEST || n > LONGEST) return;
    d = distance(search->word, search->n, candidate, n);
    if (strncmp(candidate, search->word, search->n) == 0)
        d = least(d, 1); /* a candidate that begins with the word counts as near: for "import", "import-state" wins
                          * over "export" */
    else if (2 * d > least(n, search->n))
        return;
    if (d > search->distance || (d == search->distance && strlen(search->best) <= n)) return;
    search->best = candidate;
    search->distance = d;
}

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " ");
}

bool pd_bytes_read(const char *text, uint64_t *bytes)
{
    static const char letters[] = "kmgt";
    const char *unit, *letter;
    char *end;
    uint64_t scale = 1;

    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *bytes = strtoull(text, &end, 10);
    unit = skip_blanks(end);
    if (errno != 0) return false;
    if ((letter = strchr(letters, unit[0] | 0x20)) != NULL) {
        scale <<= 10 * (letter - letters + 1);
        unit += (unit[1] | 0x20) == 'i' ? 2 : 1;
    }
    return (unit[0] == '\0' || strcasecmp(unit, "b") == 0) && !__builtin_mul_overflow(*bytes, scale, bytes);
}

bool pd_duration_read(const char *text, bool bare, double *seconds)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = { { "", 1 }, { "ms", 1e-3 }, { "s", 1 }, { "m", 60 }, { "min", 60 }, { "h", 3600 }, { "d", 86400 } };
    const char *unit;
    char *end;

    if (strspn(text, "0123456789.") == 0 || strpbrk(text, "xX") != NULL) return false;
    *seconds = strtod(text, &end);
    unit = skip_blanks(end);
    if (unit[0] == '\0' && !bare) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) != 0) continue;
        *seconds *= units[i].seconds;
        return true;
    }
    return false;
}

int pd_fail(pd_error *err, int code, const char *format, ...)
{
    va_list args;

    if (err == NULL) return code;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    pd_text_mend(err->text);
    return code;
}

const char *pd_code_name(int code)
{
    switch (code) {
#define NAME_CASE(name, value, text)                                                                                   \
    case value: return #name;
        PD_ERRORS(NAME_CASE)
#undef NAME_CASE
    default: return "UNKNOWN";
    }
}

const char *pd_code_text(int code)
{
    switch (code) {
#define TEXT_CASE(name, value, text)                                                                                   \
    case value: return text;
        PD_ERRORS(TEXT_CASE)
#undef TEXT_CASE
    default: return "unknown error";
    }
}
