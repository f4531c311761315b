/* diloco_sync.c - sends the fragments of a pd_diloco, takes their answers, and goes on after the server has lost
 * steps. */
#include "outer.h"

#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "diloco_math.h"

/* SLICE: number of elements that are computed at a time. LATE_IN_ROW: number of late answers, one after the other, of
 * which the user gets a notice. */
enum { SLICE = 4096, LATE_IN_ROW = 3 };

/* Returns the type in which the client takes contributions: push_dtype, or float32 where the client encodes them. */
static pd_dtype given_type(const pd_outer_param *param)
{
    return param->push == PD_F16 || param->push == PD_BF16 ? param->push : PD_F32;
}

/* Rounds a number of bytes up, so that what follows begins at a multiple of 64 bytes. */
static size_t padded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static size_t sent_bytes(const pd_outer_param *param)
{
    return padded(param->n * pd_dtype_size(given_type(param)));
}

static size_t received_bytes(const pd_outer_param *param)
{
    return padded(param->n * pd_dtype_size(param->pull));
}

int pd_outer_make_flight(pd_diloco *d)
{
    size_t head = padded(sizeof *d->flight), n = 0, sent = 0, received = 0, items, counts;
    uint8_t *at;

    for (size_t f = 0; f < d->n_fragments; f++) {
        size_t up = 0, down = 0;

        for (size_t i = 0; i < d->fragments[f].n; i++) {
            const pd_outer_param *param = &d->params[d->order[d->fragments[f].first + i]];
            up += sent_bytes(param);
            down += received_bytes(param);
        }
        if (d->fragments[f].n > n) n = d->fragments[f].n;
        if (up > sent) sent = up;
        if (down > received) received = down;
    }
    items = padded(n * sizeof(pd_item));
    counts = padded(n * sizeof(pd_item_count));
    if ((at = aligned_alloc(64, head + items + counts + sent + received)) == NULL) return PD_NO_MEMORY;
    memset(at, 0, head + items + counts);
    d->flight = (pd_outer_flight *)(void *)at;
    d->flight->items = (pd_item *)(void *)(at + head);
    d->flight->counts = (pd_item_count *)(void *)(at + head + items);
    d->flight->sent = at + head + items + counts;
    d->flight->received = d->flight->sent + sent;
    return PD_OK;
}

/* Writes this rank's contribution to a parameter: the difference of its weights, or the weights themselves. */
static void contribute(const pd_outer_param *param, const float *weights, uint8_t *to)
{
    size_t width = pd_dtype_size(given_type(param));
    float slice[SLICE];

    for (size_t at = 0, n; at < param->n; at += n) {
        n = param->n - at < SLICE ? param->n - at : SLICE;
        if (param->model_state)
            memcpy(slice, weights + at, n * sizeof *slice);
        else
            pd_diloco_difference(slice, param->global + at, weights + at, n);
        pd_convert(to + at * width, given_type(param), slice, PD_F32, (int64_t)n);
    }
}

/* Returns whether a parameter has taken the step after `step` already. A process that comes back finds that where the
 * one before it, or the server, has ended in the middle of a step: its weights are those after the step. */
static bool is_ahead(const pd_diloco *d, size_t param, uint64_t step)
{
    return d->params[param].n > 0 && pd_client_step(d->client, param) > step;
}

/* Fills the items of a fragment, and the contributions that they refer to. weights NULL: there are none. */
static void fill(pd_diloco *d, const pd_outer_fragment *fragment, float *const *weights)
{
    uint8_t *sent = d->flight->sent, *received = d->flight->received;
    uint64_t step = pd_outer_step(d, fragment);

    d->flight->n = 0;
    for (size_t i = 0; i < fragment->n; i++) {
        size_t index = d->order[fragment->first + i];
        const pd_outer_param *param = &d->params[index];
        pd_item *item = &d->flight->items[d->flight->n];

        if (is_ahead(d, index, step)) continue;
        d->flight->n++;
        *item = (pd_item){ .param = index };
        if (param->n == 0) continue;
        item->weights = received;
        if (weights != NULL) {
            contribute(param, weights[index], sent);
            item->gradient = sent;
        }
        sent += sent_bytes(param);
        received += received_bytes(param);
    }
}

/* Sets the weight of a contribution, if it is weighed: tokens^2 / inner steps, as 2604.21428 has it. */
static void weigh(const pd_diloco *d, const pd_outer_fragment *fragment, pd_push_options *push)
{
    if (!d->options.weigh_tokens) return;
    push->weight = fragment->steps > 0 ? fragment->tokens * fragment->tokens / (double)fragment->steps : 0;
    push->zero_weight = push->weight == 0;
}

/* Returns for how many ms this worker can do without the answer to a push that it makes now. */
static uint32_t patience_ms(const pd_diloco *d)
{
    double speed = pd_outer_speed(d), ms = speed > 0 ? 1000 * (double)d->options.fragment_sync_delay / speed : 0;

    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* Returns how many shares of the data this worker wants after a push: with dylu, as many fewer as it takes inner steps;
 * 0: the number that its client was opened with. */
static uint32_t wants(const pd_diloco *d)
{
    uint64_t shares = pd_handle_lead(d->client)->core->setup.shares, part = shares * d->every / d->options.sync_every;

    if (!d->options.dylu || shares == 0) return 0;
    return part > 0 ? (uint32_t)part : 1;
}

/* Queues the push of those items of the fragment under way that have no answer yet. */
static int post(pd_diloco *d, pd_error *err)
{
    pd_push_options push = d->flight->push;

    push.counts = d->flight->counts + d->settled;
    d->flight->push.again = true;
    return pd_client_push_pull(d->client, d->flight->items + d->settled, d->flight->n - d->settled, &push, &d->ticket,
                               err);
}

int pd_diloco_send(pd_diloco *d, int64_t fragment, float *const *weights, pd_error *err)
{
    pd_outer_fragment *chosen;
    int rc;

    if (fragment < 0 || fragment >= (int64_t)d->n_fragments)
        return pd_fail(err, PD_INVALID_ARGUMENT, "fragment %lld: expected 0 to %zu", (long long)fragment,
                       d->n_fragments - 1);
    if (d->flying >= 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "fragment %lld is under way: take its answer first",
                       (long long)d->flying);
    pd_outer_enter(d);
    chosen = &d->fragments[fragment];
    fill(d, chosen, weights);
    d->flight->push = (pd_push_options){ .patience_ms = patience_ms(d),
                                         .carried = chosen->carries,
                                         .wants = wants(d),
                                         .lost = &d->flight->lost,
                                         .speed = d->options.dylu ? pd_outer_speed(d) : 0 };
    weigh(d, chosen, &d->flight->push);
    d->flight->lost = false;
    d->flying = fragment;
    d->settled = 0;
    if ((rc = post(d, err)) != PD_OK) d->flying = -1;
    pd_outer_leave(d);
    return rc;
}

/* Returns whether an item has its answer. Those without elements need none. */
static bool is_done(const pd_diloco *d, const pd_item *item)
{
    return item->outcome > 0 || d->params[item->param].n == 0;
}

/* Brings the items that are done to the front, so that the others can be sent again. Returns whether all are done. */
static bool settle(pd_diloco *d)
{
    size_t n = d->flight->n;
    pd_item *items = d->flight->items;
    pd_item_count *counts = d->flight->counts;

    for (size_t i = d->settled; i < n; i++) {
        pd_item item = items[i];
        pd_item_count count = counts[i];

        if (!is_done(d, &item)) continue;
        items[i] = items[d->settled];
        counts[i] = counts[d->settled];
        items[d->settled] = item;
        counts[d->settled++] = count;
    }
    return d->settled == n;
}

/* Waits for the answer to the fragment under way, which is sent again if the last try has failed. Sets *done when every
 * item has its answer, in which case an error is that of a step that the optimizer has refused. */
static int await(pd_diloco *d, bool *done, pd_error *err)
{
    pd_error error = { .code = PD_OK };
    int rc = d->ticket == 0 ? post(d, &error) : PD_OK;

    *done = false;
    if (rc == PD_OK) {
        rc = pd_client_wait(d->client, d->ticket, d->client->slice, &error);
        if (rc != PD_DEADLINE_EXCEEDED || strncmp(error.text, "waited", strlen("waited")) != 0) {
            d->ticket = 0;
            *done = settle(d);
        }
    }
    if (rc != PD_OK && err != NULL) *err = error;
    return rc;
}

/* Takes new global weights of one parameter. `carry`: they came in a late answer, and this worker's work stays. */
static void take_weights(const pd_diloco *d, const pd_outer_param *param, const uint8_t *received, float *weights,
                         bool carry)
{
    size_t width = pd_dtype_size(param->pull);
    float alpha = (float)d->options.fragment_update_alpha, slice[SLICE];

    for (size_t at = 0, n; at < param->n; at += n) {
        n = param->n - at < SLICE ? param->n - at : SLICE;
        pd_convert(slice, PD_F32, received + at * width, param->pull, (int64_t)n);
        if (!carry)
            pd_diloco_mix(weights + at, slice, alpha, n);
        else if (!param->model_state) /* the next contribution has model state whole, whatever the global one is */
            pd_diloco_carry(weights + at, slice, param->global + at, n);
        memcpy(param->global + at, slice, n * sizeof *slice);
    }
}

/* Counts the answer to a fragment. */
static void count(pd_diloco *d, pd_outer_fragment *fragment, bool late)
{
    pd_item_count *counts = d->flight->counts;

    fragment->step++; /* where this rank has no elements */
    for (size_t i = 0; i < d->flight->n; i++) {
        const pd_item *item = &d->flight->items[i];

        if (d->params[item->param].n == 0) continue;
        fragment->step = item->step;
        d->counted_ranks = counts[i].counted;
        if (!late) d->age = counts[i].age;
    }
    d->pushes++;
    d->late += late;
    d->counted += !late;
    d->late_in_row = late ? d->late_in_row + 1 : 0;
    if (d->late_in_row == LATE_IN_ROW)
        pd_notice_late(&d->client->notices, pd_handle_lead(d->client)->core->setup.job, LATE_IN_ROW, d->counted,
                       d->pushes);
}

/* Takes the answer to the fragment under way, which is complete. */
static void land(pd_diloco *d, float *const *weights)
{
    pd_outer_fragment *fragment = &d->fragments[d->flying];
    bool late = false, carry;

    for (size_t i = 0; i < d->flight->n; i++) late |= d->flight->items[i].outcome == PD_OUTCOME_LATE;
    carry = late && !d->options.drop_late && !d->flight->lost;
    for (size_t i = 0; i < d->flight->n; i++) {
        const pd_item *item = &d->flight->items[i];
        if (d->params[item->param].n > 0)
            take_weights(d, &d->params[item->param], item->weights, weights[item->param], carry);
    }
    count(d, fragment, late);
    fragment->carries = carry;
    if (!carry) fragment->tokens = 0;
    if (!carry) fragment->steps = 0;
    d->flying = -1;
    pd_outer_realign(d);
}

int pd_diloco_take(pd_diloco *d, int64_t fragment, float *const *weights, pd_error *err)
{
    bool done;
    int rc;

    if (fragment < 0 || d->flying != fragment)
        return pd_fail(err, PD_FAILED_PRECONDITION, "fragment %lld is not under way: pd_diloco_send comes first",
                       (long long)fragment);
    pd_outer_enter(d);
    rc = await(d, &done, err);
    if (done) land(d, weights);
    pd_outer_leave(d);
    return rc;
}

int pd_diloco_finish(pd_diloco *d, float *const *weights, pd_error *err)
{
    return d->flying >= 0 ? pd_diloco_take(d, d->flying, weights, err) : PD_OK;
}

int pd_diloco_step(pd_diloco *d, float *const *weights, double tokens, pd_error *err)
{
    pd_diloco_due due = pd_diloco_inner_step(d, tokens);
    int rc = PD_OK;

    if (due.send >= 0) rc = pd_diloco_send(d, due.send, weights, err);
    if (rc == PD_OK && due.take >= 0) rc = pd_diloco_take(d, due.take, weights, err);
    return rc;
}

/* The buffers through which pd_diloco_resume receives all weights, in pull_dtype: the global weights themselves where
 * they are float32. */
static void free_buffers(const pd_diloco *d, void **buffers)
{
    for (size_t i = 0; buffers != NULL && i < d->n_params; i++)
        if (buffers[i] != d->params[i].global) free(buffers[i]);
    free(buffers);
}

static int make_buffers(pd_diloco *d)
{
    void **buffers = calloc(d->n_params, sizeof *buffers);
    bool enough = buffers != NULL;

    for (size_t i = 0; enough && i < d->n_params; i++) {
        pd_outer_param *param = &d->params[i];

        buffers[i] = param->global;
        if (param->n == 0 || param->pull == PD_F32) continue;
        buffers[i] = malloc(param->n * pd_dtype_size(param->pull));
        enough = buffers[i] != NULL;
        if (enough) pd_convert(buffers[i], param->pull, param->global, PD_F32, (int64_t)param->n);
    }
    if (enough)
        d->buffers = buffers;
    else
        free_buffers(d, buffers);
    return enough ? PD_OK : PD_NO_MEMORY;
}

void pd_outer_free_buffers(pd_diloco *d)
{
    free_buffers(d, d->buffers);
    d->buffers = NULL;
}

/* Goes back to a checkpoint, or begins the job anew if there is none. */
static int recover(pd_diloco *d, pd_error *err)
{
    int rc = d->restarting ? PD_DATA_LOSS : pd_client_rewind(d->client, d->buffers, err);

    d->restarting = rc == PD_DATA_LOSS;
    if (d->restarting) rc = pd_client_restart(d->client, d->buffers, err);
    if (rc == PD_OK || rc == PD_REWIND) d->restarting = false;
    return rc;
}

/* Takes the weights and the steps that the server has. */
static void begin_anew(pd_diloco *d, float *const *weights)
{
    for (size_t i = 0; i < d->n_params; i++) {
        const pd_outer_param *param = &d->params[i];

        if (param->n == 0) continue;
        if (d->buffers[i] != param->global)
            pd_convert(param->global, PD_F32, d->buffers[i], param->pull, (int64_t)param->n);
        memcpy(weights[i], param->global, param->n * sizeof *param->global);
    }
    pd_outer_place(d);
    d->late_in_row = 0;
}

int pd_diloco_resume(pd_diloco *d, float *const *weights, pd_error *err)
{
    int rc = PD_OK;

    pd_outer_enter(d);
    if (d->ticket != 0) pd_client_wait(d->client, d->ticket, 0, NULL); /* it has ended with the handle: forget it */
    d->ticket = 0;
    if (d->buffers == NULL && make_buffers(d) != PD_OK) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK && (rc = recover(d, err)) == PD_OK) {
        d->flying = -1;
        begin_anew(d, weights);
        pd_outer_free_buffers(d);
    }
    pd_outer_leave(d);
    return rc;
}
