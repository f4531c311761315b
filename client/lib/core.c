/* core.c - the core of a client handle: makes and ends operations, queues frames, and decides when to connect and when
 * the server counts as silent. */
#include "core.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "notice.h"
#include "join.h"
#include "mutant.h"
#include "answer.h"
#include "call.h"
#include "feedback.h"
#include "follow.h"
#include "replace.h"
#include "recoveries.h"
#include "settle_relay.h"
#include "sharing.h"
#include "transport.h"
#include "window.h"
#include "zeroed.h"

#define MS 1000000ull

/* The server counts as silent after this time, until its welcome sets another time. */
#define FIRST_TIMEOUT_NS (10000 * MS)
#define FIRST_HEARTBEAT_NS (2500 * MS)
#define BACKOFF_LEAST_NS (50 * MS)
#define BACKOFF_MOST_NS (2000 * MS)
#define BACKOFF_SHARE                                                                                                  \
    8 /* a pause between two attempts to connect is this fraction (1/8) of the time passed since the last welcome */
/* When the server has refused one frame of a call, the call waits this long for the answers to its other frames. */
#define REST_NS (1000 * MS)

static void free_texts(char **texts)
{
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) free(texts[i]);
    free(texts);
}

static char **copy_texts(const char *const *texts)
{
    size_t n = 0;
    char **copy;

    while (texts != NULL && texts[n] != NULL) n++;
    if ((copy = calloc(n + 1, sizeof *copy)) == NULL) return NULL;
    for (size_t i = 0; i < n; i++) {
        if ((copy[i] = strdup(texts[i])) == NULL) {
            free_texts(copy);
            return NULL;
        }
    }
    return copy;
}

static int check_options(const char *const *options, pd_error *err)
{
    for (size_t i = 0; options != NULL && options[i] != NULL; i++) {
        const char *equals = strchr(options[i], '=');
        if (equals == NULL || equals == options[i])
            return pd_fail(err, PD_INVALID_ARGUMENT, "option \"%s\": expected name=value", options[i]);
    }
    return PD_OK;
}

int pd_core_new(pd_core **out, const pd_core_config *config, pd_error *err)
{
    static const char *const plain[] = { "* sgd", NULL };
    pd_core *core;
    pd_op *op;
    int rc = check_options(config->options, err);

    if (rc != PD_OK) return rc;
    if ((core = calloc(1, sizeof *core)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    core->setup.job = strdup(config->job);
    core->setup.label = strdup(config->label);
    core->setup.run = strdup(config->run != NULL ? config->run : "");
    core->setup.resume = config->resume;
    core->setup.joins = config->joins;
    core->setup.any_rank = config->any_rank;
    core->setup.group = config->group;
    core->setup.generation = config->generation;
    core->setup.shares = config->shares;
    core->setup.feedback = config->feedback;
    core->setup.options = copy_texts(config->options);
    core->setup.rules = copy_texts(config->rules != NULL ? config->rules : plain);
    core->scratch = malloc(sizeof *core->scratch);
    core->arena = pd_arena_new(PD_ARENA_BUDGET);
    core->setup.rank = config->rank;
    core->setup.world_size = config->world_size;
    core->setup.nonce = core->link.random = config->nonce;
    core->setup.flags = config->checksum ? PD_FLAG_CHECKSUM : 0;
    snprintf(core->setup.congestion, sizeof core->setup.congestion, "%s",
             config->congestion != NULL ? config->congestion : "");
    core->setup.urls = config->urls;
    core->setup.addresses = config->addresses;
    core->setup.impatient = config->impatient;
    core->setup.deadline_ns = config->deadline_ns;
    core->setup.shard = config->shard;
    core->setup.shards = config->shards > 0 ? config->shards : 1;
    core->setup.cluster = config->cluster;
    core->following.table = config->table;
    core->following.named = config->named;
    core->following.n_named = config->n_named;
    if (config->table != NULL) pd_follow_begin(core);
    core->window.steps = config->window;
    core->calls.give_up_ns = UINT64_MAX;
    core->out.least_shared = config->least_shared;
    core->sharing = (pd_sharing){
        .refused = config->checksum || config->no_shared_memory, .to_send = -1, .taken = -1, .weights = PD_NO_SEGMENT
    };
    op = pd_op_new(core, PD_HELLO);
    if (core->setup.job == NULL || core->setup.label == NULL || core->setup.run == NULL ||
        core->setup.options == NULL || core->setup.rules == NULL || core->scratch == NULL || core->arena == NULL ||
        op == NULL) {
        pd_core_free(core);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    core->welcome_ticket = op->id;
    *out = core;
    return PD_OK;
}

pd_core_config pd_core_config_of(const pd_core *core)
{
    const pd_core_setup *setup = &core->setup;

    return (pd_core_config){ .job = setup->job,
                             .label = setup->label,
                             .rank = setup->rank,
                             .world_size = setup->world_size,
                             .options = (const char *const *)setup->options,
                             .rules = (const char *const *)setup->rules,
                             .nonce = setup->nonce,
                             .checksum = (setup->flags & PD_FLAG_CHECKSUM) != 0,
                             .impatient = setup->impatient,
                             .deadline_ns = setup->deadline_ns,
                             .no_shared_memory = core->sharing.refused,
                             .window = core->window.steps,
                             .run = setup->run,
                             .resume = setup->resume,
                             .joins = setup->joins,
                             .any_rank = setup->any_rank,
                             .group = setup->group,
                             .generation = setup->generation,
                             .shares = setup->shares,
                             .feedback = setup->feedback,
                             .table = core->following.table,
                             .named = core->following.named,
                             .n_named = core->following.n_named,
                             .least_shared = core->out.least_shared };
}

void pd_core_free(pd_core *core)
{
    pd_op *op, *next;

    if (core == NULL) return;
    pd_outgoing_clear(&core->out);
    pd_window_free(core);
    HASH_ITER(hh, core->calls.table, op, next) pd_op_free(core, op);
    pd_core_forget_params(core);
    pd_sharing_free(core);
    pd_core_remarks_free(&core->remarks);
    pd_follow_free(core);
    free_texts(core->setup.options);
    free_texts(core->setup.rules);
    pd_arena_free(core->arena);
    free(core->scratch);
    free(core->receive.buffer);
    free(core->setup.job);
    free(core->setup.label);
    free(core->setup.run);
    free(core);
}

#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(op) ((op)->hh.tbl = NULL)

pd_op *pd_op_new(pd_core *core, unsigned method)
{
    pd_op *op = pd_zeroed(sizeof *op);

    if (op == NULL) return NULL;
    op->id = ++core->calls.last_id;
    op->method = method;
    core->begun = core->begun || (core->declared && method != PD_DECLARE);
    HASH_ADD(hh, core->calls.table, id, sizeof op->id, op);
    if (op->hh.tbl != NULL) return op;
    free(op);
    return NULL;
}

int pd_op_begin(pd_core *core, unsigned method, pd_op **op, pd_error *err)
{
    if (core->end.error.code != PD_OK) {
        if (err != NULL) *err = core->end.error;
        return core->end.error.code;
    }
    if (HASH_COUNT(core->calls.table) >= MAX_TICKETS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%d tickets are pending: wait for some of them "
                       "(" PD_WAIT_CALL ")",
                       MAX_TICKETS);
    if ((*op = pd_op_new(core, method)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return PD_OK;
}

pd_op *pd_op_find(const pd_core *core, pd_ticket_id ticket)
{
    pd_op *op;
    HASH_FIND(hh, core->calls.table, &ticket, sizeof ticket, op);
    return op;
}

void pd_op_free(pd_core *core, pd_op *op)
{
    HASH_DELETE(hh, core->calls.table, op);
    if (op->owned) free(op->items);
    free(op->reply);
    free(op->spans);
    free(op);
}

void pd_op_fail(pd_op *op, const pd_error *error)
{
    if (op->error.code == PD_OK) op->error = *error;
}

/* Leaves the user no version of items of which no whole answer came. */
static void clear_versions(const pd_op *op)
{
    for (size_t i = 0; i < op->n; i++)
        if (op->items[i].version >= PD_UNANSWERED) op->items[i].version = 0;
}

/* Marks an operation as done. Its parameters may be pushed again. If it closed a step, another step may be closed
 * now. */
static void op_done(pd_core *core, pd_op *op)
{
    pd_window_note_done(core, op);
    op->done = true;
    core->calls.ended++;
    if (op->closes > 0) core->progress.closing = 0;
    if (op->replaces != 0 && op->error.code == PD_OK)
        pd_replace_done(core, op);
    else if (op->method == PD_INIT && op->error.code == PD_OK)
        for (size_t i = 0; i < op->n; i++)
            core->params[op->items[i].param].initialised |= core->params[op->items[i].param].given;
    if (op->lost && op->tell_lost != NULL) *op->tell_lost = true;
    if (op->method == PD_PULL) clear_versions(op);
    if (!pd_method_pushes(op->method)) return;
    for (size_t i = 0; i < op->n; i++) {
        pd_param_record *record = &core->params[op->items[i].param];
        record->pushing = false;
        if (op->pushed && op->items[i].outcome > 0 && core->end.error.code == PD_OK &&
            record->pushed > record->answered)
            record->answered = record->pushed;
        if (op->pushed && op->items[i].gradient != NULL && pd_dtype_is_quantized(record->push))
            pd_feedback_end(core, record, op->items[i].outcome, op->weighs);
        if (op->lost && core->setup.feedback == PD_FEEDBACK_CARRY) pd_feedback_forget(record);
    }
}

void pd_op_end(pd_core *core, pd_op *op, const pd_error *error)
{
    pd_op_fail(op, error);
    op_done(core, op);
}

/* Counts one answered frame of the operation. The operation is done when the last of its frames is answered. */
static void op_answered(pd_core *core, pd_op *op)
{
    if (--op->waits > 0) return;
    if (!pd_core_level(core, op)) op_done(core, op);
}

void pd_op_retire(pd_core *core, pd_outgoing_frame *frame)
{
    pd_op *op = frame->op;

    if (pd_outgoing_retire(&core->out, frame)) op_answered(core, op);
}

int pd_core_post(pd_core *core, unsigned method, const ProtobufCMessage *message, pd_queue queue, pd_op *op)
{
    return pd_core_post_with(core, method, message, &(struct iovec){ NULL, 0 }, queue, op);
}

int pd_core_post_with(pd_core *core, unsigned method, const ProtobufCMessage *message, const struct iovec *payload,
                      pd_queue queue, pd_op *op)
{
    uint8_t *head;
    size_t bytes;
    pd_outgoing_frame *frame;
    uint64_t id = ++core->calls.last_id;
    int rc = pd_frame_pack_whole(&head, &bytes, method, core->setup.flags, id, message, payload);

    if (rc != PD_OK) return rc;
    if ((frame = pd_outgoing_frame_new(head, bytes, NULL, 0, NULL, 0)) == NULL) return PD_NO_MEMORY;
    frame->id = id;
    frame->method = method;
    frame->op = op;
    if (!pd_outgoing_add(&core->out, frame, queue)) {
        pd_outgoing_frame_free(frame);
        return PD_NO_MEMORY;
    }
    if (op != NULL) op->waits++;
    return PD_OK;
}

int pd_reply_broken(pd_core *core, const pd_prefix *prefix, const char *what)
{
    pd_error error;

    pd_fail(&error, PD_INTERNAL, "the server's answer to %s (request %" PRIu64 "): %s", pd_method_name(prefix->method),
            prefix->request, what);
    pd_core_end(core, &error);
    return PD_INTERNAL;
}

int pd_reply_take(pd_core *core, const pd_prefix *prefix, const uint8_t *header, void **reply)
{
    pd_error error;
    int rc;

    pd_arena_reset(core->arena);
    rc = pd_reply_unpack(core->arena, prefix->method, header, prefix->header_bytes, reply, &error);
    if (rc == PD_NO_MEMORY) pd_core_drop(core, error.text);
    return rc == PD_OK || rc == PD_NO_MEMORY ? rc : pd_reply_broken(core, prefix, error.text);
}

uint64_t pd_core_steps_seen(const pd_core *core)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (pd_has_elements(&core->params[i]) && core->params[i].step < least) least = core->params[i].step;
    return least;
}

void pd_param_record_free(pd_param_record *record)
{
    free(record->name);
    free(record->axes);
    free(record->note);
    free(record->holds);
    pd_feedback_free(record);
}

void pd_core_forget_versions(pd_param_record *record)
{
    free(record->holds);
    record->holds = NULL;
}

/* Sets each operation's `waits` to the number of its frames in the queue. The handle has ended, so the queue has only
 * frames whose bytes, which are the caller's memory, are being sent. */
static void count_lent(pd_core *core)
{
    for (pd_op *op = core->calls.table; op != NULL; op = op->hh.next) op->waits = 0;
    for (pd_queue queue = 0; queue < PD_QUEUES; queue++)
        for (pd_outgoing_frame *frame = core->out.queue[queue].first; frame != NULL; frame = frame->next)
            if (frame->op != NULL) frame->op->waits++;
}

void pd_core_end(pd_core *core, const pd_error *error)
{
    pd_op *op, *next;

    if (core->end.error.code != PD_OK) return;
    core->end.error = *error;
    core->link.stage = core->link.stage == STAGE_DOWN ? STAGE_DOWN : STAGE_DROP;
    pd_outgoing_retire_all(&core->out);
    count_lent(core);
    HASH_ITER(hh, core->calls.table, op, next)
    {
        if (op->done) continue;
        pd_op_fail(op, error);
        if (op->waits == 0) op_done(core, op);
    }
}

void pd_core_drop(pd_core *core, const char *reason)
{
    if (core->link.stage == STAGE_DOWN) return;
    core->link.stage = STAGE_DROP;
    snprintf(core->link.reason, sizeof core->link.reason, "%s", reason);
}

bool pd_core_done(const pd_core *core, pd_ticket_id ticket)
{
    const pd_op *op = pd_op_find(core, ticket);
    return op == NULL || op->done;
}

int pd_core_finish(pd_core *core, pd_ticket_id ticket, uint8_t **reply, size_t *bytes, pd_error *err)
{
    pd_op *op = pd_op_find(core, ticket);
    int rc;

    *reply = NULL;
    *bytes = 0;
    if (op == NULL)
        return pd_fail(err, PD_NOT_FOUND, "unknown ticket %llu: never issued, or already waited for",
                       (unsigned long long)ticket);
    rc = op->error.code;
    if (rc != PD_OK && err != NULL) *err = op->error;
    *reply = op->reply;
    *bytes = op->reply_bytes;
    op->reply = NULL;
    pd_op_free(core, op);
    return rc;
}

/* Returns a random number (splitmix64). Processes draw different numbers, so that they do not reconnect at the same
 * time. */
static uint64_t draw(pd_core *core)
{
    uint64_t z = core->link.random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Returns how long to wait before the next attempt to connect: an eighth of the time since the last welcome, but at
 * least 50 ms and at most 2 s. The second half of this time is random. So if the server is away for one second, the
 * client finds it about a tenth of a second after its return. A client whose server is away for long seldom tries to
 * connect. */
static uint64_t backoff_ns(pd_core *core, uint64_t now_ns)
{
    uint64_t most = (now_ns - core->link.alone_ns) / BACKOFF_SHARE;

    if (most < BACKOFF_LEAST_NS) most = BACKOFF_LEAST_NS;
    if (most > BACKOFF_MOST_NS) most = BACKOFF_MOST_NS;
    return most / 2 + draw(core) % (most / 2 + 1);
}

pd_link pd_core_link(const pd_core *core, uint64_t now_ns)
{
    if (core->link.stage == STAGE_DROP) return PD_LINK_DROP;
    if (core->link.stage != STAGE_DOWN) return PD_LINK_KEEP;
    return core->end.error.code == PD_OK && now_ns >= core->link.retry_ns ? PD_LINK_CONNECT : PD_LINK_REST;
}

/* Returns how long the server may take for its welcome. An impatient handle leaves as much of the user's deadline to
 * each further address: the process there may be stopped, while the kernel still accepts connections for it. */
static uint64_t greeting_ns(const pd_core *core)
{
    uint64_t share = core->setup.deadline_ns / (core->setup.urls + 1);
    bool shares = core->setup.impatient && core->setup.urls > 1 && share > 0;

    return shares && share < FIRST_TIMEOUT_NS ? share : FIRST_TIMEOUT_NS;
}

void pd_core_up(pd_core *core, bool passes_descriptors, uint64_t now_ns)
{
    int rc;

    core->link.stage = STAGE_GREETING;
    core->link.welcomed = false;
    core->link.mark = 0;
    core->sharing.possible = passes_descriptors;
    core->link.timeout_ns = greeting_ns(core);
    core->link.heartbeat_ns = FIRST_HEARTBEAT_NS;
    core->link.received_ns = core->link.sent_ns = now_ns;
    core->stats.connects++;
    rc = pd_core_send_hello(core);
    if (rc == PD_OK) return;
    if (rc == PD_OUT_OF_RANGE) {
        pd_error error;
        pd_fail(&error, PD_INVALID_ARGUMENT, "options and rules are too long: at most %d bytes together",
                PD_MAX_HEADER_BYTES);
        pd_core_end(core, &error);
    } else {
        pd_core_drop(core, pd_code_text(rc));
    }
}

static void left_at_last(void *arg, pd_outgoing_frame *frame)
{
    op_answered(arg, frame->op);
}

/* Ends the client handle with PD_UNAVAILABLE, because it was opened with the option `impatient` and does not connect
 * again. */
static void give_up(pd_core *core)
{
    pd_error error;

    pd_fail(&error, PD_UNAVAILABLE, "%s", core->link.reason);
    pd_core_end(core, &error);
}

void pd_core_down(pd_core *core, uint64_t now_ns, const char *reason)
{
    if (core->link.stage != STAGE_DROP) snprintf(core->link.reason, sizeof core->link.reason, "%s", reason);
    if (!core->link.welcomed && !core->following.moves) core->link.url = (core->link.url + 1) % core->setup.urls;
    core->following.moves = false;
    if (core->link.welcomed || core->link.alone_ns == 0) core->link.alone_ns = now_ns;
    pd_follow_down(core, now_ns);
    if (core->setup.impatient && (core->link.welcomed || core->link.url == 0)) give_up(core);
    core->link.retry_ns = now_ns + backoff_ns(core, now_ns);
    core->link.stage = STAGE_DOWN;
    core->link.welcomed = false;
    core->receive.message = NULL;
    core->recovery.probing = false;
    pd_sharing_end(core);
    pd_relay_down(core);
    pd_window_forget(core);
    for (size_t i = 0; PD_MUTANT(feedback_changed_by_resend) && i < core->n_params; i++)
        if (core->params[i].pushing) pd_feedback_forget(&core->params[i]);
    core->stats.resent += pd_outgoing_rewind(&core->out, left_at_last, core);
}

/* Returns whether the server owes an answer: a request was sent on this connection and is not answered, or requests
 * wait to be sent. */
static bool owed(const pd_core *core)
{
    return pd_outgoing_pending(&core->out) || core->out.queue[PD_QUEUE_CONNECTION].first != NULL ||
           (core->out.open && core->out.queue[PD_QUEUE_LASTING].first != core->out.queue[PD_QUEUE_LASTING].next);
}

/* Returns the time at which the server counts as silent and the connection is dropped. While bytes remain to be sent,
 * each byte that the network takes counts as progress: a server that reads a large model may not answer for
 * long. */
static uint64_t dead_ns(const pd_core *core)
{
    uint64_t quiet_since = core->link.received_ns;

    if (pd_outgoing_pending(&core->out) && core->link.sent_ns > quiet_since) quiet_since = core->link.sent_ns;
    return quiet_since + core->link.timeout_ns;
}

/* Ends each operation that has waited REST_NS for its other answers after the server refused one of its frames. These
 * answers may never come: to send them, the server may first need the refused gradient, or the gradient of another rank
 * whose call waits in the same way. */
static void end_hopeless(pd_core *core, uint64_t now_ns)
{
    pd_op *op, *next;

    if (now_ns < core->calls.give_up_ns) return;
    core->calls.give_up_ns = UINT64_MAX;
    HASH_ITER(hh, core->calls.table, op, next)
    {
        if (!op->hopeless || op->done) continue;
        if (op->give_up_ns == 0) op->give_up_ns = now_ns + REST_NS;
        if (now_ns >= op->give_up_ns)
            pd_core_abandon(core, op);
        else if (op->give_up_ns < core->calls.give_up_ns)
            core->calls.give_up_ns = op->give_up_ns;
    }
}

void pd_core_spoil(pd_core *core, pd_ticket_id ticket, const pd_error *error)
{
    pd_op *op = pd_op_find(core, ticket);

    if (op == NULL || op->done) return;
    pd_op_fail(op, error);
    op->hopeless = true;
    core->calls.give_up_ns = 0;
    if (core->link.stage == STAGE_DOWN) pd_core_abandon(core, op);
}

uint64_t pd_core_next(const pd_core *core)
{
    uint64_t beat, dead;

    if (core->link.stage == STAGE_DROP) return 0;
    if (core->link.stage == STAGE_DOWN) return core->end.error.code == PD_OK ? core->link.retry_ns : UINT64_MAX;
    beat = core->link.welcomed && !pd_outgoing_pending(&core->out) ? core->link.sent_ns + core->link.heartbeat_ns
                                                                   : UINT64_MAX;
    dead = owed(core) ? dead_ns(core) : UINT64_MAX;
    if (pd_follow_due(core) < dead) dead = pd_follow_due(core);
    if (core->calls.give_up_ns < dead) dead = core->calls.give_up_ns;
    return beat < dead ? beat : dead;
}

static int post_heartbeat(pd_core *core)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    return pd_core_post(core, PD_HEARTBEAT, &empty.base, PD_QUEUE_CONNECTION, NULL);
}

void pd_core_ask(pd_core *core)
{
    if (core->link.welcomed && core->link.stage != STAGE_DROP)
        post_heartbeat(core); /* if out of memory, no heartbeat is sent */
}

void pd_core_tick(pd_core *core, uint64_t now_ns)
{
    if (core->link.stage == STAGE_DOWN || core->link.stage == STAGE_DROP) return;
    end_hopeless(core, now_ns);
    pd_sharing_release(core);
    pd_relay_tick(core);
    pd_follow_tick(core, now_ns);
    if (owed(core) && now_ns >= dead_ns(core)) {
        pd_core_drop(core, "the server sends nothing: heartbeat timeout");
    } else if (core->link.welcomed && !pd_outgoing_pending(&core->out) &&
               now_ns >= core->link.sent_ns + core->link.heartbeat_ns) {
        if (post_heartbeat(core) != PD_OK)
            core->link.sent_ns =
                now_ns; /* if out of memory, no heartbeat is sent, and the next is tried after a whole interval */
    }
}

int pd_core_output(pd_core *core, struct iovec *iov, int max, size_t bytes)
{
    if (core->link.stage == STAGE_DOWN || core->link.stage == STAGE_DROP) return 0;
    return pd_outgoing_gather(&core->out, iov, max, bytes);
}

bool pd_core_has_output(const pd_core *core)
{
    return core->link.stage != STAGE_DOWN && core->link.stage != STAGE_DROP && pd_outgoing_pending(&core->out);
}

void pd_core_sent(pd_core *core, size_t n, uint64_t now_ns)
{
    if (n > 0) core->link.sent_ns = now_ns;
    core->stats.bytes_out += n;
    pd_outgoing_sent(&core->out, n, left_at_last, core);
}

void pd_core_received(pd_core *core, size_t n, uint64_t now_ns)
{
    core->link.received_ns = now_ns;
    core->stats.bytes_in += n;
}

uint64_t pd_core_step(const pd_core *core, size_t param)
{
    if (param >= core->n_params) return 0;
    return core->open_sets ? pd_core_highest_step(core, core->params[param].fragment) : core->params[param].step;
}

uint64_t pd_core_highest_step(const pd_core *core, uint32_t fragment)
{
    uint64_t step = 0;

    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment == fragment && core->params[i].step > step) step = core->params[i].step;
    return step;
}

uint64_t pd_core_begun(const pd_core *core, uint32_t fragment)
{
    uint64_t pushing = fragment < core->n_fragments ? core->progress.pushing[fragment] : 0;

    return core->progress.closing > pushing ? core->progress.closing : pushing;
}

pd_core_members pd_core_members_now(const pd_core *core)
{
    if (core->members.members > 0) return core->members;
    return (pd_core_members){ .members = (int)core->setup.world_size, .index = (int)core->setup.rank };
}

bool pd_core_leads(const pd_core *core)
{
    return core->open_sets ? core->members.leads : core->setup.rank == 0;
}

const char *pd_core_note(const pd_core *core, size_t param)
{
    return param < core->n_params && core->params[param].note != NULL ? core->params[param].note : "";
}

pd_client_stats pd_core_stats(const pd_core *core)
{
    pd_client_stats stats = core->stats;

    stats.shared_out = core->out.shared_bytes;
    return stats;
}
