/* factor_rules.c - decides along which dimensions adafactor factors the second moment of a parameter (keeps means
 * instead of all elements). */
#include "factor_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pairs.h"
#include "pattern.h"
#include "text.h"

/* Constants of the budget for searches in maps. A map is a list of regular expressions for parameter names, each with a
 * value. All searches for the names of a set of parameters share the budget. It is counted in steps of the matcher
 * (pattern.h): STEPS, plus STEPS_OF_FIRST for each of the first FIRST names, plus STEPS_OF_OTHERS for each further
 * name.
 *
 * A hundred regular expressions take some thousand steps a name. A model with more than FIRST names must have fewer
 * expressions, or simpler ones. */
enum { STEPS = 2000000, FIRST = 1000, STEPS_OF_FIRST = 5000, STEPS_OF_OTHERS = 1000 };
enum { STEPS_OF_ONE = 250000 }; /* most steps for one name in a map: about 5 ms, which no slice can cut */

/* ---- reading and writing a rule ---- */

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

/* ---- maps of names ---- */

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

typedef struct name_map {
    /* the text of the map, which is a list of regular expressions with values; maps are looked up by their text */
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

/* ---- lookup of a name ---- */

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
    return pd_fail(err, PD_NOT_FOUND,
                   "no rule is found for it: none of the expressions is found in its name; a last one of '.*' would "
                   "hold for the rest");
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

/* ---- logical axes ---- */

static bool has(const pd_factor_rule *rule, pd_dim_rule wanted)
{
    for (int i = 0; i < rule->n; i++)
        if (rule->dim[i] == wanted) return true;
    return false;
}

/* Completes a factor rule (the role of each dimension) that was made from the names of the dimensions. If no dimension
 * is ROW or none is COLUMN, the parameter is not factored: all dimensions except BATCH become NONE.
 * PD_INVALID_ARGUMENT: ROW, COLUMN and NONE occur together, which T5X calls an incomplete rule. */
static int complete(pd_factor_rule *rule, pd_error *err)
{
    bool factored = has(rule, PD_DIM_ROW) && has(rule, PD_DIM_COLUMN);
    char text[96];

    if (factored && has(rule, PD_DIM_NONE))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "incomplete rule %s from its axes: NONE does not go with ROW and COLUMN",
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
            rc = pd_fail(err, PD_INVALID_ARGUMENT,
                         "the table has no axis \"%s\"; name each dimension by one that it has, or add it",
                         axes->name[i]);
    pd_axis_table_free(&rules);
    return rc == PD_OK ? complete(out, err) : rc;
}

/* ---- applying a rule to a shape ---- */

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
