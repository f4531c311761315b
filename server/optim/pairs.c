#include "pairs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static char *past_blanks(char *at)
{
    return at + strspn(at, " \t");
}

/* Takes a quoted key out of its quotes, in place. Behind it; NULL: the quote has no end. */
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

/* Behind a value: at the comma or the end. NULL: its brackets do not match. */
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

/* The key at `at`, ended in place. Behind its colon; NULL: there is none. */
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

/* One pair at *at, which moves to the next one, or to the end. False: there is none. */
static bool take_pair(pd_pair *pair, char **at)
{
    char *value = take_key(pair, *at), *end;

    if (value == NULL) return false;
    pair->value = past_blanks(value);
    if ((end = past_value(pair->value)) == NULL || end == pair->value) return false;
    *at = *end == ',' ? end + 1 : end;
    if (*end == ',' && *past_blanks(*at) == '\0') return false;         /* a comma with nothing behind it */
    *end = '\0';
    cut_blanks(pair->value);
    return true;
}

/* The list without the brackets around it. */
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
        size_t here = (size_t)(at - out->memory);           /* the copy is cut up, the text is not */
        if (out->n == PD_MAX_PAIRS) return pd_fail(err, PD_INVALID_ARGUMENT, "a list has at most %d pairs", PD_MAX_PAIRS);
        if (!take_pair(&out->at[out->n], &at))
            return pd_fail(err, PD_INVALID_ARGUMENT, "expected key:value with commas between the pairs, special characters of a key between two ', got \"%.80s\"",
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
