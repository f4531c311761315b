/* replaced.c - keeps the number of the last change of weights by hand. */
#include "replaced.h"

#include "window.h"

#include <stdlib.h>

void pd_replace_done(pd_core *core, const pd_op *op)
{
    for (size_t i = 0; i < op->n; i++) pd_replace_forget_versions(&core->params[op->items[i].param]);
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *known = &core->params[i];
        if (known->step != core->params[op->items[0].param].step) continue;
        known->replaces = op->replaces;
        known->replaced = known->step;
        pd_window_begin(known); /* the window cannot send the weights again */
    }
}

/* ---- what is known of a parameter ---- */

uint64_t pd_replace_number(const pd_param_record *known, uint64_t given)
{
    return given == 0 && known->replaced == known->step ? known->replaces : given;
}

void pd_replace_forget_versions(pd_param_record *known)
{
    free(known->holds);
    known->holds = NULL;
}

void pd_replace_begin(pd_param_record *known)
{
    known->replaces = known->there_replaces;
    known->replaced = known->there;
}

bool pd_replace_is_lost(const pd_core *core, const pd_param_record *known)
{
    if (core->rank != 0 || known->replaces == 0 || known->there > known->replaced) return false;
    return known->there < known->replaced || known->there_replaces != known->replaces;
}
