/* join.c - joins the job on a new connection: sends Hello and Declare, and handles their answers. */
#include "join.h"

#include "feedback.h"
#include "follow.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "core.h"
#include "mutant.h"
#include "portion_records.h"
#include "recoveries.h"
#include "replace.h"
#include "leased.h"
#include "settle_relay.h"
#include "sharing.h"
#include "window.h"

static int split_options(char *const *texts, Paramd__Option **out, size_t *n)
{
    size_t count = 0, bytes = 0;
    Paramd__Option *options;
    char *at;

    while (texts[count] != NULL) bytes += strlen(texts[count++]) + 1;
    if ((options = malloc(count * sizeof *options + bytes + 1)) == NULL) return PD_NO_MEMORY;
    at = (char *)(options + count);
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(texts[i]) + 1;

        paramd__option__init(&options[i]);
        options[i].name = memcpy(at, texts[i], size);
        options[i].value = strchr(at, '=') + 1;
        options[i].value[-1] = '\0';
        at += size;
    }
    *out = options;
    *n = count;
    return PD_OK;
}

/* Returns a Hello without options. Notes in core->recovery.rejoins whether this Hello only asks to join a job that
 * exists. The Hello's pointers refer to memory of the core. */
static Paramd__HelloRequest make_hello(pd_core *core)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.job = core->setup.job;
    hello.rank = core->setup.rank;
    hello.any_rank = core->setup.any_rank;
    hello.group = core->setup.group;
    hello.generation = core->setup.generation;
    hello.world_size = core->setup.world_size;
    hello.nonce = core->setup.nonce;
    hello.rejoins = core->recovery.rejoins = pd_core_recreates(core) ? core->setup.rank != 0 : pd_core_has_begun(core);
    hello.creator = core->recovery.rejoins && !pd_core_recreates(core) ? core->recovery.creator : 0;
    hello.run = core->setup.run;
    hello.resume = (uint32_t)core->setup.resume;
    hello.joins = core->setup.joins && !core->recovery.recreated;
    hello.label = core->setup.label;
    hello.shares = pd_sharing_wanted(core);
    hello.window = core->window.steps;
    hello.shard = core->setup.shards > 1 ? core->setup.shard : 0;
    hello.shards = core->setup.shards > 1 ? core->setup.shards : 0;
    hello.cluster = core->setup.cluster;
    hello.tenure = core->following.tenure;
    hello.follows = core->following.table != NULL;
    hello.barriers = PD_MUTANT(barriers_forgotten) ? 0 : core->progress.passed;
    /* A step of which this process has seen one parameter must be repeated as it was. */
    hello.steps = core->open_sets ? pd_core_highest_step(core, 0) : pd_core_steps_seen(core);
    if (hello.steps == UINT64_MAX) hello.steps = 0;
    hello.course = core->recovery.course;
    hello.remarks = true;
    hello.rules = core->setup.rules;
    while (hello.rules[hello.n_rules] != NULL) hello.n_rules++;
    return hello;
}

/* Returns how many steps of fragment 1, 2 ... this process has seen closed, *n numbers in new memory. NULL: out of
 * memory. */
static uint64_t *fragment_steps(const pd_core *core, size_t *n)
{
    uint64_t *steps = calloc(core->n_fragments + 1, sizeof *steps);

    *n = core->open_sets && core->n_fragments > 1 ? core->n_fragments - 1 : 0;
    for (size_t i = 0; steps != NULL && i < *n; i++) steps[i] = pd_core_highest_step(core, (uint32_t)i + 1);
    return steps;
}

int pd_core_send_hello(pd_core *core)
{
    Paramd__HelloRequest hello = make_hello(core);
    Paramd__Option *options, **pointers;
    uint64_t *seen = fragment_steps(core, &hello.n_fragment_steps);
    size_t n;
    int rc = split_options(core->setup.options, &options, &n);

    if (rc != PD_OK) {
        free(seen);
        return rc;
    }
    pointers = malloc((n + 1) * sizeof *pointers);
    for (size_t i = 0; pointers != NULL && i < n; i++) pointers[i] = &options[i];
    hello.options = pointers;
    hello.n_options = n;
    hello.fragment_steps = seen;
    rc = pointers != NULL && seen != NULL ? pd_core_post(core, PD_HELLO, &hello.base, PD_QUEUE_CONNECTION, NULL)
                                          : PD_NO_MEMORY;
    free(pointers);
    free(options);
    free(seen);
    return rc;
}

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

void pd_core_forget_params(pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        void *buffer = core->params[i].buffer;
        if (!pd_segment_has(&core->out.staging.segment, buffer, 1)) free(buffer);
        free(core->params[i].spare);
        pd_param_record_free(&core->params[i]);
    }
    pd_staging_free(&core->out.staging);
    free(core->params);
    free(core->progress.pushing);
    core->params = NULL;
    core->progress.pushing = NULL;
    core->n_params = core->n_declared = 0;
    core->n_fragments = 0;
}

static int know_range(pd_param_record *record, const pd_client_param *param, int64_t elements, pd_error *err)
{
    record->ranged = param->ranged;
    record->start = param->ranged ? param->start : 0;
    record->end = param->ranged ? param->end : elements;
    if (!param->ranged && (param->start != 0 || param->end != 0))
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: start and end need `ranged`", param->name);
    if (record->start < 0 || record->start > record->end || record->end > elements)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: range of elements %lld to %lld: expected 0 <= start <= "
                       "end <= %lld, the elements it has",
                       param->name, (long long)record->start, (long long)record->end, (long long)elements);
    return PD_OK;
}

static int know_texts(pd_param_record *record, const pd_client_param *param, pd_error *err)
{
    bool has_axes = param->axes != NULL && param->axes[0] != '\0';

    record->name = strdup(param->name);
    if (record->name != NULL && has_axes) record->axes = strdup(param->axes);
    if (record->name != NULL && (record->axes != NULL || !has_axes)) return PD_OK;
    pd_param_record_free(record);
    return no_memory(err);
}

static int know_shape(const pd_client_param *param, int64_t *elements, pd_error *err)
{
    char shape[192];

    if (param->shape.rank < 0 || param->shape.rank > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: expected rank 0 to %d, got %d", param->name,
                       PD_MAX_RANK, param->shape.rank);
    if (pd_shape_elements(&param->shape, elements) == PD_OK) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "parameter %.160s: expected dimensions from 0 and fewer than 2^60 "
                   "elements, got shape %s",
                   param->name, pd_shape_text(&param->shape, shape, sizeof shape));
}

enum { MOST_FRAGMENTS = 256 }; /* most fragments of a job, as the server allows them */

static int know(pd_param_record *record, const pd_client_param *param, pd_error *err)
{
    size_t length = param->name != NULL ? strlen(param->name) : 0;
    int64_t elements;
    pd_error why;

    if (length == 0 || length > 256)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a parameter's name has %zu bytes: expected 1 to 256", length);
    if (know_shape(param, &elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (param->axes != NULL && pd_axes_check(param->axes, param->shape.rank, &why) != PD_OK)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: axes: %.300s", param->name, why.text);
    if (know_range(record, param, elements, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (param->fragment >= MOST_FRAGMENTS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: fragment %u: expected 0 to %d", param->name,
                       param->fragment, MOST_FRAGMENTS - 1);
    record->shape = param->shape;
    record->model_state = param->model_state;
    record->fragment = param->fragment;
    record->push = param->push_dtype != 0 ? param->push_dtype : PD_F32;
    record->pull = param->pull_dtype != 0 ? param->pull_dtype : PD_F32;
    record->update = param->update_dtype;
    if (record->update != 0 && (pd_dtype_size(record->update) == 0 || record->pull != PD_F32))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: updates of type %d with weights of type %d: "
                       "with updates, weights must be float32",
                       param->name, (int)record->update, (int)record->pull);
    if (pd_dtype_is_quantized(record->push) && record->model_state)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: model state is pushed as float32, float16 or bfloat16, not as %s", param->name,
                       pd_dtype_name(record->push));
    if (pd_dtype_is_quantized(record->pull))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %s: weights are float32, float16 or bfloat16, not %s: only pushes may be quantized",
                       param->name, pd_dtype_name(record->pull));
    if (pd_dtype_bytes(record->push, 1) == 0 || pd_dtype_size(record->pull) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %s: unknown element type %d", param->name,
                       pd_dtype_bytes(record->push, 1) == 0 ? (int)record->push : (int)record->pull);
    return PD_OK;
}

/* Allocates what the record of a checked parameter needs. In a cluster the memory of feedback comes later, where it is
 * known which server has the parameter (portion_records.c). */
static int remember(pd_core *core, pd_param_record *record, const pd_client_param *param, pd_error *err)
{
    if (know_texts(record, param, err) != PD_OK) return PD_NO_MEMORY;
    if (core->setup.shards > 1 || !pd_dtype_is_quantized(record->push) || pd_feedback_make(core, record) == PD_OK)
        return PD_OK;
    pd_param_record_free(record);
    return no_memory(err);
}

/* The contents of one Declare frame: for each of its parameters an entry, and the sizes of its dimensions. */
typedef struct pd_page {
    Paramd__Parameter param[MAX_PIECES], *params[MAX_PIECES];
    uint64_t dims[MAX_PIECES][PD_MAX_RANK];
} pd_page;

/* Fills a page with the parameters from index `first` on, as many as fit into the header of a frame. Returns their
 * number. */
static size_t fill_page(const pd_core *core, size_t first, pd_page *page)
{
    size_t bytes = 0, n = 0;

    for (; first + n < core->n_declared && n < MAX_PIECES; n++) {
        const pd_param_record *record = &core->params[first + n];
        Paramd__Parameter *param = &page->param[n];

        paramd__parameter__init(param);
        param->name = record->name;
        param->shape = page->dims[n];
        param->n_shape = (size_t)record->shape.rank;
        for (int i = 0; i < record->shape.rank; i++) page->dims[n][i] = (uint64_t)record->shape.dim[i];
        param->pull_dtype = record->pull;
        param->update_dtype = record->update;
        param->push_dtype = pd_dtype_is_quantized(record->push) ? record->push : 0;
        if (record->axes != NULL) param->axes = record->axes;
        param->model_state = record->model_state;
        param->fragment = record->fragment;
        param->ranged = record->ranged;
        param->range_start = record->ranged ? (uint64_t)record->start : 0;
        param->range_end = record->ranged ? (uint64_t)record->end : 0;
        page->params[n] = param;
        bytes += protobuf_c_message_get_packed_size(&param->base) + 4;
        if (bytes > PD_MAX_HEADER_BYTES - FORM_BOUND) break;
    }
    return n;
}

/* Sends the declarations of all parameters on a new connection. Returns PD_NO_MEMORY if out of memory. */
static int send_declare(pd_core *core)
{
    pd_page *page = malloc(sizeof *page);
    int rc = page != NULL ? PD_OK : PD_NO_MEMORY;

    core->link.stage = STAGE_DECLARING;
    core->declares_waiting = 0;
    if (!core->declared) pd_portions_forget(core);
    for (size_t first = 0, n; rc == PD_OK && first < core->n_declared; first += n) {
        Paramd__DeclareRequest request = PARAMD__DECLARE_REQUEST__INIT;
        pd_outgoing_frame *frame;

        n = fill_page(core, first, page);
        request.parameters = page->params;
        request.n_parameters = n;
        request.last = first + n == core->n_declared;
        request.wants = request.last ? pd_leased_wants(core) : 0;
        rc = pd_core_post(core, PD_DECLARE, &request.base, PD_QUEUE_CONNECTION, NULL);
        if (rc != PD_OK) break;
        frame = pd_outgoing_find(&core->out, core->calls.last_id);
        frame->first = first;
        frame->count = n;
        core->declares_waiting++;
    }
    free(page);
    return rc;
}

uint64_t pd_core_lowest_step(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (!core->params[i].elsewhere && core->params[i].step < step) step = core->params[i].step;
    return step < UINT64_MAX ? step : 0;
}

static int know_fragments(pd_core *core, pd_error *err)
{
    core->n_fragments = 1;
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].fragment >= core->n_fragments) core->n_fragments = core->params[i].fragment + 1;
    core->progress.pushing = calloc(core->n_fragments, sizeof *core->progress.pushing);
    return core->progress.pushing != NULL ? PD_OK : no_memory(err);
}

int pd_core_declare(pd_core *core, const pd_client_param *params, size_t n, pd_ticket_id *ticket, pd_error *err)
{
    pd_op *op;
    int rc;

    if (core->params != NULL) return pd_fail(err, PD_FAILED_PRECONDITION, "the parameters are already declared");
    if (core->setup.job[0] == '\0')
        return pd_fail(err, PD_FAILED_PRECONDITION, "an operator's connection cannot declare parameters");
    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no parameters to declare");
    if ((rc = pd_op_begin(core, PD_DECLARE, &op, err)) != PD_OK) return rc;
    if ((core->params = calloc(n, sizeof *core->params)) == NULL) rc = no_memory(err);
    for (; rc == PD_OK && core->n_params < n; core->n_params++)
        if ((rc = know(&core->params[core->n_params], &params[core->n_params], err)) != PD_OK ||
            (rc = remember(core, &core->params[core->n_params], &params[core->n_params], err)) != PD_OK)
            break;
    for (size_t i = 0; i < core->n_params; i++) core->params[i].declared = i;
    core->n_declared = core->n_params;
    if (rc == PD_OK) rc = know_fragments(core, err);
    if (rc != PD_OK) {
        pd_core_forget_params(core);
        pd_op_free(core, op);
        return rc;
    }
    core->declare_ticket = *ticket = op->id;
    if (core->link.stage == STAGE_WELCOMED && send_declare(core) != PD_OK) pd_core_drop(core, "out of memory");
    return PD_OK;
}

#define HELD_NS (PD_HELD_SECONDS * UINT64_C(1000000000))

/* Returns whether to connect again after the server refused Hello with this error. Before the first welcome: only if
 * the server is unavailable, for example because it is shutting down. Later also if the server is full, has failed or
 * timed out. */
static bool worth_waiting(const pd_core *core, int code)
{
    if (code == PD_UNAVAILABLE) return true;
    return core->greeted &&
           (code == PD_RESOURCE_EXHAUSTED || code == PD_INTERNAL || code == PD_UNKNOWN || code == PD_DEADLINE_EXCEEDED);
}

/* Returns whether to connect again although another process has the rank. Over a network its machine may be dead, which
 * the server finds out after its heartbeat_timeout. A process on the server's machine is known to live. */
static bool may_be_dead(pd_core *core, int code)
{
    if (code != PD_ALREADY_EXISTS || core->setup.impatient || core->sharing.possible) return false;
    if (core->link.held_ns == 0) core->link.held_ns = core->link.received_ns;
    return core->link.received_ns - core->link.held_ns < HELD_NS;
}

/* Handles the server's error "no such job", which comes after a reconnect. While this process restarts a lost job, it
 * tries again: rank 0 may not have created the job yet. Otherwise the job is lost, and the client handle ends. */
static void no_job(pd_core *core)
{
    char reason[PD_ERROR_TEXT];

    snprintf(reason, sizeof reason, "the server has no job %.200s yet: rank 0 creates it again with " PD_RESTART_CALL,
             core->setup.job);
    if (pd_core_recreates(core))
        pd_core_drop(core, reason);
    else
        pd_core_lose_job(core);
}

int pd_welcome_refused(pd_core *core, const pd_error *error)
{
    if (error->code == PD_NOT_FOUND && core->recovery.rejoins)
        no_job(core);
    else if (worth_waiting(core, error->code) || may_be_dead(core, error->code))
        pd_core_drop(core, error->text);
    else if (!pd_core_loses_rank(core, error))
        pd_core_end(core, error);
    core->link.refused = true;
    return PD_OK;
}

static int settle(pd_core *core, pd_ticket_id ticket, const pd_error *error)
{
    pd_op *op = pd_op_find(core, ticket);

    if (op == NULL || op->done) return PD_OK;
    if (error != NULL) pd_op_fail(op, error);
    op->done = true;
    return PD_OK;
}

static void note_welcome(pd_core *core, const Paramd__HelloReply *reply)
{
    pd_welcome *welcome = &core->welcome;

    welcome->seed = reply->seed;
    welcome->created = reply->created;
    if (core->setup.any_rank) {
        core->recovery.moved = core->recovery.moved || (core->greeted && core->setup.rank != reply->rank);
        core->setup.rank = reply->rank;
    }
    welcome->rank = (int)core->setup.rank;
    welcome->slots = (int)reply->slots;
    welcome->epoch = reply->epoch;
    welcome->generation = reply->generation;
    core->recovery.welcome_course = reply->course;
    welcome->world_size = (int)core->setup.world_size;
    welcome->chunk_elements = reply->chunk_elements;
    welcome->max_payload = reply->max_payload;
    welcome->step = reply->step;
    welcome->linger = reply->linger_ms / 1000.0;
    strncpy(welcome->server, reply->server, sizeof welcome->server - 1);
    strncpy(welcome->blas_core, reply->blas_core, sizeof welcome->blas_core - 1);
    core->max_pieces = reply->max_pieces < MAX_PIECES ? reply->max_pieces : MAX_PIECES;
    core->recovery.creator = reply->creator;
    core->setup.cluster = reply->cluster;
    /* Nobody reads pushes any more that an earlier life of the job had: its daemon or the job has ended. */
    if (reply->life != core->life) pd_staging_reclaim(&core->out.staging, UINT64_MAX);
    core->life = reply->life;
    core->tenure = reply->tenure;
    core->greeted = true;
}

/* Checks that the server knows that it is one of several. An older one would make a job of its own. */
static int check_cluster(pd_core *core, const Paramd__HelloReply *reply)
{
    pd_error error;

    if (core->setup.shards == 1 || core->setup.job[0] == '\0' || reply->cluster != 0) return PD_OK;
    pd_fail(&error, PD_FAILED_PRECONDITION,
            "the server (%.60s) cannot be one of %u shards: it is older than this library. Update it, or give one "
            "server alone (PARAMD_URL)",
            reply->server, core->setup.shards);
    pd_core_end(core, &error);
    return PD_FAILED_PRECONDITION;
}

/* Checks the server's welcome. Queued frames were split with the first server's chunk size, so a server with another
 * chunk size is refused. */
static int check_welcome(pd_core *core, const pd_prefix *prefix, const Paramd__HelloReply *reply)
{
    pd_error error;

    if (reply->protocol != PD_PROTOCOL_VERSION) {
        pd_fail(&error, PD_FAILED_PRECONDITION, "the server uses protocol version %u, this library %d", reply->protocol,
                PD_PROTOCOL_VERSION);
        pd_core_end(core, &error);
        return PD_FAILED_PRECONDITION;
    }
    if (core->setup.job[0] != '\0' &&
        (reply->chunk_elements == 0 || reply->chunk_elements > INT64_MAX / 8 || reply->max_pieces == 0))
        return pd_reply_broken(core, prefix, "it has no chunk size");
    if (core->setup.any_rank && reply->slots == 0) {
        pd_fail(&error, PD_FAILED_PRECONDITION,
                "the server (%.60s) cannot choose a rank: it is older than this library. Give a rank, or update it",
                reply->server);
        pd_core_end(core, &error);
        return PD_FAILED_PRECONDITION;
    }
    if (check_cluster(core, reply) != PD_OK) return PD_FAILED_PRECONDITION;
    if (!core->greeted || core->recovery.recreating || reply->chunk_elements == core->welcome.chunk_elements)
        return PD_OK;
    pd_fail(&error, PD_FAILED_PRECONDITION,
            "the server now has chunks of %" PRIu64 " elements, earlier "
            "%" PRIu64,
            reply->chunk_elements, core->welcome.chunk_elements);
    pd_core_end(core, &error);
    return PD_FAILED_PRECONDITION;
}

/* Returns whether the server's job is not the one in which this process was, but another job of the same name. */
static bool is_another_job(const pd_core *core, const Paramd__HelloReply *reply)
{
    return core->recovery.rejoins && !pd_core_recreates(core) && core->recovery.creator != 0 &&
           reply->creator != core->recovery.creator;
}

int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    void *unpacked;
    const Paramd__HelloReply *reply;
    int rc = pd_reply_take(core, prefix, header, &unpacked);

    if (rc != PD_OK) return rc;
    reply = unpacked;
    if (!pd_follow_welcome(core, reply)) return PD_OK;
    if (is_another_job(core, reply)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if ((rc = check_welcome(core, prefix, reply)) != PD_OK) return rc;
    note_welcome(core, reply);
    core->link.welcomed = true;
    core->link.refused = false;
    core->link.held_ns = 0;
    core->link.reason[0] = '\0';
    if (reply->heartbeat_ms > 0) core->link.heartbeat_ns = reply->heartbeat_ms * UINT64_C(1000000);
    if (reply->timeout_ms > 0) core->link.timeout_ns = reply->timeout_ms * UINT64_C(1000000);
    core->link.stage = STAGE_WELCOMED;
    settle(core, core->welcome_ticket, NULL);
    if (core->params != NULL && send_declare(core) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    core->out.open = core->params == NULL;
    return PD_OK;
}

/* Handles a refused Declare. If the server has never accepted the parameters, the user's call ends, and the user may
 * declare again on a new connection. A refusal after a reconnect ends the client handle. */
int pd_declare_refused(pd_core *core, const pd_error *error)
{
    if (core->declared) return pd_welcome_refused(core, error);
    if (error->code == PD_UNAVAILABLE) {
        pd_core_drop(core, error->text);
        return PD_OK;
    }
    settle(core, core->declare_ticket, error);
    pd_core_forget_params(core);
    pd_core_drop(core, error->text);
    return PD_OK;
}

void pd_core_withdraw(pd_core *core, const pd_error *error)
{
    uint8_t *reply;
    size_t bytes;

    if (core->params == NULL) return;
    settle(core, core->declare_ticket, error);
    pd_core_finish(core, core->declare_ticket, &reply, &bytes, NULL);
    pd_core_forget_params(core);
    core->declared = core->must_init = false;
    pd_core_drop(core, error->text);
}

static bool all_initialised(const pd_core *core, const pd_outgoing_frame *frame)
{
    for (size_t i = 0; i < frame->n_pieces; i++)
        if (!core->params[frame->op->items[frame->pieces[i].item].param].initialised) return false;
    return true;
}

/* After a reconnect, takes the frames with initial weights that the server already has out of the queue: the server
 * would refuse them now. The last connection broke before their answers arrived. */
static void retire_initialised(pd_core *core)
{
    for (pd_outgoing_frame *frame = core->out.queue[PD_QUEUE_LASTING].first, *next; frame != NULL; frame = next) {
        pd_op *op = frame->op;

        next = frame->next;
        if (op == NULL || frame->answered || frame->method != PD_INIT || op->replaces != 0 ||
            !all_initialised(core, frame))
            continue;
        pd_op_retire(core, frame);
    }
}

/* Keeps for each parameter the optimizer's first note. Notes in answers after a reconnect don't replace it, as the user
 * may keep a pointer to it. */
static int keep_notes(const pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        pd_param_record *record = &core->params[first + i];
        const char *note = reply->parameters[i]->note;
        if (record->note == NULL && note[0] != '\0' && (record->note = strdup(note)) == NULL) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static void note_param(pd_core *core, pd_param_record *record, const Paramd__Declared *told)
{
    if (record->elsewhere) return;
    core->recovery.went_back = core->recovery.went_back || told->step < record->server_step;
    record->server_step = told->step;
    record->server_replaces = told->replaces;
    record->missing = !told->initialised;
}

/* Returns the step from which on all steps up to the durable one are within reach, if the server's WAL has steps. */
static uint64_t unbroken_from(const Paramd__DeclareReply *reply)
{
    bool ended = reply->last > 0 && reply->last < reply->durable_step;

    return ended || reply->first > reply->durable_step ? reply->durable_step : reply->first;
}

static void note_declared(pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        pd_param_record *record = &core->params[first + i];
        note_param(core, record, reply->parameters[i]);
        for (size_t k = 0; k < record->n_portions; k++)
            note_param(core, &core->params[record->portion + k], reply->parameters[i]);
    }
    core->progress.durable = reply->durable_step;
    core->progress.mirrored = reply->mirrored;
    /* In a new life, checkpoints of steps that were durable may be gone: those that are left are in the answer. */
    if (core->progress.life != core->life) core->progress.n_reported = 0;
    core->progress.life = core->life;
    core->n_kept = reply->n_kept < PD_KEPT_STEPS ? reply->n_kept : PD_KEPT_STEPS;
    for (size_t i = 0; i < core->n_kept; i++) core->kept[i] = reply->kept[i];
    core->durable = core->n_kept > 0 && core->kept[0] > reply->durable_step ? core->kept[0] : reply->durable_step;
    core->replays = reply->replays;
    core->first = reply->first;
    core->last = reply->last;
    core->progress.unbroken = unbroken_from(reply);
    core->fresh = reply->fresh;
    core->settles = reply->settles;
    core->must_init = reply->must_init;
    core->averages_init = reply->averages_init;
    core->sends_whole = reply->sends_whole;
    core->open_sets = reply->open_sets;
}

/* Takes over what the server has reported about the parameters. If the server has gone back and the window has the
 * pushes that it lacks, the steps that this process has seen (pd_param_record.step) stay as they are. */
static void go_on(pd_core *core)
{
    bool anew = pd_core_begins_anew(core);

    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];
        if (record->elsewhere) continue;
        if (anew || record->step < record->server_step) record->step = record->server_step;
        if (anew) pd_window_begin(record);
        if (anew) pd_replace_begin(record);
        record->initialised = !record->missing;
    }
    if (anew) core->recovery.course = core->recovery.welcome_course;
    core->declared = true;
    core->recovery.recreating = core->recovery.rewinding = false;
    core->link.stage = STAGE_RUNNING;
}

/* Begins or continues to resend the window's frames if the server has gone back. Else prepares the frames that are
 * queued for this connection. */
static int prepare_frames(pd_core *core)
{
    int rc;

    /* After the server has gone back, its weights should be those in the caller's buffers. But only answers to a
     * push_pull prove it, so the server must send whole weights, not updates. */
    for (size_t i = 0; core->recovery.went_back && i < core->n_params; i++) pd_core_forget_versions(&core->params[i]);
    if (pd_replace_again(core) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_NO_MEMORY;
    }
    if (core->recovery.resending || pd_core_is_behind(core) || pd_resend_is_needed(core))
        rc = pd_resend_begin(core);
    else
        rc = pd_restamp_all(core, core->recovery.went_back);
    if (rc != PD_OK) {
        pd_core_drop(core, "out of memory");
        return rc;
    }
    core->stats.rewinds += core->recovery.went_back;
    core->recovery.went_back = false;
    return PD_OK;
}

/* Takes over the leases that the server has reported. If it is behind and repeats the steps that this process has seen,
 * those that the last answer brought will be this worker's again. Returns false if the server leases nothing yet to a
 * worker that begins. */
static bool take_leases(pd_core *core, const Paramd__DeclareReply *reply)
{
    bool anew = pd_core_begins_anew(core);

    if (anew || !pd_core_is_behind(core)) pd_leased_declared(core, reply->leases, reply->n_leases, reply->least_unused);
    return !anew || !core->open_sets || pd_leased_wants(core) == 0 || reply->n_leases > 0;
}

/* Compares the server's job with the one that this process knows, once the server has accepted all parameters. `reply`:
 * the last answer to Declare. */
static int all_declared(pd_core *core, const Paramd__DeclareReply *reply)
{
    if (pd_core_lacks_weights(core)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if (!pd_core_begins_anew(core) && pd_core_left_course(core, core->recovery.welcome_course)) return PD_OK;
    if (core->setup.shards > 1 && !reply->open_sets && !pd_core_begins_anew(core) && pd_core_is_ahead(core)) {
        pd_core_send_back(core);
        return PD_OK;
    }
    if (pd_core_begins_anew(core))
        core->recovery.moved = false;
    else if (pd_core_gives_up(core, reply))
        return PD_OK;
    if (!core->recovery.rewinding && !pd_core_is_new(core) && pd_core_is_behind(core) && !pd_core_window_helps(core))
        return PD_OK;
    if (PD_MUTANT(private_rewind_resends_to_all) && !core->recovery.rewinding && pd_core_is_behind(core))
        pd_core_send_back(core);
    if (!take_leases(core, reply)) {
        pd_core_drop(core, "the server repeats steps from before its restart, and leases no shares before it is done");
        return PD_OK;
    }
    go_on(core);
    pd_relay_declared(core, reply->settles);
    retire_initialised(core);
    if (prepare_frames(core) != PD_OK) return PD_OK;
    pd_core_give(core);
    /* Steps that became durable leave the window only now: prepare_frames has marked the frames that must be sent
     * again, and these stay. */
    pd_window_trim(core);
    if (!pd_relay_holds(core)) core->out.open = !pd_sharing_begin(core);
    return settle(core, core->declare_ticket, NULL);
}

int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header)
{
    Paramd__DeclareReply *reply;
    void *message;
    int rc = pd_reply_take(core, prefix, header, &message);

    if (rc != PD_OK) return rc;
    reply = message;
    if (reply->n_parameters != count)
        return pd_reply_broken(core, prefix, "the number of entries differs from the number of parameters");
    if (core->setup.shards > 1 && (rc = pd_portions_take(core, first, reply, prefix)) == PD_INTERNAL) return rc;
    if (rc != PD_OK) return PD_OK;
    if (keep_notes(core, first, reply) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    note_declared(core, first, reply);
    return --core->declares_waiting == 0 ? all_declared(core, reply) : PD_OK;
}
