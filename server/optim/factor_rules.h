/* factor_rules.h - decides along which dimensions adafactor factors a parameter's second moment. A parameter's rule is
 * found by a regular expression that matches its name, or derived from the logical names of its dimensions. Pure
 * functions. Source: T5X's adafactor (t5x/adafactor.py), including the error texts. */
#ifndef PD_FACTOR_RULES_H
#define PD_FACTOR_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "axes.h"
#include "paramd/error.h"

/* The kinds of factor rules. NONE: the second moment is not factored. HEURISTIC: the shape decides. EXPLICIT: the rule
 * lists one word (ROW, COLUMN, BATCH or NONE) for each dimension. */
typedef enum pd_factor_way { PD_FACTOR_NONE, PD_FACTOR_HEURISTIC, PD_FACTOR_EXPLICIT } pd_factor_way;

typedef struct pd_factor_rule {
    pd_factor_way way;
    int n; /* number of dimensions in an explicit rule such as (ROW,COLUMN) */
    pd_dim_rule dim[PD_MAX_RANK];
} pd_factor_rule;

/* Reads a factor rule from text: "HEURISTIC" (by the shape), "none" (a full second moment), or one word per dimension
 * such as "(BATCH,ROW,COLUMN)", in round or square brackets. PD_INVALID_ARGUMENT: the text is none of these. */
int pd_factor_rule_read(pd_factor_rule *out, const char *text, pd_error *err);
/* Writes a factor rule as text such as "(BATCH,ROW,COLUMN)" into `text` (96 bytes suffice), and returns `text`. */
char *pd_factor_rule_text(const pd_factor_rule *rule, char *text, size_t size);

/* The maps that are used for a set of parameters. A map is a list of pairs (axes.h): a regular expression (pd_pattern)
 * for names of parameters, and a value. Each map is read and compiled once for the whole set. All searches for the
 * set's names share a budget of matching steps, and one name may use only a part of the budget: this limits what a
 * client's maps can cost. For one thread. */
typedef struct pd_name_maps pd_name_maps;

/* Makes an empty set of maps to look up the names of `names` parameters. NULL: out of memory. */
pd_name_maps *pd_name_maps_new(size_t names);
void pd_name_maps_free(pd_name_maps *maps); /* frees the maps; accepts NULL */
/* Returns how many matching steps are left of the budget for searches in the maps. */
int64_t pd_name_maps_left(const pd_name_maps *maps);

/* Looks up the parameter `name` in a map: finds the first pair whose expression matches somewhere in the name, and
 * reads its value into *value by `parse`. The text `map` must outlive `maps`.
 *
 * If the name has no /, its dots are replaced by / before the search. If an expression has no / but a literal dot (\.
 * or in []), it is also searched for in the name with a dot in place of each /.
 *
 *   - PD_NOT_FOUND: no expression matches.
 *   - PD_INVALID_ARGUMENT: the map, an expression or a value cannot be read.
 *   - PD_RESOURCE_EXHAUSTED: the budget is used up.
 *   - PD_NO_MEMORY: out of memory. */
typedef int pd_value_reader(void *value, const char *text, pd_error *err);
int pd_name_map_find(pd_name_maps *maps, const char *map, const char *name, pd_value_reader *parse, void *value,
                     pd_error *err);

/* Functions that read a value from a map's text: pd_factor_reader reads a pd_factor_rule, pd_flag_reader a bool (yes,
 * no, true, false, 1, 0). */
int pd_factor_reader(void *rule, const char *text, pd_error *err);
int pd_flag_reader(void *flag, const char *text, pd_error *err);

/* Makes a factor rule from the names of a parameter's dimensions and a table that gives each name a role (axes.h:
 * "standard", or pairs). If no dimension is ROW, or none is COLUMN, all dimensions except BATCH become NONE.
 * PD_INVALID_ARGUMENT: the table lacks a name, or the parameter has ROW, COLUMN and NONE at once. PD_NO_MEMORY: out of
 * memory. */
int pd_factor_rule_of_axes(pd_factor_rule *out, const char *table, const pd_axes *axes, pd_error *err);

/* How the second moment of one parameter is factored: the result of applying a factor rule to its shape. */
typedef struct pd_factoring {
    bool factored; /* whether some dimension is ROW or COLUMN; false: there is one full second moment */
    /* whether the rule that the user wrote has no effect, and HEURISTIC is applied instead: the tensor has at most two
     * dimensions, and none of them is BATCH */
    bool ignored;
    /* factor rule of each dimension: ROW, COLUMN, BATCH or NONE. Scale and clip factor of an update are computed over
     * all dimensions except BATCH */
    pd_dim_rule dim[PD_MAX_RANK];
} pd_factoring;

/* Applies a factor rule to a parameter's shape. The rule HEURISTIC factors a matrix if both sides are at least `least`:
 * the smaller side is ROW, the larger one COLUMN; of equal sides the first one is ROW. PD_INVALID_ARGUMENT: HEURISTIC
 * for a tensor of more than two dimensions, or the number of words in an explicit rule differs from the number of
 * dimensions. */
int pd_factoring_of(pd_factoring *out, const pd_factor_rule *rule, const pd_shape *shape, int64_t least, pd_error *err);

#define PD_MAX_PATTERN 1024 /* longest regular expression, in bytes */

typedef struct pd_search pd_search;   /* budget and work memory for searches; for use by one thread */
typedef struct pd_pattern pd_pattern; /* a regular expression; it is compiled when it is used for the first time */

/* Makes a search whose budget is `steps` matching steps. PCRE2 takes a matching step each time it tries an item of the
 * expression; an item of an expression with many groups counts as several. NULL: out of memory. */
pd_search *pd_search_new(int64_t steps);
void pd_search_free(pd_search *search); /* accepts NULL */
/* Returns how many matching steps are left of the budget; below 0: the last search needed more than there were. */
int64_t pd_search_left(const pd_search *search);

/* Lets the searches from now on use at most `steps` matching steps of what is left of the budget. Compiling does not
 * count here. */
void pd_search_limit(pd_search *search, int64_t steps);

/* Makes a pattern from the text of a regular expression, which is copied. The pattern uses the budget of `search`, and
 * must be freed before `search` is. NULL: out of memory. */
pd_pattern *pd_pattern_new(pd_search *search, const char *text);
void pd_pattern_free(pd_pattern *pattern); /* accepts NULL */

/* Searches `text` for the pattern and sets *found. PD_INVALID_ARGUMENT: the pattern is not a regular expression, or has
 * more than PD_MAX_PATTERN bytes. PD_RESOURCE_EXHAUSTED: the budget for all searches is used up, or this search needs
 * too much memory. PD_NO_MEMORY: out of memory. */
int pd_pattern_find(pd_pattern *pattern, const char *text, bool *found, pd_error *err);

#endif
