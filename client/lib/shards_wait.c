/* shards_wait.c - carries out calls that wait on all shards of a cluster, with one deadline for all. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "settle_box.h"
#include "shards.h"

#define LOOK_SECONDS 2.0 /* a waiting call looks so often whether there are connections, and for warnings */

/* Returns the error that has ended the handle of a shard; PD_OK: none has ended. `but_left`: unless it is that the
 * worker has left the job there, as a call that leaves does on one shard before the other. */
static int find_ended(const pd_shards *shards, bool but_left, pd_error *err)
{
    for (size_t i = 0; i < shards->n; i++) {
        pd_client *inside = pd_handle_enter(shards->at[i]);
        pd_error error = inside->core->end.error;
        bool left = inside->core->end.left;

        pd_io_leave(&inside->io);
        if (error.code == PD_OK || (left && but_left)) continue;
        pd_shards_name(shards, i, &error);
        if (err != NULL) *err = error;
        return error.code;
    }
    return PD_OK;
}

int pd_shards_check(const pd_shards *shards, pd_error *err)
{
    return find_ended(shards, false, err);
}

/* Counts the operations that are not done. Sets *failed if one of the others has failed. The bell must be locked. */
static size_t count_left(const pd_waiter *waiters, size_t n, bool *failed)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++) {
        if (waiters[i].ticket == 0) continue;
        left += !waiters[i].told;
        *failed = *failed || waiters[i].failed;
    }
    return left;
}

/* Waits until all operations are done, one has failed (unless `failed` is set before), or until `end`. Returns the
 * number of those that are not done. */
static size_t await_some(pd_shards *shards, const pd_waiter *waiters, size_t n, double end, bool *failed)
{
    bool before = *failed;
    size_t left;

    pthread_mutex_lock(&shards->bell.lock);
    while ((left = count_left(waiters, n, failed)) > 0 && *failed == before && pd_clock_seconds() < end)
        pd_bell_wait(&shards->bell, end);
    pthread_mutex_unlock(&shards->bell.lock);
    return left;
}

/* Looks at the shards whose operations are not done: tells the user where there is no connection, and of warnings. */
static void look(pd_shards *shards, const pd_waiter *waiters, size_t n, double seconds)
{
    for (size_t i = 0; i < n; i++) {
        pd_client *shard = shards->at[waiters[i].shard];

        if (waiters[i].ticket == 0) continue;
        pd_io_enter(&shard->io);
        if (!pd_core_done(shard->core, waiters[i].ticket)) pd_handle_look(shard, seconds);
        pd_io_leave(&shard->io);
    }
}

static size_t await_watched(pd_shards *shards, const pd_waiter *waiters, size_t n, double end, pd_shards_failed *act,
                            void *arg)
{
    bool failed = false, acted = false;
    double begin = pd_clock_seconds(), now;
    size_t left = await_some(shards, waiters, n, fmin(end, begin + LOOK_SECONDS), &failed);

    while (left > 0 && (now = pd_clock_seconds()) < end) {
        pd_shards_go_back_together(shards);
        failed = failed || find_ended(shards, true, NULL) != PD_OK;
        if (failed && act == NULL) break;
        if (failed && (!acted || now - begin >= LOOK_SECONDS)) act(shards, waiters, arg);
        acted = failed;
        if (now - begin >= LOOK_SECONDS) {
            look(shards, waiters, n, now - begin);
            begin = now;
        }
        left = await_some(shards, waiters, n, fmin(end, begin + LOOK_SECONDS), &failed);
    }
    return left;
}

bool pd_shards_await(pd_shards *shards, pd_waiter *waiters, size_t n, double end, pd_shards_failed *failed, void *arg)
{
    size_t left;

    for (size_t i = 0; i < n; i++) {
        waiters[i].bell = &shards->bell;
        if (waiters[i].ticket != 0) pd_io_watch(&shards->at[waiters[i].shard]->io, &waiters[i]);
    }
    left = await_watched(shards, waiters, n, end, failed, arg);
    for (size_t i = 0; i < n; i++)
        if (waiters[i].ticket != 0) pd_io_unwatch(&shards->at[waiters[i].shard]->io, &waiters[i]);
    return left == 0;
}

/* A call of the user that waits, while it is carried out. */
typedef struct pd_carried {
    pd_shards *shards;
    bool *over;    /* for each shard: it is over there */
    size_t ticket; /* offset in pd_client */
    pd_waiter *waiters;
    pd_error error; /* the first one */
} pd_carried;

static pd_ticket_id *ticket_of(const pd_carried *carried, size_t shard)
{
    return (pd_ticket_id *)(void *)((char *)carried->shards->at[shard] + carried->ticket);
}

static void note_error(pd_carried *carried, size_t shard, pd_error *error)
{
    if (carried->error.code != PD_OK) return;
    pd_shards_name(carried->shards, shard, error);
    carried->error = *error;
}

static void begin_all(pd_carried *carried, pd_shards_begin *begin, void *arg)
{
    for (size_t i = 0; carried->error.code == PD_OK && i < carried->shards->n; i++) {
        pd_client *shard = carried->shards->at[i];
        pd_error error = { .code = PD_OK };
        int rc = PD_OK;

        carried->waiters[i].shard = i;
        if (carried->over[i]) continue;
        pd_io_enter(&shard->io);
        if (*ticket_of(carried, i) == 0) rc = begin(shard, i, arg, &error);
        carried->waiters[i].ticket = rc == PD_OK ? *ticket_of(carried, i) : 0;
        carried->over[i] = carried->waiters[i].ticket == 0;
        pd_io_leave(&shard->io);
        if (rc != PD_OK) note_error(carried, i, &error);
    }
}

/* Takes the results of those shards on which the call is done. */
static void finish_some(pd_carried *carried)
{
    for (size_t i = 0; i < carried->shards->n; i++) {
        pd_client *shard = carried->shards->at[i];
        pd_error error = { .code = PD_OK };
        uint8_t *reply = NULL;
        size_t bytes;

        if (carried->waiters[i].ticket == 0) continue;
        pd_io_enter(&shard->io);
        carried->over[i] = pd_core_done(shard->core, carried->waiters[i].ticket);
        if (carried->over[i]) {
            pd_core_finish(shard->core, carried->waiters[i].ticket, &reply, &bytes, &error);
            *ticket_of(carried, i) = 0;
        }
        pd_io_leave(&shard->io);
        free(reply);
        if (error.code != PD_OK) note_error(carried, i, &error);
    }
}

void pd_shards_state(const pd_shards *shards, size_t shard, char text[PD_ERROR_TEXT])
{
    pd_client *inside = pd_handle_enter(shards->at[shard]);
    char state[PD_ERROR_TEXT], tallies[PD_ERROR_TEXT];

    pd_handle_state(inside, state);
    pd_io_leave(&inside->io);
    pd_settle_box_text(shards->box, tallies, sizeof tallies);
    snprintf(text, PD_ERROR_TEXT, "%.250s%s%.150s", state, tallies[0] != '\0' ? "; " : "", tallies);
}

/* Fills the error of a call that has timed out: names the first shard on which it is not over. */
static int timed_out(const pd_carried *carried, double seconds, pd_error *err)
{
    size_t first = 0, more = 0;
    char state[PD_ERROR_TEXT];
    pd_error error;

    while (carried->over[first]) first++;
    for (size_t i = first + 1; i < carried->shards->n; i++) more += !carried->over[i];
    pd_shards_state(carried->shards, first, state);
    if (more == 0)
        pd_fail(&error, PD_DEADLINE_EXCEEDED, "waited %g s: %.250s", seconds, state);
    else
        pd_fail(&error, PD_DEADLINE_EXCEEDED, "waited %g s: %.200s; and %zu more shards", seconds, state, more);
    pd_shards_name(carried->shards, first, &error);
    if (err != NULL) *err = error;
    return error.code;
}

static bool is_over(const pd_carried *carried)
{
    bool over = true;

    for (size_t i = 0; i < carried->shards->n; i++) over = over && carried->over[i];
    return over;
}

/* Lets the operations of a call that has failed end soon. Where the connection has ended since, they end at once. */
static void spoil(pd_shards *shards, const pd_waiter *waiters, void *arg)
{
    const pd_carried *carried = arg;

    for (size_t i = 0; i < shards->n; i++) {
        if (waiters[i].ticket == 0) continue;
        pd_io_enter(&shards->at[i]->io);
        pd_core_spoil(shards->at[i]->core, waiters[i].ticket, &carried->error);
        pd_io_leave(&shards->at[i]->io);
    }
}

/* Ends a call on the other shards, after one has failed: its buffers belong to the caller again when it returns. */
static void end_others(pd_carried *carried)
{
    for (size_t i = 0; i < carried->shards->n; i++)
        if (carried->over[i]) carried->waiters[i].ticket = 0;
    spoil(carried->shards, carried->waiters, carried);
    pd_shards_await(carried->shards, carried->waiters, carried->shards->n, INFINITY, spoil, carried);
    finish_some(carried);
}

/* Returns whether a call borrows the caller's buffers for the time in which it is under way. */
static bool borrows(pd_shards_call call)
{
    return call == PD_CALL_INIT || call == PD_CALL_FETCH || call == PD_CALL_REPLACE;
}

int pd_shards_carry_out(pd_client *client, pd_shards_call call, size_t ticket, pd_shards_begin *begin, void *arg,
                        double end, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_carried carried = { .shards = shards, .over = shards->over[call], .ticket = ticket };

    if ((carried.waiters = calloc(shards->n, sizeof *carried.waiters)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&shards->lock);
    begin_all(&carried, begin, arg);
    pthread_mutex_unlock(&shards->lock);
    if (carried.error.code == PD_OK) pd_shards_await(shards, carried.waiters, shards->n, end, NULL, NULL);
    finish_some(&carried);
    if (carried.error.code == PD_OK && !is_over(&carried)) find_ended(shards, true, &carried.error);
    if (carried.error.code != PD_OK && borrows(call)) end_others(&carried);
    free(carried.waiters);
    if (carried.error.code == PD_OK && !is_over(&carried)) return timed_out(&carried, client->slice, err);
    for (size_t i = 0; i < shards->n; i++) carried.over[i] = false;
    if (carried.error.code != PD_OK && err != NULL) *err = carried.error;
    return carried.error.code;
}
