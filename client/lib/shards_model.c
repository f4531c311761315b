/* shards_model.c - declares the model to all shards of a cluster, keeps where its parameters lie, and gets the initial
 * weights. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "join.h"
#include "shards.h"
#include "sharing.h"

/* Counts the places of a parameter, or writes them to `to`: portions without elements of this rank are left out, but
 * one place remains. Returns their number. */
static size_t list_places(const pd_core *core, size_t param, pd_place *to)
{
    const pd_param_record *record = &core->params[param], *portions = &core->params[record->portion];
    size_t n = 0;

    if (!record->cut) {
        if (to != NULL)
            *to = (pd_place){ .shard = record->shard, .handle = param, .count = record->end - record->start };
        return 1;
    }
    for (size_t k = 0; k < record->n_portions; k++) {
        int64_t count = portions[k].end - portions[k].start;
        bool last = n == 0 && k + 1 == record->n_portions;
        if (count == 0 && !last) continue;
        if (to != NULL)
            to[n] = (pd_place){ .shard = portions[k].shard,
                                .handle = record->portion + k,
                                .first = count > 0 ? portions[k].origin + portions[k].start - record->start : 0,
                                .count = count };
        n++;
    }
    return n;
}

static size_t count_places(const pd_core *core)
{
    size_t n = 0;

    for (size_t i = 0; i < core->n_declared; i++) n += list_places(core, i, NULL);
    return n;
}

static void fill(pd_sharded_param *params, pd_place *places, const pd_core *core)
{
    size_t at = 0;

    for (size_t i = 0; i < core->n_declared; i++) {
        const pd_param_record *record = &core->params[i];
        bool coded = pd_dtype_is_quantized(record->push);

        params[i] = (pd_sharded_param){ .first = at,
                                        .n = list_places(core, i, places + at),
                                        .in = pd_dtype_size(coded ? PD_F32 : record->push),
                                        .out = pd_dtype_size(record->pull),
                                        .elements = record->end - record->start,
                                        .ranged = record->ranged,
                                        .cut = record->cut,
                                        .fragment = record->fragment,
                                        .name = record->name };
        at += params[i].n;
    }
}

/* Notes the shards that have a parameter, or a portion of one, other than model state. */
static void find_coupled(bool *coupled, const pd_core *core)
{
    for (size_t i = 0; i < core->n_declared; i++) {
        const pd_param_record *record = &core->params[i];

        if (!record->model_state && !record->cut) coupled[record->shard] = true;
        for (size_t k = 0; !record->model_state && record->cut && k < record->n_portions; k++)
            coupled[core->params[record->portion + k].shard] = true;
    }
}

/* Compares the maps of all shards. */
static int compare_maps(const pd_shards *shards, pd_error *err)
{
    uint64_t map = shards->at[0]->core->map;

    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = shards->at[i];
        uint64_t own;
        pd_error error;

        pd_io_enter(&shard->io);
        own = shard->core->map;
        pd_io_leave(&shard->io);
        if (own == map && own != 0) continue;
        pd_fail(&error, PD_FAILED_PRECONDITION,
                "%.60s makes another map of the parameters (%016" PRIx64 ") than %.60s on shard 0 (%016" PRIx64
                "): give all shards one version and the same options of the job",
                shard->welcome.server, own, shards->at[0]->welcome.server, map);
        pd_shards_name(shards, i, &error);
        if (err != NULL) *err = error;
        return error.code;
    }
    return PD_OK;
}

int pd_shards_learn(pd_shards *shards, pd_error *err)
{
    pd_client *lead = shards->at[0];
    pd_sharded_param *params;
    pd_place *places;
    bool open_sets;
    size_t n;
    int rc = compare_maps(shards, err);

    if (rc != PD_OK) return rc;
    pd_io_enter(&lead->io);
    n = lead->core->n_declared;
    open_sets = lead->core->open_sets;
    params = calloc(n + 1, sizeof *params);
    places = calloc(count_places(lead->core) + 1, sizeof *places);
    if (params != NULL && places != NULL) fill(params, places, lead->core);
    find_coupled(shards->coupled, lead->core);
    pd_io_leave(&lead->io);
    if (params == NULL || places == NULL) {
        free(params);
        free(places);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    pthread_mutex_lock(&shards->lock);
    shards->open_sets = open_sets;
    shards->params = params;
    shards->places = places;
    shards->n_params = n;
    pthread_mutex_unlock(&shards->lock);
    return PD_OK;
}

/* Forgets the model, after one shard has refused it. */
static void forget(pd_shards *shards)
{
    pthread_mutex_lock(&shards->lock);
    free(shards->params);
    free(shards->places);
    shards->params = NULL;
    shards->places = NULL;
    shards->n_params = 0;
    pthread_mutex_unlock(&shards->lock);
}

/* Takes the declaration back from all shards, so that it can be made anew. */
static void withdraw(pd_shards *shards)
{
    static const pd_error why = { PD_CANCELLED, "another shard of the cluster did not take the parameters" };

    forget(shards);
    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = shards->at[i];
        pd_io_enter(&shard->io);
        pd_core_withdraw(shard->core, &why);
        shard->declare = 0;
        pd_io_leave(&shard->io);
    }
}

/* The arguments of pd_client_declare. */
typedef struct pd_model {
    const pd_client_param *params;
    size_t n;
    bool lead_alone; /* shard 0 alone gets the declaration */
} pd_model;

static int declare_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_model *model = arg;

    if ((number > 0 && model->lead_alone) || shard->core->declared) return PD_OK;
    return pd_core_declare(shard->core, model->params, model->n, &shard->declare, err);
}

/* Brings the shards to one step, where their steps belong together. */
static int agree(pd_client *client, pd_error *err)
{
    int rc = client->shards->open_sets ? PD_OK : pd_shards_agree(client, pd_handle_end(client), err);

    client->shards->agreed = rc == PD_OK;
    return rc;
}

static int declare_on(pd_client *client, pd_model *model, double end, pd_error *err)
{
    return pd_shards_carry_out(client, PD_CALL_DECLARE, offsetof(pd_client, declare), declare_one, model, end, err);
}

int pd_shards_declare(pd_client *client, const pd_client_param *params, size_t n, pd_error *err)
{
    double end = pd_handle_end(client);
    pd_shards *shards = client->shards;
    pd_model model = { params, n, shards->any_rank };
    int rc = PD_OK;

    if (shards->agreed) return pd_fail(err, PD_FAILED_PRECONDITION, "the parameters are already declared");
    /* An earlier call has declared them, and timed out later. */
    if (shards->n_params > 0) return agree(client, err);
    /* Where workers take any rank, the first one that declares gives the initial weights. It is first on all shards if
     * it has the answer of shard 0 before others do. */
    if (model.lead_alone) rc = declare_on(client, &model, end, err);
    model.lead_alone = false;
    if (rc == PD_OK) rc = declare_on(client, &model, end, err);
    if (rc == PD_DEADLINE_EXCEEDED) return rc;
    if (rc == PD_OK) rc = pd_shards_learn(shards, err);
    if (rc != PD_OK) {
        withdraw(shards);
        return rc;
    }
    return agree(client, err);
}

void **pd_shards_weights(const pd_shards *shards, size_t number, void *const *weights)
{
    size_t n = shards->at[number]->core->n_params; /* no longer changes */
    void **list = calloc(n > 0 ? n : 1, sizeof *list);

    for (size_t i = 0; list != NULL && i < shards->n_params; i++) {
        const pd_sharded_param *param = &shards->params[i];
        for (size_t k = 0; k < param->n; k++) {
            const pd_place *place = &shards->places[param->first + k];
            if (place->shard == number && weights[i] != NULL)
                list[place->handle] = (uint8_t *)weights[i] + (size_t)place->first * param->out;
        }
    }
    return list;
}

/* The arguments of pd_client_init. */
typedef struct pd_initial {
    const pd_shards *shards;
    void *const *weights;
} pd_initial;

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

static int init_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_initial *initial = arg;
    void **list;
    int rc;

    if (!shard->core->must_init || shard->fetch != 0) return PD_OK;
    if ((list = pd_shards_weights(initial->shards, number, initial->weights)) == NULL) return no_memory(err);
    rc = pd_core_init(shard->core, list, &shard->init, err);
    free(list);
    return rc;
}

static int fetch_one(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    const pd_initial *initial = arg;
    void **list = pd_shards_weights(initial->shards, number, initial->weights);
    int rc = list != NULL ? pd_core_fetch(shard->core, list, &shard->fetch, err) : no_memory(err);

    free(list);
    return rc;
}

/* Returns whether a shard that has lost the job begins it anew. Then the worker must not fetch weights before all
 * shards are at one step. If another shard goes back, the worker sends that shard its steps again, but not the shard
 * that has lost the job: the steps never close, and the weights never come. */
static bool begins_job_anew(const pd_shards *shards)
{
    bool begins = false;

    for (size_t i = 0; i < shards->n; i++) begins = begins || (shards->at[i]->restarting && shards->at[i]->fetch == 0);
    return begins;
}

int pd_shards_init(pd_client *client, void *const *weights, double end, pd_error *err)
{
    pd_initial initial = { client->shards, weights };
    bool even = false;
    int rc = pd_shards_check(client->shards, err);

    if (rc == PD_OK && client->shards->n_params == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION, "no parameters are declared yet (" PD_DECLARE_CALL ")");
    if (rc == PD_OK && client->shards->seeks) rc = pd_shards_even_out(client, end, &even, err);
    while (rc == PD_OK && !even) {
        rc = pd_shards_carry_out(client, PD_CALL_INIT, offsetof(pd_client, init), init_one, &initial, end, err);
        if (rc == PD_OK && begins_job_anew(client->shards)) {
            rc = pd_shards_even_out(client, end, &even, err);
            if (rc == PD_OK && !even) continue;
        }
        if (rc == PD_OK)
            rc = pd_shards_carry_out(client, PD_CALL_FETCH, offsetof(pd_client, fetch), fetch_one, &initial, end, err);
        if (rc == PD_OK) rc = pd_shards_even_out(client, end, &even, err);
    }
    for (size_t i = 0; rc == PD_OK && i < client->shards->n; i++) client->shards->at[i]->rewinding = false;
    return rc;
}

/* Returns memory for the gradient of a cut parameter, which no server shares. */
static void *private_buffer(pd_sharded_param *param)
{
    size_t bytes = ((size_t)param->elements * param->in + 63) / 64 * 64;

    if (param->buffer == NULL && (param->buffer = aligned_alloc(64, bytes > 0 ? bytes : 64)) != NULL)
        memset(param->buffer, 0, bytes > 0 ? bytes : 64);
    return param->buffer;
}

void *pd_shards_buffer(pd_shards *shards, size_t param)
{
    void *buffer = NULL;
    const pd_place *place;
    pd_client *shard;

    pthread_mutex_lock(&shards->lock);
    if (param < shards->n_params && shards->params[param].cut) {
        buffer = private_buffer(&shards->params[param]);
    } else if (param < shards->n_params) {
        place = &shards->places[shards->params[param].first];
        shard = shards->at[place->shard];
        pd_io_enter(&shard->io);
        buffer = pd_core_buffer(shard->core, place->handle);
        pd_io_leave(&shard->io);
    }
    pthread_mutex_unlock(&shards->lock);
    return buffer;
}

uint64_t pd_shards_step(pd_shards *shards, size_t param)
{
    uint64_t least = UINT64_MAX;

    pthread_mutex_lock(&shards->lock);
    for (size_t k = 0; param < shards->n_params && k < shards->params[param].n; k++) {
        const pd_place *place = &shards->places[shards->params[param].first + k];
        pd_client *shard = pd_handle_enter(shards->at[place->shard]);
        uint64_t step = pd_core_step(shard->core, place->handle);

        pd_io_leave(&shard->io);
        if (step < least) least = step;
    }
    pthread_mutex_unlock(&shards->lock);
    return least < UINT64_MAX ? least : 0;
}

const char *pd_shards_note(const pd_shards *shards, size_t param)
{
    const char *note = "";

    for (size_t i = 0; note[0] == '\0' && i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        note = pd_core_note(shard->core, param);
        pd_io_leave(&shard->io);
    }
    return note;
}

bool pd_shards_must_init(const pd_shards *shards)
{
    bool must = false;

    for (size_t i = 0; !must && i < shards->n; i++) {
        pd_client *shard = pd_handle_enter(shards->at[i]);
        must = shard->core->must_init;
        pd_io_leave(&shard->io);
    }
    return must;
}
