/* factor_rules.h - decides along which dimensions adafactor factors a parameter's second moment. Pure. A parameter's
 * rule is found by a regular expression that matches its name, or derived from the logical names of its dimensions.
 * Source: T5X's adafactor (t5x/adafactor.py), including the error texts. */
#ifndef PD_FACTOR_RULES_H
#define PD_FACTOR_RULES_H

#include "axes.h"

typedef enum pd_factor_way { PD_FACTOR_NONE, PD_FACTOR_HEURISTIC, PD_FACTOR_EXPLICIT } pd_factor_way;

typedef struct pd_factor_rule {
    pd_factor_way way;
    int n; /* number of dimensions of an explicit rule */
    pd_dim_rule dim[PD_MAX_RANK];
} pd_factor_rule;

/* Reads a rule: "HEURISTIC", "none" (a full second moment), or one word per dimension such as "(BATCH,ROW,COLUMN)",
 * in round or square brackets. PD_INVALID_ARGUMENT: the text is none of these. */
int pd_factor_rule_read(pd_factor_rule *out, const char *text, pd_error *err);
/* Writes a rule as text such as "(BATCH,ROW,COLUMN)" into `text` (96 bytes suffice), and returns `text`. */
char *pd_factor_rule_text(const pd_factor_rule *rule, char *text, size_t size);

/* The maps that are used for a set of parameters. A map is a list of pairs (pairs.h): a regular expression
 * (pattern.h) for names of parameters, and a value. Each map is read and compiled once for the whole set. All
 * searches of the set share a budget of steps, so that a client cannot send a map that costs more. For one thread. */
typedef struct pd_name_maps pd_name_maps;

/* Makes maps for a set of `names` parameters. NULL: out of memory. */
pd_name_maps *pd_name_maps_new(size_t names);
void pd_name_maps_free(pd_name_maps *maps); /* accepts NULL */
/* Returns how many steps of the budget are left (pattern.h counts them). */
int64_t pd_name_maps_left(const pd_name_maps *maps);

/* Finds the first pair of the map whose expression matches somewhere in `name`, and reads its value into *value by
 * `parse`. `map` must outlive `maps`.
 *
 * A name without / has its dots replaced by / before the search. If an expression has no / but a literal dot (\. or
 * in []), it is also searched for in the name with a dot in place of each /.
 *
 *   - PD_NOT_FOUND: no expression matches.
 *   - PD_INVALID_ARGUMENT: the map, an expression or a value cannot be read.
 *   - PD_RESOURCE_EXHAUSTED: the budget is used up.
 *   - PD_NO_MEMORY. */
typedef int pd_value_reader(void *value, const char *text, pd_error *err);
int pd_name_map_find(pd_name_maps *maps, const char *map, const char *name, pd_value_reader *parse, void *value,
                     pd_error *err);

/* Read a value of a map: a pd_factor_rule, or a bool (yes, no, true, false, 1, 0). */
int pd_factor_reader(void *rule, const char *text, pd_error *err);
int pd_flag_reader(void *flag, const char *text, pd_error *err);

/* Makes a rule from the names of a parameter's dimensions and a table that gives each name a rule (axes.h:
 * "standard", or pairs). If no dimension is ROW, or none is COLUMN, all dimensions except BATCH become NONE.
 * PD_INVALID_ARGUMENT: the table lacks a name, or the parameter has ROW, COLUMN and NONE at once. PD_NO_MEMORY. */
int pd_factor_rule_of_axes(pd_factor_rule *out, const char *table, const pd_axes *axes, pd_error *err);

/* The result of applying a rule to a shape. */
typedef struct pd_factoring {
    bool factored; /* some dimension is ROW or COLUMN; otherwise there is one full second moment */
    /* the rule that the user wrote has no effect: the tensor has at most two dimensions and none is BATCH. The rule
     * HEURISTIC is applied instead */
    bool ignored;
    pd_dim_rule dim[PD_MAX_RANK]; /* rule of each dimension. Scale and clip factor are computed over all dimensions
                                   * except BATCH */
} pd_factoring;

/* Applies a rule to a shape. HEURISTIC factors a matrix if both sides are at least `least`: the smaller side is ROW,
 * the larger one COLUMN; of equal sides the first one is ROW. PD_INVALID_ARGUMENT: HEURISTIC with a rank above 2, or
 * an explicit rule whose number of dimensions is not the rank. */
int pd_factoring_of(pd_factoring *out, const pd_factor_rule *rule, const pd_shape *shape, int64_t least, pd_error *err);

#endif
