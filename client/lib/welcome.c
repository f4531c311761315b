/* welcome.c - handles the answers to Hello and Declare. They make the
 * connection usable, or end the client handle. */
#include "welcome.h"

#include "core.h"
#include "core_end.h"
#include "declared_params.h"
#include "op.h"
#include "reply.h"
#include "renew.h"
#include "replace.h"
#include "replaced.h"
#include "resend.h"
#include "restart.h"
#include "rewind.h"
#include "sharing.h"
#include "window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_NS (PD_HELD_SECONDS * UINT64_C(1000000000))

/* ---- Hello ---- */

/* Returns whether to connect again after the server refused Hello with this error. Before the first welcome: only
 * if the server is unavailable, for example because it is shutting down. Later also if the server is full, has
 * failed or timed out. */
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
    if (code != PD_ALREADY_EXISTS || core->impatient || core->sharing.possible) return false;
    if (core->held_ns == 0) core->held_ns = core->received_ns;
    return core->received_ns - core->held_ns < HELD_NS;
}

/* Handles the server's error "no such job", which comes after a reconnect. While this process restarts a lost job, it
 * tries again: rank 0 may not have created the job yet. Otherwise the job is lost, and the client handle (the user's
 * pd_client) ends. */
static void no_job(pd_core *core)
{
    char reason[PD_ERROR_TEXT];

    snprintf(reason, sizeof reason, "the server has no job %.200s yet: rank 0 starts it anew with " PD_RESTART_CALL,
             core->job);
    if (pd_core_begins_anew(core))
        pd_core_drop(core, reason);
    else
        pd_core_lose_job(core);
}

int pd_welcome_refused(pd_core *core, const pd_error *error)
{
    if (error->code == PD_NOT_FOUND && core->rejoins)
        no_job(core);
    else if (worth_waiting(core, error->code) || may_be_dead(core, error->code))
        pd_core_drop(core, error->text);
    else
        pd_core_end(core, error);
    core->refused = true;
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
    welcome->rank = (int)core->rank;
    welcome->world_size = (int)core->world_size;
    welcome->chunk_elements = reply->chunk_elements;
    welcome->max_payload = reply->max_payload;
    welcome->step = reply->step;
    welcome->linger = reply->linger_ms / 1000.0;
    strncpy(welcome->server, reply->server, sizeof welcome->server - 1);
    strncpy(welcome->blas_core, reply->blas_core, sizeof welcome->blas_core - 1);
    core->max_pieces = reply->max_pieces < MAX_PIECES ? reply->max_pieces : MAX_PIECES;
    core->creator = reply->creator;
    core->greeted = true;
}

/* Checks the server's welcome (its answer to Hello). Queued frames were split with the first server's chunk size,
 * so a server with another chunk size is refused. */
static int check_welcome(pd_core *core, const pd_prefix *prefix, const Paramd__HelloReply *reply)
{
    pd_error error;

    if (reply->protocol != PD_PROTOCOL_VERSION) {
        pd_fail(&error, PD_FAILED_PRECONDITION, "the server speaks protocol version %u, this library %d",
                reply->protocol, PD_PROTOCOL_VERSION);
        pd_core_end(core, &error);
        return PD_FAILED_PRECONDITION;
    }
    if (core->job[0] != '\0' &&
        (reply->chunk_elements == 0 || reply->chunk_elements > INT64_MAX / 8 || reply->max_pieces == 0))
        return pd_reply_broken(core, prefix, "it gives no chunk size");
    if (!core->greeted || core->restarting || reply->chunk_elements == core->welcome.chunk_elements) return PD_OK;
    pd_fail(&error, PD_FAILED_PRECONDITION,
            "the server came back with chunks of %" PRIu64 " elements, before they had "
            "%" PRIu64,
            reply->chunk_elements, core->welcome.chunk_elements);
    pd_core_end(core, &error);
    return PD_FAILED_PRECONDITION;
}

/* Returns whether the server's job is another one of the same name than the one in which this process was. */
static bool is_another_job(const pd_core *core, const Paramd__HelloReply *reply)
{
    return core->rejoins && !pd_core_begins_anew(core) && core->creator != 0 && reply->creator != core->creator;
}

int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    void *unpacked;
    const Paramd__HelloReply *reply;
    int rc = pd_reply_take(core, prefix, header, &unpacked);

    if (rc != PD_OK) return rc;
    reply = unpacked;
    if (is_another_job(core, reply)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if ((rc = check_welcome(core, prefix, reply)) != PD_OK) return rc;
    note_welcome(core, reply);
    core->welcomed = true;
    core->refused = false;
    core->held_ns = 0;
    core->reason[0] = '\0';
    if (reply->heartbeat_ms > 0) core->heartbeat_ns = reply->heartbeat_ms * UINT64_C(1000000);
    if (reply->timeout_ms > 0) core->timeout_ns = reply->timeout_ms * UINT64_C(1000000);
    core->stage = STAGE_WELCOMED;
    settle(core, core->welcome_ticket, NULL);
    if (core->params != NULL && pd_core_send_declare(core) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    core->out.open = core->params == NULL;
    return PD_OK;
}

/* ---- Declare ---- */

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

static bool all_initialised(const pd_core *core, const pd_outgoing_frame *frame)
{
    for (size_t i = 0; i < frame->n_parts; i++)
        if (!core->params[frame->op->items[frame->parts[i].item].param].initialised) return false;
    return true;
}

/* After a reconnect, takes the frames with initial weights that the server already has out of the queue: the server
 * would refuse them now. The last connection broke before their answers arrived. */
static void retire_initialised(pd_core *core)
{
    for (pd_outgoing_frame *frame = core->out.lane[PD_LANE_LASTING].first, *next; frame != NULL; frame = next) {
        pd_op *op = frame->op;

        next = frame->next;
        if (op == NULL || frame->answered || frame->method != PD_INIT || op->replaces != 0 ||
            !all_initialised(core, frame))
            continue;
        pd_op_retire(core, frame);
    }
}

/* Keeps for each parameter the optimizer's first note (a text for the user). Notes in answers after a reconnect
 * don't replace it, as the user may keep a pointer to it. */
static int keep_notes(const pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        pd_param_record *known = &core->params[first + i];
        const char *note = reply->parameters[i]->note;
        if (known->note == NULL && note[0] != '\0' && (known->note = strdup(note)) == NULL) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static void note_declared(pd_core *core, size_t first, const Paramd__DeclareReply *reply)
{
    for (size_t i = 0; i < reply->n_parameters; i++) {
        pd_param_record *known = &core->params[first + i];
        core->went_back = core->went_back || reply->parameters[i]->step < known->there;
        known->there = reply->parameters[i]->step;
        known->there_replaces = reply->parameters[i]->replaces;
        known->missing = !reply->parameters[i]->initialised;
    }
    core->durable = reply->durable_step;
    core->must_init = reply->must_init;
    core->averages_init = reply->averages_init;
}

/* Takes over what the server has reported about the parameters. Their steps stay as they were if the server has gone
 * back and the window has what it lacks. */
static void go_on(pd_core *core)
{
    bool anew = !core->declared || pd_core_begins_anew(core) || core->rewinding;

    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *known = &core->params[i];
        if (anew || known->step < known->there) known->step = known->there;
        if (anew) pd_window_begin(known);
        if (anew) pd_replace_begin(known);
        known->initialised = !known->missing;
    }
    core->declared = true;
    core->restarting = core->rewinding = false;
    core->stage = STAGE_RUNNING;
}

/* Forgets which weights the caller has after the server has gone back. They are equal to those that the server makes
 * anew, but only pushes that also pull are compared. */
static void forget_versions(pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        free(core->params[i].holds);
        core->params[i].holds = NULL;
    }
}

/* Begins to send the window's frames again if the server has gone back, or goes on with that. Else prepares the frames
 * that are queued for this connection. */
static int prepare_frames(pd_core *core)
{
    int rc;

    if (core->went_back) forget_versions(core);
    if (pd_replace_again(core) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_NO_MEMORY;
    }
    if (core->resending || pd_core_is_behind(core) || pd_resend_is_needed(core))
        rc = pd_resend_begin(core);
    else
        rc = pd_renew_all(core, core->went_back);
    if (rc != PD_OK) {
        pd_core_drop(core, "out of memory");
        return rc;
    }
    core->stats.rewinds += core->went_back;
    core->went_back = false;
    return PD_OK;
}

/* Compares the server's job with the one that this process knows, once the server has accepted all parameters. */
static int all_declared(pd_core *core)
{
    if (pd_core_lacks_weights(core)) {
        pd_core_lose_job(core);
        return PD_OK;
    }
    if (!core->rewinding && pd_core_is_behind(core) && !pd_core_window_helps(core)) return PD_OK;
    go_on(core);
    retire_initialised(core);
    if (prepare_frames(core) != PD_OK) return PD_OK;
    /* Steps that became durable leave the window only now: prepare_frames has marked the frames that must be sent
     * again, and these stay. */
    pd_window_trim(core);
    core->out.open = !pd_sharing_begin(core);
    return settle(core, core->declare_ticket, NULL);
}

int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header)
{
    Paramd__DeclareReply *reply;
    void *message;
    int rc = pd_reply_take(core, prefix, header, &message);

    if (rc != PD_OK) return rc;
    reply = message;
    if (reply->n_parameters != count) return pd_reply_broken(core, prefix, "not one entry for each parameter");
    if (keep_notes(core, first, reply) != PD_OK) {
        pd_core_drop(core, "out of memory");
        return PD_OK;
    }
    note_declared(core, first, reply);
    return --core->declares_waiting == 0 ? all_declared(core) : PD_OK;
}
