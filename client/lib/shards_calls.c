/* shards_calls.c - the calls on a cluster that need one shard, ask all of them, or add up what they tell. */
#include <stdlib.h>
#include <string.h>

#include "join.h"
#include "leased.h"
#include "replace.h"
#include "shards.h"

bool pd_shards_settle(const pd_shards *shards)
{
    pd_client *shard = pd_handle_enter(shards->at[0]);
    bool settles = shard->core->settles;

    pd_io_leave(&shard->io);
    return settles;
}

bool pd_shards_keeps_states(const pd_shards *shards, size_t number)
{
    bool any = false;

    for (size_t i = 0; i < shards->n; i++) any = any || shards->coupled[i];
    return any && pd_shards_settle(shards) ? shards->coupled[number] : number == 0;
}

static int come_to_barrier(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    (void)arg;
    return number == 0 ? pd_core_barrier(shard->core, &shard->barrier, err) : PD_OK;
}

int pd_shards_barrier(pd_client *client, pd_error *err)
{
    return pd_shards_carry_out(client, PD_CALL_BARRIER, offsetof(pd_client, barrier), come_to_barrier, NULL,
                               pd_handle_end(client), err);
}

static int leave_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    (void)number, (void)arg;
    return pd_core_leave(shard->core, &shard->leave, err);
}

int pd_shards_leave(pd_client *client, pd_error *err)
{
    return pd_shards_carry_out(client, PD_CALL_LEAVE, offsetof(pd_client, leave), leave_one, NULL,
                               pd_handle_end(client), err);
}

/* Returns the step at which the job is now: the highest one that a shard has taken with all its parameters. */
static uint64_t present_step(const pd_shards *shards)
{
    uint64_t highest = 0;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        uint64_t step = pd_core_lowest_step(shard->core);

        pd_io_leave(&shard->io);
        if (step > highest) highest = step;
    }
    return highest;
}

/* The arguments of pd_client_sync. */
typedef struct pd_synced {
    uint64_t step;
    bool confirms;
} pd_synced;

static int sync_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_synced *synced = arg;
    uint64_t life = shard->sync_life;
    int rc = pd_handle_sync(shard, synced->step, err);

    (void)number;
    if (synced->confirms) shard->sync_life = life; /* it must still be that of the first answer */
    return rc;
}

/* Gives up an earlier call that timed out, if it was for another step. */
static void forget_other_step(pd_shards *shards, uint64_t step)
{
    if (shards->sync_step == step) return;
    shards->sync_step = step;
    shards->sync_target = 0;
    shards->confirms = false;
    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = shards->at[i];

        shards->over[PD_CALL_SYNC][i] = false;
        pd_io_enter(&shard->io);
        if (shard->sync != 0) pd_core_give_up(shard->core, shard->sync);
        shard->sync = 0;
        pd_io_leave(&shard->io);
    }
}

/* Returns whether a shard has another life than when it was asked. Its job may have gone back since, so a step that it
 * had durable may have been lost by the time at which the last shard had it. */
static bool have_new_lives(const pd_shards *shards)
{
    bool found = false;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);

        found = found || shard->core->life != shard->sync_life;
        pd_io_leave(&shard->io);
    }
    return found;
}

/* Returns the highest durable step that a shard has reported. */
static uint64_t most_durable(const pd_shards *shards)
{
    uint64_t most = 0;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);

        if (shard->core->progress.durable > most) most = shard->core->progress.durable;
        pd_io_leave(&shard->io);
    }
    return most;
}

/* Decides what follows when all shards have said that they have the step, or a later one. Returns whether the call is
 * over.
 *
 * When the last shard has answered, an earlier one may have gone back without this worker's knowledge. So once all have
 * answered, all are asked again. If they have the step then, in the same lives, it is durable on all, and no request to
 * go back behind it can be under way: common_step.c.
 *
 * A shard that is ahead may have a checkpoint of a later step alone, and another one a checkpoint of this step. Then
 * no step is durable on all of them, and they are asked for the latest of these steps. */
static bool take_answers(pd_shards *shards, uint64_t step)
{
    bool same = !have_new_lives(shards), confirmed = same && shards->confirms;

    shards->confirms = same && !confirmed && !shards->open_sets;
    if (shards->open_sets) return same;
    if (!confirmed) return false;
    if (pd_shards_durable(shards) >= step) return true;
    shards->sync_target = most_durable(shards);
    return false;
}

int pd_shards_sync(pd_client *client, uint64_t step, pd_error *err)
{
    pd_shards *shards = client->shards;
    double end = pd_handle_end(client);
    bool over = false;
    int rc = PD_OK;

    /* Where sets are open, a shard may never take a step that another one has: each makes a checkpoint of its own. */
    if (step == 0 && !shards->open_sets) step = present_step(shards);
    forget_other_step(shards, step);
    while (rc == PD_OK && !over) {
        pd_synced synced = { shards->sync_target > step ? shards->sync_target : step, shards->confirms };

        rc = pd_shards_carry_out(client, PD_CALL_SYNC, offsetof(pd_client, sync), sync_one, &synced, end, err);
        over = rc == PD_OK && take_answers(shards, step);
    }
    if (rc != PD_DEADLINE_EXCEEDED) shards->sync_target = 0;
    return rc;
}

pd_client_stats pd_shards_count(const pd_shards *shards)
{
    pd_client_stats all = { 0 };

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        pd_client_stats own = pd_core_stats(shard->core);

        pd_io_leave(&shard->io);
        all.bytes_out += own.bytes_out;
        all.bytes_in += own.bytes_in;
        all.payload_out += own.payload_out;
        all.payload_in += own.payload_in;
        all.connects += own.connects;
        all.resent += own.resent;
        all.shared_out += own.shared_out;
        all.shared_in += own.shared_in;
        all.rewinds += own.rewinds;
        all.replayed += own.replayed;
    }
    return all;
}

uint64_t pd_shards_taken_step(const pd_shards *shards)
{
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        uint64_t step = pd_leased_taken_step(shard->core);

        pd_io_leave(&shard->io);
        if (step < least) least = step;
    }
    return least;
}

/* The arguments of pd_client_replace. */
typedef struct pd_change {
    const pd_shards *shards;
    const pd_item *items;
    size_t n;
    uint64_t number;
} pd_change;

/* Lists those items that lie on a shard. Returns their number, or those of all shards if `to` is NULL. */
static size_t list_items(const pd_change *change, size_t shard, pd_item *to)
{
    const pd_shards *shards = change->shards;
    size_t n = 0;

    for (size_t i = 0; i < change->n; i++) {
        const pd_sharded_param *param = &shards->params[change->items[i].param];

        for (size_t k = 0; k < param->n; k++) {
            const pd_place *place = &shards->places[param->first + k];
            const uint8_t *weights = change->items[i].weights;
            if (to != NULL && place->shard != shard) continue;
            if (to != NULL)
                to[n] = (pd_item){ .param = place->handle,
                                   .weights =
                                       weights != NULL ? (void *)(weights + (size_t)place->first * param->out) : NULL };
            n++;
        }
    }
    return n;
}

/* Begins the change on a shard. Each shard must know of it, since all pushes of the next step bring its number. Where
 * sets are open, only those of the changed fragments do, and each of these lies on one shard. */
static int replace_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_change *change = arg;
    pd_item *items = calloc(list_items(change, 0, NULL) + 1, sizeof *items);
    size_t n;
    int rc = PD_OK;

    if (items == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    n = list_items(change, number, items);
    if (n > 0 || change->n == 0)
        rc = pd_core_replace(shard->core, items, n, change->number, &shard->replace, err);
    else if (!change->shards->open_sets)
        rc = pd_core_replace_none(shard->core, change->number, &shard->replace, err);
    free(items);
    return rc;
}

/* Checks that the items are parameters. */
static int check_change(const pd_change *change, pd_error *err)
{
    const pd_shards *shards = change->shards;

    for (size_t i = 0; i < change->n; i++)
        if (change->items[i].param >= shards->n_params)
            return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu: parameter %zu, but %zu are declared", i,
                           change->items[i].param, shards->n_params);
    return PD_OK;
}

int pd_shards_replace(pd_client *client, const pd_item *items, size_t n, uint64_t number, pd_error *err)
{
    pd_change change = { client->shards, items, n, number };
    int rc = pd_shards_check(client->shards, err);

    if (rc == PD_OK && client->shards->n_params == 0)
        rc = pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    if (rc == PD_OK) rc = check_change(&change, err);
    if (rc != PD_OK) return rc;
    return pd_shards_carry_out(client, PD_CALL_REPLACE, offsetof(pd_client, replace), replace_one, &change,
                               pd_handle_end(client), err);
}
