/* format.c - formats numbers and lines of text, and prints them. */
#include "format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

char *pd_bytes_text(char text[PD_CELL], uint64_t bytes)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    size_t u = 0;

    while (value >= 1024 && u + 1 < sizeof unit / sizeof *unit) {
        value /= 1024;
        u++;
    }
    snprintf(text, PD_CELL, u == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, unit[u]);
    return text;
}

char *pd_count_text(char text[PD_CELL], uint64_t count)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *at = text;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}

char *pd_duration_text(char text[PD_CELL], uint64_t ms)
{
    uint64_t s = ms / 1000;

    if (s < 1)
        snprintf(text, PD_CELL, "%" PRIu64 " ms", ms);
    else if (s < 60)
        snprintf(text, PD_CELL, "%.1f s", (double)ms / 1000);
    else if (s < 3600)
        snprintf(text, PD_CELL, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, PD_CELL, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
    else
        snprintf(text, PD_CELL, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
    return text;
}

char *pd_seconds_text(char text[PD_CELL], double seconds)
{
    double value = seconds < 1 ? seconds * 1000 : seconds;

    snprintf(text, PD_CELL,
             value >= 100  ? "%.0f %s"
             : value >= 10 ? "%.1f %s"
                           : "%.2f %s",
             value, seconds < 1 ? "ms" : "s");
    return text;
}

char *pd_speed_text(char text[PD_CELL], double per_second)
{
    snprintf(text, PD_CELL, per_second >= 100 ? "%.0f" : per_second >= 10 ? "%.1f" : "%.2f", per_second);
    return text;
}

char *pd_flops_text(char text[PD_CELL], double flops)
{
    static const char *const unit[] = { "", "k", "M", "G", "T", "P", "E" };
    size_t u = 0;

    while (flops >= 999.5 && u + 1 < sizeof unit / sizeof *unit) {
        flops /= 1000;
        u++;
    }
    snprintf(text, PD_CELL, u == 0 || flops >= 99.95 ? "%.0f %sflop" : "%.1f %sflop", flops, unit[u]);
    return text;
}

char *pd_text_formatted(const char *format, va_list args)
{
    char *text;

    if (vasprintf(&text, format, args) < 0) return NULL;
    pd_text_mend(text);
    return text;
}

void pd_print_line(FILE *out, const char *format, ...)
{
    char *text;
    va_list args;

    va_start(args, format);
    text = pd_text_formatted(format, args);
    va_end(args);
    fprintf(out, "%s\n", text != NULL ? text : "?");
    free(text);
}

void pd_print_json(FILE *out, const char *json)
{
    size_t left = strlen(json);

    while (left > 0) {
        char escape[PD_ESCAPE];
        uint32_t point;
        size_t good = pd_text_printable(json, left), bytes;
        fwrite(json, 1, good, out);
        json += good;
        left -= good;
        if (left == 0) return;
        bytes = pd_utf8_next(json, left, &point);
        if (*json == '\n')
            fputc('\n', out);
        else if (bytes > 0)
            fwrite(escape, 1, pd_point_escape(escape, point), out);
        else
            fputc('?', out);
        json += bytes > 0 ? bytes : 1;
        left -= bytes > 0 ? bytes : 1;
    }
}

void pd_transfer_show(uint64_t done, uint64_t all, const char *verb, bool last)
{
    char some[PD_CELL], whole[PD_CELL];

    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%s of %s %s   %s", pd_bytes_text(some, done), pd_bytes_text(whole, all), verb, last ? "\n" : "");
}
