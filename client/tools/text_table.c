/* text_table.c - lays out and prints tables for people at a terminal. */
#include "text_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "format.h"
#include "grow.h"

enum { LINE = 100, MAX_COLUMNS = 32, NARROWEST = 10 };

typedef struct table_column {
    bool right, cut, wrap; /* layout of the column, as the sign before its title says (pd_table_new) */
    int width;
} table_column;

struct pd_table {
    size_t columns;
    table_column column[MAX_COLUMNS];
    int limit; /* most characters in a line of the table; 0: any number */
    /* The texts of all cells: titles first, then row by row. The text of a cell to print in red begins with ALARM. */
    char **cell;
    size_t n, room;
    bool failed; /* the table is incomplete: memory for a cell was missing */
};

/* The mark at the start of a red cell's text. Other texts do not begin with this character, since pd_text_mend
 * replaces it. */
#define ALARM '\1'

/* Returns how many columns of a terminal a text takes. Continuation bytes of UTF-8 take none. */
static int width_of(const char *text)
{
    int width = 0;

    for (text += *text == ALARM; *text != '\0'; text++) width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

/* Makes room for one more cell in the table. */
static bool make_room(pd_table *table)
{
    return pd_grow((void **)&table->cell, &table->room, table->n + 1, sizeof *table->cell) == PD_OK;
}

/* Adds a cell to the table and takes ownership of `text`. A `text` of NULL means that the caller had no memory for
 * it. */
static void append(pd_table *table, char *text)
{
    table_column *column = &table->column[table->n % table->columns];

    if (text == NULL || !make_room(table)) {
        free(text);
        table->failed = true;
        return;
    }
    if (width_of(text) > column->width) column->width = width_of(text);
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
        size_t length = strcspn(titles, "|"), sign = strchr(">~&", titles[0]) != NULL && titles[0] != '\0';
        table->column[i] =
            (table_column){ .right = titles[0] == '>', .cut = titles[0] == '~', .wrap = titles[0] == '&' };
        append(table, strndup(titles + sign, length - sign));
        titles += length + 1;
    }
    return table;
}

void pd_table_limit(pd_table *table, int limit)
{
    if (table != NULL) table->limit = limit;
}

int pd_table_default_limit(void)
{
    struct winsize size;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : LINE;
}

void pd_table_cell(pd_table *table, const char *format, ...)
{
    va_list args;

    if (table == NULL) return;
    va_start(args, format);
    append(table, pd_text_formatted(format, args));
    va_end(args);
}

void pd_table_cell_if(pd_table *table, bool known, const char *format, ...)
{
    va_list args;

    if (table == NULL) return;
    va_start(args, format);
    append(table, known ? pd_text_formatted(format, args) : strdup("-"));
    va_end(args);
}

void pd_table_alarm(pd_table *table)
{
    char *last, *marked;

    if (table == NULL || table->failed) return;
    last = table->cell[table->n - 1];
    if (asprintf(&marked, "%c%s", ALARM, last) < 0) return;
    free(last);
    table->cell[table->n - 1] = marked;
}

/* Adds a line of text as a row: its first cell is the text, and its other cells are NULL. */
void pd_table_line(pd_table *table, const char *format, ...)
{
    char *text;
    va_list args;

    if (table == NULL) return;
    va_start(args, format);
    text = pd_text_formatted(format, args);
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

bool pd_shows_colour(FILE *out)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

    return out == stdout && isatty(STDOUT_FILENO) && (no == NULL || no[0] == '\0') && terminal != NULL &&
           strcmp(terminal, "dumb") != 0;
}

/* Returns the number of characters in a printed line of the table. */
static int total_width(const pd_table *table)
{
    int total = 2 * ((int)table->columns - 1);

    for (size_t i = 0; i < table->columns; i++) total += table->column[i].width;
    return total;
}

/* Narrows columns until a line fits the table's limit. First the last column is narrowed if its cells wrap, then
 * always the widest column whose cells may be cut. */
static void narrow(pd_table *table)
{
    table_column *last = &table->column[table->columns - 1];
    int over = total_width(table) - table->limit;

    if (table->limit == 0) return;
    if (over > 0 && last->wrap) {
        last->width = last->width - over > 2 * NARROWEST ? last->width - over : 2 * NARROWEST;
        over = total_width(table) - table->limit;
    }
    for (; over > 0; over--) {
        table_column *widest = NULL;
        for (table_column *c = table->column; c < table->column + table->columns; c++)
            if (c->cut && c->width > NARROWEST && (widest == NULL || c->width > widest->width)) widest = c;
        if (widest == NULL) return;
        widest->width--;
    }
}

/* Returns the length in bytes of a text's first `n` characters. */
static int bytes_of(const char *text, int n)
{
    const char *at = text;

    for (; *at != '\0'; at++)
        if (((unsigned char)*at & 0xC0) != 0x80 && n-- == 0) break;
    return (int)(at - text);
}

/* Prints the text of a cell, at most `width` characters. A longer text loses its middle, because names of
 * parameters often differ only at the end. */
static void print_cut(const char *text, int width, FILE *out)
{
    int all = width_of(text), left = (width - 1) / 2;

    if (all <= width)
        fputs(text, out);
    else
        fprintf(out, "%.*s\u2026%s", bytes_of(text, left), text, text + bytes_of(text, all - (width - 1 - left)));
}

/* Returns the length in bytes of the next word to print. A word longer than a line is broken after the last '|'
 * that fits. */
static int word_length(const char *text, int width)
{
    int n = (int)strcspn(text, " ");

    if (n <= width) return n;
    for (int i = width; i > 0; i--)
        if (text[i - 1] == '|') return i;
    return n;
}

/* Prints a text in lines of at most `width` characters. All lines but the first are indented by `indent` spaces. */
static void print_wrapped(const char *text, int width, int indent, FILE *out)
{
    for (int column = 0; *text != '\0';) {
        int n = word_length(text, width), shown = 0;
        for (int i = 0; i < n; i++) shown += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (column > 0 && column + 1 + shown > width) {
            fprintf(out, "\n%*s", indent, "");
            column = 0;
        }
        if (column > 0 && text[-1] == ' ') column += fprintf(out, " ");
        fwrite(text, 1, (size_t)n, out);
        column += shown;
        text += n + (text[n] == ' ');
    }
}

/* Prints a cell of the table. On a terminal with colours, alarms are red and titles are bold. */
static void print_cell(const table_column *column, const char *text, bool title, bool colour, int indent, FILE *out)
{
    const char *begin = *text == ALARM ? "\033[31m" : title ? "\033[1m" : "";

    text += *text == ALARM;
    if (colour) fputs(begin, out);
    if (column->wrap)
        print_wrapped(text, column->width, indent, out);
    else
        print_cut(text, column->cut ? column->width : width_of(text), out);
    if (colour && begin[0] != '\0') fputs("\033[0m", out);
}

static void print_row(const pd_table *table, size_t first, bool colour, FILE *out)
{
    int indent = 0;

    if (table->columns > 1 && table->cell[first + 1] == NULL) {
        fprintf(out, "%s\n", table->cell[first]);
        return;
    }
    for (size_t i = 0; i < table->columns; i++) {
        const table_column *column = &table->column[i];
        const char *text = table->cell[first + i];
        int gap = column->width - width_of(text);
        bool last = i + 1 == table->columns;

        if (gap < 0) gap = 0;
        if (column->right) fprintf(out, "%*s", gap, "");
        print_cell(column, text, first == 0, colour, indent, out);
        if (!column->right && !last) fprintf(out, "%*s", gap, "");
        fputs(last ? "\n" : "  ", out);
        indent += column->width + 2;
    }
}

int pd_table_print(pd_table *table, FILE *out, const char *none)
{
    bool failed = table == NULL || table->failed, colour = !failed && pd_shows_colour(out);

    if (failed) {
        fprintf(stderr, "paramctl: out of memory\n");
    } else if (table->n <= table->columns) {
        fprintf(out, "%s\n", none);
    } else {
        narrow(table);
        for (size_t first = 0; first + table->columns <= table->n; first += table->columns)
            print_row(table, first, colour, out);
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
