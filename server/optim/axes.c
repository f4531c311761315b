/* axes.c - reads the names of a parameter's dimensions ("layers,embed,mlp"), and tables that give each name a rule. */
#include "axes.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

/* Reads the key:value pair of a list that begins at *at. Moves *at to the next pair, or to the end of the list. Returns
 * false if there is no complete pair. */
static bool take_pair(pd_pair *pair, char **at)
{
    char *value = take_key(pair, *at), *end;

    if (value == NULL) return false;
    pair->value = past_blanks(value);
    if ((end = past_value(pair->value)) == NULL || end == pair->value) return false;
    *at = *end == ',' ? end + 1 : end;
    if (*end == ',' && *past_blanks(*at) == '\0') return false; /* invalid: no pair follows the comma */
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

static const pd_axis_rule standard[] = {
    { "vocab", PD_DIM_COLUMN },
    { "embed", PD_DIM_ROW },
    { "mlp", PD_DIM_COLUMN },
    { "heads", PD_DIM_COLUMN },
    { "kv", PD_DIM_COLUMN },
    { "joined_kv", PD_DIM_COLUMN },
    { "relpos_buckets", PD_DIM_NONE },
    { "layers", PD_DIM_BATCH },
    { "stack", PD_DIM_BATCH },
    { "q_wi_fused", PD_DIM_COLUMN },
    { "o_wo_fused", PD_DIM_COLUMN },
    { "multiquery_heads", PD_DIM_COLUMN },
    { "kv_fused", PD_DIM_COLUMN },
    { "layer_norm_scale", PD_DIM_NONE },
    { "mlp_activations", PD_DIM_COLUMN },
};
static const pd_axis_table standard_table = { standard, sizeof standard / sizeof *standard, NULL };

static const struct {
    const char *word;
    pd_dim_rule rule;
} words[] = {
    { "NONE", PD_DIM_NONE },   { "ROW", PD_DIM_ROW },    { "COLUMN", PD_DIM_COLUMN },
    { "BATCH", PD_DIM_BATCH }, { "COL", PD_DIM_COLUMN }, { "UNFACTORIZED", PD_DIM_NONE },
};

const char *pd_dim_rule_name(pd_dim_rule rule)
{
    return words[rule].word; /* the first entries of `words` are in the order of the enum pd_dim_rule */
}

bool pd_dim_rule_read(pd_dim_rule *rule, const char *text)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i].word) != 0) continue;
        *rule = words[i].rule;
        return true;
    }
    return false;
}

/* Copies a name of `length` bytes that begins at `at`, without the blanks around it. Returns false if the name is too
 * long. */
static bool copy_name(char *name, const char *at, size_t length)
{
    while (length > 0 && strchr(" \t", at[length - 1]) != NULL) length--;
    while (length > 0 && strchr(" \t", *at) != NULL) at++, length--;
    if (length >= PD_AXIS_NAME) return false;
    memcpy(name, at, length);
    name[length] = '\0';
    return true;
}

int pd_axes_read(pd_axes *out, const char *text, int rank, pd_error *err)
{
    const char *at = text;
    int n = 0;

    *out = (pd_axes){ 0 };
    if (text == NULL || *text == '\0') return PD_OK;
    for (bool more = true; more; n++) {
        size_t length = strcspn(at, ",");
        if (n < rank && n < PD_MAX_RANK && !copy_name(out->name[n], at, length))
            return pd_fail(err, PD_INVALID_ARGUMENT, "axes: expected names of at most %d bytes, got %zu: \"%.80s\"",
                           PD_AXIS_NAME - 1, length, at);
        more = at[length] == ',';
        at += length + more;
    }
    if (n != rank)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "axes: expected %d names with commas between them, one for each dimension, got %d: \"%.160s\"",
                       rank, n, text);
    out->n = n;
    return PD_OK;
}

int pd_axes_leading_batch(const pd_axes *axes)
{
    pd_dim_rule rule;
    int n = 0;

    while (n < axes->n && pd_axis_table_find(&standard_table, axes->name[n], &rule) && rule == PD_DIM_BATCH) n++;
    return n;
}

static int fill_table(pd_axis_rule *to, const pd_pairs *pairs, pd_error *err)
{
    for (size_t i = 0; i < pairs->n; i++) {
        const pd_pair *pair = &pairs->at[i];
        if (strlen(pair->key) >= PD_AXIS_NAME || *pair->key == '\0')
            return pd_fail(err, PD_INVALID_ARGUMENT, "expected an axis name of 1 to %d bytes, got \"%.80s\"",
                           PD_AXIS_NAME - 1, pair->key);
        if (!pd_dim_rule_read(&to[i].rule, pair->value))
            return pd_fail(err, PD_INVALID_ARGUMENT, "axis %s: expected ROW, COLUMN, BATCH or NONE, got \"%.40s\"",
                           pair->key, pair->value);
        strcpy(to[i].name, pair->key);
    }
    return PD_OK;
}

int pd_axis_table_read(pd_axis_table *out, const char *text, pd_error *err)
{
    pd_pairs pairs;
    int rc;

    *out = standard_table;
    if (strcmp(text, "standard") == 0) return PD_OK;
    *out = (pd_axis_table){ 0 };
    rc = pd_pairs_read(&pairs, text, err);
    if (rc == PD_OK && (out->own = calloc(pairs.n + 1, sizeof *out->own)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory for a table of axes");
    if (rc == PD_OK) rc = fill_table(out->own, &pairs, err);
    if (rc == PD_OK) out->n = pairs.n;
    out->at = out->own;
    pd_pairs_free(&pairs);
    return rc;
}

void pd_axis_table_free(pd_axis_table *table)
{
    free(table->own);
    *table = (pd_axis_table){ 0 };
}

bool pd_axis_table_find(const pd_axis_table *table, const char *name, pd_dim_rule *rule)
{
    for (size_t i = table->n; i-- > 0;) {
        if (strcmp(table->at[i].name, name) != 0) continue;
        *rule = table->at[i].rule;
        return true;
    }
    return false;
}
