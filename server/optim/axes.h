/* axes.h - logical names of a parameter's dimensions ("layers,embed,mlp"), and tables that give each name a rule. Pure
 * functions.
 *
 * T5X's models name the dimensions ("axes") of their weights in this way. A rule says which role a dimension has when
 * adafactor factors the second moment of a parameter. The standard table is that of T5X's adafactor (t5x/adafactor.py).
 * A dimension whose rule is BATCH stacks independent tensors, such as equal layers of a model. */
#ifndef PD_AXES_H
#define PD_AXES_H

#include <stddef.h>

#include "paramd/error.h"
#include "paramd/tensor.h"

#define PD_AXIS_NAME (PD_AXIS_BYTES + 1) /* bytes of memory for the name of a dimension with its terminating NUL */

/* The rule of a dimension: its role when adafactor factors a second moment, that is, keeps means over rows and over
 * columns instead of all elements. */
typedef enum pd_dim_rule { PD_DIM_NONE, PD_DIM_ROW, PD_DIM_COLUMN, PD_DIM_BATCH } pd_dim_rule;

const char *pd_dim_rule_name(pd_dim_rule rule); /* returns the name of a dimension's rule, such as "ROW" */
/* Reads the rule of a dimension from its name: ROW, COL, COLUMN, BATCH, NONE or UNFACTORIZED, in upper or lower case.
 * Returns false for any other text. */
bool pd_dim_rule_read(pd_dim_rule *rule, const char *text);

/* The names of one parameter's dimensions. */
typedef struct pd_axes {
    int n; /* number of names: as many as the parameter has dimensions, or 0 if no names are given */
    char name[PD_MAX_RANK][PD_AXIS_NAME]; /* logical name of each dimension of the parameter; may be empty */
} pd_axes;

/* Reads the names of a parameter's dimensions as they are declared: one for each dimension, separated by commas. Blanks
 * around names are ignored. NULL or "": no names are given. PD_INVALID_ARGUMENT: the number of names is not `rank`, the
 * number of dimensions, or a name has more than PD_AXIS_NAME - 1 bytes. */
int pd_axes_read(pd_axes *out, const char *text, int rank, pd_error *err);
/* Returns how many dimensions at the beginning stack independent tensors: those whose names have the rule BATCH in the
 * standard table ("layers", "stack"). */
int pd_axes_leading_batch(const pd_axes *axes);

/* One entry of a table: a name of a dimension, and its rule. */
typedef struct pd_axis_rule {
    char name[PD_AXIS_NAME];
    pd_dim_rule rule;
} pd_axis_rule;

/* A table that gives names of dimensions their rules. */
typedef struct pd_axis_table {
    const pd_axis_rule *at;
    size_t n;
    pd_axis_rule *own; /* memory of `at`, which pd_axis_table_free frees; NULL: `at` is static */
} pd_axis_table;

/* Reads a table that gives names of dimensions their rules: "standard", or pairs of a name and a rule such as
 * "[vocab:COLUMN,embed:ROW]" (pd_pairs_read). If a name has several pairs, the last one counts. Free *out with
 * pd_axis_table_free, also after an error. PD_INVALID_ARGUMENT: the text is not such a table. PD_NO_MEMORY: out of
 * memory. */
int pd_axis_table_read(pd_axis_table *out, const char *text, pd_error *err);
void pd_axis_table_free(pd_axis_table *table);
/* Finds the rule of a dimension's name in a table. Returns false if the table does not contain the name. */
bool pd_axis_table_find(const pd_axis_table *table, const char *name, pd_dim_rule *rule);

#define PD_MAX_PAIRS 256 /* largest number of pairs in a list */

/* A key and its value, from a list like "a:1,b:2". Both point into pd_pairs.memory. */
typedef struct pd_pair {
    char *key;   /* the key of the pair, without quotes */
    char *value; /* the value as written in the text; never empty */
} pd_pair;

typedef struct pd_pairs {
    pd_pair *at; /* the pairs, in the order of the text */
    size_t n;
    char *memory; /* a copy of the list's text, cut into keys and values */
} pd_pairs;

/* Reads a list of key:value pairs into *out. Free it with pd_pairs_free, also after an error. PD_INVALID_ARGUMENT: the
 * text is not such a list, or has more than PD_MAX_PAIRS pairs. PD_NO_MEMORY: out of memory. */
int pd_pairs_read(pd_pairs *out, const char *text, pd_error *err);
void pd_pairs_free(pd_pairs *pairs);

#endif
