/* pairs.c - reads lists of pairs, "[key:value,...]", from the text of an optimizer rule. */
#include "pairs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static char *past_blanks(char *at)
{
    return at + strspn(at, " \t");
}

/* Removes the quotes around a key, in place. Returns the byte after the closing quote; NULL: there is no closing
 * quote. */
static char *unquote(char *at)
{
    char *to = at;

    for (char *from = at + 1; *from != '\0'; from++) {
        if (*from == '\'' && from[1] != '\'') {
            *to = '\0';
            return from + 1;
        }
        if (*from == '\'') from++;
        *to++ = *from;
    }
    return NULL;
}

/* Returns the end of the value that begins at `at`: the comma after it, or the end of the text. NULL: the brackets of
 * the value do not match. */
static char *past_value(char *at)
{
    int depth = 0;

    for (; *at != '\0' && (*at != ',' || depth > 0); at++) {
        if (*at == '(' || *at == '[') depth++;
        if ((*at == ')' || *at == ']') && depth-- == 0) return NULL;
    }
    return depth == 0 ? at : NULL;
}

static void cut_blanks(char *text)
{
    size_t n = strlen(text);

    while (n > 0 && strchr(" \t", text[n - 1]) != NULL) text[--n] = '\0';
}

/* Reads the key of a pair at `at`, and ends it with a zero byte. Returns the byte after the key's colon; NULL: there is
 * no key with a colon. */
static char *take_key(pd_pair *pair, char *at)
{
    bool quoted = *at == '\'';
    char *end = quoted ? unquote(at) : at + strcspn(at, ":,'()[] \t"), *colon;

    if (end == NULL || end == at) return NULL;
    colon = past_blanks(end);
    if (*colon != ':') return NULL;
    if (!quoted) *end = '\0';
    pair->key = at;
    return colon + 1;
}

/* Reads one key:value pair of a list, at *at. Moves *at to the next pair, or to the end. Returns false if there is no
 * complete pair. */
static bool take_pair(pd_pair *pair, char **at)
{
    char *value = take_key(pair, *at), *end;

    if (value == NULL) return false;
    pair->value = past_blanks(value);
    if ((end = past_value(pair->value)) == NULL || end == pair->value) return false;
    *at = *end == ',' ? end + 1 : end;
    if (*end == ',' && *past_blanks(*at) == '\0') return false; /* an error: no pair follows the comma */
    *end = '\0';
    cut_blanks(pair->value);
    return true;
}

/* Removes the blanks and brackets around a list, in place. Returns its first byte. */
static char *inside(char *text)
{
    size_t n;

    text = past_blanks(text);
    cut_blanks(text);
    n = strlen(text);
    if (n < 2 || *text != '[' || text[n - 1] != ']') return text;
    text[n - 1] = '\0';
    return text + 1;
}

static int fill(pd_pairs *out, const char *text, pd_error *err)
{
    char *at = inside(out->memory);

    for (at = past_blanks(at); *at != '\0'; at = past_blanks(at), out->n++) {
        /* `at` points into a copy that is cut into pairs; error texts show the original list */
        size_t here = (size_t)(at - out->memory);
        if (out->n == PD_MAX_PAIRS)
            return pd_fail(err, PD_INVALID_ARGUMENT, "expected at most %d pairs in a list, got more", PD_MAX_PAIRS);
        if (!take_pair(&out->at[out->n], &at))
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "expected key:value pairs separated by commas, and keys with special characters in ' "
                           "quotes, got \"%.80s\"",
                           text + here);
    }
    return PD_OK;
}

int pd_pairs_read(pd_pairs *out, const char *text, pd_error *err)
{
    *out = (pd_pairs){ .memory = strdup(text), .at = calloc(PD_MAX_PAIRS, sizeof *out->at) };
    if (out->memory == NULL || out->at == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a list");
    return fill(out, text, err);
}

void pd_pairs_free(pd_pairs *pairs)
{
    free(pairs->at);
    free(pairs->memory);
    *pairs = (pd_pairs){ 0 };
}
