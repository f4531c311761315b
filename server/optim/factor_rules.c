#include "factor_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "pairs.h"
#include "pattern.h"
#include "text.h"

/* ---- one rule as text ---- */

static int no_rule(const char *text, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "expected HEURISTIC, none, or ROW, COLUMN, BATCH or NONE for each dimension in (), got \"%.80s\"", text);
}

/* `items`: what stands in the brackets; cut up on the way. */
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
    if (strcasecmp(text, "none") == 0) out->way = PD_FACTOR_NONE;
    else if (strcasecmp(text, "HEURISTIC") == 0) out->way = PD_FACTOR_HEURISTIC;
    if (out->way != PD_FACTOR_EXPLICIT) return PD_OK;
    if (n < 2 || !((text[0] == '(' && text[n - 1] == ')') || (text[0] == '[' && text[n - 1] == ']'))) return no_rule(text, err);
    if ((items = strndup(text + 1, n - 2)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a rule");
    rc = read_dims(out, text, items, err);
    free(items);
    return rc;
}

char *pd_factor_rule_text(const pd_factor_rule *rule, char *text, size_t size)
{
    static const char *const words[] = { [PD_FACTOR_NONE] = "none", [PD_FACTOR_HEURISTIC] = "HEURISTIC", [PD_FACTOR_EXPLICIT] = "(" };
    int used = snprintf(text, size, "%s", words[rule->way]);

    if (rule->way != PD_FACTOR_EXPLICIT) return text;
    for (int i = 0; i < rule->n; i++) used += snprintf(text + used, size - (size_t)used, "%s%s", i > 0 ? "," : "", pd_dim_rule_name(rule->dim[i]));
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

/* A copy with one separator for the other. */
static char *respelled(const char *name, char from, char to)
{
    char *copy = strdup(name);

    for (char *at = copy; at != NULL && *at != '\0'; at++)
        if (*at == from) *at = to;
    return copy;
}

static int find_first(const pd_pairs *pairs, const char *const *names, pd_value_reader *parse, void *value, pd_error *err)
{
    for (size_t i = 0; i < pairs->n; i++) {
        bool found;
        int rc = pd_pattern_find(pairs->at[i].key, names, 3, &found, err);
        if (rc != PD_OK) return rc;
        if (found) return parse(value, pairs->at[i].value, err);
    }
    return pd_fail(err, PD_NOT_FOUND, "no rule is found for it: none of the expressions is found in its name; a last one of '.*' would hold for the rest");
}

int pd_name_map_find(const char *map, const char *name, pd_value_reader *parse, void *value, pd_error *err)
{
    char *slashed = respelled(name, '.', '/'), *dotted = respelled(name, '/', '.');
    const char *const names[] = { name, slashed, dotted };
    pd_pairs pairs = { 0 };
    int rc = slashed == NULL || dotted == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory for a name") : pd_pairs_read(&pairs, map, err);

    if (rc == PD_OK) rc = find_first(&pairs, names, parse, value, err);
    pd_pairs_free(&pairs);
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

/* Upstream's Incomplete adafactor spec: parts of it are factored by accident. */
static int complete(pd_factor_rule *rule, pd_error *err)
{
    bool factored = has(rule, PD_DIM_ROW) && has(rule, PD_DIM_COLUMN);
    char text[96];

    if (factored && has(rule, PD_DIM_NONE))
        return pd_fail(err, PD_INVALID_ARGUMENT, "incomplete rule %s from its axes: NONE does not go with ROW and COLUMN", pd_factor_rule_text(rule, text, sizeof text));
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
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "the table has no axis \"%s\"; name each dimension by one that it has, or add it", axes->name[i]);
    pd_axis_table_free(&rules);
    return rc == PD_OK ? complete(out, err) : rc;
}

/* ---- what comes of a rule ---- */

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
        return pd_fail(err, PD_INVALID_ARGUMENT, "a parameter of rank above 2 must have an explicit factorization rule: its shape is %s; give one in factor_map, "
                       "or name its axes and set logical_factor_rules, or use factored=no", pd_shape_text(shape, text, sizeof text));
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
        return pd_fail(err, PD_INVALID_ARGUMENT, "factorization rule %s has incorrect rank for its shape %s: expected one for each of %d dimensions, got %d; a rule for it "
                       "alone can stand before this one", pd_factor_rule_text(rule, text, sizeof text), pd_shape_text(shape, shown, sizeof shown), shape->rank, rule->n);
    out->ignored = shape->rank <= 2 && !has(rule, PD_DIM_BATCH);
    if (out->ignored) return by_heuristic(out, shape, least, err);
    memcpy(out->dim, rule->dim, sizeof out->dim);
    out->factored = has(rule, PD_DIM_ROW) || has(rule, PD_DIM_COLUMN);
    return PD_OK;
}
