/* printable.c - checks whether a text is printable, that is, may be shown on a terminal. */
#include "printable.h"

#include <string.h>

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
