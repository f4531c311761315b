/* client.c - the public calls. User's thread; io.c has the other one.
 *
 * "Inside" means between pd_io_enter and pd_io_leave. */
#include "paramd/client.h"

#include <stdlib.h>

#include "call.h"
#include "declared_params.h"
#include "io.h"
#include "operator.h"
#include "options.h"
#include "restart.h"

struct pd_client {
    pd_io        io;
    pd_core     *core;                  /* used inside only */
    pd_url      *urls;
    double       deadline;
    pd_welcome   welcome;
    /* Tickets of calls that ran out of time: the next such call goes on waiting. 0: none. */
    pd_ticket_id declare, init, fetch, barrier, leave, restart;
    bool         restarting;            /* pd_client_restart has begun and has not ended */
};

/* ---- waiting ---- */

/* Inside. */
static int timed_out(const pd_client *client, double seconds, pd_error *err)
{
    const char *state = pd_core_running(client->core) ? "still under way" : "not connected now";
    const char *reason = pd_core_reason(client->core);

    if (reason[0] == '\0') return pd_fail(err, PD_DEADLINE_EXCEEDED, "waited %g s: %s", seconds, state);
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "waited %g s: %s (%s)", seconds, state, reason);
}

/* Waits for a ticket and ends it. Inside. */
static int finish(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    uint8_t *reply;
    size_t bytes;
    int rc;

    if (!pd_io_wait(&client->io, ticket, seconds)) return timed_out(client, seconds, err);
    rc = pd_core_finish(client->core, ticket, &reply, &bytes, err);
    free(reply);
    return rc;
}

/* Waits for the ticket of a call that waits. The ticket is kept if the time runs out. Inside. */
static int finish_call(pd_client *client, pd_ticket_id *ticket, pd_error *err)
{
    int rc;

    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (!pd_io_wait(&client->io, *ticket, client->deadline)) return timed_out(client, client->deadline, err);
    rc = finish(client, *ticket, client->deadline, err);
    *ticket = 0;
    return rc;
}

/* ---- life ---- */

static int wait_for_welcome(pd_client *client, pd_error *err)
{
    pd_ticket_id ticket = pd_core_welcome_ticket(client->core);
    int rc;

    pd_io_enter(&client->io);
    if (pd_io_wait(&client->io, ticket, client->deadline)) {
        rc = finish(client, ticket, client->deadline, err);
        client->welcome = *pd_core_welcome(client->core);
    } else {
        rc = pd_fail(err, PD_UNAVAILABLE, "no server within %g s: %s", client->deadline, pd_core_reason(client->core));
    }
    pd_io_leave(&client->io);
    return rc;
}

static int start(pd_client *client, const pd_client_options *options, pd_error *err)
{
    pd_settings settings;
    int rc = pd_settings_resolve(&settings, options, err);

    if (rc == PD_OK) rc = pd_urls_parse(&client->urls, &settings.core.urls, settings.urls, err);
    if (rc == PD_OK) rc = pd_core_new(&client->core, &settings.core, err);
    client->deadline = settings.deadline;
    return rc == PD_OK ? pd_io_start(&client->io, client->core, client->urls, err) : rc;
}

static void dispose(pd_client *client)
{
    pd_core_free(client->core);
    free(client->urls);
    free(client);
}

int pd_client_open(pd_client **out, const pd_client_options *options, pd_error *err)
{
    pd_client *client = calloc(1, sizeof *client);
    int rc;

    if (client == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if ((rc = start(client, options, err)) != PD_OK) {
        dispose(client);
        return rc;
    }
    if ((rc = wait_for_welcome(client, err)) != PD_OK) {
        pd_client_close(client);
        return rc;
    }
    *out = client;
    return PD_OK;
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

int pd_client_declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->declare == 0) rc = pd_core_declare(client->core, params, n, &client->declare, err);
    if (rc == PD_OK) rc = finish_call(client, &client->declare, err);
    pd_io_leave(&client->io);
    return rc;
}

/* Enters the core for a function that changes nothing. */
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

/* Sends the initial weights that this rank has to send, then pulls all weights. Inside. */
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

/* Forgets the tickets of earlier calls, which have ended with the job. Inside. */
static void forget_calls(pd_client *client)
{
    pd_ticket_id *const tickets[] = { &client->declare, &client->init, &client->fetch, &client->barrier,
                                      &client->leave, &client->restart };

    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++) {
        uint8_t *reply;
        size_t bytes;

        if (*tickets[i] != 0) pd_core_finish(client->core, *tickets[i], &reply, &bytes, NULL);
        *tickets[i] = 0;
    }
}

/* Inside. */
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

int pd_client_push(pd_client *client, pd_item *items, size_t n, const pd_push_options *options, pd_ticket_id *ticket,
                   pd_error *err)
{
    int rc;
    pd_io_enter(&client->io);
    rc = pd_core_push(client->core, PD_PUSH, items, n, options, ticket, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_push_pull(pd_client *client, pd_item *items, size_t n, const pd_push_options *options,
                        pd_ticket_id *ticket, pd_error *err)
{
    int rc;
    pd_io_enter(&client->io);
    rc = pd_core_push(client->core, PD_PUSH_PULL, items, n, options, ticket, err);
    pd_io_leave(&client->io);
    return rc;
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

int pd_client_barrier(pd_client *client, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->barrier == 0) rc = pd_core_barrier(client->core, &client->barrier, err);
    if (rc == PD_OK) rc = finish_call(client, &client->barrier, err);
    pd_io_leave(&client->io);
    return rc;
}

pd_client_stats pd_client_count(const pd_client *client)
{
    pd_client *inside = enter(client);
    pd_client_stats stats = pd_core_stats(inside->core);
    pd_io_leave(&inside->io);
    return stats;
}

/* ---- operators ---- */

/* Inside. */
static int call(pd_client *client, unsigned method, const ProtobufCMessage *request, const struct iovec *payload,
                uint8_t **at, size_t *bytes, pd_error *err)
{
    pd_ticket_id ticket;
    int rc = pd_core_call(client->core, method, request, payload, &ticket, err);

    if (rc != PD_OK) return rc;
    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (pd_io_wait(&client->io, ticket, client->deadline)) return pd_core_finish(client->core, ticket, at, bytes, err);
    rc = timed_out(client, client->deadline, err);
    pd_core_give_up(client->core, ticket);
    return rc;
}

int pd_client_call(pd_client *client, unsigned method, const ProtobufCMessage *request, pd_arena *arena, void **reply,
                   pd_error *err)
{
    return pd_client_call_with(client, method, request, NULL, 0, arena, reply, err);
}

int pd_client_call_with(pd_client *client, unsigned method, const ProtobufCMessage *request, const void *payload,
                        size_t payload_bytes, pd_arena *arena, void **reply, pd_error *err)
{
    uint8_t *at = NULL;
    size_t bytes = 0;
    void *unpacked;
    int rc;

    pd_io_enter(&client->io);
    rc = call(client, method, request, &(struct iovec){ (void *)payload, payload_bytes }, &at, &bytes, err);
    pd_io_leave(&client->io);
    pd_arena_reset(arena);
    if (rc == PD_OK) rc = pd_reply_unpack(arena, method, at, bytes, reply != NULL ? reply : &unpacked, err);
    free(at);
    return rc;
}
