/* checkpoint_calls.c - the public functions about checkpoints: the durable step, and the note of a checkpoint. */
#include "call.h"
#include "handle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WAIT_MS = 600 * 1000 }; /* the server waits no longer for a checkpoint */

uint64_t pd_client_durable(const pd_client *client)
{
    pd_client *inside = pd_handle_enter(client);
    uint64_t step = pd_core_durable(inside->core);

    pd_io_leave(&inside->io);
    return step;
}

/* Returns how long the server may wait for the checkpoint: as long as this client's calls. */
static uint32_t wait_ms(const pd_client *client)
{
    double ms = ceil(client->deadline * 1000);

    return ms < MOST_WAIT_MS ? (uint32_t)ms : MOST_WAIT_MS;
}

/* Forgets a call of pd_client_sync that timed out and waited for another step. */
static void forget_other_step(pd_client *client, uint64_t step)
{
    if (client->sync == 0 || client->sync_step == step) return;
    pd_core_give_up(client->core, client->sync);
    client->sync = 0;
}

int pd_client_sync(pd_client *client, uint64_t step, pd_error *err)
{
    int rc = PD_OK;

    pd_io_enter(&client->io);
    forget_other_step(client, step);
    client->sync_step = step;
    if (client->sync == 0) rc = pd_core_checkpoint(client->core, step, wait_ms(client), &client->sync, err);
    if (rc == PD_OK) rc = pd_handle_finish_call(client, &client->sync, err);
    pd_io_leave(&client->io);
    return rc;
}

/* Waits for the answer to a Recall, whose header is `bytes` long, with the note behind it. */
static int ask_note(pd_client *client, uint8_t **reply, size_t *bytes, pd_error *err)
{
    int rc = PD_OK;

    *reply = NULL;
    pd_io_enter(&client->io);
    if (client->recall == 0) rc = pd_core_recall(client->core, &client->recall, err);
    if (rc == PD_OK) rc = pd_handle_finish_asked(client, &client->recall, reply, bytes, err);
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_recall(pd_client *client, void *out, size_t room, size_t *bytes, uint64_t *step, pd_error *err)
{
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    const Paramd__RecallReply *note;
    uint8_t *reply = NULL;
    void *message;
    size_t header;
    int rc = arena != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");

    if (rc == PD_OK) rc = ask_note(client, &reply, &header, err);
    if (rc == PD_OK) rc = pd_reply_unpack(arena, PD_RECALL, reply, header, &message, err);
    if (rc == PD_OK) {
        note = message;
        *bytes = note->bytes;
        *step = note->step;
        if (room > 0) memcpy(out, reply + header, room < note->bytes ? room : note->bytes);
    }
    free(reply);
    pd_arena_free(arena);
    return rc;
}
