/* shards_recover.c - continues on a cluster after a shard has lost the job or gone back to an earlier step. */
#include "join.h"
#include "recoveries.h"
#include "shards.h"

#include <stdlib.h>

/* Receives the weights from all shards, which have taken the parameters again. */
static int end_recovery(pd_client *client, void *const *weights, double end, pd_error *err)
{
    bool forgot = false;
    int rc;

    pd_shards_refresh(client);
    if ((rc = pd_shards_init(client, weights, end, err)) != PD_OK) return rc;
    for (size_t i = 0; i < client->shards->n; i++) {
        pd_client *shard = client->shards->at[i];

        pd_io_enter(&shard->io);
        forgot = forgot || shard->core->recovery.forgot_rest;
        shard->core->recovery.forgot_rest = shard->restarting = shard->rewinding = false;
        pd_io_leave(&shard->io);
    }
    if (forgot) pd_notice_feedback(&client->notices, client->shards->at[0]->core->setup.job);
    return PD_OK;
}

/* Returns whether a shard has model state alone. */
static bool has_no_gradients(const pd_core *core)
{
    bool none = true;

    for (size_t i = 0; i < core->n_params; i++)
        none = none && (core->params[i].elsewhere || core->params[i].model_state);
    return none;
}

/* Returns the step that this worker has taken on all shards that take gradients. */
static uint64_t find_step(const pd_shards *shards)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        uint64_t step = has_no_gradients(shard->core) ? UINT64_MAX : pd_core_lowest_step(shard->core);

        pd_io_leave(&shard->io);
        if (step < least) least = step;
    }
    return least < UINT64_MAX ? least : 0;
}

/* Begins the job anew on a shard that has lost it; *step: the one that the others have. A shard of model state alone
 * begins at this step, as model state may not be behind: it would wait for no verdict, and so never come to it. */
static int restart_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const uint64_t *step = arg;
    int rc;

    (void)number;
    if (!shard->core->end.lost) return PD_OK;
    pd_handle_forget_calls(shard);
    rc = pd_core_recreate(shard->core, has_no_gradients(shard->core) ? *step : 0, &shard->restart, err);
    shard->restarting = rc == PD_OK;
    shard->rewinding = false;
    return rc;
}

/* Returns whether a recovery has something to do: a shard has ended in this way, or recovers since an earlier call. */
static bool is_needed(const pd_shards *shards, bool restarts)
{
    bool needed = false;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        const pd_core_ending *end = &shard->core->end;
        needed = needed || (restarts ? end->lost || shard->restarting : end->gone_back || shard->rewinding);
        pd_io_leave(&shard->io);
    }
    return needed;
}

int pd_shards_restart(pd_client *client, void *const *weights, pd_error *err)
{
    double end = pd_handle_end(client);
    uint64_t step = find_step(client->shards);
    int rc;

    if (!is_needed(client->shards, true))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.160s is not lost on any shard: only a job that a server has lost is started anew",
                       client->shards->at[0]->core->setup.job);
    rc = pd_shards_carry_out(client, PD_CALL_RECOVER, offsetof(pd_client, restart), restart_one, &step, end, err);
    return rc == PD_OK ? end_recovery(client, weights, end, err) : rc;
}

#define TURN_SECONDS 0.01 /* a rank lets each lower one go first for so long, and twice as long each time */
#define TURN_MOST 10.0

/* Waits until lower ranks have had time to go back alone, if this one has gone back to one step again and again. Where
 * parameters step apart, workers that go back at the same time can undo each other's steps: one has a shard load the
 * job again after others have pushed to it, but not to all shards. */
static int await_turn(pd_client *client, double end, pd_error *err)
{
    pd_shards *shards = client->shards;
    double now = pd_clock_seconds(), most;

    if (shards->again == 0) return PD_OK;
    if (shards->turn == 0) {
        most = TURN_SECONDS * client->welcome.rank * (double)(1u << (shards->again < 16 ? shards->again : 16));
        shards->turn = now + (most < TURN_MOST ? most : TURN_MOST);
    }
    for (; now < shards->turn; now = pd_clock_seconds()) {
        if (now >= end) return pd_shards_out_of_time(client, err);
        pd_shards_pause(0.01);
    }
    shards->turn = 0;
    return PD_OK;
}

/* Notes the step to which the job has gone back. */
static void note_rewound(pd_shards *shards)
{
    pd_client *lead = pd_handle_enter(shards->at[0]);
    uint64_t step = pd_core_lowest_step(lead->core);

    pd_io_leave(&lead->io);
    shards->again = step == shards->rewound ? shards->again + 1 : 0;
    shards->rewound = step;
}

/* Goes to the steps from which the program continues: to one that all shards have; or where sets are open, to those at
 * which each shard is, since each goes back alone. */
static int go_back(pd_client *client, double end, pd_error *err)
{
    return (client->shards->open_sets ? pd_shards_reopen : pd_shards_find_common)(client, end, err);
}

int pd_shards_rewind(pd_client *client, void *const *weights, pd_error *err)
{
    double end = pd_handle_end(client);
    int rc = is_needed(client->shards, false) ? PD_OK : pd_shards_check(client->shards, err);

    if (rc != PD_OK) return rc;
    if (!is_needed(client->shards, false))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "no shard has gone back to an earlier step of job %.160s: " PD_REWIND_CALL
                       " is for a call that ended with PD_REWIND",
                       client->shards->at[0]->core->setup.job);
    /* An earlier call that timed out may have found the step already. */
    if (!client->shards->found || pd_shards_check(client->shards, NULL) != PD_OK) {
        client->shards->found = false;
        rc = await_turn(client, end, err);
        if (rc == PD_OK) rc = go_back(client, end, err);
        client->shards->found = rc == PD_OK;
    }
    if (rc == PD_OK) rc = end_recovery(client, weights, end, err);
    if (rc != PD_OK) return rc;
    client->shards->found = false;
    note_rewound(client->shards);
    return PD_OK;
}
