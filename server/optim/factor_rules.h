/* factor_rules.h - which dimensions of a parameter does adafactor factor its second moment along? Pure.
 *
 * Rules say it for each parameter: found by a regular expression in its name, or made of the logical names of its
 * dimensions. Source: T5X's adafactor (t5x/adafactor.py), whose errors these are. */
#ifndef PD_FACTOR_RULES_H
#define PD_FACTOR_RULES_H

#include "axes.h"

typedef enum pd_factor_way { PD_FACTOR_NONE, PD_FACTOR_HEURISTIC, PD_FACTOR_EXPLICIT } pd_factor_way;

typedef struct pd_factor_rule {
    pd_factor_way way;
    int           n;                        /* of an explicit one */
    pd_dim_rule   dim[PD_MAX_RANK];
} pd_factor_rule;

/* "HEURISTIC", "none" (a full second moment), or "(BATCH,ROW,COLUMN)", also in []. PD_INVALID_ARGUMENT: none of
 * them. */
int pd_factor_rule_read(pd_factor_rule *out, const char *text, pd_error *err);
/* "(BATCH,ROW,COLUMN)" into `text` (96 bytes are enough); returns it. */
char *pd_factor_rule_text(const pd_factor_rule *rule, char *text, size_t size);

/* Maps of names: lists of pairs (pairs.h) of a regular expression (pattern.h) and a value. Those that are searched
 * for the parameters of one set are read and compiled once, and all these searches together have a budget, so that
 * no map, whoever sends it, costs more than so many steps. Of one thread. */
typedef struct pd_name_maps pd_name_maps;

/* For a set of so many names. NULL: out of memory. */
pd_name_maps *pd_name_maps_new(size_t names);
void          pd_name_maps_free(pd_name_maps *maps);        /* accepts NULL */
/* Steps (pattern.h) that are left of the budget. */
int64_t       pd_name_maps_left(const pd_name_maps *maps);

/* The value of the first pair whose expression is found in `name`. It is searched for in the name with / between
 * its parts: as it is where it has some, else with / for each dot; and where the expression has no / and a dot
 * that means one (\. or in []), also with dots for each /. `map` is to outlive `maps`. Reads *value, by `parse`,
 * from its text. PD_NOT_FOUND: no expression is found. PD_INVALID_ARGUMENT: not such a map, an expression or value
 * that is none. PD_RESOURCE_EXHAUSTED: the budget is used up. PD_NO_MEMORY. */
typedef int pd_value_reader(void *value, const char *text, pd_error *err);
int pd_name_map_find(pd_name_maps *maps, const char *map, const char *name, pd_value_reader *parse, void *value, pd_error *err);

/* A pd_factor_rule, and a bool of yes, no, true, false: readers for such maps. */
int pd_factor_reader(void *rule, const char *text, pd_error *err);
int pd_flag_reader(void *flag, const char *text, pd_error *err);

/* From names of dimensions by a table of them (axes.h: "standard", or pairs). Where ROW or COLUMN is missing both
 * count as NONE, and BATCH stays. PD_INVALID_ARGUMENT: a name that the table does not have; ROW, COLUMN and NONE
 * beside each other. PD_NO_MEMORY. */
int pd_factor_rule_of_axes(pd_factor_rule *out, const char *table, const pd_axes *axes, pd_error *err);

/* What comes of it. */
typedef struct pd_factoring {
    bool        factored;                   /* some dimension is ROW or COLUMN; else there is one full second moment */
    bool        ignored;                    /* an explicit rule that does not count: rank at most 2, and no BATCH */
    pd_dim_rule dim[PD_MAX_RANK];           /* means that belong to the whole parameter are taken over all but BATCH */
} pd_factoring;

/* A heuristic factors a matrix whose sides are at least `least`: the smaller side is ROW, the larger one COLUMN,
 * of equal sides the first is ROW. PD_INVALID_ARGUMENT: rank > 2 by the heuristic, a rule of another rank. */
int pd_factoring_of(pd_factoring *out, const pd_factor_rule *rule, const pd_shape *shape, int64_t least, pd_error *err);

#endif
