/* resume.c - the public functions that continue after the server has lost the job or gone back to an earlier step. */
#include "call.h"
#include "handle.h"
#include "recoveries.h"
#include "shards.h"

#include <stdlib.h>

void pd_handle_forget_calls(pd_client *client)
{
    pd_ticket_id *const tickets[] = { &client->declare, &client->init,    &client->fetch,  &client->barrier,
                                      &client->leave,   &client->restart, &client->rewind, &client->worker_state,
                                      &client->sync,    &client->replace, &client->go_back };

    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++) {
        uint8_t *reply = NULL;
        size_t bytes;

        if (*tickets[i] != 0) pd_core_finish(client->core, *tickets[i], &reply, &bytes, NULL);
        free(reply);
        *tickets[i] = 0;
    }
}

/* Ends a recovery: if `rc` is PD_OK (the recovery has begun), waits until the server has accepted the parameters again,
 * then receives the weights. Otherwise returns the error `rc`. Unlocks the core. */
static int end_recovery(pd_client *client, pd_ticket_id *ticket, bool *recovers, void *const *weights, int rc,
                        pd_error *err)
{
    double end = pd_handle_end(client);
    bool forgot;

    if (rc == PD_OK && *ticket != 0) rc = pd_handle_finish_part(client, ticket, end, err);
    if (rc == PD_OK) {
        client->welcome = client->core->welcome;
        rc = pd_handle_init(client, weights, end, err);
    }
    if (rc == PD_OK) *recovers = false;
    forgot = rc == PD_OK && client->core->recovery.forgot_rest;
    if (forgot) client->core->recovery.forgot_rest = false;
    pd_io_leave(&client->io);
    if (forgot) pd_notice_feedback(&client->notices, client->core->setup.job);
    return rc;
}

int pd_client_restart(pd_client *client, void *const *weights, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_restart(client, weights, err);
    pd_io_enter(&client->io);
    if (!client->restarting ||
        client->core->end.lost) { /* else an earlier call, which timed out, has begun the restart already */
        if (client->core->end.lost) pd_handle_forget_calls(client);
        rc = pd_core_recreate(client->core, 0, &client->restart, err);
        client->restarting = rc == PD_OK;
        client->rewinding = false;
    }
    return end_recovery(client, &client->restart, &client->restarting, weights, rc, err);
}

int pd_client_rewind(pd_client *client, void *const *weights, pd_error *err)
{
    int rc = PD_OK;

    if (client->shards != NULL) return pd_shards_rewind(client, weights, err);
    pd_io_enter(&client->io);
    if (!client->rewinding || client->core->end.error.code != PD_OK) {
        if (client->core->end.gone_back) pd_handle_forget_calls(client);
        rc = pd_core_rewind(client->core, &client->rewind, err);
        client->rewinding = rc == PD_OK;
    }
    return end_recovery(client, &client->rewind, &client->rewinding, weights, rc, err);
}
