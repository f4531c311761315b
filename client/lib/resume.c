/* resume.c - the public functions that continue after the server has lost the job or gone back to an earlier step. */
#include "call.h"
#include "handle.h"
#include "recoveries.h"

#include <stdlib.h>

/* Forgets the tickets of calls that timed out. Nobody can wait for them any more: these calls ended when the server
 * lost the job or its last steps. The core must be locked. */
static void forget_calls(pd_client *client)
{
    pd_ticket_id *const tickets[] = { &client->declare, &client->init,    &client->fetch,  &client->barrier,
                                      &client->leave,   &client->restart, &client->rewind, &client->worker_state,
                                      &client->sync,    &client->replace };

    for (size_t i = 0; i < sizeof tickets / sizeof *tickets; i++) {
        uint8_t *reply = NULL;
        size_t bytes;

        if (*tickets[i] != 0) pd_core_finish(client->core, *tickets[i], &reply, &bytes, NULL);
        free(reply);
        *tickets[i] = 0;
    }
}

/* Begins to start the lost job anew, unless a call that timed out has begun it already. The core must be locked. */
static int begin_restart(pd_client *client, pd_error *err)
{
    int rc;

    if (client->restarting && !client->core->end.lost) return PD_OK;
    if (client->core->end.lost) forget_calls(client);
    rc = pd_core_recreate(client->core, &client->restart, err);
    client->restarting = rc == PD_OK;
    client->rewinding = false;
    return rc;
}

/* Begins to go back to the server's step, unless a call that timed out has begun that already. The core must be
 * locked. */
static int begin_rewind(pd_client *client, pd_error *err)
{
    int rc;

    if (client->rewinding && client->core->end.error.code == PD_OK) return PD_OK;
    if (client->core->end.gone_back) forget_calls(client);
    rc = pd_core_rewind(client->core, &client->rewind, err);
    client->rewinding = rc == PD_OK;
    return rc;
}

/* Waits until the server has accepted the parameters again, then receives the weights. The core must be locked. */
static int go_on(pd_client *client, pd_ticket_id *ticket, void *const *weights, pd_error *err)
{
    double end = pd_handle_end(client);
    int rc = *ticket != 0 ? pd_handle_finish_part(client, ticket, end, err) : PD_OK;

    if (rc != PD_OK) return rc;
    client->welcome = client->core->welcome;
    return pd_handle_init(client, weights, end, err);
}

int pd_client_restart(pd_client *client, void *const *weights, pd_error *err)
{
    int rc;

    pd_io_enter(&client->io);
    if ((rc = begin_restart(client, err)) == PD_OK) rc = go_on(client, &client->restart, weights, err);
    if (rc == PD_OK) client->restarting = false;
    pd_io_leave(&client->io);
    return rc;
}

int pd_client_rewind(pd_client *client, void *const *weights, pd_error *err)
{
    int rc;

    pd_io_enter(&client->io);
    if ((rc = begin_rewind(client, err)) == PD_OK) rc = go_on(client, &client->rewind, weights, err);
    if (rc == PD_OK) client->rewinding = false;
    pd_io_leave(&client->io);
    return rc;
}
