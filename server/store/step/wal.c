/* wal.c - records the decisions and inputs of steps, holds parameters back while records are incomplete, and lets steps
 * repeat the decisions that were read back. */
#include "wal.h"

#include "mutant.h"

#include "fragment_ranks.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* OWN_BYTES: bytes of decisions that a job may have for its next record, besides those of one step of all its
 * parameters. A command that sets values takes about as many bytes, and 8 more for each parameter. COPIES: how often
 * these bytes may be in memory: once as decisions, and twice as a record while it is written. */
enum { OWN_BYTES = 1536, COPIES = 3 };

/* Returns the bytes of the decisions about sets of ranks that a job with so many slots and fragments may have for its
 * next record: of all steps whose reports are withheld, and of the next one of each fragment. */
static uint64_t set_bytes(uint32_t slots, uint32_t fragments)
{
    return slots > 0 ? (PD_WAL_MOST + fragments) * (sizeof(pd_decision) + pd_counted_bytes(slots)) : 0;
}

/* Returns the bytes of the changes of leases that such a job may have for its next record: each rank is removed, and
 * joins again. */
static uint64_t lease_bytes(uint32_t slots)
{
    return 2 * (uint64_t)slots * sizeof(pd_decision);
}

/* Returns whether it depends on timing which roots the steps of an optimizer with this plan take. */
static bool has_choice(const pd_plan *plan)
{
    return plan->n_tasks > 0 && plan->root_delay == PD_ROOT_READY;
}

static uint64_t root_bytes(const pd_plan *plan)
{
    return 4 * plan->n_tasks * sizeof(pd_taken_root);
}

static uint64_t step_bytes(const pd_plan *plan)
{
    return sizeof(pd_decision) + root_bytes(plan);
}

uint64_t pd_wal_param_bytes(const pd_plan *plan, bool logged)
{
    return sizeof(pd_wal_param) + COPIES * sizeof(uint64_t) + (has_choice(plan) ? (1 + COPIES) * step_bytes(plan) : 0) +
           (logged ? sizeof(pd_step_input) + root_bytes(plan) : 0);
}

uint64_t pd_wal_own_bytes(uint32_t slots, uint32_t fragments)
{
    return sizeof(pd_wal) + COPIES * (OWN_BYTES + set_bytes(slots, fragments) + lease_bytes(slots));
}

/* Returns whether the stream of decisions records the roots that the parameter's steps take. */
static bool decides_roots(const pd_param *param)
{
    return !param->buffers.logged && has_choice(pd_optim_plan(param->optim));
}

static size_t count_roots(const pd_param *param)
{
    return param->buffers.logged || decides_roots(param) ? pd_optim_most_taken(param->optim) : 0;
}

/* Gives each parameter whose roots are recorded its share of wal->roots, and computes the most bytes of decisions. */
static void lay_out_roots(pd_wal *wal, const pd_steps *steps)
{
    pd_taken_root *at = wal->roots;
    uint32_t slots = steps->sets.open ? steps->members.ranks : 0;

    wal->decisions.most =
        OWN_BYTES + set_bytes(slots, steps->n_fragments) + lease_bytes(slots) + steps->n_params * sizeof(uint64_t);
    for (uint32_t i = 0; i < steps->n_params; i++) {
        const pd_param *param = &steps->params[i];
        wal->params[i].taken.at = at;
        wal->params[i].taken.room = count_roots(param);
        at += wal->params[i].taken.room;
        if (decides_roots(param)) wal->decisions.most += step_bytes(pd_optim_plan(param->optim));
    }
}

int pd_wal_make(pd_steps *steps)
{
    pd_wal *wal = calloc(1, sizeof *wal + steps->n_params * sizeof wal->params[0]);
    bool logged = steps->n_params > 0 && steps->params[0].buffers.logged;
    size_t n = 0;

    if (wal == NULL) return PD_NO_MEMORY;
    for (uint32_t i = 0; i < steps->n_params; i++) n += count_roots(&steps->params[i]);
    wal->roots = calloc(n + 1, sizeof *wal->roots);
    if (logged) wal->inputs.at = calloc(steps->n_params, sizeof *wal->inputs.at);
    if (wal->roots == NULL || (logged && wal->inputs.at == NULL)) {
        free(wal->inputs.at);
        free(wal->roots);
        free(wal);
        return PD_NO_MEMORY;
    }
    lay_out_roots(wal, steps);
    steps->withheld.logged = logged;
    steps->wal = wal;
    return PD_OK;
}

void pd_wal_free(pd_steps *steps)
{
    if (steps->wal == NULL) return;
    pd_wal_end_steps(steps);
    pd_wal_drop_made(steps->wal);
    pd_wal_drop_read(steps, true);
    free(steps->wal->inputs.at);
    free(steps->wal->roots);
    free(steps->wal);
    steps->wal = NULL;
}

pd_decision *pd_decision_new(pd_decision_kind kind, uint32_t param, uint64_t step, size_t n)
{
    pd_decision *decision = calloc(1, sizeof *decision + n * sizeof(pd_taken_root));

    if (decision == NULL) return NULL;
    decision->kind = kind;
    decision->param = param;
    decision->step = step;
    decision->taken.at = (pd_taken_root *)(void *)(decision + 1);
    decision->taken.n = decision->taken.room = n;
    return decision;
}

void pd_decision_free(pd_decision *decision)
{
    if (decision == NULL) return;
    pd_counted_unref(decision->counted);
    pd_override_drop(decision->override);
    free(decision->command);
    free(decision);
}

static uint64_t bytes_of(const pd_decision *decision)
{
    uint64_t ranks = decision->counted != NULL ? pd_counted_bytes(decision->counted->ranks) : 0;

    return sizeof *decision + decision->taken.room * sizeof(pd_taken_root) + decision->command_bytes + ranks;
}

static void append(pd_decision_list *list, pd_decision *decision)
{
    decision->next = NULL;
    if (list->first == NULL)
        list->first = decision;
    else
        list->last->next = decision;
    list->last = decision;
}

/* Removes the decision after `before` from a list, and returns it. `before` NULL: the first one. */
static pd_decision *take_out(pd_decision_list *list, pd_decision *before)
{
    pd_decision **link = before != NULL ? &before->next : &list->first, *decision = *link;

    *link = decision->next;
    if (list->last == decision) list->last = before;
    return decision;
}

/* ---- the stream of steps ---- */

static void clear(pd_wal *wal, uint32_t i)
{
    wal->inputs.at[i] = (pd_step_input){ 0 };
    wal->params[i].taken.n = 0;
    wal->params[i].taken.missed = false;
}

void pd_wal_next_step(pd_steps *steps)
{
    pd_step_inputs *inputs = &steps->wal->inputs;

    inputs->place++;
    inputs->fragment = NULL;
    inputs->missing = 0;
    for (uint32_t i = 0; i < steps->n_params; i++) clear(steps->wal, i);
    if (steps->n_fragments > 1) return;
    inputs->fragment = &steps->fragments[0];
    inputs->step = inputs->place;
    inputs->missing = steps->n_params;
}

void pd_wal_begin_steps(pd_steps *steps, uint64_t base, uint64_t place)
{
    steps->wal->inputs.on = true;
    steps->wal->inputs.base = base;
    steps->wal->inputs.place = place;
    pd_wal_next_step(steps);
}

void pd_wal_enter(pd_steps *steps, const pd_fragment *fragment)
{
    pd_step_inputs *inputs = &steps->wal->inputs;

    if (!pd_wal_records_steps(steps) || inputs->fragment != NULL) return;
    inputs->fragment = fragment;
    inputs->step = steps->params[fragment->first].saved.step + 1;
    inputs->missing = fragment->n_params;
}

bool pd_wal_gathers(const pd_steps *steps)
{
    return pd_wal_records_steps(steps) && steps->n_fragments > 1 && !steps->sets.open;
}

bool pd_wal_is_complete(const pd_steps *steps)
{
    return steps->wal->inputs.fragment != NULL && steps->wal->inputs.missing == 0;
}

void pd_wal_end_steps(pd_steps *steps)
{
    if (steps->wal == NULL || steps->wal->inputs.at == NULL) return;
    steps->wal->inputs.on = false;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_step_input *input = &steps->wal->inputs.at[i];
        if (input->aggregate != NULL) pd_buffer_pool_give(steps->params[i].buffers.pool[PD_F32], input->aggregate);
        input->aggregate = NULL;
        /* A step that is under way must not write into the list of taken roots any more. */
        pd_optim_note_taken(steps->params[i].optim, NULL);
    }
}

/* Returns the place of the last step before the one that the parameter takes next. */
static uint64_t place_before(const pd_steps *steps, const pd_param *param)
{
    return param->round.fixed ? pd_fragment_place_of(param->fragment, param->fragment->fixed) - 1 : steps->place;
}

/* Returns whether the parameter's step is not the one whose inputs are collected. */
static bool is_not_its_turn(const pd_steps *steps, const pd_param *param)
{
    const pd_step_inputs *inputs = &steps->wal->inputs;

    if (inputs->fragment == NULL)
        return pd_wal_gathers(steps) && param->fragment->n_stopped < param->fragment->n_params;
    return inputs->fragment != param->fragment || param->saved.step >= inputs->step;
}

bool pd_wal_stops(const pd_steps *steps, const pd_param *param)
{
    if (param->saved.step >= steps->queue.limit || pd_withheld_stops(&steps->withheld, place_before(steps, param)))
        return true;
    if (!pd_wal_records_steps(steps)) return false;
    return is_not_its_turn(steps, param) || steps->wal->inputs.under_way >= PD_WAL_MOST;
}

const pd_param *pd_wal_awaited(const pd_steps *steps, const pd_param *param)
{
    const pd_step_inputs *inputs = steps->wal != NULL ? &steps->wal->inputs : NULL;

    if (!pd_wal_records_steps(steps) || !is_not_its_turn(steps, param)) return NULL;
    for (uint32_t i = 0; i < steps->n_params; i++) {
        const pd_param *other = &steps->params[i];
        if (inputs->fragment == NULL ? other->fragment == param->fragment && other->stage != PD_STOPPED
                                     : other->fragment == inputs->fragment && other->saved.step < inputs->step)
            return other;
    }
    return NULL;
}

/* ---- decisions that are made ---- */

/* Adds a decision to those for the next record. Takes ownership of it. Returns false, and sets decisions->overflow, if
 * there is no room for it, or if `decision` is NULL because memory was short. */
static bool add_made(pd_decisions *decisions, pd_decision *decision)
{
    if (decision == NULL || decisions->bytes + bytes_of(decision) > decisions->most) {
        pd_decision_free(decision);
        decisions->overflow = true;
        return false;
    }
    decisions->bytes += bytes_of(decision);
    append(&decisions->made, decision);
    return true;
}

bool pd_wal_record_command(pd_steps *steps, uint8_t *command, size_t bytes, uint64_t copied)
{
    pd_decision *decision = pd_decision_new(PD_DECISION_SET, 0, copied, 0);

    if (decision == NULL) {
        free(command);
        return add_made(&steps->wal->decisions, NULL);
    }
    decision->command = command;
    decision->command_bytes = bytes;
    return add_made(&steps->wal->decisions, decision);
}

void pd_wal_drop_made(pd_wal *wal)
{
    pd_decisions *decisions = &wal->decisions;

    while (decisions->made.first != NULL) pd_decision_free(take_out(&decisions->made, NULL));
    decisions->bytes = 0;
    decisions->overflow = false;
}

/* Records the roots that a step has taken, unless there were none that it could take. */
static void make_roots(pd_decisions *decisions, const pd_param *param, pd_taken_roots *taken)
{
    pd_decision *decision;

    if (taken->n == 0 && taken->left == 0) return;
    decision = pd_decision_new(PD_DECISION_ROOTS, param->index, param->saved.step, taken->n);
    if (decision != NULL && taken->n > 0) memcpy(decision->taken.at, taken->at, taken->n * sizeof taken->at[0]);
    if (taken->missed) {
        pd_decision_free(decision);
        decision = NULL;
    }
    add_made(decisions, decision);
}

/* ---- decisions that were read back ---- */

static const pd_decision *find(const pd_wal *wal, const pd_param *param, pd_decision_kind kind, uint64_t step)
{
    const pd_decision *decision = wal->params[param->index].read.first;

    while (decision != NULL && (decision->kind != kind || decision->step != step)) decision = decision->next;
    return decision;
}

/* Compares two tasks by the order in which a parameter captures them. For bsearch. */
static int by_capture(const void *a, const void *b)
{
    const pd_taken_root *one = a, *other = b;

    if (one->count != other->count) return one->count < other->count ? -1 : 1;
    return one->task < other->task ? -1 : one->task > other->task;
}

bool pd_wal_needs(const pd_steps *steps, const pd_param *param, const pd_task *task)
{
    pd_taken_root key = { .task = (uint32_t)pd_task_index(task), .count = pd_task_count(task) }, *taken;
    const pd_decision *decision = steps->wal != NULL ? steps->wal->params[param->index].read.first : NULL;

    for (; decision != NULL; decision = decision->next) {
        if (decision->kind != PD_DECISION_ROOTS) continue;
        taken = bsearch(&key, decision->taken.at, decision->taken.n, sizeof key, by_capture);
        if (taken != NULL) return taken->status != PD_CANCELLED;
    }
    return false;
}

/* Removes the decision after `before` from those of a parameter that were read back, and returns it. `before` NULL: the
 * first one. */
static pd_decision *take_read(pd_steps *steps, uint32_t param, pd_decision *before)
{
    pd_wal *wal = steps->wal;
    pd_decision *decision = take_out(&wal->params[param].read, before);

    wal->decisions.n_read--;
    wal->decisions.read_bytes -= bytes_of(decision);
    pd_account_give(&steps->account, bytes_of(decision));
    return decision;
}

void pd_wal_add_read(pd_steps *steps, pd_decision *decision)
{
    pd_wal *wal = steps->wal;
    pd_param *param = &steps->params[decision->param];

    if (decision->kind != PD_DECISION_LEASE && decision->step <= param->saved.step) {
        pd_decision_free(decision);
        return;
    }
    append(&wal->params[param->index].read, decision);
    wal->decisions.n_read++;
    wal->decisions.read_bytes += bytes_of(decision);
    pd_account_take(&steps->account, bytes_of(decision));
}

void pd_wal_forget_course(pd_steps *steps)
{
    for (uint32_t i = 0; i < steps->n_params; i++) {
        pd_decision_list *list = &steps->wal->params[i].read;
        pd_decision *before = NULL;
        while ((before != NULL ? before->next : list->first) != NULL) {
            pd_decision *decision = before != NULL ? before->next : list->first;
            if (decision->kind == PD_DECISION_SET)
                before = decision;
            else
                pd_decision_free(take_read(steps, i, before));
        }
    }
}

static void drop_read_of(pd_steps *steps, uint32_t param, bool overrides)
{
    pd_decision_list *list = &steps->wal->params[param].read;
    pd_decision *before = NULL;

    while ((before != NULL ? before->next : list->first) != NULL) {
        pd_decision *decision = before != NULL ? before->next : list->first;
        /* Some ranks may have been told already that they are too late for a step. */
        if (!overrides && decision->kind != PD_DECISION_ROOTS)
            before = decision;
        else
            pd_decision_free(take_read(steps, param, before));
    }
}

void pd_wal_drop_read(pd_steps *steps, bool overrides)
{
    for (uint32_t i = 0; i < steps->n_params; i++) drop_read_of(steps, i, overrides);
}

bool pd_wal_repeats(const pd_steps *steps)
{
    return steps->wal != NULL && steps->wal->decisions.n_read > 0;
}

/* ---- overrides ---- */

/* Puts the override of a decision in force, as the command did before the restart. The parameter's list of overrides
 * has room. Takes the decision's reference to the override. */
static void put_in_force(pd_steps *steps, pd_param *param, pd_decision *decision)
{
    pd_override *override = decision->override;
    uint64_t mask = override->mask & ~(override->withdrawn & ~pd_overrides_mask(param));

    if (mask == 0) return;
    decision->override = NULL;
    if (decision->from > param->saved.step + 1) override->planned = true;
    param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n,
                                             (pd_override_entry){ override, decision->from, mask });
    pd_overrides_settle(steps->outbox, steps->name, param);
    steps->changes++;
}

int pd_wal_before(pd_steps *steps, pd_param *param)
{
    pd_decision_list *list = steps->wal != NULL ? &steps->wal->params[param->index].read : NULL;
    pd_decision *before = NULL, *decision;
    pd_error err;

    while (list != NULL && (decision = before != NULL ? before->next : list->first) != NULL) {
        if (decision->kind != PD_DECISION_SET || decision->step > param->saved.step + 1) {
            before = decision;
            continue;
        }
        if (param->overrides.n == PD_MAX_PARAM_OVERRIDES) return PD_OK;
        if (pd_overrides_reserve(param, &err) != PD_OK) return PD_NO_MEMORY;
        decision = take_read(steps, param->index, before);
        put_in_force(steps, param, decision);
        pd_decision_free(decision);
    }
    return PD_OK;
}

static int put_overrides_of(pd_steps *steps, pd_param *param, pd_error *err)
{
    const pd_decision_list *list = &steps->wal->params[param->index].read;

    for (pd_decision *r = list->first; r != NULL; r = r->next)
        if (r->kind == PD_DECISION_SET) r->step = 0;
    if (pd_wal_before(steps, param) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for values that operators have set");
    for (const pd_decision *r = list->first; r != NULL; r = r->next)
        if (r->kind == PD_DECISION_SET)
            return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                           "operators have set more values of %.160s for the steps that are repeated than it may have "
                           "at once: it can be done when more of these steps are taken",
                           param->name);
    return PD_OK;
}

int pd_wal_put_overrides(pd_steps *steps, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && steps->wal != NULL && i < steps->n_params; i++)
        rc = put_overrides_of(steps, &steps->params[i], err);
    return rc;
}

/* ---- steps and rounds ---- */

/* Lets the step take the roots of its decision; without a decision, lets it record which roots it takes. */
static void begin_roots(pd_steps *steps, pd_param *param)
{
    pd_wal_param *own = &steps->wal->params[param->index];
    const pd_decision *decision = find(steps->wal, param, PD_DECISION_ROOTS, param->saved.step + 1);

    own->taken.n = own->taken.left = 0;
    own->taken.missed = false;
    own->repeats = decision != NULL;
    if (decision != NULL) {
        /* The decision may be dropped while the step runs, so its list is copied. */
        own->taken.n = decision->taken.n < own->taken.room ? decision->taken.n : own->taken.room;
        memcpy(own->taken.at, decision->taken.at, own->taken.n * sizeof own->taken.at[0]);
        pd_optim_take_as_noted(param->optim, &own->taken);
    } else if (steps->wal->decisions.on)
        pd_optim_note_taken(param->optim, &own->taken);
}

static void begin_input(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count)
{
    pd_step_input *input = &steps->wal->inputs.at[param->index];

    assert(param->fragment == steps->wal->inputs.fragment && param->saved.step + 1 == steps->wal->inputs.step);
    input->began = true;
    input->count = count;
    input->hypers_mask = io->hypers_mask;
    memcpy(input->hypers, io->hypers, sizeof input->hypers);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((io->hypers_mask >> h & 1) == 0) input->hypers[h] = 0;
    pd_optim_note_taken(param->optim, &steps->wal->params[param->index].taken);
}

void pd_wal_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count)
{
    if (steps->wal == NULL) return;
    if (pd_wal_records_steps(steps))
        begin_input(steps, param, io, count);
    else if (!param->buffers.logged && steps->wal->params[param->index].taken.room > 0)
        begin_roots(steps, param);
}

/* Logs that a step has decided otherwise than before the restart. Drops later decisions of roots and ranks, because
 * their steps followed another step. */
static void say_differs(pd_steps *steps, const pd_param *param, const char *what)
{
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .step = &param->saved.step },
           "step %" PRIu64 " of %.100s takes another course than before the restart: %s. Later steps may have other "
           "weights than workers have seen",
           param->saved.step, param->name, what);
    steps->wal->decisions.differs = true;
    pd_wal_drop_read(steps, false);
}

/* Checks that a repeated step has decided as its decisions say. */
static void compare(pd_steps *steps, pd_param *param)
{
    const pd_wal_param *own = &steps->wal->params[param->index];

    if (own->repeats && own->taken.missed) say_differs(steps, param, "roots that it took are missing");
}

/* Ends a decision that was read back, which was repeated: the one after `before` (take_read). If the next record needs
 * it, adds it to that. */
static void end_read(pd_steps *steps, uint32_t param, pd_decision *before)
{
    pd_decision *decision = take_read(steps, param, before);

    if (steps->wal->decisions.renews)
        add_made(&steps->wal->decisions, decision);
    else
        pd_decision_free(decision);
}

/* Returns whether the parameter, which has closed a step, needs the decision no more. */
static bool is_past(const pd_param *param, const pd_decision *decision)
{
    return decision->kind != PD_DECISION_SET && decision->kind != PD_DECISION_LEASE &&
           decision->step <= param->saved.step;
}

/* Drops the decisions of the step that the parameter has closed. If the next record needs them, adds them to it. */
static void drop_closed(pd_steps *steps, const pd_param *param)
{
    pd_decision_list *list = &steps->wal->params[param->index].read;
    pd_decision *before = NULL, *decision;

    while ((decision = before != NULL ? before->next : list->first) != NULL) {
        if (is_past(param, decision))
            end_read(steps, param->index, before);
        else
            before = decision;
    }
}

/* Records the decisions of a round that has just closed. */
static void close_decisions(pd_steps *steps, pd_param *param)
{
    pd_decisions *decisions = &steps->wal->decisions;
    pd_wal_param *own = &steps->wal->params[param->index];

    if (own->read.first != NULL) {
        compare(steps, param);
        drop_closed(steps, param);
    }
    if (decisions->on && !param->buffers.logged && !own->repeats) make_roots(decisions, param, &own->taken);
    if (!param->buffers.logged) own->taken.n = own->taken.left = 0;
    own->repeats = false;
}

/* Takes the aggregate of a parameter, which has just closed the present step, for the record of that step. */
static void close_input(pd_steps *steps, pd_param *param)
{
    pd_step_inputs *inputs = &steps->wal->inputs;
    pd_step_input *input = &inputs->at[param->index];

    assert(param->fragment == inputs->fragment && param->saved.step == inputs->step && inputs->missing > 0);
    input->outcome = (uint32_t)param->end.outcome;
    inputs->missing--;
    if (!input->began) return;
    input->aggregate = param->buffers.accumulator;
    param->buffers.accumulator = NULL;
}

void pd_wal_closed(pd_steps *steps, pd_param *param)
{
    if (steps->wal == NULL) return;
    close_decisions(steps, param);
    if (pd_wal_records_steps(steps)) close_input(steps, param);
}

/* ---- sets of ranks ---- */

/* Returns the parameter in whose list the decisions of a fragment are. */
static const pd_param *carrier(const pd_steps *steps, const pd_fragment *fragment)
{
    return &steps->params[fragment->first];
}

const pd_counted *pd_wal_recorded_set(const pd_steps *steps, const pd_fragment *fragment, uint64_t step)
{
    const pd_decision *decision =
        steps->wal != NULL ? find(steps->wal, carrier(steps, fragment), PD_DECISION_ROUND, step) : NULL;

    return decision != NULL && !PD_MUTANT(replay_ignores_record) ? decision->counted : NULL;
}

bool pd_wal_is_whole(const pd_counted *set)
{
    bool whole = set->n == set->ranks;

    for (uint32_t r = 0; whole && r < set->ranks; r++) whole = set->age[r] == 0;
    return whole;
}

void pd_wal_fixed(pd_steps *steps, const pd_fragment *fragment, const pd_counted *set)
{
    pd_decision *decision;

    if (steps->wal != NULL) pd_wal_enter(steps, fragment);
    /* With a stream of steps, the record of the step says which pushes have counted. */
    if (steps->wal == NULL || steps->withheld.logged || pd_wal_is_whole(set) ||
        pd_wal_recorded_set(steps, fragment, fragment->fixed) != NULL)
        return;
    pd_withheld_fixed(&steps->withheld, steps->place, steps->wal->decisions.on);
    if (!steps->wal->decisions.on) return;
    decision = pd_decision_new(PD_DECISION_ROUND, fragment->first, fragment->fixed, 0);
    if (decision != NULL && (decision->counted = pd_counted_copy(set)) == NULL) {
        pd_decision_free(decision);
        decision = NULL;
    }
    if (PD_MUTANT(record_without_age) && decision != NULL)
        memset(decision->counted->age, 0, set->ranks * sizeof set->age[0]);
    add_made(&steps->wal->decisions, decision);
}

static bool has_kind(const pd_decision_list *list, pd_decision_kind kind)
{
    const pd_decision *decision = list->first;

    while (decision != NULL && decision->kind != kind) decision = decision->next;
    return decision != NULL;
}

bool pd_wal_repeats_sets(const pd_steps *steps)
{
    const pd_wal_param *params = steps->wal != NULL ? steps->wal->params : NULL;

    return params != NULL && (has_kind(&params[0].read, PD_DECISION_LEASE) ||
                              has_kind(&params[steps->fragments[0].first].read, PD_DECISION_ROUND));
}

/* ---- changes of leases ---- */

void pd_wal_lease_changed(pd_steps *steps, uint64_t step, const pd_lease_change *change)
{
    pd_decision *decision;

    pd_withheld_leased(&steps->withheld);
    if (steps->wal == NULL || !steps->wal->decisions.on) return;
    if ((decision = pd_decision_new(PD_DECISION_LEASE, 0, step, 0)) != NULL) decision->lease = *change;
    add_made(&steps->wal->decisions, decision);
}

/* Finds the oldest change of leases that was read back. *before becomes the decision before it in its list; NULL: it is
 * the first one. */
static pd_decision *find_lease(const pd_steps *steps, pd_decision **before)
{
    pd_decision *decision = steps->wal != NULL ? steps->wal->params[0].read.first : NULL;

    *before = NULL;
    for (; decision != NULL && decision->kind != PD_DECISION_LEASE; decision = decision->next) *before = decision;
    return decision;
}

const pd_decision *pd_wal_recorded_lease(const pd_steps *steps)
{
    pd_decision *before;

    return find_lease(steps, &before);
}

void pd_wal_lease_repeated(pd_steps *steps)
{
    pd_decision *before;

    if (find_lease(steps, &before) != NULL) end_read(steps, 0, before);
}
