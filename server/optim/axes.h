/* axes.h - logical names of a parameter's dimensions ("layers,embed,mlp"), and what a table says of each name.
 * Pure.
 *
 * Source: T5X's partitioning, whose models name the axes of their weights; adafactor's standard table of how each
 * is factored (t5x/adafactor.py). A dimension that is BATCH in that table stacks independent tensors: scanned
 * layers. */
#ifndef PD_AXES_H
#define PD_AXES_H

#include "paramd/tensor.h"

#define PD_AXIS_NAME (PD_AXIS_BYTES + 1)        /* room for a name, with its end */

/* What becomes of a dimension where second moments are factored. */
typedef enum pd_dim_rule { PD_DIM_NONE, PD_DIM_ROW, PD_DIM_COLUMN, PD_DIM_BATCH } pd_dim_rule;

const char *pd_dim_rule_name(pd_dim_rule rule);                 /* "ROW" */
/* ROW, COL, COLUMN, BATCH, NONE, UNFACTORIZED in any case. False: none of them. */
bool        pd_dim_rule_read(pd_dim_rule *rule, const char *text);

typedef struct pd_axes {
    /* the parameter's rank; 0 also where no names are given */
    int  n;
    char name[PD_MAX_RANK][PD_AXIS_NAME];                       /* each may be empty */
} pd_axes;

/* From a declaration's text: one name a dimension, commas between them, blanks around them left out; NULL or "":
 * none given. PD_INVALID_ARGUMENT: not as many names as dimensions, or one of more than PD_AXIS_NAME - 1 bytes. */
int pd_axes_read(pd_axes *out, const char *text, int rank, pd_error *err);
/* Leading dimensions which the standard table calls BATCH ("layers", "stack"). */
int pd_axes_leading_batch(const pd_axes *axes);

typedef struct pd_axis_rule {
    char        name[PD_AXIS_NAME];
    pd_dim_rule rule;
} pd_axis_rule;

typedef struct pd_axis_table {
    const pd_axis_rule *at;
    size_t              n;
    pd_axis_rule       *own;    /* its memory; NULL: static */
} pd_axis_table;

/* "standard", or pairs of name and rule, "[vocab:COLUMN,embed:ROW]" (pairs.h), of which of one name the last
 * counts. Fills *out; pd_axis_table_free it, also after an error. PD_INVALID_ARGUMENT: not such a table.
 * PD_NO_MEMORY. */
int  pd_axis_table_read(pd_axis_table *out, const char *text, pd_error *err);
void pd_axis_table_free(pd_axis_table *table);
/* False: the table does not have the name. */
bool pd_axis_table_find(const pd_axis_table *table, const char *name, pd_dim_rule *rule);

#endif
