/* replace.c - sends weights that the program has changed by hand, and keeps the program's number of the last change. */
#include "replace.h"

#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "core.h"
#include "window.h"

/* Returns the step whose weights an operation replaces in a fragment. Call it only if it replaces some there. */
static uint64_t replaced_step(pd_op *op, uint32_t fragment)
{
    return pd_op_span(op, fragment)->most - 1;
}

static bool replaces_some(pd_op *op, uint32_t fragment)
{
    return pd_op_span(op, fragment)->most > 0;
}

void pd_replace_done(pd_core *core, pd_op *op)
{
    for (size_t i = 0; i < op->n; i++) pd_core_forget_versions(&core->params[op->items[i].param]);
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];
        uint64_t step = replaces_some(op, record->fragment) ? replaced_step(op, record->fragment) : UINT64_MAX;
        /* Where sets are open, all parameters of the fragment have taken this step, also if this process has not been
         * told so of some. */
        if (core->open_sets && step < UINT64_MAX && record->step < step) record->step = step;
        if (record->step != step) continue;
        record->replaces = op->replaces;
        record->replaced = step;
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

/* Finds the step whose weights are replaced, of each fragment that has items. PD_INVALID_ARGUMENT: parameters of a
 * fragment are at different steps. */
static int find_steps(const pd_core *core, pd_op *op, pd_error *err)
{
    for (size_t i = 0; i < op->n; i++) {
        const pd_param_record *record = &core->params[op->items[i].param];
        pd_step_span *span = pd_op_span(op, record->fragment);
        if (span->most == 0)
            span->least = span->most =
                1 + (core->open_sets ? pd_core_highest_step(core, record->fragment) : record->step);
        op->items[i].step = span->most - 1;
        if (!core->open_sets && record->step + 1 != span->most)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "parameter %.160s has taken step %llu, and another one of its fragment step %llu: weights "
                           "are replaced that are of one step",
                           record->name, (unsigned long long)record->step, (unsigned long long)span->most - 1);
    }
    return PD_OK;
}

/* Checks that no push of a fragment whose weights are replaced is under way: they are replaced between two steps. */
static int check_idle(const pd_core *core, pd_op *op, pd_error *err)
{
    if (core->progress.closing > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "step %llu is being closed: wait for that ticket first",
                       (unsigned long long)core->progress.closing);
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].pushing && replaces_some(op, core->params[i].fragment))
            return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s has a push under way: wait for its ticket first",
                           core->params[i].name);
    return PD_OK;
}

static int check(const pd_core *core, uint64_t number, pd_error *err)
{
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
    return PD_OK;
}

static int check_items(const pd_core *core, const pd_item *items, size_t n, pd_error *err)
{
    int rc = PD_OK;

    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no items");
    for (size_t i = 0; rc == PD_OK && i < n; i++) rc = check_item(core, items, i, err);
    return rc;
}

static int post(pd_core *core, pd_op *op)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_INIT);
    for (size_t i = 0; rc == PD_OK && i < op->n; i++) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

/* Copies the items into the operation, and checks that their weights can be replaced now. */
static int take_items(const pd_core *core, pd_op *op, const pd_item *items, size_t n, pd_error *err)
{
    pd_item *own = calloc(n, sizeof *own);
    int rc;

    op->items = own;
    op->owned = true;
    if (core->n_fragments > 1) op->spans = calloc(core->n_fragments, sizeof *op->spans);
    if (own == NULL || (core->n_fragments > 1 && op->spans == NULL)) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    op->n = n;
    for (size_t i = 0; i < n; i++) own[i] = (pd_item){ .param = items[i].param, .gradient = items[i].weights };
    rc = find_steps(core, op, err);
    if (rc == PD_OK) rc = check_idle(core, op, err);
    return rc == PD_OK ? check_once(core, items, n, err) : rc;
}

static int begin(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc;

    if ((rc = pd_op_begin(core, PD_INIT, &op, err)) != PD_OK) return rc;
    op->replaces = number;
    rc = take_items(core, op, items, n, err);
    if (rc == PD_OK && (rc = post(core, op)) != PD_OK) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) {
        pd_op_free(core, op);
        return rc;
    }
    *ticket = op->id;
    return PD_OK;
}

int pd_core_replace(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket, pd_error *err)
{
    int rc = check(core, number, err);

    if (rc == PD_OK) rc = check_items(core, items, n, err);
    return rc == PD_OK ? begin(core, items, n, number, ticket, err) : rc;
}

int pd_core_replace_none(pd_core *core, uint64_t number, pd_ticket_id *ticket, pd_error *err)
{
    pd_item unchanged = { 0 };
    int rc = check(core, number, err);

    if (rc != PD_OK) return rc;
    while (unchanged.param < core->n_params && core->params[unchanged.param].elsewhere) unchanged.param++;
    return unchanged.param < core->n_params ? begin(core, &unchanged, 1, number, ticket, err) : PD_OK;
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
