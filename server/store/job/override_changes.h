/* override_changes.h - what the answer to an operator's command says of the values before and after it. Step thread. */
#ifndef PD_OVERRIDE_CHANGES_H
#define PD_OVERRIDE_CHANGES_H

#include "override_values.h"

/* Where the text came from that a change says of a parameter's value before it. */
typedef struct pd_override_shown {
    const pd_hypers *hypers; /* NULL: no parameter has the change yet */
    int64_t count;
    bool same; /* it is the text of the change */
} pd_override_shown;

/* Adds to a change that the entry `added` of the parameter makes it, in hyperparameter h. `before` are the overrides
 * that apply at the entry's step before. */
void pd_override_add_change(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                            const pd_override_state *before, pd_override_entry added, int h);

#endif
