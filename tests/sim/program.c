/* program.c - the program of a process of a training job: Hello, Declare, initial weights, steps, Leave. */
#include "program.h"

#include "leased.h"
#include "relaunch.h"
#include "sharing.h"
#include "sim_judge.h"
#include "sim_readouts.h"
#include "sim_sets.h"
#include "sim_shares.h"
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BARRIER_MS: how long a process that has taken all steps waits at its barrier */
enum { RETRY_MS = 200, BARRIER_MS = 5000 };

const char *const sim_phase_names[] = { "welcome",   "declare",  "init",    "fetch",     "recall",
                                        "step",      "stepping", "pulling", "replacing", "barrier",
                                        "rewinding", "sync",     "leaving", "resting",   "ended" };

bool sim_is_finished(const sim_worker *w)
{
    for (const sim_worker *other = w->s->workers; other != NULL; other = other->next)
        if (other->job->number == w->job->number && other->finished) return true;
    return false;
}

/* Returns whether this process would begin a job anew that other processes have finished. Those of a later launch begin
 * it anew together. */
static bool comes_too_late(const sim_worker *w)
{
    for (const sim_worker *other = w->s->workers; other != NULL; other = other->next)
        if (other->job->number == w->job->number && other->finished && other->launch >= w->launch) return true;
    return false;
}

/* Enters a phase. Progress counts only if the process has not been in this phase of this step before: a worker that
 * repeats a request in vain makes no progress. */
void sim_program_go_on(sim_worker *w, phase next)
{
    uint64_t place = w->step * 16 + next;

    w->phase = next;
    if (place <= w->reached) return;
    w->reached = place;
    w->asked_ns = w->s->now_ns;
}

void sim_program_rest(sim_worker *w, phase after, const char *why)
{
    sim_worker_trace(w, why, after, 0);
    w->after = after;
    w->phase = RESTING;
    w->alarm_ns = w->s->now_ns + RETRY_MS * SIM_MS;
}

static bool is_done(sim_worker *w, pd_ticket_id ticket, int *rc, pd_error *err)
{
    return sim_program_take(w, ticket, rc, NULL, NULL, err);
}

static bool is_worth_another_try(int code)
{
    return code == PD_RESOURCE_EXHAUSTED || code == PD_NO_MEMORY;
}

/* Returns whether a request ended because a rank is missing: it has passed its deadline, or the rank has left for good.
 * In the simulator another process takes such a rank, or the job has been finished. */
static bool lacks_rank(int rc, const pd_error *err)
{
    return rc == PD_DEADLINE_EXCEEDED ||
           (rc == PD_FAILED_PRECONDITION && strstr(err->text, " for good after ") != NULL);
}

/* Returns whether the error names a rank that has no living process. */
static bool names_absent(const sim_worker *w, const char *text)
{
    char name[24];

    for (uint32_t rank = 0; rank < w->job->world; rank++) {
        const sim_worker *other = w->s->workers;
        while (other != NULL && (other->phase == ENDED || other->job->number != w->job->number || other->rank != rank))
            other = other->next;
        snprintf(name, sizeof name, "rank %u ", rank);
        if (strstr(text, name) != NULL && other == NULL) return true;
    }
    return false;
}

/* Returns whether each place of a group has a living process. */
static bool is_manned(const sim_worker *w, uint32_t group)
{
    for (uint32_t place = group * w->job->open.group; place < (group + 1) * w->job->open.group; place++)
        if (place < w->job->world && sim_worker_at(w->s, w->job->number, place) == NULL) return false;
    return true;
}

/* Returns whether the error says that the job has too few members, and there are not enough living processes. */
static bool lacks_members(const sim_worker *w, const char *text)
{
    uint32_t living = 0, group = w->job->open.group;
    bool in_ranks = !w->job->open.shrinks; /* min_workers is not given */

    if (strstr(text, "(min_workers)") == NULL) return false;
    for (uint32_t g = 0; g * group < w->job->world; g++)
        if (is_manned(w, g)) living += in_ranks ? group : 1;
    return living < w->job->open.least;
}

/* Returns whether the error says that ranks have left, which have taken all steps. Processes that were started in their
 * places wait for the end of the job. */
static bool is_left_behind(const sim_worker *w, const char *text)
{
    return strstr(text, " for good after ") != NULL && sim_is_finished(w);
}

/* Handles a request that lacks a rank. Decides whether this process gives up (told_missing). It does so
 * if the plan's faults are over and the error names a rank without a living process. In addition, the plan must say
 * that a rank leaves for good, or another process must have finished all steps of the job. */
static void note_deadline(sim_worker *w, const pd_error *err)
{
    sim_worker_trace(w, err->text, w->step, 0);
    if ((w->job->missing == w->job->world && !sim_is_finished(w)) || !w->s->calm) return;
    if (names_absent(w, err->text) || lacks_members(w, err->text) || is_left_behind(w, err->text))
        w->told_missing = true;
}

static void declare(sim_worker *w)
{
    pd_client_param params[SIM_PARAMS];
    pd_error err;

    memset(params, 0, sizeof params);
    for (uint32_t p = 0; p < w->job->n_params; p++) {
        const sim_param *param = &w->job->params[p];
        params[p] = (pd_client_param){ .name = param->name,
                                       .shape = param->shape,
                                       .ranged = param->ranged,
                                       .model_state = param->model_state,
                                       .push_dtype = sim_is_quantized(w->job, p) ? w->job->push_dtype : 0,
                                       .fragment = sim_fragment_of(w->job, p) };
        if (param->ranged) sim_range(w->job, param, w->rank, &params[p].start, &params[p].end);
    }
    if (pd_core_declare(w->core, params, w->job->n_params, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, DECLARE);
}

void sim_program_fetch(sim_worker *w)
{
    pd_error err;

    if (pd_core_fetch(w->core, (void *const *)w->weights, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, FETCH);
}

static void init_weights(sim_worker *w)
{
    pd_error err;

    for (uint32_t p = 0; p < w->job->n_params; p++) sim_initial(w->job, w->rank, w->process, p, w->weights[p]);
    if (!w->core->must_init) {
        sim_program_fetch(w);
        return;
    }
    if (pd_core_init(w->core, (void *const *)w->weights, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, INIT);
}

static void on_declared(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK && comes_too_late(w) && sim_least_step(w) == 0)
        sim_worker_end(w); /* another process has finished the job before, and this one would begin it anew */
    else if (rc == PD_OK)
        init_weights(w);
    else if (is_worth_another_try(rc))
        sim_program_rest(w, DECLARE, err.text);
    else
        sim_worker_end_refused(w, rc, err.text);
}

static void on_initialised(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (lacks_rank(rc, &err)) note_deadline(w, &err);
    if (rc == PD_OK)
        sim_program_fetch(w);
    else if (w->told_missing)
        sim_worker_end(w);
    else if (is_worth_another_try(rc) || lacks_rank(rc, &err))
        sim_program_rest(w, INIT, err.text);
    else
        sim_worker_end_refused(w, rc, err.text);
}

static void on_fetched(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK) {
        w->began = sim_most_step(w);
        if (w->s->plan->crashes)
            sim_program_recall(w);
        else
            sim_program_go_on(w, STEP);
        return;
    }
    if (lacks_rank(rc, &err)) note_deadline(w, &err);
    if (w->told_missing)
        sim_worker_end(w);
    else if (lacks_rank(rc, &err) || is_worth_another_try(rc))
        sim_program_rest(w, FETCH, err.text);
    else
        sim_worker_end_refused(w, rc, err.text);
}

/* Lists in random order the parameters that have not taken this step yet: those of one fragment. Returns their
 * number. */
static size_t choose(sim_worker *w, uint32_t *order)
{
    size_t n = 0;

    for (uint32_t p = 0; p < w->job->n_params; p++) {
        if (pd_core_step(w->core, p) + 1 != w->step) continue;
        if (n > 0 && sim_fragment_of(w->job, p) < sim_fragment_of(w->job, order[0])) n = 0;
        if (n == 0 || sim_fragment_of(w->job, p) == sim_fragment_of(w->job, order[0])) order[n++] = p;
    }
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)sim_draw(w->s, i);
        uint32_t swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
    return n;
}

bool sim_closes_step(const sim_worker *w, uint64_t step)
{
    return sim_rank_closes(w->job, w->rank, step);
}

/* Returns the memory in which the process computes a gradient. */
static float *gradient_at(sim_worker *w, uint32_t p)
{
    float *at = w->in_place && !sim_is_quantized(w->job, p) ? pd_core_buffer(w->core, p) : NULL;

    return at != NULL ? at : w->gradients[p];
}

/* Lets the model know of a gradient that is quantized. */
static void quantize(sim_worker *w, uint32_t p, const float *gradient)
{
    sim_history *h = sim_sets_history(w->s, w->job, w->core->recovery.creator);
    int64_t start, end;

    if (h == NULL) sim_fail("harness", "%s rank %u pushes before the job has weights", w->job->name, w->rank);
    sim_range(w->job, &w->job->params[p], w->rank, &start, &end);
    sim_quantized_push(h, &w->rests, w->rank, w->step, p, gradient, start, end - start);
}

/* Notes how the pushes of quantized gradients of a call have ended. */
static void note_quantized(sim_worker *w, const call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        uint32_t p = (uint32_t)c->items[i].param;
        int64_t start, end;
        if (c->items[i].gradient == NULL || !sim_is_quantized(w->job, p)) continue;
        sim_range(w->job, &w->job->params[p], w->rank, &start, &end);
        sim_quantized_end(w->job, &w->rests, p, end - start, c->items[i].outcome);
    }
}

static pd_item item_of(sim_worker *w, uint32_t p)
{
    pd_item item = { .param = p, .weights = w->weights[p] };
    float *gradient;

    if (!sim_has_gradient(w->job, w->rank, w->step, p)) return item;
    gradient = gradient_at(w, p);
    sim_gradient(w->job, w->rank, w->step, p, w->finite, gradient);
    item.gradient = gradient;
    if (sim_is_quantized(w->job, p)) quantize(w, p, gradient);
    return item;
}

/* Returns whether a push has the parameter that scalars belong to. */
static bool brings_scalar(const call *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->items[i].param == 0) return true;
    return false;
}

/* Pushes the items of a call. `again`: they were pushed for this step before, and that has ended with an error. */
static int push(sim_worker *w, call *c, bool again, pd_error *err)
{
    pd_push_options options = { .weight = sim_weight(w->job, w->rank, w->step),
                                .replaces = sim_replaces(w->job, w->step - 1),
                                .wants = sim_wanted(w->job, w->rank, w->step),
                                .patience_ms = sim_patience_ms(w->job, w->rank, w->step),
                                .counts = c->counts,
                                .carried = w->carries,
                                .again = again,
                                .lost = &w->lost };
    sim_program_note note = sim_note_of(w, w->step);
    char lr[24];
    const char *const hypers[] = { lr, NULL };

    if (w->s->plan->crashes) {
        options.note = &note;
        options.note_bytes = sizeof note;
    }
    if (w->job->open.on && brings_scalar(c)) {
        c->scalar = (pd_scalar){ .name = "mask", .value = sim_sets_scalar(w->rank, w->step) };
        options.scalars = &c->scalar;
        options.n_scalars = 1;
    }
    if (w->job->open.sends_lr) {
        sim_sets_lr_text(w->step, lr, sizeof lr);
        options.hypers = hypers;
    }
    c->pulls = !sim_chance(w->s, 4);
    return pd_core_push(w->core, c->pulls ? PD_PUSH_PULL : PD_PUSH, c->items, c->n, &options, &c->ticket, err);
}

void sim_program_leave(sim_worker *w)
{
    pd_error err;

    if (pd_core_leave(w->core, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, LEAVING);
}

/* Changes the weights of the parameters that have taken the step before, and writes them as items. Returns their
 * number. */
static size_t change(sim_worker *w, pd_item *items)
{
    size_t n = 0;

    for (uint32_t p = 0; p < w->job->n_params; p++) {
        if (pd_core_step(w->core, p) + 1 != w->step || !sim_is_replaced(w->job, w->step - 1, p)) continue;
        sim_replacement(w->job, w->step - 1, p, w->weights[p]);
        items[n++] = (pd_item){ .param = p, .weights = w->weights[p] };
    }
    return n;
}

/* Changes weights if that is due before the step. Returns false if the process waits until they are in force. */
static bool is_changed(sim_worker *w)
{
    uint64_t number = sim_replaces(w->job, w->step - 1);
    pd_item items[SIM_PARAMS];
    pd_error err;
    size_t n;

    if (number == 0 || w->changed == w->step) return true;
    w->changed = w->step;
    n = change(w, items);
    if (w->rank != 0 || n == 0) return true;
    sim_worker_trace(w, "replaces weights before step", w->step, n);
    if (pd_core_replace(w->core, items, n, number, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, REPLACING);
    return false;
}

static void on_replaced(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc == PD_OK || strstr(err.text, "has begun step") != NULL || strstr(err.text, "it has closed step") != NULL) {
        /* An earlier process of the rank may have replaced them, and pushed. */
        w->began = w->step; /* the window reaches no further back */
        sim_program_go_on(w, STEP);
    } else if (is_worth_another_try(rc) || lacks_rank(rc, &err)) {
        w->changed = 0;
        sim_program_rest(w, STEP, err.text);
    } else {
        sim_worker_end_refused(w, rc, err.text);
    }
}

/* Returns how long the process computes before it pushes for a step. */
static uint64_t work_ns(const sim_worker *w)
{
    uint64_t ns = 1 + sim_mix(w->s->plan->seed, w->process, w->step, 40) % w->job->open.work_ns;

    return w->rank == w->job->open.slow ? 10 * ns : ns;
}

/* Lets the process compute before it pushes. Returns false if it has done so. Other ranks may close the step meanwhile.
 */
static bool computes(sim_worker *w)
{
    if (!w->job->open.on || w->computed == w->step) return false;
    w->computed = w->step;
    w->after = STEP;
    w->phase = RESTING;
    w->alarm_ns = w->s->now_ns + work_ns(w);
    return true;
}

/* Takes all shares that are leased to this worker: its push of fragment 0 for the step is made of them. Pushes of other
 * fragments take none. Returns false if there are none and the process ends: a push of it ended with an error, and the
 * server still has it. */
static bool take_shares(sim_worker *w, uint32_t fragment)
{
    uint64_t creator = w->core->recovery.creator, share;
    uint32_t n = 0;
    pd_error err;

    w->carries = false;
    if (w->job->open.shares == 0 || fragment > 0) return true;
    sim_shares_begin(w->s, w->job, creator, w->rank, w->core->setup.nonce, w->step);
    for (; pd_core_take_share(w->core, pd_leased_taken_step(w->core), &share, &err) == PD_OK; n++)
        sim_shares_take(w->s, w->job, creator, w->rank, share);
    w->carries = w->was_late && w->job->open.carries && !w->lost;
    if (w->carries) sim_shares_carry(w->s, w->job, creator);
    sim_worker_trace(w, w->carries ? "takes further shares for step" : "takes shares for step", w->step, n);
    if (n == 0 && w->gave_up) {
        sim_worker_end_dropped(w);
        return false;
    }
    if (n == 0)
        sim_fail("shares", "%s rank %u has no share of the data for step %llu", w->job->name, w->rank,
                 (unsigned long long)w->step);
    w->was_late = w->gave_up = w->lost = false;
    return true;
}

/* Comes to the barrier of the process, unless it has, and goes on without an answer. */
static void meet(sim_worker *w)
{
    pd_error err;

    if (!w->job->open.meets || w->has_met) return;
    w->has_met = true;
    sim_worker_trace(w, "comes to its barrier", w->passed, 0);
    if (pd_core_barrier(w->core, &w->meeting, &err) != PD_OK) sim_worker_end_refused(w, err.code, err.text);
}

/* Looks whether the process is past its barrier. One that was removed meanwhile comes to it again. */
static void look_at_meeting(sim_worker *w)
{
    pd_error err;
    int rc;

    if (w->meeting == 0 || w->core->end.error.code != PD_OK || !is_done(w, w->meeting, &rc, &err)) return;
    w->meeting = 0;
    if (rc == PD_ABORTED && strstr(err.text, "was removed while it waited at a barrier") != NULL) {
        w->has_met = false;
    } else if (rc != PD_OK) {
        sim_worker_end_refused(w, rc, err.text);
    } else {
        sim_worker_trace(w, "is past its barrier", w->passed, 0);
        /* A job may pass a barrier and be dropped before the model sees it again. */
        if (!w->dropped && sim_sets_barrier(w->s, w->job, w->core->recovery.creator) <= w->passed)
            sim_fail("barriers", "%s rank %u is past its barrier, but the job has passed %llu as before", w->job->name,
                     w->rank, (unsigned long long)w->passed);
    }
}

bool sim_worker_waits(const sim *s, uint64_t nonce)
{
    for (const sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED && w->core->setup.nonce == nonce) return w->meeting != 0;
    return true; /* the process has died since */
}

/* Begins a step: sends several pushes at once. A push may hold all parameters of the step. */
static void begin_step(sim_worker *w)
{
    uint64_t before = w->step;
    uint32_t order[SIM_PARAMS];
    size_t n, calls = 1 + (size_t)sim_draw(w->s, CALLS);
    pd_error err;

    w->rank = w->core->setup.rank; /* another one if the server has chosen anew */
    w->step = sim_least_step(w) + 1;
    if (w->step < before) w->reached = 0; /* it has gone back: each step may take its time again */
    meet(w);
    if (w->phase == ENDED) return;
    if (w->step > w->job->steps) {
        /* Others that are past theirs already do not come to one more; they may even wait for this process's push. */
        if (w->meeting != 0 && sim_sets_barrier(w->s, w->job, w->core->recovery.creator) == 0)
            sim_program_go_on(w, BARRIER);
        else if (w->s->plan->crashes)
            sim_program_sync(w);
        else
            sim_program_leave(w);
        return;
    }
    if (!is_changed(w) || computes(w)) return;
    n = choose(w, order);
    if (!take_shares(w, n > 0 ? sim_fragment_of(w->job, order[0]) : 0)) return;
    if (n > 0) sim_sets_sent(w->s, w->job, w->core->recovery.creator, w->rank, order[0], w->step);
    w->n_calls = 0;
    w->close_ns = 0;
    sim_worker_trace(w, "begins step", w->step, n);
    for (size_t c = 0, i = 0; c < calls; c++) {
        call *one = &w->calls[w->n_calls];
        one->n = 0;
        one->again_ns = 0;
        for (size_t end = n * (c + 1) / calls; i < end; i++)
            if (sim_has_gradient(w->job, w->rank, w->step, order[i]) || !sim_closes_step(w, w->step))
                one->items[one->n++] = item_of(w, order[i]);
        if (one->n == 0) continue;
        if (push(w, one, false, &err) != PD_OK) {
            sim_worker_end_refused(w, err.code, err.text);
            return;
        }
        w->n_calls++;
    }
    w->ticket = 0;
    if (sim_closes_step(w, w->step) && pd_core_close_step(w->core, w->step, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, STEPPING);
}

/* Returns which weights a worker pulls after a step. Where the job's optimizer has one form alone, both must have the
 * same bits. */
static pd_weights_form form_of(const sim_worker *w)
{
    return w->step % 2 == 0 ? PD_FORM_EVAL : PD_FORM_TRAIN;
}

/* Returns whether the weights that a call has brought are to be evaluated, and differ from those that are trained. */
static bool brings_readouts(const sim_worker *w)
{
    return w->phase == PULLING && form_of(w) == PD_FORM_EVAL && sim_averages(w->job);
}

/* Checks the weights that a push or pull returned: they must be the published weights of their version, or those to
 * evaluate with after it, and the version must not go back. */
static void check_pulled(sim_worker *w, const call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const pd_item *item = &c->items[i];
        int64_t start, end;
        if (item->outcome < 0) continue;
        if (item->version < w->versions[item->param])
            sim_fail("consistency", "%s rank %u: %s went from version %llu back to %llu", w->job->name, w->rank,
                     w->job->params[item->param].name, (unsigned long long)w->versions[item->param],
                     (unsigned long long)item->version);
        w->versions[item->param] = item->version;
        sim_range(w->job, &w->job->params[item->param], w->rank, &start, &end);
        if (brings_readouts(w))
            sim_readouts_keep(w->s, w->job, w->core->recovery.creator, (uint32_t)item->param, item->version,
                              item->weights, start, end - start);
        else
            sim_judge_weights(w->s, w->job, (uint32_t)item->param, item->version, item->weights, start, end - start);
    }
}

/* Checks what the answer says of a push: whether it has counted. A push that is late before its step is taken was made
 * of shares that others have got: the worker pushes for the step again. */
static void check_told(sim_worker *w, const call *c)
{
    for (size_t i = 0; w->job->open.on && i < c->n; i++) {
        if (sim_fragment_of(w->job, (uint32_t)c->items[i].param) == 0)
            w->was_late = w->was_late || c->items[i].outcome == PD_LATE;
        if (c->items[i].outcome > 0 && (c->items[i].outcome != PD_LATE || c->items[i].step >= w->step))
            sim_sets_told(w->s, w->job, w->core->recovery.creator, w->rank, w->step, &c->items[i], &c->counts[i]);
    }
}

/* Returns whether a push that ended with error `rc` is tried again. If infinite gradients were refused, the next try
 * sends finite ones. */
static bool try_again(sim_worker *w, int rc, const pd_error *err)
{
    bool infinite = false;

    if (lacks_rank(rc, err)) {
        note_deadline(w, err);
        return true;
    }
    for (uint32_t p = 0; p < w->job->n_params; p++)
        infinite = infinite || sim_gradient_is_infinite(w->job, w->rank, w->step, p);
    if (rc == PD_INVALID_ARGUMENT && w->job->rejects && infinite) {
        w->finite = true;
        return true;
    }
    if (rc == PD_FAILED_PRECONDITION && strstr(err->text, "its push of this parameter was refused") != NULL)
        return infinite || (sim_failed_allocations() > 0);
    if (rc == PD_FAILED_PRECONDITION && strstr(err->text, "cannot end step") != NULL) return true;
    /* Another parameter has closed a step that this one still takes, or a set is repeated after a restart. */
    if (w->job->open.on && strstr(err->text, "earlier rounds are still open") != NULL) return true;
    if (w->job->open.on && strstr(err->text, "counts again as before the restart") != NULL) return true;
    return is_worth_another_try(rc);
}

/* Checks whether a ticket is done: a push or pull with the call `c`, or a close_step if `c` is NULL. After an error
 * that may pass, *again_ns receives the time of the next try. Returns false if the error ends the process. */
static bool finish_ticket(sim_worker *w, pd_ticket_id *ticket, const call *c, uint64_t *again_ns)
{
    pd_error err;
    int rc;

    if (*ticket == 0 || !is_done(w, *ticket, &rc, &err)) return true;
    *ticket = 0;
    if (c != NULL && w->phase == STEPPING) note_quantized(w, c);
    if (rc == PD_OK) {
        if (c != NULL && c->pulls) check_pulled(w, c);
        if (c != NULL) check_told(w, c);
        return true;
    }
    if (!try_again(w, rc, &err)) {
        sim_worker_end_refused(w, rc, err.text);
        return false;
    }
    w->gave_up = true;
    *again_ns = w->s->now_ns + RETRY_MS * SIM_MS;
    return true;
}

/* Returns whether a parameter is pushed again whose push has ended with an error: if the step is not closed, and in
 * some steps whether it is or not, since the library finds out what has counted. */
static bool is_pushed_again(const sim_worker *w, const pd_item *item)
{
    if (pd_core_step(w->core, item->param) + 1 == w->step) return true;
    return item->outcome <= 0 && sim_mix(w->job->number + 43, w->rank, w->step, 9) % 2 == 0;
}

/* Pushes parameters again. The bytes are the same, except that finite gradients replace refused infinite ones. In the
 * phase PULLING, repeats the pull instead. */
static int send_again(sim_worker *w, call *c, pd_error *err)
{
    size_t n = 0;

    c->again_ns = 0;
    if (w->phase == PULLING) return pd_core_pull(w->core, c->items, c->n, w->step, form_of(w), &c->ticket, err);
    for (size_t i = 0; i < c->n; i++)
        if (is_pushed_again(w, &c->items[i])) c->items[n++] = item_of(w, (uint32_t)c->items[i].param);
    if (n < c->n) w->unsent = w->step;
    c->n = n;
    return n > 0 ? push(w, c, true, err) : PD_OK;
}

static void after_step(sim_worker *w)
{
    pd_error err;

    w->finite = false;
    if (!w->job->barriers || w->step % 2 == 1) {
        sim_program_go_on(w, STEP);
    } else if (pd_core_barrier(w->core, &w->ticket, &err) != PD_OK) {
        sim_worker_end_refused(w, err.code, err.text);
    } else {
        w->met = w->step;
        sim_program_go_on(w, BARRIER);
    }
}

/* Pulls the weights for one push that did not request them. Returns false if there is no such push. */
static bool pull(sim_worker *w)
{
    call *c = &w->calls[0];
    pd_error err;

    while (c < w->calls + w->n_calls && (c->pulls || c->n == 0)) c++;
    if (c == w->calls + w->n_calls) return false;
    c->pulls = true;
    if (pd_core_pull(w->core, c->items, c->n, w->step, form_of(w), &c->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, PULLING);
    return true;
}

static bool is_due(const sim_worker *w, uint64_t at_ns)
{
    return at_ns != 0 && w->s->now_ns >= at_ns;
}

/* Finishes or repeats one push. Returns true while the push has no final answer. */
static bool is_open(sim_worker *w, call *c)
{
    pd_error err;

    if (!finish_ticket(w, &c->ticket, c, &c->again_ns)) return true;
    if (is_due(w, c->again_ns) && send_again(w, c, &err) != PD_OK) sim_worker_end_refused(w, err.code, err.text);
    return c->ticket != 0 || c->again_ns != 0;
}

static bool is_closing(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!finish_ticket(w, &w->ticket, NULL, &w->close_ns)) return true;
    /* Others have closed the step without this rank, one of whose pushes was refused. */
    if (w->job->open.on && sim_most_step(w) >= w->step && w->ticket == 0) w->close_ns = 0;
    if (is_due(w, w->close_ns)) {
        w->close_ns = 0;
        rc = pd_core_close_step(w->core, w->step, &w->ticket, &err);
        if (rc == PD_FAILED_PRECONDITION)
            w->close_ns = w->s->now_ns + RETRY_MS * SIM_MS; /* the refused push must be repeated before close_step */
        else if (rc != PD_OK)
            sim_worker_end_refused(w, err.code, err.text);
    }
    return w->ticket != 0 || w->close_ns != 0;
}

static void on_step(sim_worker *w)
{
    bool open = false;

    for (size_t c = 0; c < w->n_calls && w->phase != ENDED; c++) open = is_open(w, &w->calls[c]) || open;
    if (w->phase != ENDED) open = is_closing(w) || open;
    if (w->phase == ENDED) return;
    if (w->told_missing) {
        sim_worker_trace(w, "gives up", w->step, 0);
        sim_worker_end(w);
    } else if (!open && !pull(w)) {
        after_step(w);
    }
}

/* Returns whether a process of this rank has come to the barrier of a step. */
static bool has_met(const sim_worker *w, uint32_t rank, uint64_t step)
{
    bool met = false;

    for (const sim_worker *other = w->s->workers; other != NULL; other = other->next)
        met = met || (other->job == w->job && other->rank == rank && other->met >= step);
    return met;
}

static void check_barrier(sim_worker *w)
{
    sim_worker_trace(w, "is past the barrier of step", w->step, 0);
    for (uint32_t rank = 0; rank < w->job->world; rank++)
        if (!has_met(w, rank, w->step))
            sim_fail("barriers", "%s rank %u is past the barrier of step %llu, to which rank %u has not come",
                     w->job->name, w->rank, (unsigned long long)w->step, rank);
}

/* Returns whether the server waits at the barrier for a process that does not come: one of the launch has begun after
 * the step of the barrier. */
static bool is_missed(const sim_worker *w)
{
    bool missed = false;

    for (const sim_worker *other = w->s->workers; other != NULL; other = other->next)
        missed = missed || (other->job == w->job && other->phase != ENDED && other->began != UINT64_MAX &&
                            other->began >= w->step);
    return missed;
}

static void on_barrier(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!w->job->open.meets && w->s->plan->crashes && is_missed(w)) {
        sim_relaunch(w->s, w->job);
        sim_worker_end(w);
        return;
    }
    if (w->job->open.meets) {
        /* A rank that never came holds the barrier up for ever, and one that must come again may wait for a push. */
        if (w->meeting == 0)
            sim_program_go_on(w, STEP);
        else if (w->s->now_ns > w->asked_ns + BARRIER_MS * SIM_MS)
            sim_program_leave(w);
        return;
    }
    if (!is_done(w, w->ticket, &rc, &err)) return;
    if (rc != PD_OK) {
        sim_worker_end_refused(w, rc, err.text);
    } else {
        check_barrier(w);
        sim_program_go_on(w, STEP);
    }
}

static void on_left(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    sim_worker_trace(w, "has left", rc == PD_OK, 0);
    w->finished = w->step > w->job->steps;
    if (rc == PD_OK || w->dropped)
        sim_worker_end(w);
    else
        sim_worker_end_refused(w, rc, err.text);
}

static void on_rest(sim_worker *w)
{
    if (w->s->now_ns < w->alarm_ns) return;
    w->alarm_ns = 0;
    switch (w->after) {
    case DECLARE: declare(w); break;
    case INIT: init_weights(w); break;
    case FETCH: init_weights(w); break;
    case RECALL: sim_program_recall(w); break;
    case SYNC: sim_program_sync(w); break;
    default: sim_program_go_on(w, STEP); break;
    }
}

static void on_welcome(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!is_done(w, w->ticket, &rc, &err)) return;
    w->welcomed_ns = rc == PD_OK ? w->s->now_ns : 0;
    if (rc == PD_OK) w->rank = w->core->setup.rank;
    if (rc == PD_OK && w->core->recovery.creator != w->newest) w->passed = 0;
    if (rc == PD_OK && w->core->welcome.created && comes_too_late(w))
        sim_worker_end(w); /* other processes have finished the job, and this Hello has created it anew */
    else if (rc == PD_OK)
        declare(w);
    else if (is_worth_another_try(rc) && (sim_failed_allocations() > 0))
        sim_worker_end_dropped(w);
    else
        sim_worker_end_refused(w, rc, err.text);
}

void sim_program_run(sim_worker *w)
{
    phase before;

    do {
        before = w->phase;
        look_at_meeting(w);
        if (w->phase == ENDED) return;
        switch (w->phase) {
        case WELCOME: on_welcome(w); break;
        case DECLARE: on_declared(w); break;
        case INIT: on_initialised(w); break;
        case FETCH: on_fetched(w); break;
        case RECALL: sim_program_on_recalled(w); break;
        case REWINDING: sim_program_on_rewound(w); break;
        case SYNC: sim_program_on_synced(w); break;
        case STEP: begin_step(w); break;
        case STEPPING:
        case PULLING: on_step(w); break;
        case BARRIER: on_barrier(w); break;
        case LEAVING: on_left(w); break;
        case REPLACING: on_replaced(w); break;
        case RESTING: on_rest(w); break;
        case ENDED: break;
        }
    } while (w->phase != before && w->phase != ENDED);
}
