/* call.c - the user's calls (push, pull, barrier and others): checks each one, cuts it into frames and queues the
 * frames. */
#include "call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bucket.h"
#include "core.h"
#include "feedback.h"
#include "leased.h"
#include "mutant.h"
#include "replace.h"
#include "recoveries.h"
#include "window.h"

/* Checks the worker state of a push. `options` may be NULL. PD_INVALID_ARGUMENT: the worker state is too long, or its
 * pointer is NULL. */
static int check_worker_state(const pd_push_options *options, pd_error *err)
{
    if (options == NULL || options->worker_state_bytes == 0) return PD_OK;
    if (options->worker_state == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a worker state of %zu bytes without a pointer to them",
                       options->worker_state_bytes);
    if (options->worker_state_bytes <= PD_WORKER_STATE_BYTES) return PD_OK;
    return pd_fail(
        err, PD_INVALID_ARGUMENT,
        "a worker state of %zu bytes: at most %d. Keep the rest in a file, and the file's name in the worker state",
        options->worker_state_bytes, PD_WORKER_STATE_BYTES);
}

/* Returns the highest step among the items of a push. */
static uint64_t pushed_step(const pd_core *core, const pd_op *op)
{
    uint64_t step = 0;

    for (size_t i = 0; i < op->n; i++) {
        uint64_t own = pd_op_step(op, &core->params[op->items[i].param]);
        if (own > step) step = own;
    }
    return step;
}

/* Queues the worker state in the options, if any, as a frame of the push. It belongs to the highest step among the
 * push's items. Its bytes are copied. PD_NO_MEMORY: nothing is queued. */
static int post_worker_state(pd_core *core, pd_op *op, const pd_push_options *options)
{
    Paramd__NoteRequest request = PARAMD__NOTE_REQUEST__INIT;
    int rc;

    if (options == NULL || options->worker_state == NULL) return PD_OK;
    request.step = pushed_step(core, op);
    rc = pd_core_post_with(core, PD_NOTE, &request.base,
                           &(struct iovec){ (void *)options->worker_state, options->worker_state_bytes },
                           PD_QUEUE_LASTING, op);
    if (rc == PD_OK) pd_outgoing_find(&core->out, core->calls.last_id)->step = request.step;
    return rc;
}

int pd_worker_state_expect(pd_core *core, const pd_outgoing_frame *frame, const pd_prefix *prefix,
                           const uint8_t *header)
{
    void *message;
    int rc = pd_reply_take(core, prefix, header, &message);
    const Paramd__RecallReply *reply = message;

    if (rc != PD_OK) return rc;
    if (reply->bytes > PD_WORKER_STATE_BYTES) return pd_reply_broken(core, prefix, "a worker state that is too long");
    if (frame->op != NULL) frame->op->payload_bytes = reply->bytes;
    return PD_OK;
}

/* Reads and checks the scalars that the caller gave with a push. `options` may be NULL. PD_INVALID_ARGUMENT: a scalar
 * is not valid. PD_RESOURCE_EXHAUSTED: there are too many. */
static int read_scalars(pd_scalar_load *load, const pd_push_options *options, pd_error *err)
{
    load->n = options != NULL ? options->n_scalars : 0;
    if (load->n == 0) return PD_OK;
    if (options->scalars == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%zu scalars without a pointer to them", load->n);
    for (size_t i = 0; i < load->n && i < PD_PUSH_SCALARS; i++) {
        paramd__scalar__init(&load->scalar[i]);
        load->list[i] = &load->scalar[i];
        if (options->scalars[i].name != NULL) load->scalar[i].name = (char *)options->scalars[i].name;
        load->scalar[i].value = options->scalars[i].value;
    }
    return pd_scalars_check(load->list, load->n, err);
}

bool pd_bears_before(const pd_param_record *a, const pd_param_record *b)
{
    if (a->ranged != b->ranged) return b->ranged;
    if (a->cut != b->cut) return b->cut;
    return strcmp(a->name, b->name) < 0;
}

static size_t choose_bearer(const pd_core *core, const pd_op *op)
{
    size_t first = 0;

    for (size_t i = 1; i < op->n; i++)
        if (pd_bears_before(&core->params[op->items[i].param], &core->params[op->items[first].param])) first = i;
    return first;
}

/* Chooses the item whose frame carries the scalars, and notes it in op->bearer. Ranks that push the same parameters
 * choose the same item. Also sets the means of the scalars, which are results, to 0. PD_INVALID_ARGUMENT: this rank has
 * no elements of the chosen parameter. */
static int begin_scalars(const pd_core *core, pd_op *op, const pd_push_options *options, pd_error *err)
{
    size_t bearer = choose_bearer(core, op);
    const pd_param_record *record = &core->params[op->items[bearer].param];

    if (record->start == record->end)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "scalars ride with parameter %.160s, of which this rank's range has "
                       "no elements: its rounds do not wait for this rank. Give them with a call whose first parameter "
                       "by name this rank has some of",
                       record->name);
    op->scalars = options->scalars;
    op->n_scalars = options->n_scalars;
    op->bearer = bearer;
    for (size_t i = 0; i < op->n_scalars; i++) {
        op->scalars[i].mean = NAN;
        op->scalars[i].weight = 0;
    }
    return PD_OK;
}

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

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static int give_back(pd_core *core, pd_op *op, int rc, pd_error *err)
{
    pd_op_free(core, op);
    if (rc == PD_NO_MEMORY) return no_memory(err);
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s: too long, a frame's header holds at most %d bytes", pd_code_text(rc),
                   PD_MAX_HEADER_BYTES);
}

/* Begins an operation whose request fits into a single frame. */
static int ask_with(pd_core *core, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                    size_t answer_bytes, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc = pd_op_begin(core, method, &op, err);

    if (rc != PD_OK) return rc;
    op->payload_bytes = answer_bytes;
    if ((rc = pd_core_post_with(core, method, request, payload, PD_QUEUE_LASTING, op)) != PD_OK)
        return give_back(core, op, rc, err);
    pd_resend_hold(core);
    *ticket = op->id;
    return PD_OK;
}

static int ask(pd_core *core, unsigned method, const ProtobufCMessage *request, pd_ticket_id *ticket, pd_error *err)
{
    return ask_with(core, method, request, &(struct iovec){ NULL, 0 }, 0, ticket, err);
}

static int64_t elements_of(const pd_param_record *record)
{
    return record->end - record->start;
}

int pd_core_refuse_fragments(const char *name, uint32_t fragment, const char *other, uint32_t another, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.100s is in fragment %u and %.100s in fragment %u, which take their steps one by one: "
                   "push each fragment in a call of its own",
                   name, fragment, other, another);
}

/* Checks, in a job with open sets, that all items of a push belong to one fragment. */
static int check_fragment(const pd_core *core, const pd_item *items, size_t n, pd_error *err)
{
    const pd_param_record *first = &core->params[items[0].param];

    for (size_t i = 1; core->open_sets && i < n; i++) {
        const pd_param_record *other = &core->params[items[i].param];
        if (other->fragment != first->fragment)
            return pd_core_refuse_fragments(first->name, first->fragment, other->name, other->fragment, err);
    }
    return PD_OK;
}

static int check_items(const pd_core *core, unsigned method, const pd_item *items, size_t n, pd_error *err)
{
    if (!core->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no items");
    for (size_t i = 0; i < n; i++) {
        if (items[i].param >= core->n_params || core->params[items[i].param].elsewhere)
            return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu: parameter %zu, but %zu are declared", i, items[i].param,
                           core->n_declared);
        if (method != PD_PUSH && items[i].weights == NULL && elements_of(&core->params[items[i].param]) > 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu (%s): no buffer for its weights", i,
                           core->params[items[i].param].name);
    }
    return PD_OK;
}

static int may_push(const pd_core *core, const pd_param_record *record, pd_error *err)
{
    if (record->pushing)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s has a push under way: wait for its ticket first",
                       record->name);
    if (core->progress.closing > record->step && record->pushed <= record->step)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s has no gradient in step %llu, which is being closed: "
                       "wait for that ticket first",
                       record->name, (unsigned long long)core->progress.closing);
    return PD_OK;
}

/* Marks the parameters as being pushed, since a parameter can be in only one push at a time. If one of them cannot be
 * pushed, none is marked. */
static int mark_pushing(pd_core *core, const pd_item *items, size_t n, pd_error *err)
{
    if (check_fragment(core, items, n, err) != PD_OK) return PD_INVALID_ARGUMENT;
    for (size_t i = 0; i < n; i++) {
        pd_param_record *record = &core->params[items[i].param];
        int rc = may_push(core, record, err);

        if (rc == PD_OK) {
            record->pushing = true;
            continue;
        }
        while (i-- > 0) core->params[items[i].param].pushing = false;
        return rc;
    }
    return PD_OK;
}

static int begin_items(pd_core *core, unsigned method, pd_item *items, size_t n, pd_op **op, pd_error *err)
{
    int rc = check_items(core, method, items, n, err);

    if (rc == PD_OK) rc = pd_op_begin(core, method, op, err);
    if (rc != PD_OK) return rc;
    if (core->open_sets && core->n_fragments > 1 &&
        ((*op)->spans = calloc(core->n_fragments, sizeof *(*op)->spans)) == NULL) {
        pd_op_free(core, *op);
        return no_memory(err);
    }
    (*op)->items = items;
    (*op)->n = n;
    for (size_t i = 0; i < n; i++) {
        items[i].outcome = 0;
        items[i].step = 0;
        items[i].version = method == PD_PULL ? PD_UNANSWERED : 0;
    }
    return PD_OK;
}

static int read_hypers(pd_values *values, const char *const *hypers, pd_error *err)
{
    size_t used = 0;

    for (values->n = 0; hypers != NULL && hypers[values->n] != NULL; values->n++) {
        const char *hyper = hypers[values->n], *equals = strchr(hyper, '=');
        size_t size = strlen(hyper) + 1;
        Paramd__Option *option = &values->option[values->n];

        if (equals == NULL || equals == hyper)
            return pd_fail(err, PD_INVALID_ARGUMENT, "hyperparameter \"%s\": expected name=value", hyper);
        if (values->n == 63 || used + size > sizeof values->text)
            return pd_fail(err, PD_INVALID_ARGUMENT, "too many hyperparameters in one push");
        paramd__option__init(option);
        option->name = memcpy(values->text + used, hyper, size);
        option->name[equals - hyper] = '\0';
        option->value = option->name + (equals - hyper) + 1;
        values->options[values->n] = option;
        used += size;
    }
    return PD_OK;
}

static int refuse_sparse(const pd_core *core, const pd_item *items, size_t n, pd_error *err)
{
    const char *name = n > 0 && items[0].param < core->n_params ? core->params[items[0].param].name : "";

    return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: " PD_SPARSE_ADVICE, name);
}

/* Cuts the items into frames. The server takes the scalars of a push as those of the first parameter in the first
 * frame. So the item that was chosen to carry them (op->bearer) is put first. */
static int cut_items(pd_core *core, pd_op *op, unsigned method, const pd_push_options *options, const pd_values *values,
                     const pd_scalar_load *load)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, method);
    bucket.push.hypers = (Paramd__Option **)values->options;
    bucket.push.n_hypers = values->n;
    bucket.push.scalars = (Paramd__Scalar **)load->list;
    bucket.push.n_scalars = load->n;
    bucket.push.wants = pd_leased_wants(core);
    bucket.push.common = core->progress.common;
    bucket.push.share = op->share = pd_leased_name(core, op);
    if (options != NULL) {
        bucket.push.patience_ms = options->patience_ms;
        if (options->wants > 0 && core->setup.shard == 0) bucket.push.wants = options->wants;
        bucket.push.carried = options->carried;
        bucket.push.speed = options->speed;
        bucket.push.weight = options->weight;
        bucket.push.zero_weight = options->zero_weight;
        bucket.push.presummed = options->presummed;
        bucket.replaces = options->replaces;
    }
    if (load->n > 0) rc = pd_bucket_item(&bucket, op->bearer);
    for (size_t i = 0; rc == PD_OK && i < op->n; i++)
        if (load->n == 0 || i != op->bearer) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

/* Returns the step of a push in a job with open sets, where all parameters of a fragment have one step. A parameter
 * that was not pushed since the last push of another one began belongs to that push, also if that one has been
 * answered meanwhile: but not once the program has closed that step, even if that has ended with an error. Otherwise a
 * new push begins, for the step after the highest that this process has seen. */
static uint64_t choose_step(const pd_core *core, const pd_item *items, size_t n)
{
    uint32_t fragment = core->params[items[0].param].fragment;
    uint64_t pushing = core->progress.pushing[fragment];

    if (core->progress.ended == pushing) return pd_core_highest_step(core, fragment) + 1;
    for (size_t i = 0; i < n; i++) {
        const pd_param_record *record = &core->params[items[i].param];
        if (record->step >= pushing || record->pushed >= pushing) return pd_core_highest_step(core, fragment) + 1;
    }
    return pushing;
}

/* Returns the step of a push in a job with open sets that repeats another one: the last that any of its items was
 * pushed for. */
static uint64_t find_step(const pd_core *core, const pd_item *items, size_t n)
{
    uint64_t last = 0;

    for (size_t i = 0; i < n; i++)
        if (core->params[items[i].param].pushed > last) last = core->params[items[i].param].pushed;
    return last > 0 ? last : choose_step(core, items, n);
}

/* Pulls the weights of those items of a push_pull that have no gradient, once their rounds are closed. They need a pull
 * of their own, since the answer to a push brings weights only for tensors that had a gradient in the push. */
static int pull_absent(pd_core *core, pd_op *op)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_PULL);
    for (size_t i = 0; rc == PD_OK && i < op->n; i++)
        if (op->items[i].gradient == NULL) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

/* Notes that the weights for which a parameter is pushed were changed by hand, if the push says so. */
static void note_change(pd_core *core, size_t param, const pd_push_options *options)
{
    if (pd_replace_number(&core->params[param], options != NULL ? options->replaces : 0) == 0) return;
    pd_core_forget_versions(&core->params[param]);
    pd_window_changed(core, pd_core_step(core, param));
}

static int check_form(pd_weights_form form, pd_error *err)
{
    if (form == PD_FORM_TRAIN || form == PD_FORM_EVAL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "form %d of weights: expected 0 (train) or 1 (eval)", (int)form);
}

static int check_speed(const pd_push_options *options, pd_error *err)
{
    if (options == NULL || (options->speed >= 0 && !isinf(options->speed))) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "speed %g: expected a number of steps per second, or 0: not known",
                   options->speed);
}

/* Returns the item's record if its gradient is quantized; NULL: it is not, or there is no gradient. */
static pd_param_record *quantized(pd_core *core, const pd_item *item)
{
    pd_param_record *record = &core->params[item->param];

    return item->gradient != NULL && pd_dtype_is_quantized(record->push) ? record : NULL;
}

static int begin_feedback(pd_pushing *push)
{
    for (size_t i = 0; i < push->op->n; i++) {
        pd_param_record *record = quantized(push->core, &push->op->items[i]);
        if (record == NULL) continue;
        push->quantizes = true;
        if (pd_feedback_begin(push->core, record) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static void unmark_pushing(pd_core *core, const pd_op *op)
{
    for (size_t i = 0; i < op->n; i++) core->params[op->items[i].param].pushing = false;
}

static void mark_preparing(const pd_pushing *push, bool preparing)
{
    for (size_t i = 0; push->quantizes && i < push->op->n; i++)
        push->core->params[push->op->items[i].param].preparing = preparing;
}

int pd_core_push_begin(pd_pushing *push, pd_core *core, unsigned method, pd_item *items, size_t n,
                       const pd_push_options *options, pd_error *err)
{
    int rc;

    push->core = core;
    push->method = method;
    push->options = options;
    push->quantizes = false;
    rc = read_hypers(&push->values, options != NULL ? options->hypers : NULL, err);
    if (rc == PD_OK && options != NULL && options->sparse) rc = refuse_sparse(core, items, n, err);
    if (rc == PD_OK) rc = read_scalars(&push->load, options, err);
    if (rc == PD_OK) rc = check_worker_state(options, err);
    if (rc == PD_OK) rc = check_speed(options, err);
    if (rc == PD_OK && options != NULL) rc = check_form(options->form, err);
    if (rc == PD_OK) rc = begin_items(core, method, items, n, &push->op, err);
    if (rc != PD_OK) return rc;
    if (options != NULL) push->op->form = options->form;
    if (push->load.n > 0) rc = begin_scalars(core, push->op, options, err);
    if (rc != PD_OK || (rc = mark_pushing(core, items, n, err)) != PD_OK) {
        pd_op_free(core, push->op);
        return rc;
    }
    if (begin_feedback(push) == PD_OK) {
        mark_preparing(push, true);
        return PD_OK;
    }
    unmark_pushing(core, push->op);
    return give_back(core, push->op, PD_NO_MEMORY, err);
}

void pd_core_push_quantize(const pd_pushing *push)
{
    for (size_t i = 0; push->quantizes && i < push->op->n; i++) {
        pd_param_record *record = quantized(push->core, &push->op->items[i]);
        if (record != NULL) pd_feedback_quantize(record, push->op->items[i].gradient);
    }
}

/* Queues all frames of a push. If that fails, none is queued. */
static int post_push(pd_pushing *push)
{
    pd_core *core = push->core;
    pd_op *op = push->op;
    int rc = post_worker_state(core, op, push->options);

    if (rc == PD_OK) rc = cut_items(core, op, push->method, push->options, &push->values, &push->load);
    if (rc == PD_OK && push->method == PD_PUSH_PULL) rc = pull_absent(core, op);
    if (rc != PD_OK) pd_bucket_unpost(core, op);
    return rc;
}

/* Notes in the parameters that the push was queued. */
static void note_pushed(pd_core *core, pd_op *op)
{
    uint64_t *pushing = &core->progress.pushing[core->params[op->items[0].param].fragment];

    for (size_t i = 0; i < op->n; i++) {
        pd_param_record *record = &core->params[op->items[i].param];
        if (op->step > 0) pd_window_skip(core, record, op->step);
        record->pushed = pd_op_step(op, record);
        record->refused = 0;
        if (op->items[i].gradient != NULL)
            core->stats.payload_out += pd_dtype_bytes(record->push, (uint64_t)elements_of(record));
    }
    if (op->step > *pushing) *pushing = op->step;
    if (op->share > 0) core->shares.pushed = op->share;
    op->pushed = true;
}

void pd_core_push_cancel(const pd_pushing *push)
{
    mark_preparing(push, false);
    unmark_pushing(push->core, push->op);
    pd_op_free(push->core, push->op);
}

/* Ends a push whose handle has ended while gradients were quantized. */
static int ended_meanwhile(pd_core *core, pd_op *op, pd_error *err)
{
    int rc = op->error.code;

    if (err != NULL) *err = op->error;
    pd_op_free(core, op);
    return rc;
}

int pd_core_push_end(pd_pushing *push, pd_ticket_id *ticket, pd_error *err)
{
    const pd_push_options *options = push->options;
    pd_core *core = push->core;
    pd_op *op = push->op;
    int rc;

    mark_preparing(push, false);
    if (op->done) return ended_meanwhile(core, op, err);
    for (size_t i = 0; i < op->n; i++) note_change(core, op->items[i].param, options);
    op->again = options != NULL && options->again && !PD_MUTANT(pushed_again_as_next);
    if (core->open_sets) op->step = (op->again ? find_step : choose_step)(core, op->items, op->n);
    op->weighs = options == NULL || !options->zero_weight;
    if (options != NULL && options->counts != NULL) {
        op->counts = options->counts;
        memset(op->counts, 0, op->n * sizeof *op->counts);
    }
    if (options != NULL) op->tell_lost = options->lost;
    if ((rc = post_push(push)) != PD_OK) {
        unmark_pushing(core, op);
        return give_back(core, op, rc, err);
    }
    note_pushed(core, op);
    *ticket = op->id;
    return PD_OK;
}

int pd_core_push(pd_core *core, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                 pd_ticket_id *ticket, pd_error *err)
{
    pd_pushing push;
    int rc = pd_core_push_begin(&push, core, method, items, n, options, err);

    if (rc != PD_OK) return rc;
    pd_core_push_quantize(&push);
    return pd_core_push_end(&push, ticket, err);
}

/* Refuses to close a step if the server refused a gradient of this step and the user did not push it again. Otherwise
 * the server would take the step without this gradient. */
static int check_refused(const pd_core *core, uint64_t step, pd_error *err)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].refused == step && core->params[i].step < step)
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "step %llu cannot be closed: the push of parameter %.160s "
                           "ended with an error; push it again first, or push it without a gradient",
                           (unsigned long long)step, core->params[i].name);
    return PD_OK;
}

static bool has_fragment(const pd_core *core, uint32_t fragment)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment == fragment && !core->params[i].elsewhere) return true;
    return false;
}

/* Refuses to close a step that is not the next one of each fragment of the server that has not taken it. The server
 * would refuse it, after the pushes of the step have waited for it. */
static int check_fragments(const pd_core *core, uint64_t step, pd_error *err)
{
    for (uint32_t f = 0; core->n_fragments > 1 && f < core->n_fragments; f++) {
        uint64_t taken = pd_core_highest_step(core, f);
        if (taken + 1 >= step || !has_fragment(core, f)) continue;
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "step %llu cannot be closed, since fragment %u has taken step %llu: a step is closed in all "
            "fragments. Where they are at different steps, push all parameters of each fragment, with a NULL "
            "gradient where there is none",
            (unsigned long long)step, f, (unsigned long long)taken);
    }
    return PD_OK;
}

int pd_core_may_close(const pd_core *core, uint64_t step, pd_error *err)
{
    int rc;

    if (!core->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    if (step == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "there is no step 0 to close: the first step is 1");
    if (core->progress.closing > 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "step %llu is being closed: wait for that ticket first",
                       (unsigned long long)core->progress.closing);
    if ((rc = check_refused(core, step, err)) != PD_OK) return rc;
    return check_fragments(core, step, err);
}

/* Queues the message that closes a step: a Push request without gradients. It comes after the pushes that are queued
 * already, and this order stays the same when frames are sent again after a reconnect. */
int pd_core_close_step(pd_core *core, uint64_t step, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__PushRequest request = PARAMD__PUSH_REQUEST__INIT;
    pd_outgoing_frame *frame;
    int rc = pd_core_may_close(core, step, err);

    if (rc != PD_OK) return rc;
    request.step = step;
    request.last = true;
    request.common = core->progress.common;
    request.share = pd_leased_taken(core);
    request.mark = core->link.mark;
    if ((rc = ask(core, PD_PUSH, &request.base, ticket, err)) != PD_OK) return rc;
    frame = pd_outgoing_find(&core->out, core->calls.last_id);
    frame->op->closes = core->progress.closing = frame->step = step;
    frame->mark = core->link.mark;
    for (size_t i = 0; core->open_sets && i < core->n_params; i++)
        if (core->params[i].pushed < step) pd_window_skip(core, &core->params[i], step);
    core->progress.ended = step;
    pd_resend_advance(core);
    return PD_OK;
}

static int pull_items(pd_core *core, pd_op *op, uint64_t min_step)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_PULL);
    bucket.pull.min_step = min_step;
    for (size_t i = 0; rc == PD_OK && i < op->n; i++) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

int pd_core_pull(pd_core *core, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form, pd_ticket_id *ticket,
                 pd_error *err)
{
    pd_op *op;
    int rc = check_form(form, err);

    if (rc == PD_OK) rc = begin_items(core, PD_PULL, items, n, &op, err);
    if (rc != PD_OK) return rc;
    op->form = form;
    if ((rc = pull_items(core, op, min_step)) != PD_OK) return give_back(core, op, rc, err);
    *ticket = op->id;
    return PD_OK;
}

/* Begins an operation with one item for each parameter of the model that the server has. The operation owns the array
 * of items and frees it. */
static int begin_model(pd_core *core, unsigned method, void *const *weights, pd_op **op, pd_error *err)
{
    pd_item *items = calloc(core->n_params > 0 ? core->n_params : 1, sizeof *items);
    size_t n = 0;
    int rc;

    if (items == NULL) return no_memory(err);
    for (size_t i = 0; i < core->n_params; i++)
        if (!core->params[i].elsewhere)
            items[n++] = (pd_item){ .param = i, .gradient = weights[i], .weights = weights[i] };
    if ((rc = begin_items(core, method, items, n, op, err)) != PD_OK)
        free(items);
    else
        (*op)->owned = true;
    return rc;
}

/* Returns true if this rank must send initial weights of the parameter, and the server does not have them. An older
 * server does not say which rank sends whole parameters: rank 0 does. */
static bool is_asked(const pd_core *core, const pd_param_record *record)
{
    bool gives = core->sends_whole || (!core->open_sets && !core->setup.any_rank && core->setup.rank == 0);

    return !record->initialised && (record->ranged ? elements_of(record) > 0 : gives || core->averages_init);
}

static int post_initial(pd_core *core, pd_op *op)
{
    pd_bucket bucket;
    int rc = PD_OK;

    pd_bucket_init(&bucket, core, op, PD_INIT);
    for (size_t i = 0; rc == PD_OK && i < op->n; i++)
        if (is_asked(core, &core->params[op->items[i].param])) rc = pd_bucket_item(&bucket, i);
    return rc == PD_OK ? pd_bucket_post(&bucket) : rc;
}

/* Takes back those frames of the operation with initial weights that are not answered. */
static void retire_initial(pd_core *core, pd_op *op)
{
    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out), *next; frame != NULL; frame = next) {
        next = pd_outgoing_after(&core->out, frame);
        if (frame->op == op && frame->method == PD_INIT && !frame->answered) pd_op_retire(core, frame);
    }
}

static void give(pd_core *core, pd_op *op)
{
    pd_error error;

    retire_initial(core, op);
    if (!core->must_init || op->done || op->error.code != PD_OK || post_initial(core, op) == PD_OK) return;
    no_memory(&error);
    pd_bucket_unpost(core, op);
    pd_op_end(core, op, &error);
}

int pd_core_fetch(pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc = begin_model(core, PD_PULL, weights, &op, err);

    if (rc != PD_OK) return rc;
    op->fetches = true;
    rc = core->open_sets ? PD_OK : pull_items(core, op, 0);
    for (uint32_t f = 0; core->open_sets && rc == PD_OK && f < core->n_fragments; f++)
        rc = pd_core_pull_fragment(core, op, f, pd_core_highest_step(core, f));
    if (rc != PD_OK) return give_back(core, op, rc, err);
    *ticket = op->id;
    if (core->owes_init) give(core, op); /* the server has asked for them again since they were answered */
    core->owes_init = false;
    return PD_OK;
}

static bool is_asked_for_any(const pd_core *core)
{
    bool asked = false;

    for (size_t i = 0; core->must_init && i < core->n_params; i++) asked = asked || is_asked(core, &core->params[i]);
    return asked;
}

/* Sends all weights of a pd_core_init that is under way again: the server may have forgotten what this rank has sent,
 * also what was answered. In a job with open sets it does so if the rank was lost before all had come; where weights
 * are averaged, if another rank was lost whose weights were in the mean in part. */
static void give_again(pd_core *core, pd_op *op)
{
    pd_error error;

    if ((!core->open_sets && !core->averages_init) || !is_asked_for_any(core)) return;
    pd_bucket_unpost(core, op);
    if (post_initial(core, op) == PD_OK) return;
    no_memory(&error);
    pd_bucket_unpost(core, op);
    pd_op_end(core, op, &error);
}

void pd_core_give(pd_core *core)
{
    core->owes_init = core->must_init;
    for (pd_op *op = core->calls.table, *next; op != NULL; op = next) {
        next = op->hh.next;
        if (op->done) continue;
        if (op->fetches || op->method == PD_INIT) core->owes_init = false;
        if (op->fetches) give(core, op);
        if (op->method == PD_INIT && op->replaces == 0) give_again(core, op);
    }
}

int pd_core_init(pd_core *core, void *const *weights, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc = begin_model(core, PD_INIT, weights, &op, err);
    core->owes_init = false;
    if (rc != PD_OK) return rc;
    if ((rc = post_initial(core, op)) != PD_OK) return give_back(core, op, rc, err);
    op->done = op->waits == 0;
    *ticket = op->id;
    return PD_OK;
}

int pd_core_barrier(pd_core *core, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__BarrierRequest request = PARAMD__BARRIER_REQUEST__INIT;
    int rc;

    request.sequence = core->progress.barriers + 1;
    rc = ask(core, PD_BARRIER, &request.base, ticket, err);
    if (rc == PD_OK) core->progress.barriers++;
    return rc;
}

int pd_core_leave(pd_core *core, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__Empty request = PARAMD__EMPTY__INIT;
    return ask(core, PD_LEAVE, &request.base, ticket, err);
}

/* Returns the index of a parameter or portion that the server has. */
static size_t first_here(const pd_core *core)
{
    size_t i = 0;

    while (i + 1 < core->n_params && core->params[i].elsewhere) i++;
    return i;
}

int pd_core_put_worker_state(pd_core *core, uint64_t step, const void *state, size_t bytes, pd_ticket_id *ticket,
                             pd_error *err)
{
    const pd_push_options options = { .worker_state = state, .worker_state_bytes = bytes };
    pd_op *op;
    int rc = check_worker_state(&options, err);

    if (rc == PD_OK) rc = pd_op_begin(core, PD_NOTE, &op, err);
    if (rc != PD_OK) return rc;
    op->step = step;
    op->owned = true;
    op->items = calloc(1, sizeof *op->items);
    rc = op->items != NULL ? PD_OK : PD_NO_MEMORY;
    if (rc == PD_OK) {
        op->items->param = first_here(core); /* a worker state belongs to the first parameter of its operation */
        op->n = 1;
        rc = post_worker_state(core, op, &options);
    }
    if (rc != PD_OK) return give_back(core, op, rc, err);
    pd_resend_hold(core);
    *ticket = op->id;
    return PD_OK;
}

int pd_core_get_worker_state(pd_core *core, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__Empty request = PARAMD__EMPTY__INIT;
    return ask(core, PD_RECALL, &request.base, ticket, err);
}

int pd_core_checkpoint(pd_core *core, uint64_t step, uint32_t wait_ms, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__CheckpointRequest request = PARAMD__CHECKPOINT_REQUEST__INIT;

    request.step = step;
    request.wait_ms = wait_ms;
    return ask(core, PD_CHECKPOINT, &request.base, ticket, err);
}

int pd_core_ask_back(pd_core *core, const pd_back_to *to, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__GoBackRequest request = PARAMD__GO_BACK_REQUEST__INIT;

    request.step = to->step;
    request.life = to->life;
    request.durable = to->durable + 1;
    request.tenures = (uint64_t *)to->tenures;
    request.n_tenures = to->n_tenures;
    return ask(core, PD_GO_BACK, &request.base, ticket, err);
}

int pd_core_call(pd_core *core, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                 size_t answer_bytes, pd_ticket_id *ticket, pd_error *err)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    return ask_with(core, method, request != NULL ? request : &empty.base, payload, answer_bytes, ticket, err);
}

void pd_core_give_up(pd_core *core, pd_ticket_id ticket)
{
    pd_op *op = pd_op_find(core, ticket);

    if (op == NULL) return;
    pd_bucket_unpost(core, op);
    pd_op_free(core, op);
}
