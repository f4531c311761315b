/* client.c - the public functions of the client library. They run in the user's thread; the handle's I/O thread is
 * in io.c.
 *
 * "The core must be locked" says that a function may only be called between pd_io_enter and pd_io_leave. The core
 * is the client's protocol state machine. */
#include "paramd/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "call.h"
#include "declared_params.h"
#include "io.h"
#include "notice.h"
#include "operator.h"
#include "options.h"
#include "restart.h"
#include "sharing.h"
#include "sized.h"

#define NOTICE_SECONDS 2.0 /* a waiting call tells the user after so many seconds without a connection */

struct pd_client {
    pd_io io;
    pd_core *core; /* protocol state machine; used only while it is locked (pd_io_enter) */
    pd_address *urls;
    double deadline, slice;
    pd_notices notices;
    double alone; /* seconds that calls have waited since there was a connection */
    bool told;    /* the user knows that there is no connection */
    pd_welcome welcome;
    /* Tickets of calls that timed out; 0: none. When the user repeats such a call, it goes on waiting for its old
     * ticket. */
    pd_ticket_id join, declare, init, fetch, barrier, leave, restart;
    bool restarting; /* the user called pd_client_restart, and the job is not restarted yet */
};

/* ---- waiting ---- */

/* Fails with PD_DEADLINE_EXCEEDED: a call has waited for `seconds`. The error text says why it is not done. The
 * core (protocol state machine) must be locked. */
static int timed_out(const pd_client *client, double seconds, pd_error *err)
{
    const char *state = pd_core_running(client->core) ? "still under way" : "not connected now";
    const char *reason = pd_core_reason(client->core);

    if (reason[0] == '\0') return pd_fail(err, PD_DEADLINE_EXCEEDED, "waited %g s: %s", seconds, state);
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "waited %g s: %s (%s)", seconds, state, reason);
}

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void give_notice(pd_client *client, double seconds_left)
{
    char reason[PD_ERROR_TEXT], address[PD_ADDRESS_TEXT];

    snprintf(reason, sizeof reason, "%s", pd_core_reason(client->core));
    if (reason[0] == '\0')
        snprintf(reason, sizeof reason, "%s: no answer yet",
                 pd_address_text(&client->urls[pd_core_url(client->core)], address));
    pd_io_leave(&client->io);
    pd_notice_waiting(&client->notices, reason, seconds_left);
    pd_io_enter(&client->io);
}

/* Counts `seconds` in which a call has waited without a connection. After NOTICE_SECONDS of them tells the user, once
 * until there is a connection again. The core must be locked. */
static void count_alone(pd_client *client, double seconds)
{
    double left = client->deadline - (client->alone += seconds);

    if (client->told || client->alone < NOTICE_SECONDS || left <= 0) return;
    client->told = true;
    give_notice(client, left);
}

/* Waits until the call with this ticket is done, at most `seconds`. Notes whether there is a connection. The core must
 * be locked. */
static bool await_part(pd_client *client, pd_ticket_id ticket, double seconds)
{
    uint64_t connects = pd_core_stats(client->core).connects;
    bool connected = pd_core_running(client->core);
    double begin = now_seconds();
    bool done = pd_io_wait(&client->io, ticket, seconds);

    if (connected || pd_core_running(client->core) || pd_core_stats(client->core).connects != connects) {
        client->alone = 0;
        client->told = false;
    } else if (!done) {
        count_alone(client, now_seconds() - begin);
    }
    return done;
}

/* Waits until the call with this ticket is done. Returns false if it is not done after `seconds`. The core must be
 * locked. */
static bool await(pd_client *client, pd_ticket_id ticket, double seconds)
{
    double end = now_seconds() + seconds;

    for (double left = seconds; left > NOTICE_SECONDS; left = end - now_seconds())
        if (await_part(client, ticket, NOTICE_SECONDS)) return true;
    return await_part(client, ticket, end > now_seconds() ? end - now_seconds() : 0);
}

/* Waits until the call with this ticket is done, frees the ticket and returns the result of the call. The core (the
 * client's protocol state machine) must be locked. */
static int finish(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    uint8_t *reply;
    size_t bytes;
    int rc;

    if (!await(client, ticket, seconds)) return timed_out(client, seconds, err);
    rc = pd_core_finish(client->core, ticket, &reply, &bytes, err);
    free(reply);
    return rc;
}

/* Waits for the end of a call that blocks, such as pd_client_declare. If the time runs out, the ticket is kept, so that
 * the user can repeat the call and go on waiting. The core (the client's protocol state machine) must be locked. */
static int finish_call(pd_client *client, pd_ticket_id *ticket, pd_error *err)
{
    int rc;

    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (!await(client, *ticket, client->slice)) return timed_out(client, client->slice, err);
    rc = finish(client, *ticket, client->slice, err);
    *ticket = 0;
    return rc;
}

/* ---- life ---- */

int pd_client_join(pd_client *client, pd_error *err)
{
    bool joins;
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if ((joins = client->join != 0)) rc = finish_call(client, &client->join, err);
    if (joins && rc == PD_OK) client->welcome = *pd_core_welcome(client->core);
    pd_io_leave(&client->io);
    if (joins && rc == PD_OK) pd_notice_left_over(&client->notices, pd_core_job(client->core), &client->welcome);
    return rc;
}

/* Waits for the welcome until the deadline, as a part of pd_client_open. */
static int wait_for_welcome(pd_client *client, pd_error *err)
{
    double slice = client->slice;
    int rc;

    client->slice = client->deadline;
    rc = pd_client_join(client, err);
    client->slice = slice;
    if (client->join == 0) return rc;
    pd_io_enter(&client->io);
    rc = pd_fail(err, PD_UNAVAILABLE, "no server within %g s: %s", client->deadline, pd_core_reason(client->core));
    pd_io_leave(&client->io);
    return rc;
}

static int start(pd_client *client, const pd_client_options *options, pd_error *err)
{
    pd_settings settings;
    int rc = pd_settings_resolve(&settings, options, err);

    if (rc == PD_OK) rc = pd_addresses_parse(&client->urls, &settings.core.urls, settings.urls, PD_TO_CONNECT, err);
    if (rc == PD_OK) rc = pd_core_new(&client->core, &settings.core, err);
    client->deadline = settings.deadline;
    client->slice = settings.slice;
    client->notices = pd_notices_of(options);
    if (rc == PD_OK) client->join = pd_core_welcome_ticket(client->core);
    return rc == PD_OK ? pd_io_start(&client->io, client->core, client->urls, err) : rc;
}

static void dispose(pd_client *client)
{
    pd_core_free(client->core);
    free(client->urls);
    free(client);
}

static int open_handle(pd_client **out, const pd_client_options *options, pd_error *err)
{
    pd_client *client = calloc(1, sizeof *client);
    int rc;

    if (client == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if ((rc = start(client, options, err)) != PD_OK) {
        dispose(client);
        return rc;
    }
    if (!options->join_later && (rc = wait_for_welcome(client, err)) != PD_OK) {
        pd_client_close(client);
        return rc;
    }
    *out = client;
    return PD_OK;
}

int pd_client_open_sized(pd_client **out, const pd_client_options *options, size_t size, pd_error *err)
{
    pd_client_options all;
    int rc = pd_sized_read(&all, sizeof all, PD_LEAST_SIZE(pd_client_options, quiet), options, size,
                           "pd_client_options", err);

    return rc == PD_OK ? open_handle(out, &all, err) : rc;
}

void pd_client_close(pd_client *client)
{
    if (client == NULL) return;
    pd_io_stop(&client->io);
    dispose(client);
}

int pd_client_leave(pd_client *client, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->leave == 0) rc = pd_core_leave(client->core, &client->leave, err);
    if (rc == PD_OK) rc = finish_call(client, &client->leave, err);
    pd_io_leave(&client->io);
    return rc;
}

const pd_welcome *pd_client_welcome(const pd_client *client)
{
    return &client->welcome;
}

/* ---- the model ---- */

static int declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->declare == 0) rc = pd_core_declare(client->core, params, n, &client->declare, err);
    if (rc == PD_OK) rc = finish_call(client, &client->declare, err);
    pd_io_leave(&client->io);
    return rc;
}

/* Copies the caller's array of `n` pd_client_param structs. Each has `size` bytes: fewer than here if the caller was
 * compiled with an older header. */
static int read_params(pd_client_param *out, const void *params, size_t n, size_t size, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < n; i++)
        rc = pd_sized_read(&out[i], sizeof *out, PD_LEAST_SIZE(pd_client_param, model_state),
                           (const char *)params + i * size, size, "pd_client_param", err);
    return rc;
}

int pd_client_declare_sized(pd_client *client, const pd_client_param *params, size_t n, size_t size, pd_error *err)
{
    pd_client_param *all = calloc(n > 0 ? n : 1, sizeof *all);
    int rc = all != NULL ? read_params(all, params, n, size, err) : pd_fail(err, PD_NO_MEMORY, "out of memory");

    if (rc == PD_OK) rc = declare(client, all, n, err);
    free(all);
    return rc;
}

/* Locks the core (the client's protocol state machine) of a handle for a function that only reads it. The cast removes
 * the const, since taking the lock changes the handle. */
static pd_client *enter(const pd_client *client)
{
    pd_client *mutable = (pd_client *)client;
    pd_io_enter(&mutable->io);
    return mutable;
}

uint64_t pd_client_step(const pd_client *client, size_t param)
{
    pd_client *inside = enter(client);
    uint64_t step = pd_core_step(inside->core, param);
    pd_io_leave(&inside->io);
    return step;
}

const char *pd_client_note(const pd_client *client, size_t param)
{
    pd_client *inside = enter(client);
    const char *note = pd_core_note(inside->core, param);
    pd_io_leave(&inside->io);
    return note;
}

bool pd_client_must_init(const pd_client *client)
{
    pd_client *inside = enter(client);
    bool must = pd_core_must_init(inside->core);
    pd_io_leave(&inside->io);
    return must;
}

void *pd_client_buffer(pd_client *client, size_t param)
{
    void *buffer;

    pd_io_enter(&client->io);
    buffer = pd_core_buffer(client->core, param);
    pd_io_leave(&client->io);
    return buffer;
}

/* Sends the initial weights that this rank has to send, then pulls all weights. The core (the client's protocol state
 * machine) must be locked. */
static int init_and_fetch(pd_client *client, void *const *weights, pd_error *err)
{
    int rc = PD_OK;

    if (client->fetch == 0 && (client->init != 0 || pd_core_must_init(client->core))) {
        if (client->init == 0) rc = pd_core_init(client->core, weights, &client->init, err);
        if (rc == PD_OK) rc = finish_call(client, &client->init, err);
    }
    if (rc == PD_OK && client->fetch == 0) rc = pd_core_fetch(client->core, weights, &client->fetch, err);
    return rc == PD_OK ? finish_call(client, &client->fetch, err) : rc;
}

int pd_client_init(pd_client *client, void *const *weights, pd_error *err)
{
    int rc;

    pd_io_enter(&client->io);
    rc = init_and_fetch(client, weights, err);
    pd_io_leave(&client->io);
    return rc;
}

/* Forgets the tickets of calls that timed out. Nobody can wait for them any more: these calls ended when the server
 * lost the job. The core (the client's protocol state machine) must be locked. */
static void forget_calls(pd_client *client)
{
    pd_ticket_id *const tickets[] = { &client->declare, &client->init,  &client->fetch,
                                      &client->barrier, &client->leave, &client->restart };

    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++) {
        uint8_t *reply;
        size_t bytes;

        if (*tickets[i] != 0) pd_core_finish(client->core, *tickets[i], &reply, &bytes, NULL);
        *tickets[i] = 0;
    }
}

/* Begins to start the lost job anew, unless a call that timed out has begun it already. The core (protocol state
 * machine) must be locked. */
static int begin_restart(pd_client *client, pd_error *err)
{
    int rc;

    if (client->restarting && !pd_core_lost(client->core)) return PD_OK;
    if (pd_core_lost(client->core)) forget_calls(client);
    rc = pd_core_restart(client->core, &client->restart, err);
    client->restarting = rc == PD_OK;
    return rc;
}

int pd_client_restart(pd_client *client, void *const *weights, pd_error *err)
{
    int rc;

    pd_io_enter(&client->io);
    rc = begin_restart(client, err);
    if (rc == PD_OK && client->restart != 0) rc = finish_call(client, &client->restart, err);
    if (rc == PD_OK) {
        client->welcome = *pd_core_welcome(client->core);
        rc = init_and_fetch(client, weights, err);
    }
    if (rc == PD_OK) client->restarting = false;
    pd_io_leave(&client->io);
    return rc;
}

/* ---- steps ---- */

static int push(pd_client *client, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                size_t size, pd_ticket_id *ticket, pd_error *err)
{
    pd_push_options all = { 0 };
    int rc = options == NULL ? PD_OK
                             : pd_sized_read(&all, sizeof all, PD_LEAST_SIZE(pd_push_options, sparse), options, size,
                                             "pd_push_options", err);

    if (rc != PD_OK) return rc;
    pd_io_enter(&client->io);
    rc = pd_core_push(client->core, method, items, n, &all, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_push_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, size_t size,
                         pd_ticket_id *ticket, pd_error *err)
{
    return push(client, PD_PUSH, items, n, options, size, ticket, err);
}

int pd_client_push_pull_sized(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, size_t size,
                              pd_ticket_id *ticket, pd_error *err)
{
    return push(client, PD_PUSH_PULL, items, n, options, size, ticket, err);
}

int pd_client_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err)
{
    int rc;
    pd_io_enter(&client->io);
    rc = pd_core_close_step(client->core, step, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_ticket_id *ticket, pd_error *err)
{
    int rc;
    pd_io_enter(&client->io);
    rc = pd_core_pull(client->core, items, n, min_step, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    int rc;
    pd_io_enter(&client->io);
    rc = finish(client, ticket, seconds > 0 ? seconds : client->deadline, err);
    pd_io_leave(&client->io);
    return rc;
}

bool pd_client_ready(const pd_client *client, pd_ticket_id ticket)
{
    pd_client *inside = enter(client);
    bool done = pd_core_done(inside->core, ticket);
    pd_io_leave(&inside->io);
    return done;
}

int pd_client_fd(pd_client *client)
{
    int fd;

    pd_io_enter(&client->io);
    fd = pd_io_done_fd(&client->io);
    pd_io_leave(&client->io);
    return fd;
}

int pd_client_barrier(pd_client *client, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->barrier == 0) rc = pd_core_barrier(client->core, &client->barrier, err);
    if (rc == PD_OK) rc = finish_call(client, &client->barrier, err);
    pd_io_leave(&client->io);
    return rc;
}

void pd_client_count_sized(const pd_client *client, pd_client_stats *stats, size_t size)
{
    pd_client *inside = enter(client);
    pd_client_stats all = pd_core_stats(inside->core);

    pd_io_leave(&inside->io);
    memset(stats, 0, size);
    memcpy(stats, &all, size < sizeof all ? size : sizeof all);
}

/* ---- operators ---- */

/* An operator's request (paramctl): its method and message, the payload to send, and the buffer for the payload of
 * the answer. */
typedef struct order {
    unsigned method;
    const ProtobufCMessage *request;
    struct iovec payload, into;
} order;

/* Sends an operator's request and waits for the answer. The core (protocol state machine) must be locked. */
static int call(pd_client *client, const order *o, uint8_t **at, size_t *bytes, pd_error *err)
{
    pd_ticket_id ticket;
    int rc = pd_core_call(client->core, o->method, o->request, &o->payload, o->into.iov_len, &ticket, err);

    if (rc != PD_OK) return rc;
    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (pd_io_wait(&client->io, ticket, client->deadline)) return pd_core_finish(client->core, ticket, at, bytes, err);
    rc = timed_out(client, client->deadline, err);
    pd_core_give_up(client->core, ticket);
    return rc;
}

static int carry_out(pd_client *client, const order *o, pd_arena *arena, void **reply, pd_error *err)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    void *unpacked;
    int rc;

    pd_io_enter(&client->io);
    rc = call(client, o, &at, &bytes, err);
    pd_io_leave(&client->io);
    pd_arena_reset(arena);
    if (rc == PD_OK) rc = pd_reply_unpack(arena, o->method, at, bytes, reply != NULL ? reply : &unpacked, err);
    if (rc == PD_OK && o->into.iov_len > 0) memcpy(o->into.iov_base, at + bytes, o->into.iov_len);
    free(at);
    return rc;
}

int pd_client_call(pd_client *client, unsigned method, const ProtobufCMessage *request, pd_arena *arena, void **reply,
                   pd_error *err)
{
    return carry_out(client, &(order){ .method = method, .request = request }, arena, reply, err);
}

int pd_client_call_with(pd_client *client, unsigned method, const ProtobufCMessage *request, const void *payload,
                        size_t payload_bytes, pd_arena *arena, void **reply, pd_error *err)
{
    const order o = { .method = method, .request = request, .payload = { (void *)payload, payload_bytes } };

    return carry_out(client, &o, arena, reply, err);
}

int pd_client_call_into(pd_client *client, unsigned method, const ProtobufCMessage *request, void *into, size_t bytes,
                        pd_arena *arena, void **reply, pd_error *err)
{
    return carry_out(client, &(order){ .method = method, .request = request, .into = { into, bytes } }, arena, reply,
                     err);
}
