/* outer.c - makes and frees a pd_diloco, and tells what it has done. */
#include "paramd/diloco.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "outer.h"
#include "shards.h"

/* Takes over what the client knows of the declared parameters. Sets *elements to their number of elements. */
static int know_params(pd_diloco *d, float *const *weights, size_t *elements, pd_error *err)
{
    pd_client *inside = pd_handle_enter(pd_handle_lead(d->client));
    const pd_param_record *records = inside->core->params;
    int rc = PD_OK;

    *elements = 0;
    for (size_t i = 0; rc == PD_OK && i < d->n_params; i++) {
        d->params[i] = (pd_outer_param){ .n = (size_t)(records[i].end - records[i].start),
                                         .push = records[i].push,
                                         .pull = records[i].pull,
                                         .model_state = records[i].model_state,
                                         .fragment = records[i].fragment };
        *elements += d->params[i].n;
        if (records[i].update != 0)
            rc = pd_fail(err, PD_INVALID_ARGUMENT,
                         "parameter %.160s: expected update_dtype 0, got %d: its global weights are received whole",
                         records[i].name, (int)records[i].update);
        else if (weights[i] == NULL && d->params[i].n > 0)
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.160s: no weights", records[i].name);
    }
    pd_io_leave(&inside->io);
    return rc;
}

static void copy_weights(pd_diloco *d, float *const *weights)
{
    float *at = d->globals;

    for (size_t i = 0; i < d->n_params; i++) {
        pd_outer_param *param = &d->params[i];

        if (param->n == 0) continue;
        param->global = memcpy(at, weights[i], param->n * sizeof *at);
        at += param->n;
    }
}

/* Sets the order of the parameters, by fragment, and the fragments' places in it. */
static int order_params(pd_diloco *d, pd_error *err)
{
    size_t at = 0;

    for (size_t f = 0; f < d->n_fragments; f++) {
        d->fragments[f].first = at;
        for (size_t i = 0; i < d->n_params; i++)
            if (d->params[i].fragment == f) d->order[at++] = i;
        d->fragments[f].n = at - d->fragments[f].first;
        if (d->fragments[f].n == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "no parameter has fragment %zu: expected the numbers 0 to %zu without gaps", f,
                           d->n_fragments - 1);
    }
    return PD_OK;
}

static int check_options(const pd_diloco *d, pd_error *err)
{
    uint64_t every = d->options.sync_every, delay = d->options.fragment_sync_delay;
    double alpha = d->options.fragment_update_alpha;

    if (every == 0 || every % d->n_fragments != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "sync_every: expected a multiple of the number of fragments, %zu, got %" PRIu64, d->n_fragments,
                       every);
    if (delay >= every / d->n_fragments)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "fragment_sync_delay: expected less than sync_every divided by the number of fragments, %" PRIu64
                       ", got %" PRIu64,
                       every / d->n_fragments, delay);
    if (!(alpha >= 0 && alpha <= 1))
        return pd_fail(err, PD_INVALID_ARGUMENT, "fragment_update_alpha: expected 0 to 1, got %g", alpha);
    return PD_OK;
}

/* Sets the number of parameters and the tables for them. */
static int make_params(pd_diloco *d, pd_error *err)
{
    pd_client *inside = pd_handle_enter(pd_handle_lead(d->client));
    bool declared = inside->core->declared;

    d->n_params = inside->core->n_declared;
    pd_io_leave(&inside->io);
    if (!declared || d->n_params == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    d->params = calloc(d->n_params, sizeof *d->params);
    d->order = calloc(d->n_params, sizeof *d->order);
    return d->params != NULL && d->order != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static int make_fragments(pd_diloco *d, pd_error *err)
{
    for (size_t i = 0; i < d->n_params; i++)
        if (d->params[i].fragment >= d->n_fragments) d->n_fragments = (size_t)d->params[i].fragment + 1;
    if (d->n_fragments > d->n_params)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "a parameter has fragment %zu of %zu parameters: expected numbers from 0 without gaps",
                       d->n_fragments - 1, d->n_params);
    if ((d->fragments = calloc(d->n_fragments, sizeof *d->fragments)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return order_params(d, err);
}

static int fill(pd_diloco *d, float *const *weights, pd_error *err)
{
    size_t elements;
    int rc = make_params(d, err);

    if (rc == PD_OK) rc = know_params(d, weights, &elements, err);
    if (rc == PD_OK) rc = make_fragments(d, err);
    if (rc == PD_OK) rc = check_options(d, err);
    if (rc != PD_OK) return rc;
    d->globals = malloc(elements > 0 ? elements * sizeof *d->globals : 1);
    if (d->globals == NULL || pd_outer_make_flight(d) != PD_OK) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    copy_weights(d, weights);
    d->flying = -1;
    d->every = d->options.sync_every;
    d->apart = d->client->shards != NULL && d->client->shards->open_sets;
    pd_outer_place(d);
    return PD_OK;
}

int pd_diloco_make_sized(pd_diloco **out, pd_client *client, float *const *weights, const pd_diloco_options *options,
                         size_t size, pd_error *err)
{
    pd_diloco *d = calloc(1, sizeof *d);
    int rc;

    if (d == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    d->client = client;
    rc = pd_sized_read(&d->options, sizeof d->options, PD_LEAST_SIZE(pd_diloco_options, weigh_tokens), options, size,
                       "pd_diloco_options", err);
    if (rc == PD_OK) rc = fill(d, weights, err);
    if (rc != PD_OK) {
        pd_diloco_free(d);
        return rc;
    }
    pd_outer_leave(d);
    *out = d;
    return PD_OK;
}

void pd_diloco_free(pd_diloco *d)
{
    if (d == NULL) return;
    if (d->ticket != 0)
        pd_handle_keep(d->client, &d->flight->kept);
    else
        free(d->flight);
    pd_outer_free_buffers(d);
    free(d->globals);
    free(d->fragments);
    free(d->order);
    free(d->params);
    free(d);
}

const float *pd_diloco_global(const pd_diloco *d, size_t param)
{
    return param < d->n_params ? d->params[param].global : NULL;
}

static uint64_t lowest_step(const pd_diloco *d)
{
    uint64_t least = UINT64_MAX;

    for (size_t f = 0; f < d->n_fragments; f++)
        if (d->fragments[f].step < least) least = d->fragments[f].step;
    return least;
}

void pd_diloco_status_sized(const pd_diloco *d, pd_diloco_status *status, size_t size)
{
    pd_client_stats stats = pd_client_count(d->client);
    pd_diloco_status all = { .inner_steps = d->inner_steps,
                             .step = lowest_step(d),
                             .pushes = d->pushes,
                             .counted = d->counted,
                             .late = d->late,
                             .age = d->age,
                             .sync_every = d->every,
                             .payload_out = stats.payload_out,
                             .payload_in = stats.payload_in,
                             .counted_ranks = d->counted_ranks,
                             .speed = pd_outer_speed(d) };

    pd_client_members(d->client, &all.members, NULL, NULL);
    memset(status, 0, size);
    memcpy(status, &all, size < sizeof all ? size : sizeof all);
}
