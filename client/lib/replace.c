/* replace.c - sends weights that the program has changed by hand, and keeps the program's number of the last change. */
#include "replace.h"

#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "core.h"
#include "window.h"

void pd_replace_done(pd_core *core, const pd_op *op)
{
    for (size_t i = 0; i < op->n; i++) pd_core_forget_versions(&core->params[op->items[i].param]);
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];
        if (record->step != op->step) continue;
        record->replaces = op->replaces;
        record->replaced = record->step;
        pd_window_begin(record); /* the window cannot send the weights again */
    }
}

uint64_t pd_replace_number(const pd_param_record *record, uint64_t given)
{
    return given == 0 && record->replaced == record->step ? record->replaces : given;
}

void pd_replace_begin(pd_param_record *record)
{
    record->replaces = record->server_replaces;
    record->replaced = record->server_step;
}

bool pd_replace_is_lost(const pd_core *core, const pd_param_record *record)
{
    if (!pd_core_leads(core) || record->replaces == 0 || record->server_step > record->replaced) return false;
    return record->server_step < record->replaced || record->server_replaces != record->replaces;
}

static int check_item(const pd_core *core, const pd_item *items, size_t i, pd_error *err)
{
    const pd_param_record *record;

    if (items[i].param >= core->n_params)
        return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu: parameter %zu, but %zu are declared", i, items[i].param,
                       core->n_params);
    record = &core->params[items[i].param];
    if (record->ranged)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "parameter %.160s: its elements are spread over the ranks, and such weights cannot be replaced "
                       "while the job runs: begin a new job with the changed weights",
                       record->name);
    if (record->step != core->params[items[0].param].step)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "parameter %.160s has taken step %llu, and %.160s step %llu: weights are replaced that are of one "
            "step",
            core->params[items[0].param].name, (unsigned long long)core->params[items[0].param].step, record->name,
            (unsigned long long)record->step);
    if (items[i].weights == NULL && record->start < record->end)
        return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu (%.160s): no weights", i, record->name);
    return PD_OK;
}

/* Checks that no parameter is in two items. Uses the flags `pushing` for it, since no push is under way. */
static int check_once(const pd_core *core, const pd_item *items, size_t n, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < n; i++) {
        pd_param_record *record = &core->params[items[i].param];
        if (record->pushing)
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "item %zu: parameter %.160s is in another item", i, record->name);
        record->pushing = true;
    }
    for (size_t i = 0; i < n; i++) core->params[items[i].param].pushing = false;
    return rc;
}

/* Checks that no push is under way: weights are replaced between two steps. */
static int check_idle(const pd_core *core, pd_error *err)
{
    if (core->progress.closing > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "step %llu is being closed: wait for that ticket first",
                       (unsigned long long)core->progress.closing);
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].pushing)
            return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s has a push under way: wait for its ticket first",
                           core->params[i].name);
    return PD_OK;
}

static int check(const pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_error *err)
{
    int rc = PD_OK;

    if (!core->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    /* Where ranks come and go, the server knows who leads the job now. */
    if (!core->open_sets && core->setup.rank != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "rank 0 sends weights that were changed by hand, this is rank %u: its next pushes bring the "
                       "number of the change (pd_push_options.replaces)",
                       core->setup.rank);
    if (number == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "the number of a change of weights must not be 0: use a hash of the new weights");
    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no items");
    for (size_t i = 0; rc == PD_OK && i < n; i++) rc = check_item(core, items, i, err);
    if (rc == PD_OK) rc = check_idle(core, err);
    return rc == PD_OK ? check_once(core, items, n, err) : rc;
}

static int post(pd_core *core, pd_op *op)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_INIT);
    for (size_t i = 0; rc == PD_OK && i < op->n; i++) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

int pd_core_replace(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket, pd_error *err)
{
    pd_item *own;
    pd_op *op;
    int rc = check(core, items, n, number, err);

    if (rc != PD_OK || (rc = pd_op_begin(core, PD_INIT, &op, err)) != PD_OK) return rc;
    if ((own = calloc(n, sizeof *own)) != NULL) {
        for (size_t i = 0; i < n; i++) own[i] = (pd_item){ .param = items[i].param, .gradient = items[i].weights };
        op->items = own;
        op->owned = true;
        op->n = n;
        op->replaces = number;
        op->step = core->params[items[0].param].step;
    }
    if (own == NULL || (rc = post(core, op)) != PD_OK) {
        pd_op_free(core, op);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    *ticket = op->id;
    return PD_OK;
}

int pd_replace_again(pd_core *core)
{
    pd_op *op, *next;

    HASH_ITER(hh, core->calls.table, op, next)
    {
        if (op->replaces == 0 || op->done) continue;
        pd_bucket_unpost(core, op);
        if (post(core, op) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}
