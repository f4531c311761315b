/* factor_rules.c - decides along which dimensions adafactor factors the second moment of a parameter. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "factor_rules.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "axes.h"
#include "hyper_text.h"

enum { DEPTH = 1000, HEAP_KIB = 1024 };
/* number of matching steps that each search costs before it tries the first item of the expression */
enum { START = 8 };

/* The modes in which an expression is compiled, and PCRE2's options for them. If both the text and the expression are
 * ASCII, characters are treated as single bytes, which makes a search many times faster. In both modes PCRE2 calls the
 * function `count` before each item of the expression. */
enum { ASCII, UTF8, MODES };
static const uint32_t options[MODES] = {
    [ASCII] = PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C | PCRE2_NEVER_UTF | PCRE2_NEVER_UCP,
    [UTF8] = PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C | PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF,
};

struct pd_search {
    pcre2_general_context *general;
    pcre2_compile_context *compile;
    pcre2_match_context *match;
    pcre2_match_data *data;
    int64_t left;   /* number of matching steps that are left of the budget */
    int64_t least;  /* a search fails when `left` falls below this number (pd_search_limit) */
    int64_t weight; /* number by which one matching step of the current expression reduces `left` */
};

struct pd_pattern {
    pd_search *search;
    char *text;              /* the regular expression as the user wrote it */
    char *ours;              /* the regular expression in PCRE2's syntax; NULL: the expression is too long */
    bool ascii;              /* whether the expression is ASCII */
    pcre2_code *code[MODES]; /* the compiled expression for each mode (ASCII, UTF-8); NULL: not compiled yet */
    int64_t weight[MODES];   /* pd_search.weight for each mode */
};

/* Allocates with malloc, as the rest of the project does, instead of PCRE2's default allocator. */
static void *get(size_t size, void *nothing)
{
    (void)nothing;
    return malloc(size);
}

static void put(void *at, void *nothing)
{
    (void)nothing;
    free(at);
}

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory for a regular expression");
}

/* Subtracts one matching step from the search budget. PCRE2 calls this function before each item of the expression. An
 * item that is longer than one byte may scan the rest of the text, and compare each character with the whole item, so
 * such an item costs more. */
static int count(pcre2_callout_block *at, void *arg)
{
    pd_search *search = arg;
    int64_t over = at->next_item_length > 1
                       ? (int64_t)(at->next_item_length * (at->subject_length - at->current_position)) / 32
                       : 0;

    search->left -= search->weight * (1 + over);
    return search->left >= search->least ? 0 : PCRE2_ERROR_CALLOUT;
}

pd_search *pd_search_new(int64_t steps)
{
    pd_search *search = calloc(1, sizeof *search);

    if (search == NULL) return NULL;
    search->left = steps;
    if ((search->general = pcre2_general_context_create(get, put, NULL)) != NULL) {
        search->compile = pcre2_compile_context_create(search->general);
        search->match = pcre2_match_context_create(search->general);
        search->data = pcre2_match_data_create(1, search->general);
    }
    if (search->compile == NULL || search->match == NULL || search->data == NULL) {
        pd_search_free(search);
        return NULL;
    }
    pcre2_set_depth_limit(search->match, DEPTH);
    pcre2_set_heap_limit(search->match, HEAP_KIB);
    pcre2_set_callout(search->match, count, search);
    return search;
}

void pd_search_free(pd_search *search)
{
    if (search == NULL) return;
    pcre2_match_data_free(search->data);
    pcre2_match_context_free(search->match);
    pcre2_compile_context_free(search->compile);
    pcre2_general_context_free(search->general);
    free(search);
}

int64_t pd_search_left(const pd_search *search)
{
    return search->left;
}

void pd_search_limit(pd_search *search, int64_t steps)
{
    search->least = search->left > steps ? search->left - steps : 0;
}

static bool is_ascii(const char *text)
{
    while ((signed char)*text > 0) text++;
    return *text == '\0';
}

/* Returns whether the expression has "{,n}" or "{,}" at `at`. Python reads these repetitions as {0,n} and {0,}, but
 * PCRE2 does not. */
static bool has_no_least(const char *at)
{
    return at[0] == '{' && at[1] == ',' && at[2 + strspn(at + 2, "0123456789")] == '}';
}

/* Copies a character class of a regular expression, "[...]", and escapes each '[' inside it. A ']' directly after the
 * opening bracket is an ordinary character. Moves *from to the closing ']', or to the end of the text. Returns the end
 * of the copy. */
static char *copy_class(char *to, const char **from)
{
    const char *at = *from;

    *to++ = *at++;
    if (*at == '^') *to++ = *at++;
    if (*at == ']') *to++ = *at++;
    for (; *at != '\0' && *at != ']'; at++) {
        if (*at == '[') *to++ = '\\';
        *to++ = *at;
        if (*at == '\\' && at[1] != '\0') *to++ = *++at;
    }
    *from = at;
    return to;
}

/* Translates a regular expression from Python's syntax to PCRE2's. The result is at most twice as long. */
static void respell(char *to, const char *from)
{
    while (*from != '\0') {
        if (*from == '[') to = copy_class(to, &from);
        if (*from == '\0') break;
        *to++ = *from;
        if (*from == '\\' && from[1] != '\0')
            *to++ = *++from;
        else if (has_no_least(from))
            *to++ = '0';
        from++;
    }
    *to = '\0';
}

pd_pattern *pd_pattern_new(pd_search *search, const char *text)
{
    pd_pattern *pattern = calloc(1, sizeof *pattern);
    size_t n = strlen(text);

    if (pattern == NULL) return NULL;
    pattern->search = search;
    pattern->ascii = is_ascii(text);
    pattern->text = strdup(text);
    if (n <= PD_MAX_PATTERN && (pattern->ours = malloc(2 * n + 1)) != NULL) respell(pattern->ours, text);
    if (pattern->text != NULL && (pattern->ours != NULL || n > PD_MAX_PATTERN)) return pattern;
    pd_pattern_free(pattern);
    return NULL;
}

void pd_pattern_free(pd_pattern *pattern)
{
    if (pattern == NULL) return;
    for (int mode = 0; mode < MODES; mode++) pcre2_code_free(pattern->code[mode]);
    free(pattern->ours);
    free(pattern->text);
    free(pattern);
}

/* Sets pattern->weight[mode], the cost of one matching step of a compiled expression. Capture groups raise this cost,
 * because each step copies their positions. Also subtracts the cost of the compilation from the search budget. */
static void weigh(pd_pattern *pattern, int mode)
{
    uint32_t groups = 0;
    size_t size = 0;

    (void)pcre2_pattern_info(pattern->code[mode], PCRE2_INFO_CAPTURECOUNT, &groups);
    (void)pcre2_pattern_info(pattern->code[mode], PCRE2_INFO_SIZE, &size);
    pattern->weight[mode] = (mode == UTF8 ? 4 : 1) * (1 + (int64_t)groups / 16);
    pattern->search->left -= (int64_t)size / 4;
    pattern->search->least -= (int64_t)size / 4;
    if (pattern->search->least < 0) pattern->search->least = 0;
}

static int compile(pd_pattern *pattern, int mode, pd_error *err)
{
    PCRE2_UCHAR words[160] = "";
    size_t at = 0;
    int code = 0;

    if (pattern->ours == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the regular expression \"%.64s...\" has %zu bytes; expected at most %d", pattern->text,
                       strlen(pattern->text), PD_MAX_PATTERN);
    pattern->code[mode] = pcre2_compile((PCRE2_SPTR)pattern->ours, PCRE2_ZERO_TERMINATED, options[mode], &code, &at,
                                        pattern->search->compile);
    if (pattern->code[mode] != NULL) {
        weigh(pattern, mode);
        return PD_OK;
    }
    if (code == PCRE2_ERROR_HEAP_FAILED) return no_memory(err);
    (void)pcre2_get_error_message(code, words, sizeof words);
    return pd_fail(err, PD_INVALID_ARGUMENT, "\"%.128s\" is an invalid regular expression: %s at byte %zu",
                   pattern->ours, (const char *)words, at);
}

int pd_pattern_find(pd_pattern *pattern, const char *text, bool *found, pd_error *err)
{
    pd_search *search = pattern->search;
    int mode = pattern->ascii && is_ascii(text) ? ASCII : UTF8, rc;

    *found = false;
    if (pattern->code[mode] == NULL && (rc = compile(pattern, mode, err)) != PD_OK) return rc;
    search->weight = pattern->weight[mode];
    search->left -= START * search->weight;
    rc = search->left < search->least
             ? PCRE2_ERROR_CALLOUT
             : pcre2_match(pattern->code[mode], (PCRE2_SPTR)text, strlen(text), 0, 0, search->data, search->match);
    *found = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return PD_OK;
    if (rc == PCRE2_ERROR_NOMEMORY) return no_memory(err);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "searching \"%.128s\" for the regular expression \"%.128s\" takes too %s: simplify the expression",
                   text, pattern->text,
                   rc == PCRE2_ERROR_CALLOUT ? "long, together with all earlier searches" : "much memory");
}

/* Constants of the budget for searches in maps. A map is a list of regular expressions for parameter names, each with a
 * value. All searches for the names of a set of parameters share the budget. It is a number of matching steps: STEPS,
 * plus STEPS_OF_FIRST for each of the first FIRST names, plus STEPS_OF_OTHERS for each further name.
 *
 * A hundred regular expressions take some thousand matching steps a name. A model with more than FIRST names must have
 * fewer expressions, or simpler ones. */
enum { STEPS = 2000000, FIRST = 1000, STEPS_OF_FIRST = 5000, STEPS_OF_OTHERS = 1000 };
/* most matching steps for one name in a map: about 5 ms, during which the thread does nothing else */
enum { STEPS_OF_ONE = 250000 };

static int no_rule(const char *text, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "expected HEURISTIC, none, or ROW, COLUMN, BATCH or NONE for each dimension in (), got \"%.80s\"",
                   text);
}

/* Reads the rule of each dimension (ROW, COLUMN, BATCH or NONE) from `items`, the text between the brackets, and
 * overwrites the separators in it. `text` is the whole rule, for an error message. */
static int read_dims(pd_factor_rule *out, const char *text, char *items, pd_error *err)
{
    for (char *item; (item = pd_text_item(&items)) != NULL; out->n++)
        if (out->n == PD_MAX_RANK || !pd_dim_rule_read(&out->dim[out->n], item)) return no_rule(text, err);
    return PD_OK;
}

int pd_factor_rule_read(pd_factor_rule *out, const char *text, pd_error *err)
{
    char *items;
    size_t n = strlen(text);
    int rc;

    *out = (pd_factor_rule){ .way = PD_FACTOR_EXPLICIT };
    if (strcasecmp(text, "none") == 0)
        out->way = PD_FACTOR_NONE;
    else if (strcasecmp(text, "HEURISTIC") == 0)
        out->way = PD_FACTOR_HEURISTIC;
    if (out->way != PD_FACTOR_EXPLICIT) return PD_OK;
    if (n < 2 || !((text[0] == '(' && text[n - 1] == ')') || (text[0] == '[' && text[n - 1] == ']')))
        return no_rule(text, err);
    if ((items = strndup(text + 1, n - 2)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a rule");
    rc = read_dims(out, text, items, err);
    free(items);
    return rc;
}

char *pd_factor_rule_text(const pd_factor_rule *rule, char *text, size_t size)
{
    static const char *const words[] = {
        [PD_FACTOR_NONE] = "none", [PD_FACTOR_HEURISTIC] = "HEURISTIC", [PD_FACTOR_EXPLICIT] = "("
    };
    int used = snprintf(text, size, "%s", words[rule->way]);

    if (rule->way != PD_FACTOR_EXPLICIT) return text;
    for (int i = 0; i < rule->n; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%s", i > 0 ? "," : "", pd_dim_rule_name(rule->dim[i]));
    snprintf(text + used, size - (size_t)used, ")");
    return text;
}

int pd_factor_reader(void *rule, const char *text, pd_error *err)
{
    return pd_factor_rule_read(rule, text, err);
}

int pd_flag_reader(void *flag, const char *text, pd_error *err)
{
    bool yes = strcasecmp(text, "yes") == 0 || strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0;
    bool no = strcasecmp(text, "no") == 0 || strcasecmp(text, "false") == 0 || strcmp(text, "0") == 0;

    *(bool *)flag = yes;
    return yes || no ? PD_OK : pd_fail(err, PD_INVALID_ARGUMENT, "expected yes or no, got \"%.80s\"", text);
}

/* A map of regular expressions for names of parameters to values. */
typedef struct name_map {
    /* the text of the map, borrowed; map_of finds the map by its text */
    const char *text;
    pd_pairs pairs;
    pd_pattern **patterns; /* the compiled regular expression of each pair; NULL: not compiled yet */
} name_map;

struct pd_name_maps {
    pd_search *search;
    name_map *at;
    size_t n;
};

pd_name_maps *pd_name_maps_new(size_t names)
{
    pd_name_maps *maps = calloc(1, sizeof *maps);
    int64_t first = names < FIRST ? (int64_t)names : FIRST, others = (int64_t)names - first;

    if (maps != NULL &&
        (maps->search = pd_search_new(STEPS + STEPS_OF_FIRST * first + STEPS_OF_OTHERS * others)) != NULL)
        return maps;
    free(maps);
    return NULL;
}

static void free_map(name_map *map)
{
    for (size_t i = 0; map->patterns != NULL && i < map->pairs.n; i++) pd_pattern_free(map->patterns[i]);
    free(map->patterns);
    pd_pairs_free(&map->pairs);
}

void pd_name_maps_free(pd_name_maps *maps)
{
    if (maps == NULL) return;
    for (size_t i = 0; i < maps->n; i++) free_map(&maps->at[i]);
    free(maps->at);
    pd_search_free(maps->search);
    free(maps);
}

int64_t pd_name_maps_left(const pd_name_maps *maps)
{
    return pd_search_left(maps->search);
}

static int read_map(pd_name_maps *maps, const char *text, pd_error *err)
{
    name_map *more = realloc(maps->at, (maps->n + 1) * sizeof *more), map = { .text = text };
    int rc;

    if (more == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a map");
    maps->at = more;
    rc = pd_pairs_read(&map.pairs, text, err);
    if (rc == PD_OK && (map.patterns = calloc(map.pairs.n + 1, sizeof *map.patterns)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory for a map");
    if (rc == PD_OK)
        maps->at[maps->n++] = map;
    else
        free_map(&map);
    return rc;
}

static name_map *map_of(pd_name_maps *maps, const char *text, pd_error *err)
{
    for (size_t i = 0; i < maps->n; i++)
        if (maps->at[i].text == text || strcmp(maps->at[i].text, text) == 0) return &maps->at[i];
    return read_map(maps, text, err) == PD_OK ? &maps->at[maps->n - 1] : NULL;
}

/* Returns a copy of a parameter's name in which the separator `from` is replaced by `to`. NULL: out of memory. */
static char *respelled(const char *name, char from, char to)
{
    char *copy = strdup(name);

    for (char *at = copy; at != NULL && *at != '\0'; at++)
        if (*at == from) *at = to;
    return copy;
}

/* Returns whether a regular expression may be meant for parameter names with dots, such as "layer.bias". It may if it
 * has no /, but has \. or a bracket expression [] that may contain a dot. */
static bool knows_dots(const char *expression)
{
    return strchr(expression, '/') == NULL && (strstr(expression, "\\.") != NULL || strchr(expression, '[') != NULL);
}

static int find_in(pd_pattern *pattern, const char *expression, const char *slashed, const char *dotted, bool *found,
                   pd_error *err)
{
    int rc = pd_pattern_find(pattern, slashed, found, err);

    return rc != PD_OK || *found || !knows_dots(expression) || strcmp(slashed, dotted) == 0
               ? rc
               : pd_pattern_find(pattern, dotted, found, err);
}

static int find_first(pd_name_maps *maps, name_map *map, const char *slashed, const char *dotted, size_t *pair,
                      pd_error *err)
{
    for (size_t i = 0; i < map->pairs.n; i++) {
        const char *key = map->pairs.at[i].key;
        bool found;
        int rc;
        if (map->patterns[i] == NULL && (map->patterns[i] = pd_pattern_new(maps->search, key)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory for a regular expression");
        if ((rc = find_in(map->patterns[i], key, slashed, dotted, &found, err)) != PD_OK) return rc;
        *pair = i;
        if (found) return PD_OK;
    }
    return pd_fail(err, PD_NOT_FOUND, "no expression matches the parameter's name: add a last one, '.*', for the rest");
}

int pd_name_map_find(pd_name_maps *maps, const char *map, const char *name, pd_value_reader *parse, void *value,
                     pd_error *err)
{
    pd_error why = { 0 };
    name_map *read = map_of(maps, map, &why);
    char *slashed = strchr(name, '/') != NULL ? strdup(name) : respelled(name, '.', '/'),
         *dotted = respelled(name, '/', '.');
    size_t pair = 0;
    int rc = read == NULL ? why.code : PD_OK;

    if (rc == PD_OK && (slashed == NULL || dotted == NULL))
        rc = pd_fail(&why, PD_NO_MEMORY, "out of memory for a name");
    pd_search_limit(maps->search, STEPS_OF_ONE);
    if (rc == PD_OK) rc = find_first(maps, read, slashed, dotted, &pair, &why);
    if (rc == PD_OK) rc = parse(value, read->pairs.at[pair].value, &why);
    if (rc != PD_OK && err != NULL) *err = why;
    free(slashed);
    free(dotted);
    return rc;
}

static bool has(const pd_factor_rule *rule, pd_dim_rule wanted)
{
    for (int i = 0; i < rule->n; i++)
        if (rule->dim[i] == wanted) return true;
    return false;
}

/* Completes a factor rule that was made from the names of the dimensions. If no dimension is ROW or none is COLUMN, the
 * parameter is not factored: all dimensions except BATCH become NONE. PD_INVALID_ARGUMENT: ROW, COLUMN and NONE occur
 * together, which T5X calls an incomplete rule. */
static int complete(pd_factor_rule *rule, pd_error *err)
{
    bool factored = has(rule, PD_DIM_ROW) && has(rule, PD_DIM_COLUMN);
    char text[96];

    if (factored && has(rule, PD_DIM_NONE))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "incomplete rule %s from its axes: NONE cannot be combined with ROW and COLUMN",
                       pd_factor_rule_text(rule, text, sizeof text));
    for (int i = 0; !factored && i < rule->n; i++)
        if (rule->dim[i] != PD_DIM_BATCH) rule->dim[i] = PD_DIM_NONE;
    return PD_OK;
}

int pd_factor_rule_of_axes(pd_factor_rule *out, const char *table, const pd_axes *axes, pd_error *err)
{
    pd_axis_table rules;
    int rc = pd_axis_table_read(&rules, table, err);

    *out = (pd_factor_rule){ .way = PD_FACTOR_EXPLICIT, .n = axes->n };
    for (int i = 0; rc == PD_OK && i < axes->n; i++)
        if (!pd_axis_table_find(&rules, axes->name[i], &out->dim[i]))
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "unknown axis \"%s\": use a name of the table, or add it there",
                         axes->name[i]);
    pd_axis_table_free(&rules);
    return rc == PD_OK ? complete(out, err) : rc;
}

static void factor_matrix(pd_factoring *out, const pd_shape *shape, int64_t least)
{
    int row = shape->dim[0] <= shape->dim[1] ? 0 : 1;

    if (shape->dim[row] < least) return;
    out->factored = true;
    out->dim[row] = PD_DIM_ROW;
    out->dim[1 - row] = PD_DIM_COLUMN;
}

static int by_heuristic(pd_factoring *out, const pd_shape *shape, int64_t least, pd_error *err)
{
    char text[192];

    if (shape->rank > 2)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a parameter of rank above 2 must have an explicit factorization rule: its shape is %s; give "
                       "one in factor_map, "
                       "or name its axes and set logical_factor_rules, or use factored=no",
                       pd_shape_text(shape, text, sizeof text));
    if (shape->rank == 2) factor_matrix(out, shape, least);
    return PD_OK;
}

int pd_factoring_of(pd_factoring *out, const pd_factor_rule *rule, const pd_shape *shape, int64_t least, pd_error *err)
{
    char text[96], shown[192];

    *out = (pd_factoring){ 0 };
    if (rule->way == PD_FACTOR_NONE) return PD_OK;
    if (rule->way == PD_FACTOR_HEURISTIC) return by_heuristic(out, shape, least, err);
    if (rule->n != shape->rank)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "factorization rule %s has incorrect rank for its shape %s: expected one for each of %d "
                       "dimensions, got %d; a rule for it "
                       "alone can stand before this one",
                       pd_factor_rule_text(rule, text, sizeof text), pd_shape_text(shape, shown, sizeof shown),
                       shape->rank, rule->n);
    out->ignored = shape->rank <= 2 && !has(rule, PD_DIM_BATCH);
    if (out->ignored) return by_heuristic(out, shape, least, err);
    memcpy(out->dim, rule->dim, sizeof out->dim);
    out->factored = has(rule, PD_DIM_ROW) || has(rule, PD_DIM_COLUMN);
    return PD_OK;
}
