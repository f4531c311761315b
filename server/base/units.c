/* units.c - reads sizes such as "64k" and durations such as "500ms" from text. */
#include "units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
