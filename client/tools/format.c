/* format.c - formats tables and numbers, and prints them. */
#include "format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "printable.h"

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

    if (s < 1) snprintf(text, PD_CELL, "%" PRIu64 " ms", ms);
    else if (s < 60) snprintf(text, PD_CELL, "%.1f s", (double)ms / 1000);
    else if (s < 3600) snprintf(text, PD_CELL, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400) snprintf(text, PD_CELL, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
    else snprintf(text, PD_CELL, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
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

/* ---- lines ---- */

/* Returns the formatted text, which the caller frees. NULL: out of memory. */
static char *formatted(const char *format, va_list args)
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
    text = formatted(format, args);
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
        if (*json == '\n') fputc('\n', out);
        else if (bytes > 0) fwrite(escape, 1, pd_point_escape(escape, point), out);
        else fputc('?', out);
        json += bytes > 0 ? bytes : 1;
        left -= bytes > 0 ? bytes : 1;
    }
}

/* ---- tables ---- */

#define MAX_COLUMNS 20

struct pd_table {
    size_t columns;
    bool   right[MAX_COLUMNS];
    int    width[MAX_COLUMNS];
    char **cell;                /* titles first, then row by row */
    size_t n, room;
    bool   failed;              /* out of memory for a cell */
};

/* Counts characters as a terminal does: continuation bytes of UTF-8 take no column. */
static int width_of(const char *text)
{
    int width = 0;

    for (; *text != '\0'; text++) width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

/* Makes room for one more cell. */
static bool make_room(pd_table *table)
{
    size_t room = table->room == 0 ? 64 : 2 * table->room;
    char **cell;

    if (table->n < table->room) return true;
    if ((cell = realloc(table->cell, room * sizeof *cell)) == NULL) return false;
    table->cell = cell;
    table->room = room;
    return true;
}

/* Adds a cell and takes `text`. NULL: the cell found no memory. */
static void append(pd_table *table, char *text)
{
    size_t column = table->n % table->columns;

    if (text == NULL || !make_room(table)) {
        free(text);
        table->failed = true;
        return;
    }
    if (width_of(text) > table->width[column]) table->width[column] = width_of(text);
    table->cell[table->n++] = text;
}

pd_table *pd_table_new(const char *titles)
{
    pd_table *table = calloc(1, sizeof *table);

    if (table == NULL) return NULL;
    table->columns = 1;
    for (const char *at = titles; *at != '\0'; at++) table->columns += *at == '|';
    assert(table->columns <= MAX_COLUMNS);
    for (size_t i = 0; i < table->columns; i++) {
        size_t length = strcspn(titles, "|");
        table->right[i] = *titles == '>';
        append(table, strndup(titles + table->right[i], length - table->right[i]));
        titles += length + 1;
    }
    return table;
}

void pd_table_cell(pd_table *table, const char *format, ...)
{
    char *text;
    va_list args;

    if (table == NULL) return;
    va_start(args, format);
    text = formatted(format, args);
    va_end(args);
    append(table, text);
}

/* Adds a row whose other cells are NULL. */
void pd_table_line(pd_table *table, const char *format, ...)
{
    char *text;
    va_list args;

    if (table == NULL) return;
    va_start(args, format);
    text = formatted(format, args);
    va_end(args);
    if (text == NULL) table->failed = true;
    for (size_t i = 0; i < table->columns; i++) {
        if (!make_room(table)) {
            if (i == 0) free(text);
            table->failed = true;
            return;
        }
        table->cell[table->n++] = i == 0 ? text : NULL;
    }
}

static void print_row(const pd_table *table, size_t first, FILE *out)
{
    if (table->columns > 1 && table->cell[first + 1] == NULL) {
        fprintf(out, "%s\n", table->cell[first]);
        return;
    }
    for (size_t i = 0; i < table->columns; i++) {
        const char *text = table->cell[first + i];
        int gap = table->width[i] - width_of(text);
        bool last = i + 1 == table->columns;

        if (table->right[i]) fprintf(out, "%*s%s", gap, "", text);
        else fprintf(out, "%s%*s", text, last ? 0 : gap, "");
        fputs(last ? "\n" : "  ", out);
    }
}

int pd_table_print(pd_table *table, FILE *out, const char *none)
{
    bool failed = table == NULL || table->failed;

    if (failed) {
        fprintf(stderr, "paramctl: out of memory\n");
    } else if (table->n <= table->columns) {
        fprintf(out, "%s\n", none);
    } else {
        for (size_t first = 0; first + table->columns <= table->n; first += table->columns)
            print_row(table, first, out);
    }
    pd_table_free(table);
    return failed ? PD_NO_MEMORY : PD_OK;
}

void pd_table_free(pd_table *table)
{
    if (table == NULL) return;
    for (size_t i = 0; i < table->n; i++) free(table->cell[i]);
    free(table->cell);
    free(table);
}
