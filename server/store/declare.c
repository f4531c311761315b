/* declare.c - the set of parameters: the first rank's is planned as a whole, the others must declare the same. */
#include "training.h"

#include "factor_rules.h"
#include "need.h"
#include "norm.h"
#include "plan.h"
#include "together.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

pd_param *pd_job_param(const pd_job *job, const char *name)
{
    pd_param *param = NULL;
    size_t n = strlen(name);
    unsigned hash = pd_store_hash(job->store, name, n);

    HASH_FIND_BYHASHVALUE(hh, job->names, name, n, hash, param);
    return param;
}

/* ---- the set, before anything is made of it ---- */

static int check_set(const pd_job *job, const pd_request *request, pd_error *err)
{
    const pd_store_config *config = &job->store->config;
    uint64_t bytes = 0, room = config->max_total_bytes;
    size_t n = request->u.declare.n;

    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s: Declare names no parameter", job->name);
    if (n > config->max_params)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: %zu parameters, at most %u are allowed (limits.max_params)", job->name, n,
                       config->max_params);
    for (size_t i = 0; i < n; i++) {
        int64_t elements;
        int rc = pd_declaration_check(job, &request->u.declare.params[i], i, &elements, err);
        if (rc != PD_OK) return rc;
        if ((uint64_t)elements > room / sizeof(float) || __builtin_add_overflow(bytes, (uint64_t)elements * sizeof(float), &bytes) ||
            bytes > room)
            return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: parameters up to %.100s need more than the %llu bytes allowed for "
                           "all jobs (limits.max_total_bytes)",
                           job->name, request->u.declare.params[i].name, (unsigned long long)room);
    }
    return PD_OK;
}

/* ---- what the whole set needs ---- */

/* What the job has to keep of the ingest budget once `rank` has its ranges. Of the others that have not declared no more is known than of any such. */
typedef struct pd_reserves { uint64_t own, other, all; } pd_reserves;

static pd_reserves reserves_with(const pd_job *job, uint32_t rank)
{
    pd_reserves r = { .own = pd_ranges_reserve(job, rank), .all = job->reserved };

    if (job->reserved > 0) {
        r.all += r.own - job->ranks[rank].reserve;
    } else {
        r.other = job->world > 1 ? pd_ranges_reserve(job, rank == 0 ? 1 : 0) : 0;
        r.all = r.own + (job->world - 1) * r.other;
    }
    return r;
}

static int check_ingest(const pd_job *job, uint32_t rank, pd_error *err)
{
    const pd_store *store = job->store;
    pd_reserves r = reserves_with(job, rank);
    uint64_t limit = store->config.ingest_bytes, others = store->reserved - job->reserved;

    if (others <= limit && r.all <= limit - others) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: %u ranks, this one with frames of up to %llu bytes, need %llu bytes of ingest budget; "
                   "of %llu, %llu are reserved by other jobs (limits.ingest_bytes, limits.chunk_bytes)", job->name,
                   job->world, (unsigned long long)r.own, (unsigned long long)r.all, (unsigned long long)limit, (unsigned long long)others);
}

static void reserve(pd_job *job, uint32_t rank)
{
    pd_reserves r = reserves_with(job, rank);

    for (uint32_t other = 0; job->reserved == 0 && other < job->world; other++) job->ranks[other].reserve = r.other;
    if (job->reserved == 0) job->store->n_ranks += job->world;
    job->ranks[rank].reserve = r.own;
    job->store->reserved += r.all - job->reserved;
    job->reserved = r.all;
}

static int check_total(const pd_job *job, uint64_t more, pd_error *err)
{
    const pd_store *store = job->store;
    uint64_t limit = store->config.max_total_bytes;

    if (store->committed <= limit && more <= limit - store->committed) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: weights, sums, contributions gathered, optimizer state, roots and snapshots need %llu bytes; of "
                   "%llu allowed for all jobs, %llu are in use (limits.max_total_bytes)", job->name, (unsigned long long)more,
                   (unsigned long long)limit, (unsigned long long)store->committed);
}

/* What the ranks that have declared ranges may leave behind, all together. */
static uint64_t bytes_of_ranges(const pd_job *job)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].ranged) bytes = pd_need_plus(bytes, pd_gather_bytes(job, &job->params[i]));
    return bytes;
}

/* There is room for the rank's ranges, and for `more`. */
static int check_ranges(const pd_job *job, uint32_t rank, uint64_t more, pd_error *err)
{
    int rc = check_ingest(job, rank, err);

    return rc != PD_OK ? rc : check_total(job, pd_need_plus(more, bytes_of_ranges(job) - job->gathered), err);
}

/* After ranges were taken, or given back. */
static void count_ranges(pd_job *job)
{
    uint64_t bytes = bytes_of_ranges(job), more = bytes - job->gathered;

    job->gathered = bytes;
    job->committed += more;
    job->store->committed += more;
}

/* ---- planning ---- */

typedef struct pd_planning {
    pd_declaration *decls;
    pd_name_maps   *maps;                       /* of all of them */
    pd_plan        *plans;
    double        (*facts)[PD_MAX_FACTS];       /* by rule */
} pd_planning;

static size_t rule_index(const pd_job *job, const pd_param *param) { return (size_t)(param->rule - job->rules); }

static int survey(const pd_job *job, pd_planning *planning, pd_error *err)
{
    planning->decls = calloc(job->n_params, sizeof *planning->decls);
    planning->plans = calloc(job->n_params, sizeof *planning->plans);
    planning->facts = calloc(job->n_rules, sizeof *planning->facts);
    planning->maps = pd_name_maps_new(job->n_params);
    if (planning->decls == NULL || planning->plans == NULL || planning->facts == NULL || planning->maps == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for plans", job->name);
    for (uint32_t i = 0; i < job->n_params; i++)
        planning->decls[i] = (pd_declaration){ .name = job->params[i].name, .shape = job->params[i].shape, .world = (int)job->world,
                                               .hypers = job->params[i].rule->hypers, .group = (int)rule_index(job, &job->params[i]),
                                               .axes = job->params[i].axes, .seed = job->values.at[PD_JOB_KEY_SEED],
                                               .start_step = (int64_t)pd_job_start_step(job), .maps = planning->maps };
    for (size_t r = 0; r < job->n_rules; r++)
        pd_optim_survey(job->rules[r].hypers.row, planning->decls, job->n_params, planning->facts[r]);
    return PD_OK;
}

/* Does it fit with what is in use, and with `before`, the job's parameters before it? */
static int check_need(const pd_job *job, const pd_param *param, const pd_need *n, uint64_t before, pd_error *err)
{
    const pd_store *store = job->store;
    uint64_t limit = store->config.max_total_bytes, used = store->committed + before, sum = pd_need_sum(n);

    if (used <= limit && sum <= limit - used) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.50s: parameter %.100s needs %llu bytes (weights and snapshots %llu, sum %llu, contributions gathered "
                   "%llu, optimizer state %llu, roots under way %llu, temporaries %llu); of %llu allowed for all jobs, %llu are taken by other jobs and by the parameters before it "
                   "(limits.max_total_bytes)", job->name, param->name, (unsigned long long)sum, (unsigned long long)n->weights, (unsigned long long)n->sums,
                   (unsigned long long)n->gathered, (unsigned long long)n->state, (unsigned long long)n->roots, (unsigned long long)n->step, (unsigned long long)limit,
                   (unsigned long long)used);
}

/* Without making any of it. */
static int need_of_param(const pd_job *job, const pd_sizing *sizing, const pd_planning *planning, uint32_t i, pd_need *n, pd_error *err)
{
    const pd_param *param = &job->params[i];
    pd_plan *plan = &planning->plans[i];
    bool pulled[4];
    int rc;

    for (int t = 0; t < 4; t++) pulled[t] = param->shelf[t] != NULL;
    if ((rc = pd_plan_make(plan, &planning->decls[i], planning->facts[rule_index(job, param)], err)) != PD_OK) return rc;
    rc = pd_need_of(n, sizing, param->how, plan, param->ranged, pulled);
    return rc == PD_OK ? PD_OK : pd_fail(err, rc, "parameter %.160s: out of memory for its plan", param->name);
}

static int count_bytes(const pd_job *job, const pd_planning *planning, uint64_t *bytes, pd_error *err)
{
    const pd_store_config *config = &job->store->config;
    const pd_sizing sizing = { job->values, job->world, config->chunk_elements, config->threads, config->pool_threads };
    pd_need all = { 0 }, n;
    int rc;

    for (uint32_t i = 0; i < job->n_params; i++) {
        if ((rc = need_of_param(job, &sizing, planning, i, &n, err)) != PD_OK) return rc;
        if ((rc = check_need(job, &job->params[i], &n, pd_need_sum(&all), err)) != PD_OK) return rc;
        pd_need_add(&all, &n, 1);
    }
    pd_need_complete(&all, &sizing, job->rules, job->n_rules);
    *bytes = pd_need_sum(&all);
    return check_total(job, *bytes, err);
}

static int make_optims(pd_job *job, const pd_planning *planning, pd_error *err)
{
    for (uint32_t i = 0; i < job->n_params; i++) {
        pd_param *param = &job->params[i];
        int rc = pd_optim_planned(&param->optim, &planning->decls[i], planning->facts[rule_index(job, param)], &planning->plans[i], err);
        if (rc != PD_OK) return rc;
        if (pd_roots_prepare(param) != PD_OK) return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for what is said of its roots", param->name);
    }
    return PD_OK;
}

/* ---- the first set ---- */

/* Memory for what it gathers comes chunk by chunk. */
static int join_spills(pd_job *job, pd_param *param, pd_error *err)
{
    uint64_t chunk = job->store->config.chunk_elements, n = (uint64_t)param->elements < chunk ? (uint64_t)param->elements : chunk;

    if (!pd_gathers(param->how)) return PD_OK;
    param->spills = pd_shelf_join(&job->store->shelves, (size_t)n * sizeof(float));
    return param->spills != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", param->name);
}

static int add_param(pd_job *job, const pd_param_decl *decl, pd_error *err)
{
    pd_param *param = pd_job_param(job, decl->name);
    size_t n = strlen(decl->name);
    int rc;

    if (param != NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", decl->name);
    param = &job->params[job->n_params];
    *param = (pd_param){ .index = job->n_params, .shape = decl->shape, .ranged = decl->ranged, .model_state = decl->model_state,
                         .rule = pd_declaration_rule(job, decl), .step = pd_job_start_step(job) };
    job->n_params++;
    pd_shape_elements(&decl->shape, &param->elements);
    param->how = pd_aggregation_of(&job->values, param->rule->hypers.row);
    if ((param->name = strdup(decl->name)) == NULL || (decl->axes != NULL && (param->axes = strdup(decl->axes)) == NULL))
        return pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", decl->name);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, job->names, param->name, n, pd_store_hash(job->store, decl->name, n), param);
    param->shelf[PD_F32] = pd_shelf_join(&job->store->shelves, (size_t)param->elements * sizeof(float));
    if (param->shelf[PD_F32] == NULL || param->hh.tbl == NULL)
        return pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", decl->name);
    if (!param->ranged && (rc = pd_gather_check_whole(&job->values, job->world, param->how, param->name, err)) != PD_OK) return rc;
    return join_spills(job, param, err);
}

/* Chunks, slots and ranges of all parameters in three arrays. */
static int lay_chunks(pd_job *job, pd_error *err)
{
    uint64_t n = 0, at = 0;
    size_t ranged = 0;

    for (uint32_t i = 0; i < job->n_params; i++) n += pd_count_chunks(job->params[i].elements, job->store->config.chunk_elements);
    for (uint32_t i = 0; i < job->n_params; i++) ranged += job->params[i].ranged;
    job->ranges = calloc(ranged + 1, job->world * sizeof *job->ranges);
    job->chunks = calloc(n, sizeof *job->chunks);
    job->slots = calloc(n, job->world * sizeof *job->slots);
    job->batch = calloc(job->n_params, sizeof *job->batch);
    job->optims = calloc(job->n_params, sizeof *job->optims);
    if (job->chunks == NULL || job->slots == NULL || job->ranges == NULL || job->batch == NULL || job->optims == NULL || pd_groups_make(job) != PD_OK ||
        pd_norm_make(job) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its rounds", job->name);
    for (uint32_t i = 0; i < job->n_params; i++) {
        pd_param *param = &job->params[i];
        pd_range *ranges = param->ranged ? job->ranges + (size_t)job->world * --ranged : NULL;
        pd_round_init(&param->round, param, param->elements, (int64_t)job->store->config.chunk_elements, job->world, job->chunks + at,
                      job->slots + at * job->world, ranges);
        param->unlanded = (uint64_t)param->round.n_chunks * (param->ranged ? job->world : 1);
        at += param->round.n_chunks;
    }
    return PD_OK;
}

void pd_job_forget_set(pd_job *job)
{
    if (job->reserved > 0) {
        job->store->committed -= job->committed;
        job->store->reserved -= job->reserved;
        job->store->n_ranks -= job->world;
    }
    job->changes++;
    HASH_CLEAR(hh, job->names);
    for (uint32_t i = 0; i < job->n_params; i++) pd_param_clear(&job->params[i]);
    free(job->params);
    free(job->chunks);
    free(job->slots);
    free(job->ranges);
    free(job->batch);
    free(job->optims);
    free(job->groups);
    free(job->norm);
    job->params = NULL;
    job->chunks = NULL;
    job->slots = NULL;
    job->ranges = NULL;
    job->batch = NULL;
    job->optims = NULL;
    job->groups = NULL;
    job->norm = NULL;
    job->n_params = 0;
    job->reserved = job->committed = job->gathered = 0;
}

static int build_set(pd_job *job, const pd_request *request, pd_planning *planning, pd_error *err)
{
    uint64_t bytes = 0;
    int rc = PD_OK;

    job->params = calloc(request->u.declare.n, sizeof *job->params);
    if (job->params == NULL) return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for parameters", job->name);
    for (size_t i = 0; i < request->u.declare.n && rc == PD_OK; i++) rc = add_param(job, &request->u.declare.params[i], err);
    if (rc != PD_OK) return rc;
    if ((rc = survey(job, planning, err)) != PD_OK) return rc;
    if ((rc = count_bytes(job, planning, &bytes, err)) != PD_OK) return rc;
    if ((rc = lay_chunks(job, err)) != PD_OK) return rc;
    if ((rc = pd_ranges_take(job, request, err)) != PD_OK) return rc;
    if ((rc = check_ranges(job, request->rank, bytes, err)) != PD_OK) return rc;
    if ((rc = make_optims(job, planning, err)) != PD_OK) return rc;
    job->committed = bytes;
    job->store->committed += bytes;
    count_ranges(job);
    reserve(job, request->rank);
    return PD_OK;
}

static void warn_of_ready_roots(pd_job *job)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < job->n_params; i++) {
        const pd_plan *plan = pd_optim_plan(job->params[i].optim);
        n += plan->n_tasks > 0 && plan->root_delay == PD_ROOT_READY;
    }
    if (n > 0)
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: roots of %u parameters are used as soon as they are ready: in which step depends on timing, so this "
               "run is not reproducible bit for bit (root_delay = a number of steps is)", job->name, n);
}

static void warn_of_values(pd_job *job)
{
    for (size_t i = 0; i < job->n_rules; i++) {
        const pd_hypers *hypers = &job->rules[i].hypers;
        const char *text = hypers->row->warning == NULL ? NULL : hypers->row->warning(hypers);
        if (text != NULL) pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: rule \"%.200s\": %s", job->name, job->rules[i].text, text);
    }
}

static void end_planning(const pd_job *job, pd_planning *planning)
{
    for (uint32_t i = 0; planning->plans != NULL && i < job->n_params; i++) pd_plan_free(&planning->plans[i]);
    pd_name_maps_free(planning->maps);
    free(planning->decls);
    free(planning->plans);
    free(planning->facts);
}

static int declare_first(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_planning planning = { 0 };
    int rc = check_set(job, request, err);

    if (rc != PD_OK) return rc;
    rc = build_set(job, request, &planning, err);
    end_planning(job, &planning);
    if (rc != PD_OK) {
        pd_job_forget_set(job);
        return rc;
    }
    warn_of_ready_roots(job);
    warn_of_values(job);
    pd_declarations_say(job);
    return PD_OK;
}

/* ---- the same set again ---- */

static int declare_again(pd_job *job, const pd_request *request, pd_error *err)
{
    uint64_t frame = ++job->store->frames;
    int rc;

    for (size_t i = 0; i < request->u.declare.n; i++)
        if ((rc = pd_declaration_match(job, &request->u.declare.params[i], request->rank, frame, err)) != PD_OK) return rc;
    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].mark != frame)
            return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.256s: job %.100s has it, this rank does not declare it; every rank "
                           "declares the same", job->params[i].name, job->name);
    if ((rc = pd_ranges_take(job, request, err)) != PD_OK) return rc;
    if ((rc = check_ranges(job, request->rank, 0, err)) != PD_OK) pd_ranges_give_back(job, request->rank);
    else count_ranges(job);
    return rc;
}

/* ---- element types to publish ---- */

static uint64_t type_bytes(const pd_param *param, pd_dtype dtype)
{
    return param->shelf[dtype] != NULL ? 0 : 2 * (uint64_t)param->elements * pd_dtype_size(dtype);      /* weights, and those to come */
}

/* Bytes that the element types new with this request add. */
static uint64_t types_bytes(const pd_job *job, const pd_request *request)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        const pd_param *param = pd_job_param(job, decl->name);
        bytes += type_bytes(param, decl->pull_dtype);
        if (decl->update_dtype != 0) bytes += pd_param_update_bytes(param, decl->update_dtype);
    }
    return bytes;
}

static int publish_types(pd_job *job, const pd_request *request, pd_closed *closed, size_t *n_closed, pd_error *err)
{
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_param *param = pd_job_param(job, decl->name);
        pd_snapshot *again;
        uint64_t bytes = type_bytes(param, decl->pull_dtype) + (decl->update_dtype != 0 ? pd_param_update_bytes(param, decl->update_dtype) : 0);
        if (decl->update_dtype != 0 && pd_param_pull_updates(param, &job->store->shelves, decl->update_dtype) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its updates", decl->name);
        if (pd_param_pull(param, &job->store->shelves, decl->pull_dtype, &again) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its weights in %s", decl->name,
                           pd_dtype_name(decl->pull_dtype));
        job->committed += bytes;
        job->store->committed += bytes;
        if (again != NULL) pd_param_publish(param, again, (pd_outcome)0, &closed[(*n_closed)++]);
    }
    for (uint32_t i = 0; i < job->n_params; i++)                /* a rank without elements of it was waited for until now */
        *n_closed += pd_job_publish_landed(job, &job->params[i], &closed[*n_closed]);
    return PD_OK;
}

/* The types this rank pulls in are published from now on; weights that are out already are published again with them. */
static int add_types(pd_job *job, const pd_request *request, pd_error *err)
{
    uint64_t bytes = types_bytes(job, request);
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, job->number);
    pd_closed *closed = calloc(job->n_params, sizeof *closed);
    int rc;

    if (effect == NULL || closed == NULL) rc = pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->name);
    else rc = check_total(job, bytes, err);
    if (rc == PD_OK) {
        effect->u.closed.at = closed;
        rc = publish_types(job, request, closed, &effect->u.closed.n, err);
    }
    if (effect != NULL && effect->u.closed.n > 0) {
        pd_effects_add(&job->store->outbox, effect);     /* also what was published before memory ran out: it is out */
    } else {
        free(closed);
        free(effect);
    }
    return rc;
}

/* ---- the answer ---- */

bool pd_job_sealed(const pd_job *job)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (!job->ranks[r].sealed) return false;
    return true;
}

static int copy_notes(const pd_job *job, const pd_request *request, pd_declared *declared, pd_error *err)
{
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param *param = pd_job_param(job, request->u.declare.params[i].name);
        const char *note = pd_optim_plan(param->optim)->note;
        if (note[0] != '\0' && (declared[i].note = strdup(note)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for the answer", param->name);
    }
    return PD_OK;
}

static void answer(pd_job *job, pd_request *request, pd_declared *declared)
{
    pd_effect *effect = pd_answer(request, PD_EFF_DECLARED);
    size_t n = request->u.declare.n;

    for (size_t i = 0; i < n; i++) {
        const pd_param *param = pd_job_param(job, request->u.declare.params[i].name);
        declared[i].param = param->index;
        declared[i].step = param->step;
        declared[i].initialised = pd_param_initialised(job, param, request->rank);
    }
    effect->u.declared.params = declared;
    effect->u.declared.n = n;
    effect->u.declared.must_init = pd_job_asks_init(job, request->rank);
    effect->u.declared.averages_init = pd_job_averages_init(job);
    effect->u.declared.reserve = job->ranks[request->rank].reserve;
    pd_effects_add(&job->store->outbox, effect);
}

static void note_declared(pd_job *job, pd_rank *rank)
{
    bool was_sealed = pd_job_sealed(job);

    rank->declared = rank->sealed = true;
    if (!was_sealed && pd_job_sealed(job))
        pd_say(&job->store->outbox, PD_SAY_INFO, "job %s: all %u ranks have declared %u parameters", job->name, job->world, job->n_params);
}

/* A worker that ends here may leave no other trace of why. */
static void note_refusal(pd_job *job, pd_rank *rank, uint32_t number, const pd_error *err)
{
    if (pd_is_power_of_two(++rank->refused_sets))
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %.60s: rank %u: what %.60s declares is refused: %.240s", job->name, number, rank->label, err->text);
}

/* Initial weights of others may have waited to hear what this rank has. */
static void look_at_open(pd_job *job, uint64_t now_ns)
{
    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].ranged && job->params[i].round.open && job->params[i].stage == PD_GATHERING) pd_job_list_chunks(job, &job->params[i]);
    pd_store_touch(job->store, job, now_ns);
}

void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_job_speaker(job, request, &err);
    pd_declared *declared = calloc(request->u.declare.n + 1, sizeof *declared);
    bool first = job->n_params == 0;
    int rc = rank == NULL ? err.code : PD_OK;

    if (rc == PD_OK && declared == NULL) rc = pd_fail(&err, PD_NO_MEMORY, "job %.100s: out of memory", job->name);
    if (rc == PD_OK) rc = first ? declare_first(job, request, &err) : declare_again(job, request, &err);
    if (rc == PD_OK && ((rc = copy_notes(job, request, declared, &err)) != PD_OK || (rc = add_types(job, request, &err)) != PD_OK)) {
        if (first) {
            pd_job_forget_set(job);
        } else {
            pd_ranges_give_back(job, request->rank);
            count_ranges(job);
        }
    }
    if (rc != PD_OK) {
        pd_declared_free(declared, request->u.declare.n);
        if (rank != NULL) note_refusal(job, rank, request->rank, &err);
        pd_store_refuse(job->store, request, &err);
        return;
    }
    reserve(job, request->rank);
    answer(job, request, declared);
    if (!rank->sealed) look_at_open(job, now_ns);
    note_declared(job, rank);
    pd_request_free(request);
}
