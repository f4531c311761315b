/* reshard.c - makes the checkpoints of a job on another number of shards: plans the new shards, and copies the state of
 * each portion with the functions that write and read images. */
#include "reshard.h"

#include "checkpoint.h"
#include "declaration.h"
#include "declared_job.h"
#include "header_image.h"
#include "pages.h"
#include "param_image.h"
#include "param_set.h"
#include "portion_state.h"
#include "reshard_header.h"
#include "round_scalars.h"
#include "wal.h"
#include "wal_image.h"
#include "whole.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A portion, or whole parameter, on a shard that the job had. */
typedef struct piece {
    uint32_t shard;
    pd_param *param;
} piece;

struct pd_reshard {
    const pd_jobs *jobs;
    pd_job_env env;
    const pd_reshard_source **sources; /* in the order of the shards */
    pd_job **from;                     /* the shards that the job had; states have no memory, but for one parameter */
    uint32_t n, shards;
    uint64_t step;
    pd_declared_job declared; /* of the shard that is made next */
    piece *pieces;            /* of all shards, by parameter of the declaration, then by element */
    size_t n_pieces;
    pd_reshard_overrides overrides;
    piece loaded;   /* the one whose state is in memory; param NULL: none */
    pd_job *to;     /* the shard that is being made; NULL: none */
    float *weights; /* weights of one of its parameters */
    size_t room;    /* number of elements for which `weights` has room */
    pd_checkpoint_image *image;
};

static void free_job(pd_job *job)
{
    if (job == NULL) return;
    pd_param_set_forget(job);
    pd_job_free(job);
}

/* ---- the shards that the job had ---- */

/* Frees the state of the piece that is in memory. */
static void unload(pd_reshard *r)
{
    if (r->loaded.param == NULL) return;
    pd_published_unref(r->loaded.param->next);
    r->loaded.param->next = NULL;
    pd_optim_unload(r->loaded.param->optim);
    r->loaded.param = NULL;
}

/* Reads the state of a piece. */
static int load(pd_reshard *r, const piece *wanted, pd_error *err)
{
    const pd_checkpoint_image *image = r->sources[wanted->shard]->image;
    pd_param *param = wanted->param;
    pd_archive archive;
    int rc;

    if (r->loaded.param == param) return PD_OK;
    unload(r);
    if ((rc = image->read_state(image->read_arg, param->index, err)) != PD_OK) return rc;
    if (pd_optim_load(param->optim) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its state", param->name);
    r->loaded = *wanted;
    pd_archive_begin_read(&archive, image->params[param->index].state, image->params[param->index].state_bytes);
    pd_param_image_visit(&archive, &r->from[wanted->shard]->steps, param);
    rc = pd_archive_end(&archive, NULL, NULL, err);
    (void)image->read_state(image->read_arg, image->n_params, NULL);
    if (rc != PD_OK) return rc;
    if (param->saved.step == r->step) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: the state of %.160s is of step %" PRIu64 ", expected %" PRIu64,
                   r->sources[wanted->shard]->name, param->name, param->saved.step, r->step);
}

/* Makes the job of a shard from the header of its checkpoint. Its parameters have no weights and no memory for state.
 * */
static int read_header(const pd_reshard *r, const pd_reshard_source *source, pd_declared_job *declared, pd_job **out,
                       pd_error *err)
{
    pd_archive archive;
    pd_error why = { 0 };
    int rc;

    *out = NULL;
    pd_archive_begin_read(&archive, source->image->head, source->image->head_bytes);
    pd_declared_job_visit(&archive, declared);
    declared->hollow = true;
    if (pd_archive_status(&archive) == PD_OK &&
        (rc = pd_declared_job_make(out, declared, &r->env, r->jobs->last_number + 1, &why)) != PD_OK)
        pd_archive_fail(&archive, rc, "%s", why.text);
    if (*out != NULL) pd_header_image_visit_state(&archive, *out);
    rc = pd_archive_end(&archive, NULL, NULL, &why);
    return rc == PD_OK ? PD_OK : pd_fail(err, rc, "%.300s: %.400s", source->name, why.text);
}

static int take_decisions(void *to, const pd_wal_record *record, pd_error *err)
{
    pd_archive archive;

    pd_archive_begin_read(&archive, record->head, record->head_bytes);
    pd_wal_image_read_decisions(&archive, to);
    return pd_archive_end(&archive, NULL, NULL, err);
}

/* Adds the overrides that were set after the checkpoint of a shard. Records that begin after a later checkpoint than
 * this one do not count: the user has chosen an earlier step. */
static int add_settings(const pd_reshard *r, const pd_reshard_source *source, pd_job *job, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    job->checkpointing.newest.step = r->step;
    job->checkpointing.durable_place = source->image->place;
    for (uint32_t i = 0; i < job->steps.n_params; i++) job->steps.params[i].saved.step = r->step;
    if (source->read_decisions == NULL || job->steps.wal == NULL) return PD_OK;
    rc = source->read_decisions(source->decisions_arg, take_decisions, job, &why);
    if (rc == PD_OK) rc = pd_wal_put_overrides(&job->steps, &why);
    if (rc == PD_OK || rc == PD_FAILED_PRECONDITION) return PD_OK;
    return pd_fail(err, rc, "%.300s: its records of decisions: %.300s", source->name, why.text);
}

static uint32_t shards_of(const pd_declared_job *declared)
{
    return declared->shards > 1 ? declared->shards : 1;
}

static int check_shard(const pd_reshard *r, const pd_reshard_source *source, const pd_declared_job *d, pd_error *err)
{
    if (shards_of(d) != r->n)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s has shard %u of %u of job %.100s: give the directories of all %u shards, and no others",
                       source->name, d->shard, shards_of(d), d->name, shards_of(d));
    if (r->sources[d->shard] != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s and %.300s both have shard %u of %u of job %.100s",
                       r->sources[d->shard]->name, source->name, d->shard, r->n, d->name);
    return PD_OK;
}

/* Adds which types workers pull, which only the shard of a parameter knows. */
static void add_types(pd_declared_job *all, const pd_declared_job *one)
{
    for (size_t i = 0; i < all->n_params && i < one->n_params; i++) {
        all->params[i].f16 |= one->params[i].f16;
        all->params[i].bf16 |= one->params[i].bf16;
        if (all->params[i].update_dtype % PD_PUSHED == 0)
            all->params[i].update_dtype += one->params[i].update_dtype % PD_PUSHED;
    }
}

/* Reads the header of a source, and puts it in its place. */
static int add_source(pd_reshard *r, const pd_reshard_source *source, pd_error *err)
{
    pd_declared_job declared = { 0 };
    pd_job *job;
    int rc = read_header(r, source, &declared, &job, err);

    if (rc == PD_OK) rc = check_shard(r, source, &declared, err);
    if (rc == PD_OK) rc = add_settings(r, source, job, err);
    if (rc != PD_OK) {
        free_job(job);
        pd_declared_job_free(&declared);
        return rc;
    }
    /* No weights are kept, so no buffers are needed for them. */
    for (uint32_t i = 0; i < job->steps.n_params; i++) pd_param_leave_pools(&job->steps.params[i]);
    r->sources[declared.shard] = source;
    r->from[declared.shard] = job;
    if (r->declared.name == NULL) {
        r->declared = declared;
        return PD_OK;
    }
    add_types(&r->declared, &declared);
    pd_declared_job_free(&declared);
    return PD_OK;
}

/* Checks that all ranks count in each step. Otherwise each fragment has a step, members and counted pushes. */
static int check_sets(const pd_job *job, pd_error *err)
{
    if (!job->steps.sets.open) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s: not every rank counts in each of its steps (rounds, quorum, staleness, min_workers, "
                   "max_workers, on_lost_worker): such a job moves by `paramctl export --state' and `import-state' "
                   "(CLUSTER.md, By an export)",
                   job->steps.name);
}

/* Checks that a shard fits to shard 0, and that all its parameters are at one step. */
static int check_together(const pd_reshard *r, uint32_t s, pd_error *err)
{
    const pd_checkpoint_image *image = r->sources[s]->image;
    const pd_job *job = r->from[s];

    if (job->saved.cluster != r->from[0]->saved.cluster || job->steps.map != r->from[0]->steps.map ||
        job->steps.n_rules != r->from[0]->steps.n_rules)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s and %.300s have shards of different clusters or maps of job %.100s", r->sources[0]->name,
                       r->sources[s]->name, job->steps.name);
    if (image->step != r->step || image->n_params != job->steps.n_params)
        return pd_fail(err, PD_DATA_LOSS,
                       "%.300s: the checkpoint is of step %" PRIu64 " with %u parameters, not of %" PRIu64 " with %u",
                       r->sources[s]->name, image->step, image->n_params, r->step, job->steps.n_params);
    for (uint32_t i = 0; i < image->n_params; i++) {
        const pd_checkpoint_param *param = &image->params[i];
        if (strcmp(param->name, job->steps.params[i].name) != 0 || param->elements != job->steps.params[i].elements)
            return pd_fail(err, PD_DATA_LOSS, "%.300s: parameter %u is %.160s in the checkpoint, %.160s in its header",
                           r->sources[s]->name, i, param->name, job->steps.params[i].name);
        if (param->step != r->step)
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "%.300s: %.160s is at step %" PRIu64 ", others are at %" PRIu64
                           ": choose a checkpoint in which all are at one step (--step)",
                           r->sources[s]->name, param->name, param->step, r->step);
    }
    return PD_OK;
}

static int by_place(const void *left, const void *right)
{
    const pd_param *a = ((const piece *)left)->param, *b = ((const piece *)right)->param;

    if (a->declared != b->declared) return a->declared < b->declared ? -1 : 1;
    return (a->origin > b->origin) - (a->origin < b->origin);
}

/* Lists the pieces of all shards, and checks that they are all of the declaration. */
static int list_pieces(pd_reshard *r, pd_error *err)
{
    size_t n = 0;
    int64_t wanted = 0, found = 0, elements;

    for (uint32_t s = 0; s < r->n; s++) n += r->from[s]->steps.n_params;
    if ((r->pieces = calloc(n + 1, sizeof *r->pieces)) == NULL) return pd_job_no_memory(r->from[0], err);
    for (uint32_t s = 0; s < r->n; s++)
        for (uint32_t i = 0; i < r->from[s]->steps.n_params; i++) {
            r->pieces[r->n_pieces++] = (piece){ s, &r->from[s]->steps.params[i] };
            found += r->from[s]->steps.params[i].elements;
        }
    qsort(r->pieces, n, sizeof *r->pieces, by_place);
    for (size_t i = 0; i < r->declared.n_params; i++) {
        pd_shape shape = { .rank = (int)r->declared.params[i].rank };
        memcpy(shape.dim, r->declared.params[i].dim, sizeof shape.dim);
        (void)pd_shape_elements(&shape, &elements);
        wanted += elements;
    }
    if (wanted == found) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "job %.100s: its shards have %lld of %lld elements", r->from[0]->steps.name,
                   (long long)found, (long long)wanted);
}

/* ---- the new shards ---- */

/* Lets the declaration be one for the new number of shards. Ranges are left out: the ranks declare theirs again. */
static int begin_declared(pd_reshard *r, pd_error *err)
{
    pd_declared_job *d = &r->declared;

    free(d->portions);
    free(d->ranges);
    d->portions = NULL;
    d->n_portions = d->n_ranges = 0;
    d->shards = r->shards;
    d->cluster = 0;
    d->spreads = r->shards > 1;
    if ((d->ranges = calloc(d->n_params + 1, sizeof *d->ranges)) == NULL) return pd_job_no_memory(r->from[0], err);
    /* Planning checks that a rank that is alone has all elements. */
    for (uint32_t i = 0; r->shards == 1 && d->world == 1 && i < d->n_params; i++)
        if (d->params[i].ranged) {
            pd_declared_range *range = &d->ranges[d->n_ranges++];
            pd_shape shape = { .rank = (int)d->params[i].rank };
            memcpy(shape.dim, d->params[i].dim, sizeof shape.dim);
            range->param = i;
            (void)pd_shape_elements(&shape, &range->end);
        }
    return PD_OK;
}

/* Keeps the map that shard 0 has made for the other shards. */
static int keep_map(pd_reshard *r, pd_error *err)
{
    const pd_map *map = r->to->whole != NULL ? &r->to->whole->map : NULL;

    r->declared.spreads = false;
    if (map == NULL) return PD_OK;
    if ((r->declared.portions = malloc((map->n + 1) * sizeof *map->portions)) == NULL)
        return pd_job_no_memory(r->to, err);
    memcpy(r->declared.portions, map->portions, map->n * sizeof *map->portions);
    r->declared.n_portions = map->n;
    r->declared.map = map->fingerprint;
    return PD_OK;
}

static int plan(pd_reshard *r, uint32_t shard, pd_error *err)
{
    int rc;

    r->declared.shard = shard;
    rc = pd_declared_job_make(&r->to, &r->declared, &r->env, r->jobs->last_number + 1, err);
    if (rc != PD_OK) return rc;
    pd_ranges_give_back(r->to, 0);
    pd_ranges_count(r->to);
    return r->declared.spreads ? keep_map(r, err) : PD_OK;
}

/* Finds the pieces that have elements of a parameter of the new shard. */
static piece *find_pieces(const pd_reshard *r, const pd_param *param, size_t *n)
{
    size_t low = 0, high = r->n_pieces;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const pd_param *own = r->pieces[middle].param;
        if (own->declared < param->declared ||
            (own->declared == param->declared && own->elements > 0 && own->origin + own->elements <= param->origin))
            low = middle + 1;
        else
            high = middle;
    }
    for (high = low; high < r->n_pieces && r->pieces[high].param->declared == param->declared &&
                     (high == low || r->pieces[high].param->origin < param->origin + param->elements);
         high++)
        continue;
    *n = high - low;
    return &r->pieces[low];
}

/* Checks that a parameter of the new shard is a piece, a cut of one, or several pieces. */
static int check_cut(const pd_reshard *r, const pd_param *param, pd_error *err)
{
    size_t n;
    const piece *at = find_pieces(r, param, &n);
    const pd_param *last = n > 0 ? at[n - 1].param : NULL;

    if (n == 1 && (!at->param->cut || at->param->elements == param->elements)) return PD_OK;
    if (n > 1 && at->param->origin == param->origin &&
        last->origin + last->elements == param->origin + param->elements && !param->cut)
        return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "this version cuts %.160s in other places than the one that has made the checkpoints: reshard to 1 "
                   "daemon first",
                   param->declared_name);
}

/* Copies what the header has of parameters: overrides, and the numbers of weights that were changed by hand. */
static int copy_of_header(pd_reshard *r, pd_param *param, pd_error *err)
{
    size_t n;
    const piece *at = find_pieces(r, param, &n);
    int rc = check_cut(r, param, err);

    for (size_t k = 0; rc == PD_OK && k < n; k++) {
        if (at[k].param->change.number > param->change.number) param->change.number = at[k].param->change.number;
        rc = pd_reshard_overrides_copy(&r->overrides, r->to, param, r->from[at[k].shard], at[k].param, k > 0, err);
    }
    return rc;
}

static int write_header(pd_reshard *r, pd_checkpoint_image *image, pd_error *err)
{
    pd_archive archive;
    int rc = pd_reshard_header(r->to, r->from, r->n, r->step, err);

    for (uint32_t i = 0; rc == PD_OK && i < r->to->steps.n_params; i++)
        rc = copy_of_header(r, &r->to->steps.params[i], err);
    if (rc != PD_OK) return rc;
    image->creator = r->to->saved.creator;
    pd_archive_begin_write(&archive);
    pd_header_image_write(&archive, r->to);
    return pd_archive_end(&archive, &image->head, &image->head_bytes, err);
}

/* Copies the worker states, which shard 0 has. */
static int copy_worker_states(const pd_reshard *r, pd_checkpoint_image *image, pd_error *err)
{
    const pd_checkpoint_image *from = r->sources[0]->image;

    for (uint32_t i = 0; i < from->n_worker_states; i++) {
        const pd_worker_state *own = &from->worker_states[i];
        pd_worker_state *to = &image->worker_states[image->n_worker_states];
        if (own->rank >= r->to->steps.members.ranks)
            return pd_fail(err, PD_DATA_LOSS, "%.300s: a worker state of rank %u, but the job has %u ranks",
                           r->sources[0]->name, own->rank, r->to->steps.members.ranks);
        *to = *own;
        if ((to->at = malloc(own->bytes + 1)) == NULL) return pd_job_no_memory(r->to, err);
        memcpy(to->at, own->at, own->bytes);
        image->n_worker_states++;
    }
    return PD_OK;
}

/* ---- states and weights, one after the other ---- */

/* Copies the counters of a piece. `k`: number of the piece among those that become the parameter. Contributions are
 * shown as a sum, so of several portions the first one gets all. */
static void copy_record(pd_param *param, const pd_param *from, size_t k)
{
    uint64_t before = param->saved.contributions, contributions = from->saved.contributions;

    if (k == 0) param->saved = from->saved;
    param->saved.contributions = param->origin > from->origin ? 0 : k == 0 ? contributions : before + contributions;
}

static int copy_scalars(pd_reshard *r, pd_param *param, const pd_param *from, pd_error *err)
{
    int rc;

    if (from->scalars == NULL || from->scalars->n_last == 0 || param->origin > from->origin) return PD_OK;
    if (param->scalars == NULL && (rc = pd_scalars_make(&r->to->steps, param, err)) != PD_OK) return rc;
    memcpy(param->scalars->last, from->scalars->last, sizeof param->scalars->last);
    param->scalars->n_last = from->scalars->n_last;
    return PD_OK;
}

static int64_t row_of(const pd_param *param, int64_t element)
{
    return param->shape.rank > 0 && param->elements > 0 ? element / (param->elements / param->shape.dim[0]) : 0;
}

/* Copies the state of all pieces of a parameter, which has memory for its state. */
static int copy_pieces(pd_reshard *r, pd_param *param, uint64_t *version, pd_error *err)
{
    size_t n;
    const piece *at = find_pieces(r, param, &n);
    int rc = PD_OK;

    for (size_t k = 0; rc == PD_OK && k < n; k++) {
        const pd_param *from = at[k].param;
        if ((rc = load(r, &at[k], err)) != PD_OK) return rc;
        *version = from->next->version;
        copy_record(param, from, k);
        rc = copy_scalars(r, param, from, err);
        if (rc == PD_OK && from->elements >= param->elements)
            rc = pd_optim_cut(param->optim, from->optim, row_of(param, param->origin - from->origin), err);
        else if (rc == PD_OK)
            rc = pd_optim_join(param->optim, from->optim, row_of(from, from->origin - param->origin), err);
    }
    return rc;
}

/* Writes the state of a parameter as an image. `version` is that of its weights. */
static int write_state(pd_reshard *r, pd_param *param, uint64_t version, pd_checkpoint_param *out, pd_error *err)
{
    pd_published published = { .version = version };
    pd_archive archive;

    param->current = &published; /* of which an image has only the version */
    pd_archive_begin_write(&archive);
    pd_param_image_visit(&archive, &r->to->steps, param);
    param->current = NULL;
    return pd_archive_end(&archive, &out->state, &out->state_bytes, err);
}

/* Makes the state of parameter i: pd_checkpoint_image.read_state. */
static int make_state(void *arg, uint32_t i, pd_error *err)
{
    pd_reshard *r = arg;
    pd_param *param = &r->to->steps.params[i];
    uint64_t version = 0;
    int rc;

    if (i > 0) {
        free(r->image->params[i - 1].state);
        r->image->params[i - 1].state = NULL;
    }
    if (pd_optim_load(param->optim) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its state", param->name);
    rc = copy_pieces(r, param, &version, err);
    if (rc == PD_OK) rc = write_state(r, param, version, &r->image->params[i], err);
    pd_optim_unload(param->optim);
    return rc;
}

/* Makes the weights of parameter i: pd_checkpoint_image.lend_weights. */
static int make_weights(void *arg, uint32_t i, pd_error *err)
{
    pd_reshard *r = arg;
    const pd_param *param = &r->to->steps.params[i];
    size_t n;
    const piece *at = find_pieces(r, param, &n);
    int rc = PD_OK;

    if ((size_t)param->elements > r->room) {
        free(r->weights);
        r->room = (size_t)param->elements;
        if ((r->weights = pd_floats_new(param->elements)) == NULL) {
            r->room = 0;
            return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its weights", param->name);
        }
    }
    for (size_t k = 0; rc == PD_OK && k < n; k++) {
        const pd_param *from = at[k].param;
        const pd_reshard_source *source = r->sources[at[k].shard];
        int64_t first = param->origin > from->origin ? param->origin : from->origin,
                end = param->origin + param->elements;
        if (end > from->origin + from->elements) end = from->origin + from->elements;
        rc = source->read_range(source->image->read_arg, from->index, first - from->origin, end - first,
                                r->weights + (first - param->origin), err);
    }
    r->image->params[i].weights = r->weights;
    return rc;
}

/* ---- the whole ---- */

int pd_reshard_new(pd_reshard **out, const pd_jobs *jobs, const pd_job_env *env, const pd_reshard_source *sources,
                   uint32_t n, uint32_t shards, pd_error *err)
{
    pd_reshard *r = *out = calloc(1, sizeof *r);
    int rc = PD_OK;

    if (r == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    *r = (pd_reshard){ .jobs = jobs, .env = *env, .n = n, .shards = shards, .step = sources[0].image->step };
    r->sources = calloc(n > 0 ? n : 1, sizeof *r->sources);
    r->from = calloc(n > 0 ? n : 1, sizeof *r->from);
    if (r->sources == NULL || r->from == NULL) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (uint32_t s = 0; rc == PD_OK && s < n; s++) rc = add_source(r, &sources[s], err);
    if (rc == PD_OK) rc = check_sets(r->from[0], err);
    for (uint32_t s = 0; rc == PD_OK && s < n; s++) rc = check_together(r, s, err);
    if (rc == PD_OK) rc = list_pieces(r, err);
    if (rc == PD_OK) rc = begin_declared(r, err);
    if (rc == PD_OK) return PD_OK;
    pd_reshard_free(r);
    *out = NULL;
    return rc;
}

/* Frees the shard that was made last. */
static void end_shard(pd_reshard *r)
{
    pd_reshard_overrides_next(&r->overrides);
    free_job(r->to);
    r->to = NULL;
    r->image = NULL;
}

int pd_reshard_shard(pd_reshard *r, uint32_t shard, pd_checkpoint_image **out, pd_error *err)
{
    pd_checkpoint_image *image = NULL;
    int rc;

    *out = NULL;
    end_shard(r);
    if ((rc = plan(r, shard, err)) != PD_OK) return rc;
    rc = pd_checkpoint_image_of(&image, r->to) == PD_OK ? PD_OK : pd_job_no_memory(r->to, err);
    if (rc == PD_OK) rc = write_header(r, image, err);
    if (rc == PD_OK && shard == 0) rc = copy_worker_states(r, image, err);
    if (rc != PD_OK) {
        pd_checkpoint_image_free(image);
        return rc;
    }
    image->step = image->place = r->step;
    for (uint32_t i = 0; i < image->n_params; i++) image->params[i].step = r->step;
    image->read_state = make_state;
    image->lend_weights = make_weights;
    image->read_arg = r;
    *out = r->image = image;
    return PD_OK;
}

void pd_reshard_free(pd_reshard *r)
{
    if (r == NULL) return;
    end_shard(r);
    unload(r);
    pd_reshard_overrides_free(&r->overrides);
    for (uint32_t s = 0; r->from != NULL && s < r->n; s++) free_job(r->from[s]);
    pd_declared_job_free(&r->declared);
    free(r->pieces);
    free(r->weights);
    free(r->from);
    free((void *)r->sources);
    free(r);
}
