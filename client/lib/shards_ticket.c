/* shards_ticket.c - waits for calls that several shards take part in, and joins their results. */
#include "shards_ticket.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/eventfd.h>

#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(op) ((op)->hh.tbl = NULL)

void pd_joined_free(pd_joined *joined)
{
    if (joined == NULL) return;
    free(joined->parts);
    free(joined->part_items);
    free(joined->part_counts);
    free(joined->part_of);
    free(joined);
}

pd_joined *pd_joined_new(size_t parts, size_t room, bool counts)
{
    pd_joined *joined = calloc(1, sizeof *joined);

    if (joined == NULL) return NULL;
    joined->parts = calloc(parts + 1, sizeof *joined->parts);
    joined->part_items = calloc(room + 1, sizeof *joined->part_items);
    joined->part_of = calloc(room + 1, sizeof *joined->part_of);
    if (counts) joined->part_counts = calloc(room + 1, sizeof *joined->part_counts);
    if (joined->parts != NULL && joined->part_items != NULL && joined->part_of != NULL &&
        (joined->part_counts != NULL || !counts))
        return joined;
    pd_joined_free(joined);
    return NULL;
}

pd_part *pd_joined_part(pd_joined *joined, size_t shard, unsigned method)
{
    pd_part *part = &joined->parts[joined->n_parts++];

    part->shard = shard;
    part->method = method;
    part->items = joined->part_items + joined->room;
    part->of = joined->part_of + joined->room;
    if (joined->part_counts != NULL) part->counts = joined->part_counts + joined->room;
    joined->first_failed = joined->n_parts;
    return part;
}

void pd_joined_item(pd_joined *joined, pd_item item, size_t of)
{
    pd_part *part = &joined->parts[joined->n_parts - 1];

    part->items[part->n] = item;
    part->of[part->n++] = of;
    joined->room++;
}

int pd_joined_add(pd_shards *shards, pd_joined *joined, pd_ticket_id *ticket, pd_error *err)
{
    joined->id = shards->last + 1;
    HASH_ADD(hh, shards->joined, id, sizeof joined->id, joined);
    if (joined->hh.tbl == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    *ticket = ++shards->last;
    return PD_OK;
}

void pd_joined_remove(pd_shards *shards, pd_joined *joined)
{
    HASH_DELETE(hh, shards->joined, joined);
}

static pd_joined *find(const pd_shards *shards, pd_ticket_id ticket)
{
    pd_joined *joined;

    HASH_FIND(hh, shards->joined, &ticket, sizeof ticket, joined);
    return joined;
}

/* Returns the place of an outcome in the order of importance to the caller. A cut parameter has the outcome of that
 * portion whose outcome comes first. */
static int urgency(int outcome)
{
    static const int order[] = { PD_OUTCOME_REFUSED, PD_OUTCOME_LATE, PD_OUTCOME_SKIPPED, PD_OUTCOME_STEPPED,
                                 PD_OUTCOME_NO_GRADIENT };

    if (outcome < 0) return 0;
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
        if (order[i] == outcome) return 1 + i;
    return 1 + (int)(sizeof order / sizeof *order);
}

/* Adds the results of a part's item to those of the caller's item. `first`: the caller's item has no results yet. */
static void add_result(pd_item *to, const pd_item *from, bool first)
{
    if (first) {
        to->outcome = from->outcome;
        to->step = from->step;
        to->version = from->version;
        return;
    }
    if (urgency(from->outcome) < urgency(to->outcome)) to->outcome = from->outcome;
    if (from->step < to->step) to->step = from->step;
    if (from->version < to->version) to->version = from->version;
}

static void add_count(pd_item_count *to, const pd_item_count *from, bool first)
{
    if (first || from->age > to->age) to->age = from->age;
    if (first || from->counted < to->counted) to->counted = from->counted;
}

/* Writes the results of all parts into the caller's items, in the order of the parts. */
static void join_results(const pd_joined *joined)
{
    for (size_t i = 0; i < joined->n; i++) joined->items[i].outcome = INT32_MAX; /* no result yet */
    for (size_t p = 0; p < joined->n_parts; p++) {
        const pd_part *part = &joined->parts[p];
        for (size_t i = 0; i < part->n; i++) {
            pd_item *item = &joined->items[part->of[i]];
            bool first = item->outcome == INT32_MAX;
            add_result(item, &part->items[i], first);
            if (joined->counts != NULL && part->counts != NULL && part->method != PD_PULL)
                add_count(&joined->counts[part->of[i]], &part->counts[i], first);
        }
    }
    for (size_t i = 0; i < joined->n; i++)
        if (joined->items[i].outcome == INT32_MAX) joined->items[i].outcome = 0;
}

/* The state of a part. */
typedef struct pd_fate_of_part {
    bool done, spoils; /* spoils: the part has failed, and the other parts of the call need not go on */
    pd_error error;
} pd_fate_of_part;

/* Looks at a part. A step that the optimizer has refused is an error, but the answers to the other parts come. */
static pd_fate_of_part look(const pd_shards *shards, const pd_part *part)
{
    pd_client *shard = pd_handle_enter(shards->at[part->shard]);
    const pd_op *op = pd_op_find(shard->core, part->ticket);
    pd_fate_of_part fate = { .done = op == NULL || op->done };

    if (op != NULL && op->done) fate.error = op->error;
    fate.spoils = fate.error.code != PD_OK && (op->hopeless || shard->core->end.error.code != PD_OK);
    pd_io_leave(&shard->io);
    return fate;
}

static void spoil(const pd_shards *shards, const pd_joined *joined, const pd_error *error)
{
    for (size_t p = 0; p < joined->n_parts; p++) {
        pd_client *shard = shards->at[joined->parts[p].shard];

        if (joined->parts[p].ticket == 0) continue;
        pd_io_enter(&shard->io);
        pd_core_spoil(shard->core, joined->parts[p].ticket, error);
        pd_io_leave(&shard->io);
    }
}

/* Returns whether all parts of a call are done. If one has failed, or the handle of any shard has ended, ends the
 * others soon: they may wait for steps that cannot be taken. pd_shards.lock is held. */
static bool is_done(const pd_shards *shards, pd_joined *joined)
{
    pd_error spoilt = joined->error;
    bool done = true;

    for (size_t p = 0; p < joined->n_parts; p++) {
        pd_fate_of_part fate;

        if (joined->parts[p].ticket == 0) continue;
        fate = look(shards, &joined->parts[p]);
        done = done && fate.done;
        if (fate.error.code != PD_OK && joined->first_failed == joined->n_parts) joined->first_failed = p;
        if (fate.spoils && spoilt.code == PD_OK) spoilt = fate.error;
    }
    if (!done && spoilt.code == PD_OK) pd_shards_check(shards, &spoilt);
    if (!done && spoilt.code != PD_OK) spoil(shards, joined, &spoilt);
    return done;
}

/* Takes the results of all parts, frees their tickets, and returns the call's error. pd_shards.lock is held. */
static pd_error take_results(pd_shards *shards, pd_joined *joined)
{
    pd_error first = joined->error;

    HASH_DELETE(hh, shards->joined, joined);
    joined->removed = true;
    join_results(joined);
    for (size_t p = 0; p < joined->n_parts; p++) {
        pd_client *shard = shards->at[joined->parts[p].shard];
        pd_error error = { .code = PD_OK };
        uint8_t *reply = NULL;
        size_t bytes;

        if (joined->parts[p].ticket == 0) continue;
        pd_io_enter(&shard->io);
        pd_core_finish(shard->core, joined->parts[p].ticket, &reply, &bytes, &error);
        pd_io_leave(&shard->io);
        free(reply);
        if (error.code == PD_OK || (first.code != PD_OK && p != joined->first_failed)) continue;
        if (joined->error.code != PD_OK) continue;
        pd_shards_name(shards, joined->parts[p].shard, &error);
        first = error;
    }
    return first;
}

/* Ends the other parts of a call of which one has failed. */
static void end_others(pd_shards *shards, const pd_waiter *waiters, void *arg)
{
    (void)waiters;
    pthread_mutex_lock(&shards->lock);
    is_done(shards, arg);
    pthread_mutex_unlock(&shards->lock);
}

static int await(pd_shards *shards, pd_joined *joined, double seconds, pd_error *err)
{
    pd_waiter *waiters = calloc(joined->n_parts + 1, sizeof *waiters);

    if (waiters == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < joined->n_parts; p++) {
        waiters[p].shard = joined->parts[p].shard;
        waiters[p].ticket = joined->parts[p].ticket;
    }
    pd_shards_await(shards, waiters, joined->n_parts, pd_clock_seconds() + seconds, end_others, joined);
    free(waiters);
    return PD_OK;
}

/* Fills the error of a call that has timed out: names the first shard whose part is not done. */
static int timed_out(const pd_shards *shards, const pd_joined *joined, double seconds, pd_error *err)
{
    char state[PD_ERROR_TEXT];
    size_t p = 0;
    pd_error error;

    while (p + 1 < joined->n_parts && (joined->parts[p].ticket == 0 || look(shards, &joined->parts[p]).done)) p++;
    pd_shards_state(shards, joined->parts[p].shard, state);
    pd_fail(&error, PD_DEADLINE_EXCEEDED, "waited %g s: %.400s", seconds, state);
    pd_shards_name(shards, joined->parts[p].shard, &error);
    if (err != NULL) *err = error;
    return error.code;
}

static int unknown(pd_ticket_id ticket, pd_error *err)
{
    return pd_fail(err, PD_NOT_FOUND, "unknown ticket %llu: never issued, or already waited for",
                   (unsigned long long)ticket);
}

/* Ends waiting for a call: takes its results if it is done. pd_shards.lock is held. */
static int end_wait(pd_shards *shards, pd_joined *joined, double seconds, pd_error *err)
{
    pd_error error;

    if (joined->removed) return unknown(joined->id, err);
    if (!is_done(shards, joined)) return timed_out(shards, joined, seconds, err);
    error = take_results(shards, joined);
    if (error.code != PD_OK && err != NULL) *err = error;
    return error.code;
}

int pd_shards_wait(pd_client *client, pd_ticket_id ticket, double seconds, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_joined *joined;
    int rc;

    pthread_mutex_lock(&shards->lock);
    if ((joined = find(shards, ticket)) == NULL) {
        pthread_mutex_unlock(&shards->lock);
        return unknown(ticket, err);
    }
    joined->users++;
    pthread_mutex_unlock(&shards->lock);
    rc = await(shards, joined, seconds, err);
    pthread_mutex_lock(&shards->lock);
    if (rc == PD_OK) rc = end_wait(shards, joined, seconds, err);
    if (--joined->users == 0 && joined->removed) pd_joined_free(joined);
    pthread_mutex_unlock(&shards->lock);
    return rc;
}

bool pd_shards_ready(pd_shards *shards, pd_ticket_id ticket)
{
    pd_joined *joined;
    bool done;

    pthread_mutex_lock(&shards->lock);
    joined = find(shards, ticket);
    done = joined == NULL || is_done(shards, joined);
    if (joined != NULL && done) join_results(joined);
    pthread_mutex_unlock(&shards->lock);
    if (!done) pd_shards_go_back_together(shards);
    return done;
}

int pd_shards_fd(pd_shards *shards)
{
    pthread_mutex_lock(&shards->lock);
    if (shards->done_fd < 0 && (shards->done_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)) >= 0)
        for (size_t i = 0; i < shards->n; i++) pd_io_lend_fd(&shards->at[i]->io, shards->done_fd);
    pthread_mutex_unlock(&shards->lock);
    return shards->done_fd;
}

void pd_shards_forget_tickets(pd_shards *shards)
{
    pd_joined *joined, *next;

    HASH_ITER(hh, shards->joined, joined, next)
    {
        HASH_DELETE(hh, shards->joined, joined);
        pd_joined_free(joined);
    }
}
