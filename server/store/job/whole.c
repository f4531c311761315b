/* whole.c - keeps the whole declaration of a job on several shards, and turns Declares into lists of this shard's
 * portions. */
#include "whole.h"

#include "fragment_ranks.h"
#include "name_hash.h"
#include "plan_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(pd_whole) <= PD_PLACEMENT_OWN, "pd_placement_bytes counts this struct");

#define UNEVEN 1.15 /* a largest load of more than this times the mean is reported */

/* Estimates of how long the work takes, in nanoseconds of one core. */
#define PARAM_NS 600.0  /* time to copy and to check the declaration of a parameter, without PORTION_NS */
#define PORTION_NS 20.0 /* time to check and to index a portion */

/* ---- names ---- */

/* Writes a declared name, each '#' twice. Returns its end. */
static char *put_marked(char *at, const char *end, const char *name)
{
    for (; *name != '\0' && at + 2 < end; name++) {
        if (*name == '#') *at++ = '#';
        *at++ = *name;
    }
    *at = '\0';
    return at;
}

char *pd_whole_name(const pd_whole *whole, size_t portion, char text[PD_PORTION_NAME])
{
    uint32_t param = whole->map.portions[portion].param;
    size_t first = whole->first[param];
    char *at;

    if (!whole->cut) {
        snprintf(text, PD_PORTION_NAME, "%s", whole->params[param].name);
        return text;
    }
    at = put_marked(text, text + PD_PORTION_NAME - 16, whole->params[param].name);
    if (whole->first[param + 1] - first > 1) snprintf(at, 16, "#%zu", portion - first);
    return text;
}

/* ---- making ---- */

/* Returns the number of places of a table of n names: a power of two, so that at least half of them stay free. */
static size_t places_for(size_t n)
{
    size_t places = 2;

    while (places < 2 * n) places *= 2;
    return places;
}

pd_whole *pd_whole_begin(const pd_request *declare, pd_map *map)
{
    pd_whole *whole = calloc(1, sizeof *whole);
    size_t n = declare->u.declare.n, places = places_for(n);

    if (whole == NULL) {
        free(map->portions);
        *map = (pd_map){ 0 };
        return NULL;
    }
    whole->map = *map;
    *map = (pd_map){ 0 };
    whole->cut = whole->map.n > n;
    whole->last_place = places - 1;
    whole->params = calloc(n, sizeof *whole->params);
    whole->first = calloc(n + 1, sizeof *whole->first);
    whole->cut_before = calloc(n + 1, sizeof *whole->cut_before);
    whole->own = calloc(whole->map.n, sizeof *whole->own);
    whole->mine = calloc(whole->map.n, sizeof *whole->mine);
    whole->names = calloc(places, sizeof *whole->names);
    if (whole->params != NULL && whole->first != NULL && whole->cut_before != NULL && whole->own != NULL &&
        whole->mine != NULL && whole->names != NULL)
        return whole;
    pd_whole_free(whole);
    return NULL;
}

/* Copies the next parameter of the Declare. */
static int copy_param(pd_whole *whole, const pd_job *job, const pd_param_decl *from)
{
    pd_param_decl *to = &whole->params[whole->n];
    pd_aggregation how = pd_aggregation_of(&job->steps.values, job->steps.rules[from->rule - 1].hypers.row);

    if (pd_decl_copy(to, from) != PD_OK) return PD_NO_MEMORY;
    whole->n++;
    to->pull_dtype = to->update_dtype = (pd_dtype)0;
    to->start = to->end = 0;
    to->found = 0;
    if (!job->steps.sets.open && !pd_is_collected(how)) to->push_dtype = (pd_dtype)0;
    return PD_OK;
}

/* Checks that the next portions of the map are those of parameter i, one after the other, and cut at rows. Puts them
 * into the indexes. */
static int take_portions(pd_whole *whole, size_t i, uint32_t shard, uint32_t shards, pd_error *err)
{
    const pd_shape *shape = &whole->params[i].shape;
    size_t k = whole->first[i];
    int64_t elements, at = 0, row;

    pd_shape_elements(shape, &elements);
    row = shape->rank > 0 ? elements / shape->dim[0] : 1;
    for (; k < whole->map.n && whole->map.portions[k].param == i && at < elements; k++) {
        const pd_portion *portion = &whole->map.portions[k];
        if (portion->first != at || portion->count <= 0 || portion->count > elements - at ||
            portion->count % row != 0 || portion->shard >= shards)
            break;
        at += portion->count;
        whole->own[k] = portion->shard == shard ? (uint32_t)whole->n_own : UINT32_MAX;
        if (portion->shard == shard) whole->mine[whole->n_own++] = (uint32_t)k;
    }
    if (at != elements)
        return pd_fail(err, PD_DATA_LOSS, "the map of the job does not fit its parameter %.200s",
                       whole->params[i].name);
    whole->first[i + 1] = k;
    whole->cut_before[i + 1] = whole->cut_before[i] + pd_whole_is_cut(whole, i);
    return PD_OK;
}

/* Puts the name of parameter i into the table of names. Returns false if another parameter has it. */
static bool add_name(pd_whole *whole, const uint64_t key[2], size_t i)
{
    const char *name = whole->params[i].name;
    size_t at = pd_name_hash(key, name, strlen(name)) & whole->last_place;

    for (; whole->names[at] > 0; at = (at + 1) & whole->last_place)
        if (strcmp(whole->params[whole->names[at] - 1].name, name) == 0) return false;
    whole->names[at] = (uint32_t)i + 1;
    return true;
}

/* Checks that the name of parameter i does not come twice, which a shard that has neither of two such parameters would
 * not find otherwise, and that it is not too long for the names of its portions. */
static int check_name(pd_whole *whole, const pd_job *job, size_t i, pd_error *err)
{
    char text[PD_PORTION_NAME];

    if (!add_name(whole, job->steps.config->hash_key, i))
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", whole->params[i].name);
    if (whole->cut && strlen(pd_whole_name(whole, whole->first[i + 1] - 1, text)) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "parameter %.160s: each # in its name counts twice where parameters are cut, which makes more "
                       "than %d bytes: take a shorter name, or split_bytes = 0",
                       whole->params[i].name, PD_NAME_MAX);
    return PD_OK;
}

static int add_param(pd_whole *whole, const pd_job *job, const pd_request *declare, double *budget_ns, pd_error *err)
{
    size_t i = whole->n;
    int rc;

    *budget_ns -= PARAM_NS;
    if (copy_param(whole, job, &declare->u.declare.params[i]) != PD_OK) return pd_job_no_memory(job, err);
    rc = take_portions(whole, i, job->steps.shard, job->steps.shards, err);
    if (rc != PD_OK) return rc;
    *budget_ns -= PORTION_NS * (double)(whole->first[i + 1] - whole->first[i]);
    return check_name(whole, job, i, err);
}

static int end(pd_whole *whole, const pd_job *job, pd_error *err)
{
    free(whole->names);
    whole->names = NULL;
    whole->n_fragments = pd_fragments_count(whole->params, whole->n);
    if (whole->first[whole->n] < whole->map.n)
        return pd_fail(err, PD_DATA_LOSS, "the map of the job has more than its parameters");
    if (whole->n_own == 0)
        return pd_fail(err, PD_DATA_LOSS, "job %.100s: the map has nothing for shard %u", job->steps.name,
                       job->steps.shard);
    return PD_OK;
}

bool pd_whole_some(pd_whole *whole, const pd_job *job, const pd_request *declare, double *budget_ns, int *rc,
                   pd_error *err)
{
    for (*rc = PD_OK; *rc == PD_OK && whole->n < declare->u.declare.n;) {
        if (!(*budget_ns > 0)) return false;
        *rc = add_param(whole, job, declare, budget_ns, err);
    }
    if (*rc == PD_OK) *rc = end(whole, job, err);
    return true;
}

void pd_whole_give(pd_job *job, pd_whole *whole)
{
    job->whole = whole;
    job->steps.map = whole->map.fingerprint;
    job->steps.n_cut = whole->cut_before[whole->n];
}

void pd_whole_free(pd_whole *whole)
{
    if (whole == NULL) return;
    pd_decls_free(whole->params, whole->n);
    free(whole->map.portions);
    free(whole->names);
    free(whole->first);
    free(whole->own);
    free(whole->mine);
    free(whole->cut_before);
    free(whole);
}

/* ---- Declares ---- */

/* Makes the declaration of a portion from a rank's declaration of the parameter. PD_NO_MEMORY. */
static int cut_decl(const pd_job *job, size_t k, const pd_param_decl *from, pd_param_decl *out)
{
    const pd_whole *whole = job->whole;
    const pd_portion *portion = &whole->map.portions[k];
    char name[PD_PORTION_NAME];

    *out = *from;
    out->axes = NULL;
    out->shape = pd_portion_shape(&from->shape, portion);
    out->rule = whole->params[portion->param].rule;
    out->found = 0;
    /* Where all ranks count in each step, the parameters of a shard are one fragment: it makes checkpoints of one step,
     * as the other shards do. */
    if (!job->steps.sets.open) out->fragment = 0;
    if (out->ranged && pd_whole_is_cut(whole, portion->param)) pd_decl_cut_range(out, portion->first, portion->count);
    if ((out->name = strdup(pd_whole_name(whole, k, name))) == NULL) return PD_NO_MEMORY;
    if (from->axes == NULL || (out->axes = strdup(from->axes)) != NULL) return PD_OK;
    free(out->name);
    out->name = NULL;
    return PD_NO_MEMORY;
}

int pd_whole_expand(const pd_job *job, pd_request *declare, pd_error *err)
{
    pd_param_decl *own = calloc(job->whole->n_own, sizeof *own);

    if (own == NULL) return pd_job_no_memory(job, err);
    declare->u.declare.whole = declare->u.declare.params;
    declare->u.declare.n_whole = declare->u.declare.n;
    declare->u.declare.params = own;
    declare->u.declare.n = 0;
    return PD_OK;
}

int pd_whole_expand_one(const pd_job *job, pd_request *declare, pd_error *err)
{
    size_t n = declare->u.declare.n, k = job->whole->mine[n];
    pd_param_decl *own = &declare->u.declare.params[n];

    if (cut_decl(job, k, &declare->u.declare.whole[job->whole->map.portions[k].param], own) != PD_OK)
        return pd_job_no_memory(job, err);
    if (job->steps.n_params > 0) own->found = 1 + (uint32_t)n;
    declare->u.declare.n++;
    return PD_OK;
}

void pd_whole_tell(const pd_job *job, pd_param *param)
{
    const pd_whole *whole = job->whole;
    const pd_portion *portion;

    param->declared = param->index;
    param->portions = 1;
    param->declared_name = param->name;
    if (whole == NULL) return;
    portion = &whole->map.portions[whole->mine[param->index]];
    param->declared = portion->param;
    param->portions = (uint32_t)(whole->first[portion->param + 1] - whole->first[portion->param]);
    param->cut = param->portions > 1;
    param->cut_number = whole->cut_before[portion->param];
    param->origin = portion->first;
    param->declared_name = whole->params[portion->param].name;
}

pd_declared_place pd_whole_place(const pd_whole *whole, size_t portion)
{
    const pd_portion *at = &whole->map.portions[portion];

    return (pd_declared_place){
        .param = at->param, .shard = at->shard, .first = at->first, .count = at->count, .own = whole->own[portion]
    };
}

void pd_whole_say(pd_job *job, const pd_spread *spread, const pd_request *declare)
{
    const pd_spread_notes notes = pd_spread_notes_of(spread);
    const pd_skew *skew = &notes.skew;

    if (job->steps.shard > 0 || pd_spread_placement(spread) == NULL || skew->over_mean <= UNEVEN) return;
    pd_job_say(
        job, PD_SAY_WARNING,
        "the %u servers have uneven loads: %s of shard %u is %.2f times the mean, most of it by parameter %.160s%s",
        job->steps.shards, pd_load_name(skew->load), skew->shard, skew->over_mean, skew->most->name,
        job->steps.sets.open ? ", whose fragment lies whole there: declare more and smaller fragments" : "");
    if (notes.uncut == declare->u.declare.n) return;
    pd_job_say(job, PD_SAY_WARNING, "parameter %.160s lies whole on one server: %s",
               declare->u.declare.params[notes.uncut].name, pd_uncut_text(notes.why));
}

uint64_t pd_whole_bytes(const pd_job *job)
{
    const pd_whole *whole = job->whole;
    uint64_t world = job->steps.members.ranks, names = 0;

    for (size_t i = 0; i < whole->n; i++)
        names +=
            (uint64_t)pd_block_bytes((int64_t)strlen(whole->params[i].name) + 1) +
            (whole->params[i].axes != NULL ? (uint64_t)pd_block_bytes((int64_t)strlen(whole->params[i].axes) + 1) : 0);
    return pd_placement_bytes(whole->n, whole->map.n, whole->n_own, world) + (world + 1) * names;
}
