#include "state_keys.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Upstream's paths below the block, joined by '/'; '#' is a number. One line a quantity: add those of other systems here. */
static const struct { const char *path, *slot; } upstream[] = {
    { "shampoo/factor_matrices/#/quantized_values", "factor_matrices" },
    { "shampoo/inv_factor_matrices/#/quantized_values", "inv_factor_matrices" },
    { "shampoo/is_factor_matrices_diagonal/#", NULL },                  /* always true where upstream saves it: tested anew at the next root */
    { "adagrad/quantized_values", "grafting_second_moment" },           /* whatever the method: its class derives from Adagrad's */
    { "momentum/quantized_values", "momentum" },
    { "filtered_grad/quantized_values", "filtered_grad" },
};

/* ---- parameters ---- */

static int compare_names(const void *key, const void *entry)
{
    return strcmp(key, *(const char *const *)entry);
}

static bool find_name(const char *text, size_t length, const char *const *names, size_t n, size_t *param)
{
    char name[1024];
    const char *const *found;

    if (length == 0 || length >= sizeof name) return false;
    memcpy(name, text, length);
    name[length] = '\0';
    found = bsearch(name, names, n, sizeof *names, compare_names);
    if (found != NULL) *param = (size_t)(found - names);
    return found != NULL;
}

/* What stands before a JSON path: NAME, "NAME.", "state.NAME" ... */
static bool find_before(const char *text, size_t length, const char *const *names, size_t n, size_t *param)
{
    static const char prefix[] = "state";
    const size_t skip = sizeof prefix;          /* with the separator */

    if (find_name(text, length, names, n, param)) return true;
    if (length > 1 && (text[length - 1] == '.' || text[length - 1] == '/') && find_before(text, length - 1, names, n, param)) return true;
    if (length <= skip || strncmp(text, prefix, skip - 1) != 0 || (text[skip - 1] != '.' && text[skip - 1] != '/')) return false;
    return find_name(text + skip, length - skip, names, n, param) || find_name(text + skip, length - skip - 1, names, n, param);
}

/* ---- upstream's paths ---- */

/* "block_3" to 3; -1: something else. */
static int block_of(const char *text)
{
    int block, end = 0;

    if (sscanf(text, "block_%9d%n", &block, &end) != 1 || text[end] != '\0' || block < 0) return -1;
    return block;
}

/* Joins the path behind the block; its number, if it has one, becomes '#'. False: not such a path. */
static bool join(const json_t *path, char *text, size_t size, int *number)
{
    size_t used = 0;

    *number = -1;
    for (size_t i = 1; i < json_array_size(path); i++) {
        const json_t *item = json_array_get(path, i);
        const char *word = json_is_integer(item) ? "#" : json_string_value(item);
        if (word == NULL || used + strlen(word) + 2 > size) return false;
        if (json_is_integer(item) && (*number >= 0 || json_integer_value(item) < 0 || json_integer_value(item) > 1 << 20)) return false;
        if (json_is_integer(item)) *number = (int)json_integer_value(item);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 1 ? "/" : "", word);
    }
    return true;
}

static void read_path(pd_state_key *out, const json_t *path)
{
    const char *first = json_string_value(json_array_get(path, 0));
    char text[256] = "";

    if (first == NULL) return;
    if (json_array_size(path) == 1 && strcmp(first, "step") == 0) {
        out->kind = PD_KEY_COUNT;
        return;
    }
    if ((out->block = block_of(first)) < 0 || !join(path, text, sizeof text, &out->number)) return;
    for (size_t i = 0; i < sizeof upstream / sizeof *upstream; i++) {
        if (strcmp(text, upstream[i].path) != 0) continue;
        out->kind = upstream[i].slot != NULL ? PD_KEY_PART : PD_KEY_DERIVED;
        if (upstream[i].slot != NULL) snprintf(out->slot, sizeof out->slot, "%s", upstream[i].slot);
    }
}

/* NAME["step"]. False: the key does not end in a JSON list behind a parameter's name. */
static bool read_flat_key(pd_state_key *out, const char *key, const char *const *names, size_t n)
{
    for (const char *at = strchr(key, '['); at != NULL; at = strchr(at + 1, '[')) {
        json_t *path;
        if (!find_before(key, (size_t)(at - key), names, n, &out->param)) continue;
        if ((path = json_loads(at, 0, NULL)) == NULL) continue;
        read_path(out, path);
        json_decref(path);
        return true;
    }
    return false;
}

/* ---- our own names ---- */

/* "block_3.factor_matrices.1", "momentum". */
static void read_slot(pd_state_key *out, const char *text)
{
    const char *dot = strchr(text, '.'), *last;
    char word[32];
    int end = 0;

    if (dot != NULL && (size_t)(dot - text) < sizeof word) {
        snprintf(word, sizeof word, "%.*s", (int)(dot - text), text);
        out->block = block_of(word);
        if (out->block >= 0) text = dot + 1;
    }
    last = strrchr(text, '.');
    if (last != NULL && (sscanf(last, ".%9d%n", &out->number, &end) != 1 || last[end] != '\0' || out->number < 0)) return;
    if (last == NULL) last = text + strlen(text);
    if (last == text || (size_t)(last - text) >= sizeof out->slot || memchr(text, '.', (size_t)(last - text)) != NULL) return;
    snprintf(out->slot, sizeof out->slot, "%.*s", (int)(last - text), text);
    out->kind = strcmp(out->slot, "step") == 0 && out->number < 0 && out->block < 0 ? PD_KEY_COUNT : PD_KEY_PART;
}

void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n)
{
    *out = (pd_state_key){ .kind = PD_KEY_UNKNOWN, .number = -1, .block = -1 };
    if (read_flat_key(out, key, names, n)) return;
    for (size_t at = strlen(key); at-- > 0;) {
        if (key[at] != '.' || !find_name(key, at, names, n, &out->param)) continue;
        out->number = out->block = -1;
        read_slot(out, key + at + 1);
        if (out->kind != PD_KEY_UNKNOWN) return;
    }
}
