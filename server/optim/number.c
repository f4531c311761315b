/* number.c - reads numbers strictly, and writes the shortest text that gives the same number. */
#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "paramd/error.h"

static bool starts_a_number(const char *text)
{
    return *text != '\0' && !isspace((unsigned char)*text);
}

int pd_number_read(const char *text, double *value)
{
    char *end;

    if (!starts_a_number(text)) return PD_INVALID_ARGUMENT;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value) ? PD_OK : PD_INVALID_ARGUMENT;
}

int pd_number_read_whole(const char *text, double *value)
{
    char *end;
    long long number;

    if (!starts_a_number(text)) return PD_INVALID_ARGUMENT;
    errno = 0;
    number = strtoll(text, &end, 10);
    *value = (double)number;
    return *end == '\0' && errno == 0 ? PD_OK : PD_INVALID_ARGUMENT;
}

char *pd_number_text(double value, char *text, size_t size)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return text;
    }
    return text;
}
