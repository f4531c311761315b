/* whole.c - keeps the whole declaration of a job on several shards, and turns Declares into lists of this shard's
 * portions. */
#include "whole.h"

#include "fragment_ranks.h"
#include "plan_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(pd_whole) <= PD_PLACEMENT_OWN, "pd_placement_bytes counts this struct");

#define UNEVEN 1.15 /* a largest load of more than this times the mean is reported */

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

static int check_names(const pd_whole *whole, pd_error *err)
{
    char text[PD_PORTION_NAME];

    for (size_t k = 0; whole->cut && k < whole->map.n; k++)
        if (strlen(pd_whole_name(whole, k, text)) > PD_NAME_MAX)
            return pd_fail(
                err, PD_INVALID_ARGUMENT,
                "parameter %.160s: each # in its name counts twice where parameters are cut, which makes more "
                "than %d bytes: take a shorter name, or split_bytes = 0",
                whole->params[whole->map.portions[k].param].name, PD_NAME_MAX);
    return PD_OK;
}

static int by_name(const void *left, const void *right)
{
    const pd_param_decl *a = *(const pd_param_decl *const *)left, *b = *(const pd_param_decl *const *)right;

    return strcmp(a->name, b->name);
}

/* Checks that no name comes twice. A shard that has neither of two such parameters would not find it otherwise. */
static int check_distinct(const pd_whole *whole, pd_error *err)
{
    const pd_param_decl **order = malloc((whole->n + 1) * sizeof *order);
    int rc = PD_OK;

    if (order == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the declaration");
    for (size_t i = 0; i < whole->n; i++) order[i] = &whole->params[i];
    qsort(order, whole->n, sizeof *order, by_name);
    for (size_t i = 1; rc == PD_OK && i < whole->n; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            rc = pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", order[i]->name);
    free(order);
    return rc;
}

/* ---- making ---- */

static int copy_params(pd_whole *whole, const pd_job *job, const pd_request *declare)
{
    if ((whole->params = calloc(declare->u.declare.n, sizeof *whole->params)) == NULL) return PD_NO_MEMORY;
    for (; whole->n < declare->u.declare.n; whole->n++) {
        const pd_param_decl *from = &declare->u.declare.params[whole->n];
        pd_param_decl *to = &whole->params[whole->n];
        pd_aggregation how = pd_aggregation_of(&job->steps.values, job->steps.rules[from->rule - 1].hypers.row);
        if (pd_decl_copy(to, from) != PD_OK) return PD_NO_MEMORY;
        to->pull_dtype = to->update_dtype = (pd_dtype)0;
        to->start = to->end = 0;
        to->found = 0;
        if (!job->steps.sets.open && !pd_is_collected(how)) to->push_dtype = (pd_dtype)0;
    }
    return PD_OK;
}

/* Checks that the portions are those of the parameters, one after the other, and cut at rows. */
static int check_map(const pd_whole *whole, uint32_t shards, pd_error *err)
{
    size_t k = 0;

    for (size_t i = 0; i < whole->n; i++) {
        const pd_shape *shape = &whole->params[i].shape;
        int64_t elements, at = 0, row;
        pd_shape_elements(shape, &elements);
        row = shape->rank > 0 ? elements / shape->dim[0] : 1;
        for (; k < whole->map.n && whole->map.portions[k].param == i && at < elements; k++) {
            const pd_portion *portion = &whole->map.portions[k];
            if (portion->first != at || portion->count <= 0 || portion->count > elements - at ||
                portion->count % row != 0 || portion->shard >= shards)
                break;
            at += portion->count;
        }
        if (at != elements)
            return pd_fail(err, PD_DATA_LOSS, "the map of the job does not fit its parameter %.200s",
                           whole->params[i].name);
    }
    return k == whole->map.n ? PD_OK : pd_fail(err, PD_DATA_LOSS, "the map of the job has more than its parameters");
}

static int make_index(pd_whole *whole, uint32_t shard)
{
    whole->first = calloc(whole->n + 1, sizeof *whole->first);
    whole->own = calloc(whole->map.n, sizeof *whole->own);
    whole->mine = calloc(whole->map.n, sizeof *whole->mine);
    whole->cut_before = calloc(whole->n + 1, sizeof *whole->cut_before);
    if (whole->first == NULL || whole->own == NULL || whole->mine == NULL || whole->cut_before == NULL)
        return PD_NO_MEMORY;
    for (size_t k = 0; k < whole->map.n; k++) {
        bool here = whole->map.portions[k].shard == shard;
        whole->first[whole->map.portions[k].param + 1] = k + 1;
        whole->own[k] = here ? (uint32_t)whole->n_own : UINT32_MAX;
        if (here) whole->mine[whole->n_own++] = (uint32_t)k;
    }
    for (size_t i = 0; i < whole->n; i++) whole->cut_before[i + 1] = whole->cut_before[i] + pd_whole_is_cut(whole, i);
    whole->cut = whole->map.n > whole->n;
    return PD_OK;
}

static int fill(pd_whole *whole, const pd_job *job, const pd_request *declare, pd_error *err)
{
    int rc;

    if (copy_params(whole, job, declare) != PD_OK) return pd_job_no_memory(job, err);
    whole->n_fragments = pd_fragments_count(whole->params, whole->n);
    if ((rc = check_map(whole, job->steps.shards, err)) != PD_OK) return rc;
    if (make_index(whole, job->steps.shard) != PD_OK) return pd_job_no_memory(job, err);
    if (whole->n_own == 0)
        return pd_fail(err, PD_DATA_LOSS, "job %.100s: the map has nothing for shard %u", job->steps.name,
                       job->steps.shard);
    return (rc = check_names(whole, err)) != PD_OK ? rc : check_distinct(whole, err);
}

int pd_whole_make(pd_job *job, const pd_request *declare, pd_map *map, pd_error *err)
{
    pd_whole *whole = calloc(1, sizeof *whole);
    int rc;

    if (whole == NULL) {
        free(map->portions);
        *map = (pd_map){ 0 };
        return pd_job_no_memory(job, err);
    }
    whole->map = *map;
    *map = (pd_map){ 0 };
    if ((rc = fill(whole, job, declare, err)) != PD_OK) {
        pd_whole_free(whole);
        return rc;
    }
    job->whole = whole;
    job->steps.map = whole->map.fingerprint;
    job->steps.n_cut = whole->cut_before[whole->n];
    return PD_OK;
}

void pd_whole_free(pd_whole *whole)
{
    if (whole == NULL) return;
    pd_decls_free(whole->params, whole->n);
    free(whole->map.portions);
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
    const pd_whole *whole = job->whole;
    pd_param_decl *own = calloc(whole->n_own, sizeof *own);
    size_t n = 0;

    for (; own != NULL && n < whole->n_own; n++) {
        size_t k = whole->mine[n];
        if (cut_decl(job, k, &declare->u.declare.params[whole->map.portions[k].param], &own[n]) != PD_OK) break;
        if (job->steps.n_params > 0) own[n].found = 1 + (uint32_t)n;
    }
    if (n < whole->n_own) {
        pd_decls_free(own, n);
        return pd_job_no_memory(job, err);
    }
    declare->u.declare.whole = declare->u.declare.params;
    declare->u.declare.n_whole = declare->u.declare.n;
    declare->u.declare.params = own;
    declare->u.declare.n = whole->n_own;
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

int pd_whole_places(const pd_whole *whole, pd_declared_place **out, size_t *n)
{
    if ((*out = calloc(whole->map.n, sizeof **out)) == NULL) return PD_NO_MEMORY;
    *n = whole->map.n;
    for (size_t k = 0; k < whole->map.n; k++) {
        const pd_portion *portion = &whole->map.portions[k];
        (*out)[k] = (pd_declared_place){ .param = portion->param,
                                         .shard = portion->shard,
                                         .first = portion->first,
                                         .count = portion->count,
                                         .own = whole->own[k] };
    }
    return PD_OK;
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
