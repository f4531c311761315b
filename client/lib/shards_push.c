/* shards_push.c - splits the items of a push or a pull over the shards of a cluster, and begins the call on all of
 * them. */
#include <stdlib.h>
#include <string.h>

#include "join.h"
#include "mutant.h"
#include "shards_ticket.h"

/* Checks, in a job with open sets, that all items of a push belong to one fragment, which lies on one shard. */
static int check_fragment(const pd_shards *shards, unsigned method, const pd_item *items, size_t n, pd_error *err)
{
    const pd_sharded_param *first = &shards->params[items[0].param];

    for (size_t i = 1; shards->open_sets && pd_method_pushes(method) && i < n; i++)
        if (shards->params[items[i].param].fragment != first->fragment)
            return pd_core_refuse_fragments(first->name, first->fragment, shards->params[items[i].param].name,
                                            shards->params[items[i].param].fragment, err);
    return PD_OK;
}

static int check_items(const pd_shards *shards, unsigned method, const pd_item *items, size_t n, pd_error *err)
{
    if (shards->n_params == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "no items");
    for (size_t i = 0; i < n; i++) {
        if (items[i].param >= shards->n_params)
            return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu: parameter %zu, but %zu are declared", i, items[i].param,
                           shards->n_params);
        if (method != PD_PUSH && items[i].weights == NULL && shards->params[items[i].param].elements > 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "item %zu (%.160s): no buffer for its weights", i,
                           shards->params[items[i].param].name);
    }
    return check_fragment(shards, method, items, n, err);
}

static uint64_t step_at(const pd_shards *shards, const pd_place *place)
{
    pd_client *shard = pd_handle_enter(shards->at[place->shard]);
    uint64_t step = pd_core_step(shard->core, place->handle);

    pd_io_leave(&shard->io);
    return step;
}

/* Returns the lowest step of a parameter's places: the one before the step that a push is for. */
static uint64_t lowest_step(const pd_shards *shards, const pd_sharded_param *param)
{
    uint64_t least = UINT64_MAX;

    for (size_t k = 0; k < param->n; k++) {
        uint64_t step = step_at(shards, &shards->places[param->first + k]);
        if (step < least) least = step;
    }
    return least;
}

/* How the items of a call are split. */
typedef struct pd_split {
    const pd_shards *shards;
    unsigned method;
    pd_item *items; /* the caller's */
    size_t n;
    uint64_t min_step; /* of a pull */
    /* For each place of each item: it has taken the step that the item is pushed for, in an earlier call that failed
     * on another shard. NULL: none has. */
    bool *ahead;
} pd_split;

static size_t count_places(const pd_split *split)
{
    size_t n = 0;

    for (size_t i = 0; i < split->n; i++) n += split->shards->params[split->items[i].param].n;
    return n;
}

/* Finds the places of cut parameters that are ahead of others. Returns PD_NO_MEMORY if out of memory. */
static int find_ahead(pd_split *split)
{
    size_t at = 0;

    for (size_t i = 0; pd_method_pushes(split->method) && i < split->n; i++) {
        const pd_sharded_param *param = &split->shards->params[split->items[i].param];
        uint64_t least = param->n > 1 ? lowest_step(split->shards, param) : 0;

        for (size_t k = 0; k < param->n; k++, at++) {
            if (param->n == 1 || step_at(split->shards, &split->shards->places[param->first + k]) == least) continue;
            if (split->ahead == NULL && (split->ahead = calloc(count_places(split), sizeof *split->ahead)) == NULL)
                return PD_NO_MEMORY;
            split->ahead[at] = true;
        }
    }
    return PD_OK;
}

/* Returns the part of the caller's item that lies at a place. */
static pd_item item_at(const pd_sharded_param *param, const pd_item *item, const pd_place *place)
{
    pd_item part = { .param = place->handle };

    if (item->gradient != NULL && PD_MUTANT(part_of_neighbour))
        part.gradient = item->gradient;
    else if (item->gradient != NULL)
        part.gradient = (const uint8_t *)item->gradient + (size_t)place->first * param->in;
    if (item->weights != NULL) part.weights = (uint8_t *)item->weights + (size_t)place->first * param->out;
    return part;
}

/* Adds to a call the part of one shard: of the places that are ahead, or of those that are not. */
static void add_part(pd_joined *joined, const pd_split *split, size_t shard, bool ahead)
{
    unsigned method = ahead ? PD_PULL : split->method;
    pd_part *part = NULL;
    size_t at = 0;

    for (size_t i = 0; i < split->n; i++) {
        const pd_sharded_param *param = &split->shards->params[split->items[i].param];

        for (size_t k = 0; k < param->n; k++, at++) {
            const pd_place *place = &split->shards->places[param->first + k];
            if (place->shard != shard || (split->ahead != NULL && split->ahead[at]) != ahead) continue;
            if (part == NULL) part = pd_joined_part(joined, shard, method);
            pd_joined_item(joined, item_at(param, &split->items[i], place), i);
        }
    }
}

/* Makes the parts of a call. Those of weights that are only pulled come last, so that outcomes are those of pushes. */
static pd_joined *split_items(const pd_split *split, pd_item_count *counts)
{
    const pd_shards *shards = split->shards;
    pd_joined *joined = pd_joined_new(3 * shards->n, count_places(split), counts != NULL);

    if (joined == NULL) return NULL;
    joined->items = split->items;
    joined->n = split->n;
    joined->counts = counts;
    for (size_t s = 0; s < shards->n; s++) add_part(joined, split, s, false);
    for (size_t s = 0; split->ahead != NULL && split->method == PD_PUSH_PULL && s < shards->n; s++)
        add_part(joined, split, s, true);
    for (size_t i = 0; i < split->n; i++) {
        split->items[i].outcome = 0;
        split->items[i].step = split->items[i].version = 0;
    }
    return joined;
}

static int begin_split(pd_joined **out, pd_split *split, pd_item_count *counts, pd_error *err)
{
    int rc = pd_shards_check(split->shards, err);

    if (rc == PD_OK) rc = check_items(split->shards, split->method, split->items, split->n, err);
    if (rc != PD_OK) return rc;
    *out = find_ahead(split) == PD_OK ? split_items(split, counts) : NULL;
    free(split->ahead);
    split->ahead = NULL;
    return *out != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* Puts the shard before an error that its handle has ended with; other errors are about the caller's arguments. */
static int name_end(const pd_shards *shards, size_t shard, pd_error *error, pd_error *err)
{
    pd_client *inside = pd_handle_enter(shards->at[shard]);
    bool ended = inside->core->end.error.code != PD_OK;

    pd_io_leave(&inside->io);
    if (ended) pd_shards_name(shards, shard, error);
    if (err != NULL) *err = *error;
    return error->code;
}

/* A push while it begins on all shards. */
typedef struct pd_many_pushes {
    const pd_shards *shards;
    pd_joined *joined;
    pd_push_options *options; /* for each part */
    pd_pushing *pushings;     /* for each part */
    uint64_t step;            /* the highest step that an item is pushed for */
    size_t home;              /* the part with which the worker state goes; SIZE_MAX: there is none */
} pd_many_pushes;

/* Returns the place that bears the scalars of a push: the same on all ranks that push the same parameters. */
static size_t choose_bearer(const pd_shards *shards, const pd_joined *joined)
{
    const pd_param_record *records = shards->at[0]->core->params; /* the fields that are compared never change */
    const pd_param_record *best = &records[joined->items[0].param];

    for (size_t i = 1; i < joined->n; i++)
        if (pd_bears_before(&records[joined->items[i].param], best)) best = &records[joined->items[i].param];
    return best->cut ? best->portion : best->declared;
}

/* Finds the part that pushes a place. Returns the number of parts if there is none. */
static size_t find_part(const pd_joined *joined, size_t handle)
{
    for (size_t p = 0; p < joined->n_parts; p++)
        for (size_t k = 0; pd_method_pushes(joined->parts[p].method) && k < joined->parts[p].n; k++)
            if (joined->parts[p].items[k].param == handle) return p;
    return joined->n_parts;
}

/* Returns whether the worker state goes with a part. */
static bool takes_state(const pd_many_pushes *push, size_t p)
{
    const pd_part *part = &push->joined->parts[p];

    return p == push->home || part->method == PD_NOTE ||
           (pd_method_pushes(part->method) && push->step > 0 && push->shards->noted[part->shard] == push->step);
}

/* Makes the options of each part: scalars go with their bearer, the worker state with its part. */
static int share_options(pd_many_pushes *push, const pd_push_options *options, pd_error *err)
{
    const pd_joined *joined = push->joined;
    size_t bearer = options->n_scalars > 0 ? find_part(joined, choose_bearer(push->shards, joined)) : 0;

    if (options->n_scalars > 0 && bearer == joined->n_parts)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "scalars ride with the first parameter by name, which is cut into portions, and of whose first "
                       "portion this rank has nothing to push. Give them with a call that has a parameter that is not "
                       "cut");
    for (size_t p = 0; p < joined->n_parts; p++) {
        bool notes = takes_state(push, p);
        push->options[p] = *options;
        push->options[p].counts = joined->parts[p].counts;
        if (p != bearer) push->options[p].n_scalars = 0;
        if (!notes) push->options[p].worker_state = NULL;
        if (!notes) push->options[p].worker_state_bytes = 0;
    }
    return PD_OK;
}

/* Returns the part that pushes to a shard; SIZE_MAX: none does. */
static size_t find_push(const pd_joined *joined, size_t shard)
{
    for (size_t p = 0; p < joined->n_parts; p++)
        if (joined->parts[p].shard == shard && pd_method_pushes(joined->parts[p].method)) return p;
    return SIZE_MAX;
}

/* Chooses the part with which the worker state goes. It must come to its shard before a gradient of its step, without
 * which the step does not close: then a checkpoint of the step has it. So it goes to the first shard that keeps worker
 * states and gets a gradient. If none gets one, it goes to the first that keeps them. Other shards that have a state of
 * this step get the new one, too. */
static void place_state(pd_many_pushes *push, const pd_split *split, const pd_push_options *options)
{
    const pd_shards *shards = push->shards;
    pd_joined *joined = push->joined;
    size_t first = shards->n;

    push->home = SIZE_MAX;
    if (options->worker_state_bytes == 0) return;
    for (size_t i = 0; i < split->n; i++) {
        uint64_t step = lowest_step(shards, &shards->params[split->items[i].param]) + 1;
        if (step > push->step) push->step = step;
    }
    for (size_t i = 0; push->home == SIZE_MAX && i < shards->n; i++) {
        if (!pd_shards_keeps_states(shards, i)) continue;
        if (first == shards->n) first = i;
        push->home = find_push(joined, i);
    }
    if (push->home == SIZE_MAX) pd_joined_part(joined, first, PD_NOTE);
    for (size_t i = 0; push->home != SIZE_MAX && i < shards->n; i++)
        if (pd_shards_keeps_states(shards, i) && shards->noted[i] == push->step && find_push(joined, i) == SIZE_MAX)
            pd_joined_part(joined, i, PD_NOTE);
}

static void cancel(const pd_many_pushes *push, size_t p)
{
    pd_client *shard = push->shards->at[push->joined->parts[p].shard];

    if (!pd_method_pushes(push->joined->parts[p].method)) return;
    pd_io_enter(&shard->io);
    pd_core_push_cancel(&push->pushings[p]);
    pd_io_leave(&shard->io);
}

/* Begins the parts that push. After an error none has begun. */
static int begin_parts(pd_many_pushes *push, pd_error *err)
{
    const pd_joined *joined = push->joined;
    size_t p = 0;
    int rc = PD_OK;

    while (rc == PD_OK && p < joined->n_parts) {
        const pd_part *part = &joined->parts[p];
        pd_client *shard = push->shards->at[part->shard];
        pd_error error;

        if (pd_method_pushes(part->method)) {
            pd_io_enter(&shard->io);
            rc = pd_core_push_begin(&push->pushings[p], shard->core, part->method, part->items, part->n,
                                    &push->options[p], &error);
            pd_io_leave(&shard->io);
        }
        if (rc == PD_OK)
            p++;
        else
            name_end(push->shards, part->shard, &error, err);
    }
    while (rc != PD_OK && p-- > 0) cancel(push, p);
    return rc;
}

/* Queues one part of a push. */
static int queue(const pd_many_pushes *push, pd_part *part, size_t p, pd_error *err)
{
    pd_client *shard = push->shards->at[part->shard];
    const pd_push_options *options = &push->options[p];
    int rc;

    pd_io_enter(&shard->io);
    if (part->method == PD_PULL)
        rc = pd_core_pull(shard->core, part->items, part->n, 0, options->form, &part->ticket, err);
    else if (part->method == PD_NOTE)
        rc = pd_core_put_worker_state(shard->core, push->step, options->worker_state, options->worker_state_bytes,
                                      &part->ticket, err);
    else
        rc = pd_core_push_end(&push->pushings[p], &part->ticket, err);
    pd_io_leave(&shard->io);
    return rc;
}

/* Queues all parts. If that fails for the first one, nothing is queued, and the error is returned. If it fails for a
 * later one, the ticket ends with the error, since earlier parts may be on the wire. */
static int queue_parts(const pd_many_pushes *push, pd_error *err)
{
    pd_joined *joined = push->joined;
    pd_error error = { .code = PD_OK };

    for (size_t p = 0; p < joined->n_parts; p++) {
        pd_part *part = &joined->parts[p];

        if (error.code != PD_OK)
            cancel(push, p);
        else if (queue(push, part, p, &error) != PD_OK)
            name_end(push->shards, part->shard, &error, p == 0 ? err : NULL);
        else if (push->options[p].worker_state_bytes > 0)
            push->shards->noted[part->shard] = push->step;
        for (size_t k = 0; error.code != PD_OK && k < part->n; k++) part->items[k].outcome = error.code;
    }
    joined->error = error;
    return joined->n_parts > 0 && joined->parts[0].ticket == 0 ? error.code : PD_OK;
}

/* Begins a push whose items are split, or frees the call. pd_shards.lock is held; it is released while gradients are
 * quantized. */
static int begin(pd_shards *shards, pd_many_pushes *push, const pd_push_options *options, pd_ticket_id *ticket,
                 pd_error *err)
{
    int rc = share_options(push, options, err);

    if (rc == PD_OK) rc = begin_parts(push, err);
    if (rc != PD_OK) return rc;
    pthread_mutex_unlock(&shards->lock);
    for (size_t p = 0; p < push->joined->n_parts; p++)
        if (push->pushings[p].quantizes) pd_core_push_quantize(&push->pushings[p]);
    pthread_mutex_lock(&shards->lock);
    if ((rc = pd_joined_add(shards, push->joined, ticket, err)) != PD_OK) {
        for (size_t p = 0; p < push->joined->n_parts; p++) cancel(push, p);
        return rc;
    }
    if ((rc = queue_parts(push, err)) != PD_OK) pd_joined_remove(shards, push->joined);
    return rc;
}

int pd_shards_push(pd_client *client, unsigned method, pd_item *items, size_t n, const pd_push_options *options,
                   pd_ticket_id *ticket, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_split split = { .shards = shards, .method = method, .items = items, .n = n };
    pd_many_pushes push = { .shards = shards };
    int rc;

    pd_shards_share_durable(shards);
    pthread_mutex_lock(&shards->lock);
    rc = begin_split(&push.joined, &split, options->counts, err);
    if (rc == PD_OK) {
        place_state(&push, &split, options);
        push.options = calloc(push.joined->n_parts, sizeof *push.options);
        push.pushings = calloc(push.joined->n_parts, sizeof *push.pushings);
        rc = push.options != NULL && push.pushings != NULL ? begin(shards, &push, options, ticket, err)
                                                           : pd_fail(err, PD_NO_MEMORY, "out of memory");
        if (rc != PD_OK) pd_joined_free(push.joined);
    }
    pthread_mutex_unlock(&shards->lock);
    free(push.options);
    free(push.pushings);
    return rc;
}

int pd_shards_pull(pd_client *client, pd_item *items, size_t n, uint64_t min_step, pd_weights_form form,
                   pd_ticket_id *ticket, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_split split = { .shards = shards, .method = PD_PULL, .items = items, .n = n };
    pd_joined *joined;
    int rc;

    pthread_mutex_lock(&shards->lock);
    rc = begin_split(&joined, &split, NULL, err);
    if (rc == PD_OK && (rc = pd_joined_add(shards, joined, ticket, err)) != PD_OK) pd_joined_free(joined);
    for (size_t p = 0; rc == PD_OK && p < joined->n_parts && joined->error.code == PD_OK; p++) {
        pd_part *part = &joined->parts[p];
        pd_client *shard = shards->at[part->shard];

        pd_io_enter(&shard->io);
        pd_core_pull(shard->core, part->items, part->n, min_step, form, &part->ticket, &joined->error);
        pd_io_leave(&shard->io);
        if (joined->error.code != PD_OK) name_end(shards, part->shard, &joined->error, NULL);
    }
    if (rc == PD_OK && joined->parts[0].ticket == 0) {
        rc = joined->error.code;
        if (err != NULL) *err = joined->error;
        pd_joined_remove(shards, joined);
        pd_joined_free(joined);
    }
    pthread_mutex_unlock(&shards->lock);
    return rc;
}

/* Returns whether a shard has taken a step already: a call that closed it there has failed on another shard. */
static bool has_step(pd_client *shard, uint64_t step)
{
    bool has;

    pd_io_enter(&shard->io);
    has = pd_core_lowest_step(shard->core) >= step;
    pd_io_leave(&shard->io);
    return has;
}

static int may_close(const pd_shards *shards, uint64_t step, pd_error *err)
{
    int rc = shards->n_params > 0
                 ? pd_shards_check(shards, err)
                 : pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");

    for (size_t s = 0; rc == PD_OK && s < shards->n; s++) {
        pd_io_enter(&shards->at[s]->io);
        rc = pd_core_may_close(shards->at[s]->core, step, err);
        pd_io_leave(&shards->at[s]->io);
    }
    return rc;
}

/* Queues the end of a step on those shards that have not taken it, or if all have taken it on all. */
static void close_on_all(pd_shards *shards, pd_joined *joined, uint64_t step)
{
    bool all = true;

    for (size_t s = 0; s < shards->n; s++) all = all && has_step(shards->at[s], step);
    for (size_t s = 0; s < shards->n && joined->error.code == PD_OK; s++) {
        pd_client *shard = shards->at[s];
        pd_part *part;

        if (!all && has_step(shard, step)) continue;
        part = pd_joined_part(joined, s, PD_PUSH);
        pd_io_enter(&shard->io);
        pd_core_close_step(shard->core, step, &part->ticket, &joined->error);
        pd_io_leave(&shard->io);
        if (joined->error.code != PD_OK) name_end(shards, s, &joined->error, NULL);
    }
}

int pd_shards_close_step(pd_client *client, uint64_t step, pd_ticket_id *ticket, pd_error *err)
{
    pd_shards *shards = client->shards;
    pd_joined *joined = NULL;
    int rc;

    pd_shards_share_durable(shards);
    pthread_mutex_lock(&shards->lock);
    rc = may_close(shards, step, err);
    if (rc == PD_OK && (joined = pd_joined_new(shards->n, 0, false)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK && (rc = pd_joined_add(shards, joined, ticket, err)) != PD_OK) pd_joined_free(joined);
    if (rc == PD_OK) close_on_all(shards, joined, step);
    pthread_mutex_unlock(&shards->lock);
    return rc;
}
