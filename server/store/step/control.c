/* control.c - makes records of the course that steps take, and lets steps repeat the course of records that were read
 * back. */
#include "control.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of records that a job may have for its next entry, besides those of one step of all its parameters: a command
 * that sets values takes about so many, and 8 for each parameter. These bytes are in memory several times: as records,
 * and as an entry, whose memory may be twice as large while it is written. The only policy of rounds waits for all
 * ranks: one that does not needs room for a record of each parameter besides. */
enum { OWN_BYTES = 1536, COPIES = 3 };

/* ---- memory ---- */

/* Returns whether the steps of an optimizer with this plan choose their roots by time. */
static bool has_choice(const pd_plan *plan)
{
    return plan->n_tasks > 0 && plan->root_delay == PD_ROOT_READY;
}

static uint64_t step_bytes(const pd_plan *plan)
{
    return sizeof(pd_control_record) + 4 * plan->n_tasks * sizeof(pd_taken_root);
}

uint64_t pd_control_param_bytes(const pd_plan *plan)
{
    return sizeof(pd_control_param) + COPIES * sizeof(uint64_t) +
           (has_choice(plan) ? (1 + COPIES) * step_bytes(plan) : 0);
}

uint64_t pd_control_own_bytes(void)
{
    return sizeof(pd_control) + COPIES * (uint64_t)OWN_BYTES;
}

static bool notes_roots(const pd_param *param)
{
    return !param->buffers.logged && has_choice(pd_optim_plan(param->optim));
}

/* Gives each parameter whose steps choose roots its part of control->roots. */
static void lay_out_roots(pd_control *control, const pd_steps *steps)
{
    pd_taken_root *at = control->roots;

    control->most = OWN_BYTES + steps->n_params * sizeof(uint64_t);
    for (uint32_t i = 0; i < steps->n_params; i++) {
        if (!notes_roots(&steps->params[i])) continue;
        control->params[i].taken.at = at;
        control->params[i].taken.room = pd_optim_most_taken(steps->params[i].optim);
        at += control->params[i].taken.room;
        control->most += step_bytes(pd_optim_plan(steps->params[i].optim));
    }
}

int pd_control_make(pd_steps *steps)
{
    pd_control *control = calloc(1, sizeof *control + steps->n_params * sizeof control->params[0]);
    size_t n = 0;

    if (control == NULL) return PD_NO_MEMORY;
    for (uint32_t i = 0; i < steps->n_params; i++)
        if (notes_roots(&steps->params[i])) n += pd_optim_most_taken(steps->params[i].optim);
    if ((control->roots = calloc(n + 1, sizeof *control->roots)) == NULL) {
        free(control);
        return PD_NO_MEMORY;
    }
    lay_out_roots(control, steps);
    steps->control = control;
    return PD_OK;
}

void pd_control_free(pd_steps *steps)
{
    if (steps->control == NULL) return;
    pd_control_drop_made(steps->control);
    pd_control_drop_noted(steps, true);
    free(steps->control->roots);
    free(steps->control);
    steps->control = NULL;
}

pd_control_record *pd_control_record_new(pd_control_kind kind, uint32_t param, uint64_t step, size_t n)
{
    pd_control_record *record = calloc(1, sizeof *record + n * sizeof(pd_taken_root));

    if (record == NULL) return NULL;
    record->kind = kind;
    record->param = param;
    record->step = step;
    record->taken.at = (pd_taken_root *)(void *)(record + 1);
    record->taken.n = record->taken.room = n;
    return record;
}

void pd_control_record_free(pd_control_record *record)
{
    if (record == NULL) return;
    pd_counted_unref(record->counted);
    pd_override_drop(record->override);
    free(record->command);
    free(record);
}

static uint64_t bytes_of(const pd_control_record *record)
{
    uint64_t ranks = record->counted != NULL ? sizeof *record->counted + (record->counted->ranks + 63) / 64 * 8 : 0;

    return sizeof *record + record->taken.room * sizeof(pd_taken_root) + record->command_bytes + ranks;
}

static void append(pd_control_list *list, pd_control_record *record)
{
    record->next = NULL;
    if (list->first == NULL)
        list->first = record;
    else
        list->last->next = record;
    list->last = record;
}

/* Takes the record that follows `before` out of a list; NULL: the first one. */
static pd_control_record *take_out(pd_control_list *list, pd_control_record *before)
{
    pd_control_record **link = before != NULL ? &before->next : &list->first, *record = *link;

    *link = record->next;
    if (list->last == record) list->last = before;
    return record;
}

/* ---- making records ---- */

/* Adds a record to those for the next entry; NULL: there was no memory for it. Takes ownership of it. */
static bool add_made(pd_control *control, pd_control_record *record)
{
    if (record == NULL || control->bytes + bytes_of(record) > control->most) {
        pd_control_record_free(record);
        control->overflow = true;
        return false;
    }
    control->bytes += bytes_of(record);
    append(&control->made, record);
    return true;
}

bool pd_control_note_command(pd_steps *steps, uint8_t *command, size_t bytes, uint64_t copied)
{
    pd_control_record *record = pd_control_record_new(PD_CONTROL_SET, 0, copied, 0);

    if (record == NULL) {
        free(command);
        return add_made(steps->control, NULL);
    }
    record->command = command;
    record->command_bytes = bytes;
    return add_made(steps->control, record);
}

void pd_control_drop_made(pd_control *control)
{
    while (control->made.first != NULL) pd_control_record_free(take_out(&control->made, NULL));
    control->bytes = 0;
    control->overflow = false;
}

/* Makes a record of the roots that a step has taken, unless it had no choice. */
static void make_roots(pd_control *control, const pd_param *param, pd_taken_roots *taken)
{
    pd_control_record *record;

    if (taken->n == 0 && taken->left == 0) return;
    record = pd_control_record_new(PD_CONTROL_ROOTS, param->index, param->saved.step, taken->n);
    if (record != NULL && taken->n > 0) memcpy(record->taken.at, taken->at, taken->n * sizeof taken->at[0]);
    if (taken->missed) {
        pd_control_record_free(record);
        record = NULL;
    }
    add_made(control, record);
}

/* Makes a record of the ranks that count in a round which its policy has closed without some expected rank. */
static void make_round(pd_control *control, const pd_param *param)
{
    pd_control_record *record = pd_control_record_new(PD_CONTROL_ROUND, param->index, param->saved.step, 0);

    if (record != NULL) {
        record->counted = param->end.counted;
        record->counted->refs++;
    }
    add_made(control, record);
}

/* ---- records that were read back ---- */

static const pd_control_record *find(const pd_control *control, const pd_param *param, pd_control_kind kind,
                                     uint64_t step)
{
    const pd_control_record *record = control->params[param->index].noted.first;

    while (record != NULL && (record->kind != kind || record->step != step)) record = record->next;
    return record;
}

/* Tells the parameter which ranks its open round has to count, if there is a record of it. */
static void expect_ranks(const pd_control *control, pd_param *param)
{
    const pd_control_record *record = find(control, param, PD_CONTROL_ROUND, param->saved.step + 1);

    param->end.recorded_ranks = record != NULL ? record->counted : NULL;
}

/* Takes the record that follows `before` from those of a parameter. */
static pd_control_record *take_noted(pd_steps *steps, uint32_t param, pd_control_record *before)
{
    pd_control *control = steps->control;
    pd_control_record *record = take_out(&control->params[param].noted, before);

    control->n_noted--;
    control->noted_bytes -= bytes_of(record);
    pd_account_give(&steps->account, bytes_of(record));
    if (control->params[param].noted.first == NULL) pd_optim_keep_tasks(steps->params[param].optim, false);
    return record;
}

void pd_control_add(pd_steps *steps, pd_control_record *record)
{
    pd_control *control = steps->control;
    pd_param *param = &steps->params[record->param];

    if (record->step <= param->saved.step) {
        pd_control_record_free(record);
        return;
    }
    append(&control->params[param->index].noted, record);
    control->n_noted++;
    control->noted_bytes += bytes_of(record);
    pd_account_take(&steps->account, bytes_of(record));
    if (record->kind == PD_CONTROL_ROOTS) pd_optim_keep_tasks(param->optim, true);
    expect_ranks(control, param);
}

static void drop_noted_of(pd_steps *steps, uint32_t param, bool overrides)
{
    pd_control_list *list = &steps->control->params[param].noted;
    pd_control_record *before = NULL;

    while ((before != NULL ? before->next : list->first) != NULL) {
        pd_control_record *record = before != NULL ? before->next : list->first;
        bool is_open = record->kind == PD_CONTROL_ROUND && record->step == steps->params[param].saved.step + 1;
        /* Some ranks may have been told already that they are too late for the open round. */
        if (!overrides && (record->kind == PD_CONTROL_SET || is_open))
            before = record;
        else
            pd_control_record_free(take_noted(steps, param, before));
    }
    expect_ranks(steps->control, &steps->params[param]);
}

void pd_control_drop_noted(pd_steps *steps, bool overrides)
{
    for (uint32_t i = 0; i < steps->n_params; i++) drop_noted_of(steps, i, overrides);
}

bool pd_control_repeats(const pd_steps *steps)
{
    return steps->control != NULL && steps->control->n_noted > 0;
}

/* ---- overrides ---- */

/* Puts the override of a record in force, as the command did when it came. The parameter's list of overrides has room.
 * Takes the record's reference to the override. */
static void put_in_force(pd_steps *steps, pd_param *param, pd_control_record *record)
{
    pd_override *override = record->override;
    uint64_t mask = override->mask & ~(override->withdrawn & ~pd_overrides_mask(param));

    if (mask == 0) return;
    record->override = NULL;
    if (record->from > param->saved.step + 1) override->planned = true;
    param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n,
                                             (pd_override_entry){ override, record->from, mask });
    pd_overrides_settle(steps->outbox, steps->name, param);
    steps->changes++;
}

int pd_control_before(pd_steps *steps, pd_param *param)
{
    pd_control_list *list = steps->control != NULL ? &steps->control->params[param->index].noted : NULL;
    pd_control_record *before = NULL, *record;
    pd_error err;

    while (list != NULL && (record = before != NULL ? before->next : list->first) != NULL) {
        if (record->kind != PD_CONTROL_SET || record->step > param->saved.step + 1) {
            before = record;
            continue;
        }
        if (param->overrides.n == PD_MAX_PARAM_OVERRIDES) return PD_OK;
        if (pd_overrides_reserve(param, &err) != PD_OK) return PD_NO_MEMORY;
        record = take_noted(steps, param->index, before);
        put_in_force(steps, param, record);
        pd_control_record_free(record);
    }
    return PD_OK;
}

static int put_overrides_of(pd_steps *steps, pd_param *param, pd_error *err)
{
    const pd_control_list *list = &steps->control->params[param->index].noted;

    for (pd_control_record *r = list->first; r != NULL; r = r->next)
        if (r->kind == PD_CONTROL_SET) r->step = 0;
    if (pd_control_before(steps, param) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for values that operators have set");
    for (const pd_control_record *r = list->first; r != NULL; r = r->next)
        if (r->kind == PD_CONTROL_SET)
            return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                           "operators have set more values of %.160s for the steps that are repeated than it may have "
                           "at once: it can be done when more of these steps are taken",
                           param->name);
    return PD_OK;
}

int pd_control_put_overrides(pd_steps *steps, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && steps->control != NULL && i < steps->n_params; i++)
        rc = put_overrides_of(steps, &steps->params[i], err);
    return rc;
}

/* ---- steps and rounds ---- */

void pd_control_begun(pd_steps *steps, pd_param *param)
{
    pd_control *control = steps->control;
    pd_control_param *own = control != NULL ? &control->params[param->index] : NULL;
    const pd_control_record *record;

    if (own == NULL || own->taken.room == 0) return;
    own->taken.n = own->taken.left = 0;
    own->taken.missed = false;
    record = find(control, param, PD_CONTROL_ROOTS, param->saved.step + 1);
    own->repeats = record != NULL;
    if (record != NULL) {
        /* The record may be dropped while the step runs, so its list is copied. */
        own->taken.n = record->taken.n < own->taken.room ? record->taken.n : own->taken.room;
        memcpy(own->taken.at, record->taken.at, own->taken.n * sizeof own->taken.at[0]);
        pd_optim_take_as_noted(param->optim, &own->taken);
    } else if (control->on)
        pd_optim_note_taken(param->optim, &own->taken);
}

static bool same_ranks(const pd_counted *a, const pd_counted *b)
{
    return a != NULL && a->ranks == b->ranks && memcmp(a->set, b->set, (a->ranks + 63) / 64 * sizeof a->set[0]) == 0;
}

/* Logs that a step has taken another course than its record says. Later records are of steps that this course need not
 * have, so they are dropped. */
static void say_differs(pd_steps *steps, const pd_param *param, const char *what)
{
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
           "step %" PRIu64 " of %.100s takes another course than before the restart: %s. Later steps may have other "
           "weights than workers have seen",
           param->saved.step, param->name, what);
    steps->control->differs = true;
    pd_control_drop_noted(steps, false);
}

/* Compares a step with its records. */
static void compare(pd_steps *steps, pd_param *param)
{
    const pd_control_record *round = find(steps->control, param, PD_CONTROL_ROUND, param->saved.step);
    const pd_control_param *own = &steps->control->params[param->index];

    if (round != NULL && !same_ranks(param->end.counted, round->counted))
        say_differs(steps, param, "other ranks count in its round");
    else if (own->repeats && own->taken.missed)
        say_differs(steps, param, "roots that it took are missing");
}

/* Drops the records of the step that the parameter has closed, unless the next entry has to have them. */
static void drop_closed(pd_steps *steps, const pd_param *param)
{
    pd_control_list *list = &steps->control->params[param->index].noted;
    pd_control_record *before = NULL, *record;

    while ((record = before != NULL ? before->next : list->first) != NULL) {
        if (record->kind == PD_CONTROL_SET || record->step > param->saved.step)
            before = record;
        else if (steps->control->renews)
            add_made(steps->control, take_noted(steps, param->index, before));
        else
            pd_control_record_free(take_noted(steps, param->index, before));
    }
}

void pd_control_closed(pd_steps *steps, pd_param *param)
{
    pd_control *control = steps->control;
    pd_control_param *own = control != NULL ? &control->params[param->index] : NULL;
    bool noted = param->end.recorded_ranks != NULL;

    if (own == NULL) return;
    if (own->noted.first != NULL) {
        compare(steps, param);
        drop_closed(steps, param);
    }
    if (control->on && !own->repeats) make_roots(control, param, &own->taken);
    if (control->on && !param->buffers.logged && !noted && param->round.closing && param->end.counted != NULL)
        make_round(control, param);
    own->taken.n = own->taken.left = 0;
    own->repeats = false;
    expect_ranks(control, param);
}

bool pd_control_round_is_full(const pd_param *param)
{
    if (param->end.recorded_ranks == NULL || param->round.closing) return false;
    for (uint32_t rank = 0; rank < pd_round_ranks(&param->round); rank++)
        if (pd_counted_has(param->end.recorded_ranks, rank) && pd_round_misses(&param->round, rank)) return false;
    return true;
}
