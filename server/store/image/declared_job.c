/* declared_job.c - writes a job's declarations to an image, and makes the job again from them by a Hello and a Declare
 * request. */
#include "declared_job.h"

#include "checkpoint_policy.h"
#include "declaration.h"
#include "fragment_ranks.h"
#include "job.h"
#include "most_shards.h"
#include "param_set.h"
#include "planning.h"
#include "whole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 256, MOST_RULES = 4096, MOST_PARAMS = 1 << 20, MOST_RANGES = 1 << 28, MOST_PORTIONS = 1 << 22 };

static const pd_field value_fields[] = { PD_FIELD(pd_declared_value, name), PD_FIELD(pd_declared_value, value), { 0 } };
static const pd_table value_table = { "value", sizeof(pd_declared_value), value_fields };

static const pd_field rule_fields[] = { PD_FIELD(pd_declared_rule, text), { 0 } };
static const pd_table rule_table = { "rule", sizeof(pd_declared_rule), rule_fields };

static const pd_field param_fields[] = { PD_FIELD(pd_declared_param_record, name),
                                         PD_FIELD(pd_declared_param_record, axes),
                                         PD_FIELD_IN(pd_declared_param_record, rank, 0, PD_MAX_RANK),
                                         PD_FIELD(pd_declared_param_record, dim),
                                         PD_FIELD(pd_declared_param_record, ranged),
                                         PD_FIELD(pd_declared_param_record, model_state),
                                         PD_FIELD(pd_declared_param_record, f16),
                                         PD_FIELD(pd_declared_param_record, bf16),
                                         PD_FIELD_IN(pd_declared_param_record, update_dtype, 0,
                                                     PD_PUSHED *PD_INT4 + PD_BF16),
                                         { 0 } };
static const pd_table param_table = { "parameter", sizeof(pd_declared_param_record), param_fields };

static const pd_field range_fields[] = { PD_FIELD(pd_declared_range, param),       PD_FIELD(pd_declared_range, rank),
                                         PD_FIELD(pd_declared_range, start),       PD_FIELD(pd_declared_range, end),
                                         PD_FIELD(pd_declared_range, initialiser), { 0 } };
static const pd_table range_table = { "range", sizeof(pd_declared_range), range_fields };

static const pd_field job_fields[] = { PD_FIELD_IN(pd_declared_job, name, 0, PD_NAME_MAX),
                                       PD_FIELD_IN(pd_declared_job, world, 1, PD_MAX_WORLD),
                                       { 0 } };
static const pd_table job_table = { "job", sizeof(pd_declared_job), job_fields };

static const pd_field cluster_fields[] = { PD_FIELD_IN(pd_declared_job, shard, 0, PD_MAX_SHARDS - 1),
                                           PD_FIELD_IN(pd_declared_job, shards, 2, PD_MAX_SHARDS),
                                           PD_FIELD(pd_declared_job, cluster),
                                           PD_FIELD(pd_declared_job, map),
                                           { 0 } };
static const pd_table cluster_table = { "cluster", sizeof(pd_declared_job), cluster_fields };

static const pd_field portion_fields[] = { PD_FIELD(pd_portion, param),
                                           PD_FIELD(pd_portion, shard),
                                           PD_FIELD(pd_portion, first),
                                           PD_FIELD(pd_portion, count),
                                           { 0 } };
static const pd_table portion_table = { "portion", sizeof(pd_portion), portion_fields };

/* Writes or reads the fragments of the parameters. Images of jobs with one fragment, and on one shard, lack them. */
static void visit_fragments(pd_archive *archive, pd_declared_job *d)
{
    bool has = d->shards > 1;

    for (size_t i = 0; i < d->n_params; i++) has |= d->params[i].fragment > 0;
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !has) return;
    for (size_t i = 0; i < d->n_params; i++) pd_archive_value(archive, &d->params[i].fragment);
}

/* Writes or reads which shard of a cluster this is, and the map. Images of jobs on one shard lack them. */
static void visit_cluster(pd_archive *archive, pd_declared_job *d)
{
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : d->shards <= 1) return;
    pd_archive_fields(archive, &cluster_table, d);
    d->portions = pd_archive_list(archive, &portion_table, d->portions, &d->n_portions, MOST_PORTIONS);
}

void pd_declared_job_visit(pd_archive *archive, pd_declared_job *d)
{
    pd_archive_enter(archive, "declared");
    pd_archive_fields(archive, &job_table, d);
    d->values = pd_archive_list(archive, &value_table, d->values, &d->n_values, MOST_VALUES);
    d->rules = pd_archive_list(archive, &rule_table, d->rules, &d->n_rules, MOST_RULES);
    d->params = pd_archive_list(archive, &param_table, d->params, &d->n_params, MOST_PARAMS);
    d->ranges = pd_archive_list(archive, &range_table, d->ranges, &d->n_ranges, MOST_RANGES);
    visit_fragments(archive, d);
    visit_cluster(archive, d);
    pd_archive_leave(archive);
}

void pd_declared_job_free(pd_declared_job *d)
{
    for (size_t i = 0; i < d->n_values; i++) free(d->values[i].name);
    for (size_t i = 0; i < d->n_rules; i++) free(d->rules[i].text);
    for (size_t i = 0; i < d->n_params; i++) {
        free(d->params[i].name);
        free(d->params[i].axes);
    }
    free(d->name);
    free(d->values);
    free(d->rules);
    free(d->params);
    free(d->ranges);
    free(d->portions);
}

static size_t count_ranges(const pd_steps *steps)
{
    size_t n = 0;

    for (uint32_t i = 0; i < steps->n_params; i++) n += steps->params[i].round.ranges.n_known;
    return n;
}

static int make_lists(pd_declared_job *out, const pd_job *job)
{
    const pd_steps *steps = &job->steps;
    size_t params = job->whole != NULL ? job->whole->n : steps->n_params,
           portions = job->whole != NULL ? job->whole->map.n : 0;

    out->values = calloc(PD_JOB_KEYS, sizeof *out->values);
    out->rules = calloc(steps->n_rules, sizeof *out->rules);
    out->params = calloc(params, sizeof *out->params);
    out->portions = calloc(portions + 1, sizeof *out->portions);
    out->ranges = calloc(count_ranges(steps) + 1, sizeof *out->ranges);
    return out->values != NULL && out->rules != NULL && out->params != NULL && out->ranges != NULL &&
                   out->portions != NULL
               ? PD_OK
               : PD_NO_MEMORY;
}

static int take_param(pd_declared_param_record *out, const pd_param *param)
{
    *out = (pd_declared_param_record){ .rank = (uint32_t)param->shape.rank,
                                       .ranged = param->ranged,
                                       .model_state = param->model_state,
                                       .f16 = param->buffers.pool[PD_F16] != NULL,
                                       .bf16 = param->buffers.pool[PD_BF16] != NULL,
                                       .update_dtype =
                                           (uint32_t)param->update_dtype + PD_PUSHED * (uint32_t)param->push_dtype,
                                       .fragment = param->fragment->number };
    for (int d = 0; d < param->shape.rank; d++) out->dim[d] = param->shape.dim[d];
    if ((out->name = strdup(param->name)) == NULL) return PD_NO_MEMORY;
    return param->axes == NULL || (out->axes = strdup(param->axes)) != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Takes a parameter of a whole declaration. In which types workers pull it is known of portions of this shard. */
static int take_decl(pd_declared_param_record *out, const pd_job *job, size_t i)
{
    const pd_param_decl *decl = &job->whole->params[i];
    pd_dtype update = (pd_dtype)0;

    *out = (pd_declared_param_record){ .rank = (uint32_t)decl->shape.rank,
                                       .ranged = decl->ranged,
                                       .model_state = decl->model_state,
                                       .fragment = decl->fragment };
    for (int d = 0; d < decl->shape.rank; d++) out->dim[d] = decl->shape.dim[d];
    for (size_t k = job->whole->first[i]; k < job->whole->first[i + 1]; k++) {
        const pd_param *own = job->whole->own[k] < UINT32_MAX ? &job->steps.params[job->whole->own[k]] : NULL;
        if (own == NULL) continue;
        out->f16 |= own->buffers.pool[PD_F16] != NULL;
        out->bf16 |= own->buffers.pool[PD_BF16] != NULL;
        if (own->update_dtype != 0) update = own->update_dtype;
    }
    out->update_dtype = (uint32_t)update + PD_PUSHED * (uint32_t)decl->push_dtype;
    if ((out->name = strdup(decl->name)) == NULL) return PD_NO_MEMORY;
    return decl->axes == NULL || (out->axes = strdup(decl->axes)) != NULL ? PD_OK : PD_NO_MEMORY;
}

static int take_whole(pd_declared_job *out, const pd_job *job)
{
    const pd_whole *whole = job->whole;

    for (size_t i = 0; i < whole->n; i++) {
        out->n_params++;
        if (take_decl(&out->params[i], job, i) != PD_OK) return PD_NO_MEMORY;
    }
    memcpy(out->portions, whole->map.portions, whole->map.n * sizeof *out->portions);
    out->n_portions = whole->map.n;
    out->map = whole->map.fingerprint;
    return PD_OK;
}

static void take_ranges(pd_declared_job *out, const pd_param *param)
{
    for (uint32_t r = 0; param->ranged && r < pd_round_ranks(&param->round); r++) {
        const pd_rank_range *range = &param->round.ranges.at[r];
        if (range->known)
            out->ranges[out->n_ranges++] =
                (pd_declared_range){ param->index, r, range->start, range->end, range->initialiser };
    }
}

static int take_all(pd_declared_job *out, const pd_job *job)
{
    const pd_steps *steps = &job->steps;

    if ((out->name = strdup(steps->name)) == NULL || make_lists(out, job) != PD_OK) return PD_NO_MEMORY;
    for (; out->n_values < PD_JOB_KEYS; out->n_values++) {
        out->values[out->n_values].value = steps->values.at[out->n_values];
        if ((out->values[out->n_values].name = strdup(pd_job_keys[out->n_values].name)) == NULL) return PD_NO_MEMORY;
    }
    for (; out->n_rules + 1 < steps->n_rules; out->n_rules++)
        if ((out->rules[out->n_rules].text = strdup(steps->rules[out->n_rules].text)) == NULL) return PD_NO_MEMORY;
    for (uint32_t i = 0; i < steps->n_params; i++) take_ranges(out, &steps->params[i]);
    if (job->whole != NULL) return take_whole(out, job);
    for (uint32_t i = 0; i < steps->n_params; i++) {
        out->n_params++;
        if (take_param(&out->params[i], &steps->params[i]) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}

int pd_declared_job_of(pd_declared_job *out, const pd_job *job, pd_error *err)
{
    *out = (pd_declared_job){ .world = job->saved.workers,
                              .shard = job->steps.shard,
                              .shards = job->steps.shards,
                              .cluster = job->saved.cluster };
    if (take_all(out, job) == PD_OK) return PD_OK;
    pd_declared_job_free(out);
    *out = (pd_declared_job){ 0 };
    return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its image", job->steps.name);
}

/* Returns a copy of a text from an image. If the image has no text (`text` is NULL), returns a copy of "". */
static char *text_of(const char *text)
{
    return strdup(text != NULL ? text : "");
}

static int make_hello(pd_request **out, const pd_declared_job *d)
{
    pd_request *hello = *out = pd_request_new(PD_REQ_HELLO, (pd_ticket){ 0, 0 });

    if (hello == NULL) return PD_NO_MEMORY;
    hello->u.hello.world_size = d->world;
    hello->u.hello.shard = d->shard;
    hello->u.hello.shards = d->shards;
    hello->u.hello.cluster = d->cluster;
    if ((hello->u.hello.job_name = text_of(d->name)) == NULL ||
        (hello->u.hello.rules = calloc(d->n_rules + 1, sizeof(char *))) == NULL)
        return PD_NO_MEMORY;
    for (; hello->u.hello.n_rules < d->n_rules; hello->u.hello.n_rules++)
        if ((hello->u.hello.rules[hello->u.hello.n_rules] = text_of(d->rules[hello->u.hello.n_rules].text)) == NULL)
            return PD_NO_MEMORY;
    return PD_OK;
}

static int read_values(pd_job_values *out, const pd_declared_job *d, pd_error *err)
{
    for (size_t i = 0; i < d->n_values; i++) {
        int rc =
            pd_job_values_set_raw(out, d->values[i].name != NULL ? d->values[i].name : "", d->values[i].value, err);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

/* Makes the job with the values of the image in place of the server's presets. */
static int make_with(pd_job **out, pd_request *hello, const pd_declared_job *d, const pd_job_env *env, uint32_t number,
                     pd_error *err)
{
    pd_job_values values = *env->presets;
    pd_job_env own = *env;
    int rc = read_values(&values, d, err);

    own.presets = &values;
    hello->u.hello.shares = env->config->shares;
    if (rc != PD_OK || (rc = pd_job_new(out, &own, number, hello, err)) != PD_OK) return rc;
    (*out)->presets = env->presets;
    if ((rc = pd_checkpoint_policy_begin(*out, err)) == PD_OK) return PD_OK;
    pd_job_free(*out);
    *out = NULL;
    return rc;
}

static int make_job(pd_job **out, const pd_declared_job *d, const pd_job_env *env, uint32_t number, pd_error *err)
{
    pd_request *hello;
    int rc = make_hello(&hello, d);

    if (rc != PD_OK)
        pd_fail(err, rc, "out of memory for job %.100s", d->name);
    else
        rc = pd_hello_check(hello, err);
    if (rc == PD_OK) rc = make_with(out, hello, d, env, number, err);
    pd_request_free(hello);
    return rc;
}

static void fill_decl(pd_param_decl *out, const pd_declared_param_record *param)
{
    *out = (pd_param_decl){ .name = text_of(param->name),
                            .axes = param->axes != NULL ? strdup(param->axes) : NULL,
                            .pull_dtype = PD_F32,
                            .push_dtype = (pd_dtype)(param->update_dtype / PD_PUSHED),
                            .ranged = param->ranged,
                            .model_state = param->model_state,
                            .fragment = param->fragment };
    out->shape.rank = (int)param->rank;
    memcpy(out->shape.dim, param->dim, param->rank * sizeof param->dim[0]);
}

/* Copies the ranges of rank 0 from an image into its Declare request. If rank 0 is the only rank, planning checks that
 * these ranges contain all elements of each parameter. The ranges of an image of one shard are those of portions: they
 * are set later, and here the only rank has all elements. */
static void fill_ranges(pd_request *declare, const pd_declared_job *d)
{
    for (size_t i = 0; d->shards > 1 && d->world == 1 && i < declare->u.declare.n; i++)
        pd_shape_elements(&declare->u.declare.params[i].shape, &declare->u.declare.params[i].end);
    if (d->shards > 1) return;
    for (size_t i = 0; i < d->n_ranges; i++) {
        const pd_declared_range *range = &d->ranges[i];
        if (range->rank != 0 || range->param >= declare->u.declare.n) continue;
        declare->u.declare.params[range->param].start = range->start;
        declare->u.declare.params[range->param].end = range->end;
    }
}

/* Makes the Declare request of rank 0 from an image. The job's parameters are then planned from this request. */
static int make_declare(pd_request **out, const pd_declared_job *d)
{
    pd_request *declare = *out = pd_request_new(PD_REQ_DECLARE, (pd_ticket){ 0, 0 });

    if (declare == NULL || (declare->u.declare.params = calloc(d->n_params + 1, sizeof(pd_param_decl))) == NULL)
        return PD_NO_MEMORY;
    for (; declare->u.declare.n < d->n_params; declare->u.declare.n++) {
        pd_param_decl *decl = &declare->u.declare.params[declare->u.declare.n];
        fill_decl(decl, &d->params[declare->u.declare.n]);
        if (decl->name == NULL || (d->params[declare->u.declare.n].axes != NULL && decl->axes == NULL))
            return PD_NO_MEMORY;
    }
    fill_ranges(declare, d);
    return PD_OK;
}

/* Lets planning use the map of an image. */
static int use_map(pd_job *job, const pd_declared_job *d, pd_error *err)
{
    pd_map map = { .n = d->n_portions, .fingerprint = d->map };

    if (d->shards <= 1 || d->spreads) return PD_OK;
    if ((map.portions = malloc((d->n_portions + 1) * sizeof *map.portions)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its map", job->steps.name);
    if (d->n_portions > 0) memcpy(map.portions, d->portions, d->n_portions * sizeof *map.portions);
    pd_planning_use_map(job, &map);
    return PD_OK;
}

static int plan_params(pd_job *job, const pd_declared_job *d, pd_error *err)
{
    double budget_ns = INFINITY;
    pd_request *declare;
    int rc = make_declare(&declare, d);

    if (rc != PD_OK) pd_fail(err, rc, "job %.100s: out of memory for its parameters", job->steps.name);
    if (rc == PD_OK && (rc = pd_planning_begin(job, declare, err)) == PD_OK) pd_planning_leave_state(job, d->hollow);
    if (rc == PD_OK) rc = use_map(job, d, err);
    if (rc == PD_OK) pd_planning_check(job, declare, &budget_ns, &rc, err);
    if (rc == PD_OK) pd_planning_run(job, declare, &budget_ns, &rc, err);
    if (rc == PD_OK) rc = pd_planning_finish(job, declare, &budget_ns, err);
    pd_planning_free(job);
    pd_request_free(declare);
    return rc;
}

static int set_types(pd_job *job, pd_param *param, const pd_declared_param_record *record, pd_error *err)
{
    const bool pulled[4] = { [PD_F16] = record->f16, [PD_BF16] = record->bf16 };
    pd_dtype update = (pd_dtype)(record->update_dtype % PD_PUSHED);
    pd_published *again;

    for (int t = PD_F16; t <= PD_BF16; t++) {
        uint64_t bytes = pulled[t] ? pd_param_type_bytes(param, (pd_dtype)t) : 0;
        if (!pulled[t]) continue;
        if (pd_job_check_total(job, bytes, err) != PD_OK) return err->code;
        if (pd_param_pull(param, &job->steps.memory, (pd_dtype)t, &again) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory", param->name);
        pd_account_take(&job->steps.account, bytes);
    }
    if (update == 0) return PD_OK;
    if (pd_job_check_total(job, pd_param_update_bytes(param, update), err) != PD_OK) return err->code;
    pd_account_take(&job->steps.account, pd_param_update_bytes(param, update));
    return pd_param_pull_updates(param, &job->steps.memory, update) == PD_OK
               ? PD_OK
               : pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for its updates", param->name);
}

static int set_range(pd_job *job, const pd_declared_range *range, pd_error *err)
{
    pd_param *param = range->param < job->steps.n_params ? &job->steps.params[range->param] : NULL;

    if (param == NULL || !param->ranged || range->rank >= job->steps.members.ranks ||
        param->round.ranges.at[range->rank].known || range->start < 0 || range->end < range->start ||
        range->end > param->elements)
        return pd_fail(
            err, PD_DATA_LOSS,
            "job %.100s: the image has a range that does not fit: rank %u, parameter %u, elements %lld to %lld",
            job->steps.name, range->rank, range->param, (long long)range->start, (long long)range->end);
    pd_range_take(param, range->rank, range->start, range->end);
    param->round.ranges.at[range->rank].initialiser = range->initialiser;
    return PD_OK;
}

static int complete(pd_job *job, const pd_declared_job *d, pd_error *err)
{
    uint64_t bytes;
    int rc = PD_OK;

    /* Planning has set the ranges of rank 0. Remove them, because the loop below sets the ranges of all ranks. */
    pd_ranges_give_back(job, 0);
    for (size_t i = 0; rc == PD_OK && i < d->n_ranges; i++) rc = set_range(job, &d->ranges[i], err);
    for (uint32_t i = 0; rc == PD_OK && i < job->steps.n_params; i++)
        rc = set_types(job, &job->steps.params[i], &d->params[job->steps.params[i].declared], err);
    bytes = pd_ranges_collected_bytes(job) - job->records.collected;
    if (rc == PD_OK && (rc = pd_job_check_total(job, bytes, err)) == PD_OK) {
        job->records.collected += bytes;
        pd_account_take(&job->steps.account, bytes);
    }
    return rc;
}

int pd_declared_job_make(pd_job **out, const pd_declared_job *d, const pd_job_env *env, uint32_t number, pd_error *err)
{
    int rc = make_job(out, d, env, number, err);

    if (rc != PD_OK) return rc;
    if ((rc = plan_params(*out, d, err)) == PD_OK && (rc = complete(*out, d, err)) == PD_OK) return PD_OK;
    pd_param_set_forget(*out);
    pd_job_free(*out);
    *out = NULL;
    return rc;
}
