/* state_keys.c - finds out from a tensor's name in a saved file to which parameter and optimizer state it belongs. */
#include "state_keys.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODES = 1, STACKED = 2, FILL = 4 };

#define SHARDED                                                                                                        \
    "stacked matrices of the sharded mode do not name their parameters: save them by parameter, "                      \
    "stats/NAME/statistics/I and preconditioners/I"

/* The table of names that the original optimizers ("upstream") give to tensors in their files. Each row is one kind
 * of optimizer state. To support another optimizer's files, add rows.
 *
 * In files of Meta's Shampoo, a name is a JSON list after the parameter's name. `path` is the part of the list
 * after the block, and `before` is NULL. In JAX files, a name is before/NAME/path. Words of a path are joined by
 * '/'; '#' stands for a number.
 *
 * `slot` is paramd's name of the state. NULL: the tensor is skipped, because it can be computed from other state.
 * With the flag CODES the tensor may also be quantized: its codes and bucket sizes are tensors of their own, with
 * longer paths. */
static const struct {
    const char *before, *path, *slot;
    unsigned flags;
} upstream[] = {
    { NULL, "shampoo/factor_matrices/#/quantized_values", "factor_matrices", 0 },
    { NULL, "shampoo/inv_factor_matrices/#/quantized_values", "inv_factor_matrices", 0 },
    /* This tensor is skipped, since Meta's optimizer saves only `true` in it. The daemon finds this out, at
     * the next matrix root, whether a factor matrix is diagonal. */
    { NULL, "shampoo/is_factor_matrices_diagonal/#", NULL, 0 },
    /* Meta's optimizer saves the state of every grafting method under the name adagrad, as its grafting classes
     * derive from Adagrad's. */
    { NULL, "adagrad/quantized_values", "grafting_second_moment", 0 },
    { NULL, "momentum/quantized_values", "momentum", 0 },
    { NULL, "filtered_grad/quantized_values", "filtered_grad", 0 },

    /* scalable_shampoo: ParameterStats */
    { "stats", "diagonal_statistics", "diagonal_statistics", CODES },
    { "stats", "diagonal_momentum", "diagonal_momentum", CODES },
    { "stats", "momentum", "momentum", CODES },
    { "stats", "statistics/#", "statistics", CODES },
    { "stats", "preconditioners/#", "preconditioners", CODES },
    { "stats", "training_metrics/inverse_pth_root_errors", "inverse_pth_root_errors", FILL },
    /* the rows for scalable_shampoo (Google's Shampoo) in sharded mode: LocalShardedParameterStats */
    { "local_stats", "diagonal_statistics", "diagonal_statistics", CODES },
    { "local_stats", "diagonal_momentum", "diagonal_momentum", CODES },
    { "local_stats", "momentum", "momentum", CODES },
    { "local_stats", "training_metrics/inverse_pth_root_errors", "inverse_pth_root_errors", FILL },

    /* adafactor: T5X's OptimizerState */
    { "param_states", "v_row", "v_row", FILL },
    { "param_states", "v_col", "v_col", FILL },
    { "param_states", "v", "v", FILL },
    { "param_states", "m", "m", FILL },

    /* kron: distributed_kron's state */
    { "mu", "", "mu", 0 },
    { "Qs_preconditioners", "#", "Q", STACKED },
};

/* Values that a file has once for all parameters, found by the last word of their name. `slot` is paramd's name of
 * the state; NULL: the value is the step counter. */
static const struct {
    const char *word, *slot;
} common[] = { { "count", NULL }, { "step", NULL }, { "update_counter", "update_counter" } };

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

/* Finds the parameter whose name stands before the JSON list in a tensor's name. The text before the list may be
 * NAME, "NAME.", "NAME/", or one of these with "state." or "state/" before it. */
static bool find_before(const char *text, size_t length, const char *const *names, size_t n, size_t *param)
{
    static const char prefix[] = "state";
    const size_t skip = sizeof prefix; /* length of the prefix: "state" and the separator after it */

    if (find_name(text, length, names, n, param)) return true;
    if (length > 1 && (text[length - 1] == '.' || text[length - 1] == '/') &&
        find_before(text, length - 1, names, n, param))
        return true;
    if (length <= skip || strncmp(text, prefix, skip - 1) != 0 || (text[skip - 1] != '.' && text[skip - 1] != '/'))
        return false;
    return find_name(text + skip, length - skip, names, n, param) ||
           find_name(text + skip, length - skip - 1, names, n, param);
}

/* Returns the number in a text such as "block_3"; -1: the text is not of this form. */
static int block_of(const char *text)
{
    int block, end = 0;

    if (sscanf(text, "block_%9d%n", &block, &end) != 1 || text[end] != '\0' || block < 0) return -1;
    return block;
}

/* Joins the words of a JSON list in a tensor's name, after the block, with '/'. So they can be compared with the
 * table of paths. A number becomes '#' and goes to *number. Returns false if the name has another form. */
static bool join(const json_t *path, char *text, size_t size, int *number)
{
    size_t used = 0;

    *number = -1;
    for (size_t i = 1; i < json_array_size(path); i++) {
        const json_t *item = json_array_get(path, i);
        const char *word = json_is_integer(item) ? "#" : json_string_value(item);
        if (word == NULL || used + strlen(word) + 2 > size) return false;
        if (json_is_integer(item) &&
            (*number >= 0 || json_integer_value(item) < 0 || json_integer_value(item) > 1 << 20))
            return false;
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
        if (upstream[i].before != NULL || strcmp(text, upstream[i].path) != 0) continue;
        out->kind = upstream[i].slot != NULL ? PD_KEY_PART : PD_KEY_DERIVED;
        if (upstream[i].slot != NULL) snprintf(out->slot, sizeof out->slot, "%s", upstream[i].slot);
    }
}

/* Reads a tensor's name of the form NAME["step"]. Returns false if it is not a parameter's name with a JSON list
 * after it. */
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

/* Reads a tensor's name as paramd writes it, from after the parameter's name on, such as
 * "block_3.factor_matrices.1" or "momentum". */
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
    if (last != NULL && (sscanf(last, ".%9d%n", &out->number, &end) != 1 || last[end] != '\0' || out->number < 0))
        return;
    if (last == NULL) last = text + strlen(text);
    if (last == text || (size_t)(last - text) >= sizeof out->slot || memchr(text, '.', (size_t)(last - text)) != NULL)
        return;
    snprintf(out->slot, sizeof out->slot, "%.*s", (int)(last - text), text);
    out->kind = strcmp(out->slot, "step") == 0 && out->number < 0 && out->block < 0 ? PD_KEY_COUNT : PD_KEY_PART;
}

static bool read_own_key(pd_state_key *out, const char *key, const char *const *names, size_t n)
{
    for (size_t at = strlen(key); at-- > 0;) {
        if (key[at] != '.' || !find_name(key, at, names, n, &out->param)) continue;
        out->number = out->block = -1;
        read_slot(out, key + at + 1);
        if (out->kind != PD_KEY_UNKNOWN) return true;
    }
    return false;
}

/* A tensor's name, split into words. It is kept in two forms of the same length: in `words` all separators are '/',
 * in `stood` they are '.' and '/' as they were written. */
typedef struct path {
    char words[1024], stood[1024];
    size_t n;
} path;

static bool is_separator(char c)
{
    return c == '.' || c == '/';
}

static bool put(path *p, char c)
{
    if (p->n + 1 >= sizeof p->words) return false;
    p->stood[p->n] = c;
    p->words[p->n++] = is_separator(c) ? '/' : c;
    return true;
}

/* Reads a bracket as jax.tree_util.keystr writes it, ['word'] or [3], and appends it to the path as one word.
 * Returns the text after the bracket; NULL: it is not such a bracket. */
static const char *put_bracket(path *p, const char *at)
{
    char quote = at[1] == '\'' || at[1] == '"' ? at[1] : '\0';
    const char *from = at + 1 + (quote != '\0'), *end = strchr(from, quote != '\0' ? quote : ']');

    if (end == NULL || end == from || (quote != '\0' && end[1] != ']') || !put(p, '/')) return NULL;
    for (const char *c = from; c < end; c++)
        if (!put(p, *c)) return NULL;
    return end + 1 + (quote != '\0');
}

/* Splits a tensor's name into words. Returns false if it is too long or has wrong brackets. */
static bool read_words(path *p, const char *key)
{
    p->n = 0;
    while (*key != '\0') {
        if (*key != '[') {
            if (!put(p, *key++)) return false;
        } else if ((key = put_bracket(p, key)) == NULL) {
            return false;
        }
    }
    p->words[p->n] = p->stood[p->n] = '\0';
    return p->n > 0;
}

/* Finds the parameter that is named by some words of a tensor's name. Tries the separators as they are written,
 * then all as '/', then all as '.'. */
static bool find_in_path(const path *p, size_t from, size_t end, const char *const *names, size_t n, size_t *param)
{
    char dotted[sizeof p->words];

    if (end <= from) return false;
    if (find_name(p->stood + from, end - from, names, n, param) ||
        find_name(p->words + from, end - from, names, n, param))
        return true;
    for (size_t i = from; i < end; i++) dotted[i - from] = p->words[i] == '/' ? '.' : p->words[i];
    return find_name(dotted, end - from, names, n, param);
}

/* Returns true if the text matches the pattern, in which '#' stands for a number: "statistics/3" matches
 * "statistics/#". Sets *number to this number; -1: the pattern has none. */
static bool is_like(const char *text, const char *pattern, int *number)
{
    int end;

    *number = -1;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '#') {
            if (*text++ != *pattern) return false;
            continue;
        }
        end = 0;
        if (*text < '0' || *text > '9' || sscanf(text, "%7d%n", number, &end) != 1) return false;
        text += end;
    }
    return *text == '\0';
}

static bool take_row(pd_state_key *out, size_t row, size_t param, int number)
{
    out->kind = PD_KEY_PART;
    out->param = param;
    out->number = number;
    out->codes = (upstream[row].flags & CODES) != 0;
    out->stacked = (upstream[row].flags & STACKED) != 0;
    out->fill = (upstream[row].flags & FILL) != 0;
    snprintf(out->slot, sizeof out->slot, "%s", upstream[row].slot);
    return true;
}

static bool ends_in(const char *text, const char *word)
{
    size_t n = strlen(text), length = strlen(word);

    return n > length && strcmp(text + n - length, word) == 0 && text[n - length - 1] == '/';
}

/* How a tensor's name ends: with the word for quantized codes, with the word for a tensor that belongs to such
 * codes (bucket sizes, diagonal), or with neither (WHOLE). */
typedef enum ending { WHOLE, OF_CODES, BESIDE_CODES } ending;

/* Copies a tensor's path without the ending "quantized", "bucket_size" or "diagonal", if it has one of them. Sets
 * *found to the ending. Returns false if the path is too long. */
static bool cut_ending(char *out, size_t size, const char *text, ending *found)
{
    static const struct {
        const char *word;
        ending is;
    } endings[] = { { "quantized", OF_CODES }, { "bucket_size", BESIDE_CODES }, { "diagonal", BESIDE_CODES } };
    size_t n = strlen(text);

    *found = WHOLE;
    for (size_t i = 0; i < 3 && *found == WHOLE; i++) {
        if (!ends_in(text, endings[i].word)) continue;
        *found = endings[i].is;
        n -= strlen(endings[i].word) + 1;
    }
    return snprintf(out, size, "%.*s", (int)n, text) < (int)size;
}

/* Compares `rest`, the words after the parameter's name, with one row of the table of paths. If the row allows it,
 * also accepts the tensors of a quantized value: codes, bucket sizes, diagonal. */
static bool read_row(pd_state_key *out, size_t row, size_t param, const char *rest)
{
    ending found = WHOLE;
    char stem[160];
    int number;

    if (is_like(rest, upstream[row].path, &number)) return take_row(out, row, param, number);
    if ((upstream[row].flags & CODES) == 0 || !cut_ending(stem, sizeof stem, rest, &found) ||
        !is_like(stem, upstream[row].path, &number))
        return false;
    take_row(out, row, param, number);
    if (found == BESIDE_CODES) out->kind = PD_KEY_COMPANION;
    return true;
}

/* Reads a tensor's name of the form before/NAME/REST, in which NAME begins at character `from`. If several
 * parameter names fit, the longest one is taken. */
static bool read_behind(pd_state_key *out, size_t row, const path *p, size_t from, const char *const *names, size_t n)
{
    size_t param;

    for (size_t end = p->n; end > from; end--) {
        if ((end < p->n && p->words[end] != '/') || !find_in_path(p, from, end, names, n, &param)) continue;
        if (read_row(out, row, param, end < p->n ? p->words + end + 1 : "")) return true;
    }
    return false;
}

/* Returns the position after the first occurrence of `word` and a '/' in a tensor's name; 0: the name does not
 * have this word. */
static size_t find_word(const path *p, const char *word)
{
    size_t length = strlen(word);

    for (const char *at = strstr(p->words, word); at != NULL; at = strstr(at + 1, word))
        if ((at == p->words || at[-1] == '/') && at[length] == '/') return (size_t)(at - p->words) + length + 1;
    return 0;
}

static bool read_upstream(pd_state_key *out, const path *p, const char *const *names, size_t n)
{
    for (size_t row = 0; row < sizeof upstream / sizeof *upstream; row++) {
        size_t from = upstream[row].before != NULL ? find_word(p, upstream[row].before) : 0;
        if (from > 0 && read_behind(out, row, p, from, names, n)) return true;
    }
    return false;
}

/* Reads the end of a tensor's name in a recorded run, such as "statistics/3/quantized": the slot (kind of optimizer
 * state), its number, and whether the tensor belongs to a quantized value. */
static void read_field(pd_state_key *out, const char *text)
{
    ending found;
    char slot[160];

    if (!cut_ending(slot, sizeof slot, text, &found)) return;
    for (char *c = slot; *c != '\0'; c++)
        if (*c == '/') *c = '.';
    read_slot(out, slot);
    out->codes = out->fill = true;
    if (found == BESIDE_CODES && out->kind == PD_KEY_PART) out->kind = PD_KEY_COMPANION;
}

/* Reads a tensor's name in a recorded run, such as state/0007/NAME/statistics/3. */
static bool read_recorded(pd_state_key *out, const path *p, const char *const *names, size_t n)
{
    size_t from = strlen("state/"), digits;

    if (strncmp(p->words, "state/", from) != 0) return false;
    digits = strspn(p->words + from, "0123456789");
    if (digits > 0 && p->words[from + digits] == '/') from += digits + 1;
    for (size_t end = p->n; end-- > from;) {
        if (p->words[end] != '/' || !find_in_path(p, from, end, names, n, &out->param)) continue;
        out->number = out->block = -1;
        read_field(out, p->words + end + 1);
        if (out->kind != PD_KEY_UNKNOWN) return true;
    }
    return false;
}

/* Returns true for a word that is ignored when it stands before a value for all parameters: an index in a chain of
 * optimizers, or the name of a container. */
static bool is_holder(const char *word, size_t length)
{
    static const char *const holders[] = { "state", "opt_state", "optimizer", "optimizer_state", "inner_state" };

    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++)
        if (strlen(holders[i]) == length && strncmp(word, holders[i], length) == 0) return true;
    return strspn(word, "0123456789") >= length;
}

static bool read_common(pd_state_key *out, const path *p)
{
    const char *word = p->words;

    for (const char *slash; (slash = strchr(word, '/')) != NULL; word = slash + 1)
        if (!is_holder(word, (size_t)(slash - word))) return false;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (strcmp(word, common[i].word) != 0) continue;
        out->kind = common[i].slot == NULL ? PD_KEY_COUNT : PD_KEY_PART;
        out->param = PD_KEY_ALL;
        if (common[i].slot != NULL) snprintf(out->slot, sizeof out->slot, "%s", common[i].slot);
        return true;
    }
    return false;
}

/* Recognises the tensors of scalable_shampoo's sharded mode, which hold the matrices of all parameters in one
 * stack. They are refused, since they do not say which matrix belongs to which parameter. */
static bool read_stack(pd_state_key *out, const path *p)
{
    if (find_word(p, "global_stats") == 0) return false;
    out->kind = PD_KEY_REFUSED;
    out->why = SHARDED;
    return true;
}

void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n)
{
    const pd_state_key nothing = { .kind = PD_KEY_UNKNOWN, .number = -1, .block = -1 };
    path p;

    *out = nothing;
    if (find_name(key, strlen(key), names, n, &out->param)) {
        out->kind = PD_KEY_WEIGHTS;
        return;
    }
    if (read_flat_key(out, key, names, n)) return;
    *out = nothing;
    if (read_own_key(out, key, names, n)) return;
    *out = nothing;
    if (!read_words(&p, key) || read_upstream(out, &p, names, n)) return;
    *out = nothing;
    if (read_recorded(out, &p, names, n)) return;
    *out = nothing;
    if (read_stack(out, &p) || read_common(out, &p)) return;
    *out = nothing;
}
