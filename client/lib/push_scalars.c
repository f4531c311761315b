/* push_scalars.c - reads the caller's scalars of a push (numbers beside the gradients, such as a loss), sends them
 * with one frame, and returns their means to the caller. */
#include "push_scalars.h"

#include <math.h>
#include <string.h>

/* ---- out ---- */

int pd_scalars_read(pd_scalar_load *load, const pd_push_options *options, pd_error *err)
{
    load->n = options != NULL ? options->n_scalars : 0;
    if (load->n == 0) return PD_OK;
    if (options->scalars == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%zu scalars, and no place where they are", load->n);
    for (size_t i = 0; i < load->n && i < PD_PUSH_SCALARS; i++) {
        paramd__scalar__init(&load->scalar[i]);
        load->list[i] = &load->scalar[i];
        if (options->scalars[i].name != NULL) load->scalar[i].name = (char *)options->scalars[i].name;
        load->scalar[i].value = options->scalars[i].value;
    }
    return pd_scalars_check(load->list, load->n, err);
}

static bool goes_before(const pd_param_record *a, const pd_param_record *b)
{
    return a->ranged != b->ranged ? b->ranged : strcmp(a->name, b->name) < 0;
}

static size_t choose_bearer(const pd_core *core, const pd_op *op)
{
    size_t first = 0;

    for (size_t i = 1; i < op->n; i++)
        if (goes_before(&core->params[op->items[i].param], &core->params[op->items[first].param])) first = i;
    return first;
}

int pd_scalars_begin(const pd_core *core, pd_op *op, const pd_push_options *options, pd_error *err)
{
    size_t bearer = choose_bearer(core, op);
    const pd_param_record *known = &core->params[op->items[bearer].param];

    if (known->start == known->end)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "scalars ride with parameter %.160s, of which this rank's range has "
                       "no elements: its rounds do not wait for this rank. Give them with a call whose first parameter "
                       "by name this rank has some of",
                       known->name);
    op->scalars = options->scalars;
    op->n_scalars = options->n_scalars;
    op->bearer = bearer;
    for (size_t i = 0; i < op->n_scalars; i++) {
        op->scalars[i].mean = NAN;
        op->scalars[i].weight = 0;
    }
    return PD_OK;
}

/* ---- in ---- */

void pd_scalars_note(const pd_op *op, const Paramd__Outcome *outcome)
{
    for (size_t i = 0; i < op->n_scalars; i++) {
        for (size_t k = 0; k < outcome->n_scalars; k++) {
            if (strcmp(op->scalars[i].name, outcome->scalars[k]->name) != 0) continue;
            op->scalars[i].mean = outcome->scalars[k]->value;
            op->scalars[i].weight = outcome->scalars[k]->weight;
        }
    }
}
