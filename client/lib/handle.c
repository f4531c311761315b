/* handle.c - waits for the I/O thread on behalf of the calls with a client handle. */
#include "handle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "call.h"
#include "follow.h"
#include "notice.h"
#include "shard_table.h"
#include "shards.h"

#define NOTICE_SECONDS 2.0 /* a waiting call tells the user after so many seconds without a connection */

int pd_handle_make(pd_client *client, pd_settings *settings, pd_address *urls, size_t n, const pd_notices *notices,
                   pd_error *err)
{
    int rc;

    client->urls = urls;
    client->deadline = settings->deadline;
    client->slice = settings->slice;
    client->notices = *notices;
    settings->core.urls = n;
    settings->core.addresses = urls;
    rc = pd_secure_open(&client->secure, &settings->tls, urls, n, err);
    if (rc == PD_OK) rc = pd_core_new(&client->core, &settings->core, err);
    if (rc == PD_OK) client->join = client->core->welcome_ticket;
    return rc;
}

/* Sets how the table of shards wakes the I/O thread. */
static void wake_by(const pd_client *client, int wake_fd, int move_fd)
{
    if (client->core->following.table != NULL)
        pd_shard_table_wake(client->core->following.table, client->core->setup.shard, wake_fd, move_fd);
}

int pd_handle_start(pd_client *client, pd_error *err)
{
    int rc = pd_io_start(&client->io, client->core, client->urls, client->core->setup.urls, &client->secure, err);

    client->running = rc == PD_OK;
    if (client->running) wake_by(client, client->io.wake_fd, client->io.move_fd);
    return rc;
}

void pd_handle_stop(pd_client *client)
{
    if (client->running) wake_by(client, -1, -1);
    if (client->running) pd_io_stop(&client->io);
    client->running = false;
}

void pd_handle_dispose(pd_client *client)
{
    pd_core_free(client->core);
    pd_shard_table_free(client->table);
    free(client->urls);
    pd_secure_close(&client->secure);
    for (pd_kept *block = client->kept, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    free(client);
}

pd_client *pd_handle_lead(const pd_client *client)
{
    return client->shards != NULL ? client->shards->at[0] : (pd_client *)client;
}

pd_address pd_handle_address(const pd_client *client, uint64_t *tenure)
{
    pd_core *core = client->core;
    pd_address address;

    if (client->running) pd_handle_enter(client); /* otherwise the core has no lock, and no other user */
    address = core->setup.addresses[core->link.url];
    if (tenure != NULL) *tenure = core->following.tenure > PD_TENURE_UNKNOWN ? core->following.tenure : 0;
    if (client->running) pd_io_leave(&((pd_client *)client)->io);
    return address;
}

int pd_handle_join(pd_client *client, double end, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    if (client->join != 0 && (rc = pd_handle_finish_part(client, &client->join, end, err)) == PD_OK)
        client->welcome = client->core->welcome;
    pd_io_leave(&client->io);
    return rc;
}

void pd_handle_state(const pd_client *client, char text[PD_ERROR_TEXT])
{
    bool running = client->core->link.welcomed;
    const char *state = running ? "still under way" : "not connected now", *reason;
    char no_answer[PD_ERROR_TEXT];

    reason = running ? client->core->link.reason : pd_handle_reason(client, no_answer);
    if (reason[0] == '\0')
        snprintf(text, PD_ERROR_TEXT, "%s", state);
    else
        snprintf(text, PD_ERROR_TEXT, "%s (%.400s)", state, reason);
}

int pd_handle_timed_out(const pd_client *client, double seconds, pd_error *err)
{
    char state[PD_ERROR_TEXT];

    pd_handle_state(client, state);
    return pd_fail(err, PD_DEADLINE_EXCEEDED, "waited %g s: %s", seconds, state);
}

const char *pd_handle_reason(const pd_client *client, char text[PD_ERROR_TEXT])
{
    const pd_core *core = client->core;
    char address[PD_ADDRESS_TEXT];

    if (core->link.reason[0] != '\0') return core->link.reason;
    snprintf(text, PD_ERROR_TEXT, "%s: no answer yet",
             pd_address_text(&core->setup.addresses[core->link.url], address));
    return text;
}

static void give_notice(pd_client *client, double seconds_left)
{
    char reason[PD_ERROR_TEXT], text[PD_ERROR_TEXT];
    bool refused = client->core->link.refused;

    snprintf(reason, sizeof reason, "%s", pd_handle_reason(client, text)); /* the core's text may change */
    pd_io_leave(&client->io);
    pd_notice_waiting(&client->notices, refused, reason, seconds_left);
    pd_io_enter(&client->io);
}

/* Counts `seconds` in which a call has waited without a connection to its job. After NOTICE_SECONDS in all, or as soon
 * as another process is found to have the rank, tells the user, but only once until there is a connection. The core
 * must be locked. */
static void count_alone(pd_client *client, double seconds)
{
    double left = client->deadline - (client->alone += seconds);
    bool held = client->core->link.refused && client->core->link.held_ns != 0;

    if (client->told || (client->alone < NOTICE_SECONDS && !held) || left <= 0) return;
    client->told = true;
    give_notice(client, held && left > PD_HELD_SECONDS ? PD_HELD_SECONDS : left);
}

/* Waits until the call with this ticket is done, at most `seconds`. Notes whether there is a connection. The core must
 * be locked. */
static bool await_part(pd_client *client, pd_ticket_id ticket, double seconds)
{
    uint64_t connects = pd_core_stats(client->core).connects;
    bool connected = client->core->link.welcomed;
    double begin = pd_clock_seconds();
    bool done = pd_io_wait(&client->io, ticket, seconds);

    if (connected || client->core->link.welcomed ||
        (pd_core_stats(client->core).connects != connects && !client->core->link.refused)) {
        client->alone = 0;
        client->told = false;
    } else if (!done) {
        count_alone(client, pd_clock_seconds() - begin);
    }
    return done;
}

/* Gives the user the server's warnings that have come since the last call. The core must be locked. */
static void give_remarks(pd_client *client)
{
    for (char *remark; (remark = pd_core_take_remark(client->core)) != NULL; free(remark)) {
        pd_address server = client->core->setup.addresses[client->core->link.url];
        pd_io_leave(&client->io);
        if (client->whole == NULL || pd_shards_is_new(client->whole, remark))
            pd_notice_remark(&client->notices, client->core->setup.job, remark, &server);
        pd_io_enter(&client->io);
    }
}

void pd_handle_look(pd_client *client, double seconds)
{
    if (client->core->link.welcomed) {
        client->alone = 0;
        client->told = false;
    } else {
        count_alone(client, seconds);
    }
    give_remarks(client);
}

/* Waits until the call with this ticket is done. Returns false if it is not done at `end`, a time of pd_clock_seconds.
 * The core must be locked. */
static bool await(pd_client *client, pd_ticket_id ticket, double end)
{
    double left = end - pd_clock_seconds();
    bool done;

    do {
        done = await_part(client, ticket, left < NOTICE_SECONDS ? fmax(left, 0) : NOTICE_SECONDS);
        give_remarks(client);
        left = end - pd_clock_seconds();
    } while (!done && left > 0);
    return done;
}

/* Returns the result of a call that is done, and frees its ticket. */
static int take_result(pd_client *client, pd_ticket_id ticket, pd_error *err)
{
    uint8_t *reply;
    size_t bytes;
    int rc = pd_core_finish(client->core, ticket, &reply, &bytes, err);

    free(reply);
    return rc;
}

int pd_handle_finish(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    if (!await(client, ticket, pd_clock_seconds() + seconds)) return pd_handle_timed_out(client, seconds, err);
    return take_result(client, ticket, err);
}

double pd_handle_end(const pd_client *client)
{
    return pd_clock_seconds() + client->slice;
}

/* Works as pd_handle_finish_part, and gives the answer in *reply and *bytes, as pd_handle_finish_asked does. */
static int finish_asked(pd_client *client, pd_ticket_id *ticket, double end, uint8_t **reply, size_t *bytes,
                        pd_error *err)
{
    int rc;

    *reply = NULL;
    *bytes = 0;
    pd_io_leave(&client->io);
    pd_io_enter(&client->io);
    if (!await(client, *ticket, end)) return pd_handle_timed_out(client, client->slice, err);
    rc = pd_core_finish(client->core, *ticket, reply, bytes, err);
    *ticket = 0;
    return rc;
}

int pd_handle_finish_asked(pd_client *client, pd_ticket_id *ticket, uint8_t **reply, size_t *bytes, pd_error *err)
{
    return finish_asked(client, ticket, pd_handle_end(client), reply, bytes, err);
}

int pd_handle_finish_part(pd_client *client, pd_ticket_id *ticket, double end, pd_error *err)
{
    uint8_t *reply;
    size_t bytes;
    int rc = finish_asked(client, ticket, end, &reply, &bytes, err);

    free(reply);
    return rc;
}

pd_client *pd_handle_enter(const pd_client *client)
{
    pd_client *mutable = (pd_client *)client;
    pd_io_enter(&mutable->io);
    return mutable;
}

void pd_handle_keep(pd_client *client, pd_kept *block)
{
    block->next = client->kept;
    client->kept = block;
}

int pd_handle_init(pd_client *client, void *const *weights, double end, pd_error *err)
{
    int rc = PD_OK;

    if (client->fetch == 0 && (client->init != 0 || client->core->must_init)) {
        if (client->init == 0) rc = pd_core_init(client->core, weights, &client->init, err);
        if (rc == PD_OK) rc = pd_handle_finish_part(client, &client->init, end, err);
    }
    if (rc == PD_OK && client->fetch == 0) rc = pd_core_fetch(client->core, weights, &client->fetch, err);
    return rc == PD_OK ? pd_handle_finish_part(client, &client->fetch, end, err) : rc;
}

enum { MOST_WAIT_MS = 600 * 1000 }; /* longest time for which the server waits for a checkpoint */

/* Returns how long the server may wait for the checkpoint: as long as this client's calls. */
static uint32_t wait_ms(const pd_client *client)
{
    double ms = ceil(client->deadline * 1000);

    return ms < MOST_WAIT_MS ? (uint32_t)ms : MOST_WAIT_MS;
}

/* Gives up an earlier pd_client_sync that timed out, if it waits for another step than `step`. */
static void forget_other_step(pd_client *client, uint64_t step)
{
    if (client->sync == 0 || client->sync_step == step) return;
    pd_core_give_up(client->core, client->sync);
    client->sync = 0;
}

int pd_handle_sync(pd_client *client, uint64_t step, pd_error *err)
{
    forget_other_step(client, step);
    client->sync_step = step;
    if (client->sync != 0) return PD_OK;
    client->sync_life = client->core->life;
    return pd_core_checkpoint(client->core, step, wait_ms(client), &client->sync, err);
}
