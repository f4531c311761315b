/* override_changes.c - describes the change of one hyperparameter of many parameters. */
#include "override_changes.h"

#include <stdio.h>
#include <string.h>

/* Compares what the parameter's value was before the change with what the change says of the first parameter. Most
 * parameters have the same overrides, so texts that come from the same values are not written again. */
static void compare_before(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                           const pd_hypers *before, int h)
{
    int64_t count = (before->scheduled >> h & 1) != 0 ? pd_optim_count(param->optim) : 0;
    char text[sizeof change->before];

    if (last->hypers != before || last->count != count) {
        pd_overrides_text_at(before, h, pd_optim_count(param->optim), text, sizeof text);
        if (change->params == 0) memcpy(change->before, text, sizeof text);
        *last = (pd_override_shown){ before, count, strcmp(change->before, text) == 0 };
    }
    if (!last->same) change->mixed = true;
}

void pd_override_add_change(pd_set_change *change, pd_override_shown *last, const pd_param *param,
                            const pd_override_state *before, pd_override_entry added, int h)
{
    const pd_hypers *hypers = &added.override->hypers;

    compare_before(change, last, param, pd_override_source(before, param, h), h);
    if (change->params == 0) {
        size_t count;
        snprintf(change->optimizer, sizeof change->optimizer, "%s", pd_optimizer_name(hypers->row));
        snprintf(change->name, sizeof change->name, "%s", pd_optimizer_hypers(hypers->row, &count)[h].name);
        pd_overrides_text_at(hypers, h, pd_optim_count(param->optim), change->value, sizeof change->value);
        change->withdrawn = (added.override->withdrawn >> h & 1) != 0;
        change->from_least = change->from_most = added.from;
    }
    if (added.from < change->from_least) change->from_least = added.from;
    if (added.from > change->from_most) change->from_most = added.from;
    change->params++;
}
