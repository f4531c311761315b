/* hyper_text.c - reads and writes numbers, and cuts a list into words (at blanks) or items (at commas). Brackets and
 * quotes keep their contents together. */
#include "hyper_text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "paramd/error.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Returns the closing quote if `at` points to a quoted text, otherwise `at`. A quote that is never closed is an
 * ordinary byte. */
static const char *past_quote(const char *at)
{
    const char *end = *at == '\'' ? strchr(at + 1, '\'') : NULL;
    return end != NULL ? end : at;
}

/* Returns the end of the word that begins at `at`, or of the item if `blanks` is false. A word ends at a blank, an item
 * at a comma. Blanks and commas within brackets or quotes do not count. Word and item also end at the end of the
 * text. */
static char *end_of(char *at, bool blanks)
{
    int depth = 0;

    for (; *at != '\0'; at++) {
        at += past_quote(at) - at;
        if (depth == 0 && (blanks ? is_blank(*at) : *at == ',')) break;
        if (*at == '(' || *at == '[') depth++;
        if ((*at == ')' || *at == ']') && depth > 0) depth--;
    }
    return at;
}

static char *without_blanks(char *text)
{
    char *end = text + strlen(text);

    while (is_blank(*text)) text++;
    while (end > text && is_blank(end[-1])) end--;
    *end = '\0';
    return text;
}

/* Ends a word or item with a zero byte at `end`, and moves *rest after it. *rest becomes NULL after the last one. */
static void cut(char **rest, char *end)
{
    *rest = *end == '\0' ? NULL : end + 1;
    *end = '\0';
}

static void remove_blanks(char *text)
{
    char *to = text;

    for (const char *last; *text != '\0'; text++) {
        for (last = past_quote(text); text < last; text++) *to++ = *text;
        if (!is_blank(*text)) *to++ = *text;
    }
    *to = '\0';
}

char *pd_text_word(char **rest)
{
    char *word = *rest;

    while (word != NULL && is_blank(*word)) word++;
    if (word == NULL || *word == '\0') return NULL;
    cut(rest, end_of(word, true));
    remove_blanks(word);
    return word;
}

char *pd_text_item(char **rest)
{
    char *item = *rest;

    if (item == NULL || item[strspn(item, " \t")] == '\0') return NULL;
    cut(rest, end_of(item, false));
    return without_blanks(item);
}

static size_t first_bracket(const char *text)
{
    const char *at = text;

    while (*at != '\0' && *at != '(' && *at != '[') at = past_quote(at) + 1;
    return (size_t)(at - text);
}

int pd_text_inside(char **inside, const char *text)
{
    size_t open = first_bracket(text), length = strlen(text);
    bool bracketed = text[open] != '\0' && length > 0 && (text[length - 1] == ')' || text[length - 1] == ']');
    /* whether the text is like "word(a,b)" or "(a,b)": no comma comes before the opening bracket */
    bool called = bracketed && memchr(text, ',', open) == NULL;

    *inside = NULL;
    if (!called && strchr(text, ',') == NULL) return PD_OK;
    *inside = called ? strndup(text + open + 1, length - open - 2) : strdup(text);
    return *inside == NULL ? PD_NO_MEMORY : PD_OK;
}

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
