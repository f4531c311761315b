/* planning.c - plans the parameters that the first rank declares. Checks all of them before it allocates memory for any
 * of them, then plans and creates them, in parts of bounded time.
 *
 * A rank may declare 65,536 parameters, or a parameter with 262,144 blocks, and other jobs must not wait while they are
 * planned. The store has no clock, so estimated times bound a part. Until the last part the job's n_params is 0, so
 * that to all other requests the job looks as if no rank had declared. */
#include "planning.h"

#include "aggregate_fit.h"
#include "wal.h"
#include "declaration.h"
#include "factor_rules.h"
#include "footprint.h"
#include "global_clip.h"
#include "name_hash.h"
#include "checkpoint_policy.h"
#include "fragment.h"
#include "param_set.h"
#include "plan.h"
#include "portion_state.h"
#include "round.h"
#include "reserves.h"
#include "root_report.h"
#include "settle.h"
#include "step_group.h"
#include "whole.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Estimates of how long the work of the planning takes, in nanoseconds of one core. They include the time for page
 * faults, since all memory is used for the first time. */
#define CHECK_NS 500.0  /* time to check the declaration of one parameter, without the comparison with rules' globs */
#define BEGIN_NS 40.0   /* time to allocate memory for one parameter, after the check of all parameters */
#define SURVEY_NS 500.0 /* time to add a parameter to its optimizer's model statistics */
#define STEP_NS 20.0    /* time of one matching step of a search for names (pd_name_maps_left) */
#define PARAM_NS 2000.0 /* time to add one parameter to the job */
/* time to plan the optimizer of one parameter, without PLAN_SLOT_NS for each slot and
 * PLAN_TASK_NS for each preconditioner task */
#define PLAN_NS 1000.0
#define PLAN_SLOT_NS 600.0
#define PLAN_TASK_NS 400.0
#define CHUNK_NS 150.0 /* time to initialize the structs of one chunk */
/* time to make the optimizer of one parameter, without STATE_SLOT_NS for each slot and STATE_TASK_NS for each
 * preconditioner task, and without the time to write the slots' initial values */
#define STATE_NS 4000.0
#define STATE_SLOT_NS 100.0
#define STATE_TASK_NS 300.0
#define FINISH_NS 500.0 /* time to finish one parameter, at the end of the planning */

typedef enum pd_planning_stage {
    PD_CHECKING,
    PD_ADDING,
    PD_PLANNING,
    PD_LAYING,
    PD_MAKING,
    PD_FINISHING,
    PD_PLANNED
} pd_planning_stage;

/* Memory that the parameters checked so far need at least, whatever their optimizers are: its bytes, and its number of
 * chunks times ranks. */
typedef struct pd_survey {
    pd_footprint least;
    uint64_t records;
} pd_survey;

/* The planning of a job's parameters while it is under way. The job owns it (pd_job.planning). */
typedef struct pd_planning {
    pd_planning_stage stage;
    pd_survey survey;
    /* index of the next parameter that the present stage handles */
    uint32_t at;
    uint32_t n;      /* number of parameters that are in job->steps.params so far */
    pd_param *names; /* hash table by name of these parameters, until the job owns it */
    pd_name_maps *maps;
    pd_plan *plans;
    pd_model_facts facts; /* in a job on several shards of the whole declaration */
    pd_sizing sizing;
    /* For a job on several shards. `spread` makes its map; `map` is one that was read from the disk. */
    pd_spread *spread;
    pd_map map;
    pd_whole *whole;        /* the whole declaration while it is made */
    bool checked, expanded; /* all declared parameters are checked; the Declare has the portions of this shard */
    pd_footprint all;
    /* bytes that the parameters planned so far take in a checkpoint, and in a WAL record of the stream that has all
     * that steps took */
    uint64_t checkpoint_bytes, entry_bytes;
    /* number of chunks whose structs are initialized so far; number of ranged parameters that have these chunks */
    uint64_t chunks, ranged;
    int64_t weight_bytes; /* bytes of the float32 weights of all parameters */
    /* position up to which the initial state of the present parameter's optimizer is written */
    pd_fill fill;
    bool bare, hollow; /* no initial state is written; it has no memory: pd_planning_leave_state */
} pd_planning;

static pd_sizing sizing_of(const pd_job *job)
{
    const pd_store_config *config = job->steps.config;

    return (pd_sizing){ job->steps.values,
                        job->steps.members.ranks,
                        config->chunk_elements,
                        config->threads,
                        config->pool_threads,
                        job->checkpointing.durable,
                        job->checkpointing.steps.wanted,
                        job->steps.sets,
                        1,
                        job->steps.shards,
                        0,
                        0 };
}

static int check_least(const pd_job *job, const pd_param_decl *decl, const pd_survey *survey, pd_error *err)
{
    const pd_footprint *n = &survey->least;
    uint64_t sum = pd_footprint_sum(n);
    const pd_budget *budget = pd_account_budget(&job->steps.account, sum);

    if (survey->records > PD_MAX_RECORDS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "job %.100s: chunks of the parameters up to %.100s, times %u workers, are more than the %u "
                       "records that a job may have: take larger chunks (limits.chunk_bytes) or fewer workers",
                       job->steps.name, decl->name, job->steps.members.ranks, PD_MAX_RECORDS);
    if (pd_budget_fits(budget, sum)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.50s: parameters up to %.100s need more than %llu bytes (published weights %llu, sums %llu, "
                   "contributions collected %llu, records of the workers %llu, and what their optimizers need); of "
                   "%llu allowed for %.50s, %llu are in use (%s)",
                   job->steps.name, decl->name, (unsigned long long)sum, (unsigned long long)n->weights,
                   (unsigned long long)n->sums, (unsigned long long)n->collected, (unsigned long long)n->records,
                   (unsigned long long)budget->limit, budget->whose, (unsigned long long)budget->used, budget->key);
}

/* Checks that the bytes which all parameters up to this one need at least fit into the budgets. */
static int count_one(const pd_job *job, const pd_param_decl *decl, pd_error *err)
{
    static const bool pulled[4] = { [PD_F32] = true };
    const pd_sizing *sizing = &job->planning->sizing;
    pd_survey *survey = &job->planning->survey;
    uint64_t room = job->steps.config->max_total_bytes;
    pd_footprint least;
    int64_t elements;

    pd_shape_elements(&decl->shape, &elements);
    if ((uint64_t)elements > room / sizeof(float))
        return pd_fail(
            err, PD_RESOURCE_EXHAUSTED,
            "job %.100s: parameter %.100s needs more than the %llu bytes allowed for all jobs (limits.max_total_bytes)",
            job->steps.name, decl->name, (unsigned long long)room);
    pd_footprint_least(&least, sizing,
                       pd_aggregation_of(&job->steps.values, job->steps.rules[decl->rule - 1].hypers.row), elements,
                       decl->push_dtype, decl->ranged, pulled);
    least.records = pd_footprint_plus(least.records, pd_footprint_name(sizing, decl->name, decl->axes));
    pd_footprint_add(&survey->least, &least, 1);
    survey->records = pd_footprint_plus(survey->records,
                                        pd_count_chunks(elements, sizing->chunk_elements) * job->steps.members.ranks);
    return check_least(job, decl, survey, err);
}

/* Checks one declared parameter: its name, its shape, and its bytes. The parameters of a job on several shards are
 * checked before it is known which of their bytes this shard needs. */
static int check_one(const pd_job *job, pd_param_decl *decl, size_t i, double *budget_ns, pd_error *err)
{
    int64_t elements;
    double cost_ns = CHECK_NS;
    int rc = pd_declaration_check(job, decl, i, &elements, &cost_ns, err);

    *budget_ns -= cost_ns;
    return rc != PD_OK || job->steps.shards > 1 ? rc : count_one(job, decl, err);
}

static size_t rule_index(const pd_job *job, const pd_param *param)
{
    return (size_t)(param->rule - job->steps.rules);
}

static pd_declaration declaration_of(const pd_job *job, const pd_param *param)
{
    return (pd_declaration){ .name = param->declared_name,
                             .shape = param->shape,
                             .world = (int)job->steps.members.ranks,
                             .hypers = param->rule->hypers,
                             .group = (int)rule_index(job, param),
                             .axes = param->axes,
                             .seed = job->steps.values.at[PD_JOB_KEY_SEED],
                             .start_step = (int64_t)pd_job_start_step(job),
                             .maps = job->planning->maps };
}

/* Gives the parameter a pool of buffers for spilled contributions, if the job may spill any of them. Each buffer has
 * the size of a chunk in the element type that ranks push. */
static int join_spills(pd_job *job, pd_param *param, pd_dtype pushed, pd_error *err)
{
    uint64_t chunk = job->steps.config->chunk_elements,
             n = (uint64_t)param->elements < chunk ? (uint64_t)param->elements : chunk;

    if (!job->steps.sets.open && !pd_is_collected(param->how)) return PD_OK;
    param->push_dtype = pushed;
    param->buffers.spills =
        pd_buffer_pool_join(job->steps.memory.pools, NULL, (size_t)pd_pushed_bytes(param->push_dtype, n));
    return param->buffers.spills != NULL ? PD_OK
                                         : pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", param->name);
}

static int add_name(pd_job *job, pd_param *param, const pd_param_decl *decl, pd_error *err)
{
    pd_planning *planning = job->planning;
    size_t n = strlen(decl->name);

    if ((param->name = strdup(decl->name)) == NULL ||
        (decl->axes != NULL && (param->axes = strdup(decl->axes)) == NULL))
        return pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", decl->name);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, planning->names, param->name, n,
                                pd_name_hash(job->steps.config->hash_key, decl->name, n), param);
    if (pd_param_join_pool(param, &job->steps.memory, PD_F32, (size_t)param->elements * sizeof(float)) != PD_OK ||
        param->hh.tbl == NULL)
        return pd_fail(err, PD_NO_MEMORY, "parameter %.256s: out of memory", decl->name);
    return PD_OK;
}

/* Adds a parameter to the model statistics of its optimizer, which the optimizer needs before its first parameter is
 * planned. Those of a job on several shards have all parameters already. */
static void survey(const pd_job *job, const pd_param *param)
{
    pd_declaration declaration;

    if (job->whole != NULL || param->rule->hypers.row->stats == NULL) return;
    declaration = declaration_of(job, param);
    pd_model_facts_add(&job->planning->facts, &declaration);
}

/* Returns the model statistics of the parameter's optimizer. */
static const double *facts_of(const pd_job *job, const pd_param *param)
{
    return job->planning->facts.stats[job->planning->facts.alike[rule_index(job, param)]];
}

static int add_param(pd_job *job, pd_param_decl *decl, pd_error *err)
{
    pd_planning *planning = job->planning;
    pd_param *param = &job->steps.params[planning->n];
    int rc;

    if (pd_param_named(job, planning->names, decl->name) != NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s is declared twice", decl->name);
    *param = (pd_param){ .index = planning->n++,
                         .shape = decl->shape,
                         .ranged = decl->ranged,
                         .model_state = decl->model_state,
                         .rule = &job->steps.rules[decl->rule - 1],
                         .buffers.durable = job->checkpointing.durable,
                         .buffers.logged = job->checkpointing.steps.wanted,
                         .saved.step = pd_job_start_step(job) };
    decl->found = 1 + param->index;
    pd_shape_elements(&decl->shape, &param->elements);
    param->how = pd_aggregation_of(&job->steps.values, param->rule->hypers.row);
    if ((rc = add_name(job, param, decl, err)) != PD_OK) return rc;
    pd_whole_tell(job, param);
    if (!param->ranged && (rc = pd_aggregate_fits_whole(&job->steps.values, job->steps.members.ranks, param->how,
                                                        param->name, err)) != PD_OK)
        return rc;
    survey(job, param);
    return join_spills(job, param, decl->push_dtype, err);
}

/* Checks that the budgets have room for the parameter besides the bytes in use, which include those of the parameters
 * planned before it. PD_RESOURCE_EXHAUSTED: they have no room. */
static int check_need(const pd_job *job, const pd_param *param, const pd_footprint *n, pd_error *err)
{
    uint64_t sum = pd_footprint_sum(n);
    const pd_budget *budget = pd_account_budget(&job->steps.account, sum);

    if (pd_budget_fits(budget, sum)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.50s: parameter %.100s needs %llu bytes (published weights %llu, sum %llu, contributions "
                   "collected %llu, optimizer state %llu, roots under way %llu, temporaries %llu, a checkpoint %llu); "
                   "of %llu allowed for %.50s, %llu are taken by other jobs and by the parameters before it (%s)",
                   job->steps.name, param->name, (unsigned long long)sum, (unsigned long long)n->weights,
                   (unsigned long long)n->sums, (unsigned long long)n->collected, (unsigned long long)n->state,
                   (unsigned long long)n->roots, (unsigned long long)n->step, (unsigned long long)n->kept,
                   (unsigned long long)budget->limit, budget->whose, (unsigned long long)budget->used, budget->key);
}

static int plan_param(pd_job *job, pd_param *param, double *budget_ns, pd_error *err)
{
    static const bool pulled[4] = { [PD_F32] = true };
    pd_planning *planning = job->planning;
    pd_plan *plan = &planning->plans[param->index];
    pd_declaration declaration = declaration_of(job, param);
    pd_footprint n;
    int64_t steps = pd_name_maps_left(planning->maps);
    int rc = pd_plan_make(plan, &declaration, facts_of(job, param), err);

    *budget_ns -= STEP_NS * (double)(steps - pd_name_maps_left(planning->maps));
    if (rc != PD_OK) return rc;
    *budget_ns -= PLAN_NS + PLAN_SLOT_NS * (double)plan->n_slots + PLAN_TASK_NS * (double)plan->n_tasks;
    if ((rc = pd_footprint_of(&n, &planning->sizing, param->how, plan, param->push_dtype, param->ranged, pulled)) !=
        PD_OK)
        return pd_fail(err, rc, "parameter %.160s: out of memory for its plan", param->name);
    n.records = pd_footprint_plus(n.records, pd_footprint_name(&planning->sizing, param->name, param->axes));
    if ((rc = check_need(job, param, &n, err)) != PD_OK) return rc;
    pd_footprint_add(&planning->all, &n, 1);
    planning->checkpoint_bytes += pd_outrun_bytes(plan);
    planning->entry_bytes += (uint64_t)plan->elements * sizeof(float);
    pd_account_take(&job->steps.account, pd_footprint_sum(&n));
    return PD_OK;
}

/* Adds to the error of a job that does not fit into memory what can be done, where fragments lie whole on one shard. */
static int explain_size(const pd_job *job, int rc, pd_error *err)
{
    size_t used = rc == PD_OK ? 0 : strlen(err->text);

    if (rc == PD_RESOURCE_EXHAUSTED && job->steps.shards > 1 && job->steps.sets.open)
        snprintf(err->text + used, sizeof err->text - used,
                 ". A fragment lies whole on one server: declare smaller ones, or give more servers");
    return rc;
}

/* Charges the bytes of the memory that all parameters of the job share. PD_RESOURCE_EXHAUSTED: the budgets have no room
 * for them. */
static int count_job(pd_job *job, pd_error *err)
{
    pd_planning *planning = job->planning;
    uint64_t more;
    int rc;

    if (job->whole != NULL) {
        planning->all.records = pd_footprint_plus(planning->all.records, pd_whole_bytes(job));
        planning->sizing.n_cut = job->steps.n_cut;
        if (pd_declaration_ties(job) && (rc = pd_settle_fits(&job->steps, err)) != PD_OK) return rc;
    }
    pd_footprint_complete(&planning->all, &planning->sizing, job->steps.rules, job->steps.n_rules);
    more = pd_footprint_sum(&planning->all) - job->steps.account.used;
    if ((rc = pd_job_check_total(job, more, err)) == PD_OK) pd_account_take(&job->steps.account, more);
    return rc;
}

/* Allocates the structs of chunks, contributions and ranges of all parameters, in three arrays. Large arrays cost
 * little time here: the system zeroes their pages when they are first used. */
static int make_records(pd_job *job, pd_error *err)
{
    uint64_t n = 0;
    size_t ranged = 0, n_params = job->planning->n;

    for (size_t i = 0; i < n_params; i++)
        n += pd_count_chunks(job->steps.params[i].elements, job->steps.config->chunk_elements);
    for (size_t i = 0; i < n_params; i++)
        job->planning->weight_bytes += job->steps.params[i].elements * (int64_t)sizeof(float);
    for (size_t i = 0; i < n_params; i++) ranged += job->steps.params[i].ranged;
    job->records.ranges = calloc(ranged + 1, job->steps.members.ranks * sizeof *job->records.ranges);
    job->records.chunks = calloc(n, sizeof *job->records.chunks);
    job->records.contributions = calloc(n, job->steps.members.ranks * sizeof *job->records.contributions);
    job->steps.batch.params = calloc(n_params, sizeof *job->steps.batch.params);
    job->steps.batch.optims = calloc(n_params, sizeof *job->steps.batch.optims);
    if (job->records.chunks == NULL || job->records.contributions == NULL || job->records.ranges == NULL ||
        job->steps.batch.params == NULL || job->steps.batch.optims == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its rounds", job->steps.name);
    return PD_OK;
}

static void lay_chunks(pd_job *job, pd_param *param)
{
    pd_planning *planning = job->planning;
    pd_rank_range *ranges =
        param->ranged ? job->records.ranges + (size_t)job->steps.members.ranks * planning->ranged++ : NULL;

    pd_round_init(&param->round, &(pd_round_layout){ .expected = &job->steps.members,
                                                     .together = job->steps.sets.open,
                                                     .param = param,
                                                     .elements = param->elements,
                                                     .chunk_elements = (int64_t)job->steps.config->chunk_elements,
                                                     .chunks = job->records.chunks + planning->chunks,
                                                     .contributions = job->records.contributions +
                                                                      planning->chunks * job->steps.members.ranks,
                                                     .ranges = ranges });
    param->unlanded =
        (uint64_t)param->round.n_chunks * (param->ranged && !param->round.together ? job->steps.members.ranks : 1);
    planning->chunks += param->round.n_chunks;
}

static int make_optim(pd_job *job, pd_param *param, double *budget_ns, pd_error *err)
{
    pd_planning *planning = job->planning;
    pd_plan *plan = &planning->plans[param->index];
    pd_declaration declaration = declaration_of(job, param);
    int rc;

    *budget_ns -= STATE_NS + STATE_SLOT_NS * (double)plan->n_slots + STATE_TASK_NS * (double)plan->n_tasks;
    rc = pd_optim_bare(&param->optim, &declaration, facts_of(job, param), plan, err);
    if (rc == PD_OK) pd_optim_set_job_bytes(param->optim, planning->weight_bytes);
    return rc;
}

/* Makes the parameter's optimizer, then writes the initial values of its state, until the time is used. */
static int make_state(pd_job *job, pd_param *param, double *budget_ns, pd_error *err)
{
    pd_planning *planning = job->planning;
    int rc = param->optim != NULL ? PD_OK : make_optim(job, param, budget_ns, err);

    if (rc != PD_OK) return rc;
    if (!planning->bare && !pd_optim_fill(param->optim, &planning->fill, budget_ns, &rc))
        return rc == PD_OK ? PD_OK
                           : pd_fail(err, rc, "parameter %.160s: out of memory for the optimizer's state", param->name);
    if (planning->hollow) pd_optim_unload(param->optim);
    planning->fill = (pd_fill){ 0 };
    planning->at++;
    return pd_roots_prepare(param) == PD_OK
               ? PD_OK
               : pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for what is said of its roots",
                         param->name);
}

static void show_params(pd_job *job)
{
    pd_planning *planning = job->planning;

    job->steps.n_params = planning->n;
    job->records.names = planning->names;
    planning->names = NULL;
}

/* Makes the segment of shared memory for the job's weights. If the system provides none, the job works without it:
 * weights then travel through the sockets. */
static void make_shared(pd_job *job, const pd_request *request)
{
    uint64_t elements = 0;
    int64_t n;
    pd_error why;

    for (size_t i = 0; i < request->u.declare.n; i++) {
        pd_shape_elements(&request->u.declare.params[i].shape, &n);
        elements += (uint64_t)n;
    }
    if (pd_shared_weights_new(&job->steps.memory.shared, elements, request->u.declare.n, &why) == PD_OK) return;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .code = why.code },
           "weights travel through sockets: %.200s", why.text);
}

/* Allocates memory for the parameters, now that all are checked. */
static int begin_adding(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err)
{
    pd_planning *planning = job->planning;
    size_t n = request->u.declare.n;

    *budget_ns -= BEGIN_NS * (double)n;
    if (job->shares) make_shared(job, request);
    planning->plans = calloc(n, sizeof *planning->plans);
    planning->maps = pd_name_maps_new(n);
    job->steps.params = calloc(n, sizeof *job->steps.params);
    if (planning->plans == NULL || planning->maps == NULL || job->steps.params == NULL ||
        (job->whole == NULL && pd_model_facts_make(&planning->facts, job->steps.rules, job->steps.n_rules) != PD_OK))
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for plans", job->steps.name);
    return PD_OK;
}

/* Ends the present stage of the planning, and begins the next one. */
static int next_stage(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err)
{
    pd_planning *planning = job->planning;
    int rc = PD_OK;

    if (planning->stage == PD_CHECKING) rc = begin_adding(job, request, budget_ns, err);
    if (planning->stage == PD_PLANNING && (rc = count_job(job, err)) == PD_OK) rc = make_records(job, err);
    planning->stage++;
    planning->at = 0;
    return rc;
}

/* Does the work of the present stage for one parameter. If writing its initial state takes long, does a part of it;
 * then planning->at does not move to the next parameter. */
static int advance(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err)
{
    pd_planning *planning = job->planning;
    pd_param_decl *decl = &request->u.declare.params[planning->at];
    pd_param *param = &job->steps.params[planning->at];

    switch (planning->stage) {
    case PD_ADDING:
        planning->at++;
        *budget_ns -= PARAM_NS + SURVEY_NS;
        return add_param(job, decl, err);
    case PD_PLANNING: planning->at++; return explain_size(job, plan_param(job, param, budget_ns, err), err);
    case PD_LAYING:
        planning->at++;
        lay_chunks(job, param);
        *budget_ns -= CHUNK_NS * param->round.n_chunks;
        return PD_OK;
    default: assert(planning->stage == PD_MAKING); return make_state(job, param, budget_ns, err);
    }
}

int pd_planning_begin(pd_job *job, const pd_request *request, pd_error *err)
{
    size_t n = request->u.declare.n;

    if (n == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s: Declare names no parameter", job->steps.name);
    if (n > job->steps.config->max_params)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "job %.100s: %zu parameters, at most %u are allowed (limits.max_params)", job->steps.name, n,
                       job->steps.config->max_params);
    if ((job->planning = calloc(1, sizeof *job->planning)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for plans", job->steps.name);
    job->planning->sizing = sizing_of(job);
    return PD_OK;
}

void pd_planning_leave_state(pd_job *job, bool hollow)
{
    job->planning->bare = true;
    job->planning->hollow = hollow;
}

void pd_planning_use_map(pd_job *job, pd_map *map)
{
    job->planning->map = *map;
    *map = (pd_map){ 0 };
}

/* Checks the declared parameters until the time is used. Returns false if there are more. */
static bool check_params(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    for (*rc = PD_OK; *rc == PD_OK && planning->at < request->u.declare.n; planning->at++) {
        if (!(*budget_ns > 0)) return false;
        *rc = check_one(job, &request->u.declare.params[planning->at], planning->at, budget_ns, err);
    }
    if (*rc == PD_OK) *rc = pd_declaration_count_fragments(job, request, &planning->sizing.fragments, err);
    planning->checked = true;
    return true;
}

/* Checks that each of several shards can have a fragment, if one shard decides alone who counts in its steps. */
static int check_fragments(const pd_job *job, uint32_t fragments, pd_error *err)
{
    if (!job->steps.sets.open || fragments >= job->steps.shards) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.60s: not every rank counts in each of its steps (rounds, quorum, staleness, min_workers, "
                   "max_workers, on_lost_worker). Several servers share such a job by fragments, each of which lies "
                   "whole on one server, and it has %u for %u servers: declare at least as many fragments as servers, "
                   "for instance one for each layer, or give fewer servers",
                   job->steps.name, fragments, job->steps.shards);
}

/* Checks that the steps of the job's optimizers can be counted on several shards. */
static int check_groups(const pd_job *job, const pd_request *request, pd_error *err)
{
    for (size_t i = 0; !pd_declaration_ties(job) && i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        const pd_rule *rule = &job->steps.rules[decl->rule - 1];
        if (rule->hypers.row->counts_by_group)
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.60s: %s counts the steps of all its parameters together, on several servers only in "
                           "jobs whose parameters all step together: %s (parameter %.100s)",
                           job->steps.name, rule->hypers.row->name,
                           job->steps.sets.open ? "give one server alone, or another optimizer"
                                                : "set nonfinite_scope = job",
                           decl->name);
    }
    return PD_OK;
}

/* Begins to make the map of a job on several shards. */
static int begin_spreading(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_planning *planning = job->planning;
    const pd_spread_job what = { .sizing = &planning->sizing,
                                 .rules = job->steps.rules,
                                 .n_rules = job->steps.n_rules,
                                 .decls = request->u.declare.params,
                                 .n = request->u.declare.n,
                                 .shards = job->steps.shards,
                                 .whole = pd_declaration_ties(job),
                                 .map = planning->map.portions != NULL ? &planning->map : NULL,
                                 .most = job->steps.config->max_params };
    int rc = check_fragments(job, planning->sizing.fragments, err);

    if (rc == PD_OK) rc = check_groups(job, request, err);
    if (rc != PD_OK) return rc;
    if ((planning->spread = pd_spread_new(&what)) == NULL) return pd_job_no_memory(job, err);
    return PD_OK;
}

/* Takes the map, and begins to make the whole declaration. */
static int end_spreading(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_planning *planning = job->planning;
    pd_map map;

    pd_whole_say(job, planning->spread, request);
    pd_spread_take(planning->spread, &map, &planning->facts);
    pd_spread_free(planning->spread);
    planning->spread = NULL;
    planning->whole = pd_whole_begin(request, &map);
    return planning->whole != NULL ? PD_OK : pd_job_no_memory(job, err);
}

/* Makes the map of a job on several shards and its whole declaration, until the time is used. Returns false if there is
 * more to do. */
static bool make_whole(pd_job *job, pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    if (planning->whole == NULL) {
        if (planning->spread == NULL) *rc = begin_spreading(job, request, err);
        if (*rc == PD_OK && !pd_spread_some(planning->spread, budget_ns, rc, err)) return false;
        if (*rc == PD_OK) *rc = end_spreading(job, request, err);
    }
    if (*rc == PD_OK && !pd_whole_some(planning->whole, job, request, budget_ns, rc, err)) return false;
    if (*rc != PD_OK) return true;
    pd_whole_give(job, planning->whole);
    planning->whole = NULL;
    *rc = pd_whole_expand(job, request, err);
    return true;
}

/* Replaces the declared parameters by the portions of this shard, until the time is used. Returns false if there are
 * more. */
static bool expand(pd_job *job, pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    while (*rc == PD_OK && request->u.declare.n < job->whole->n_own) {
        if (!(*budget_ns > 0)) return false;
        *budget_ns -= PD_EXPAND_NS;
        *rc = pd_whole_expand_one(job, request, err);
    }
    if (*rc != PD_OK) return true;
    planning->expanded = true;
    planning->at = 0;
    planning->sizing.fragments = pd_fragments_count(request->u.declare.params, request->u.declare.n);
    return true;
}

/* Makes the map of a job on several shards, turns the declaration into that of the portions on this one, and checks
 * their bytes, until the time is used. Returns false if there is more to do. */
static bool spread(pd_job *job, pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    *rc = PD_OK;
    if (job->whole == NULL && !make_whole(job, request, budget_ns, rc, err)) return false;
    if (!planning->expanded && !expand(job, request, budget_ns, rc, err)) return false;
    for (; *rc == PD_OK && planning->at < request->u.declare.n; planning->at++) {
        if (!(*budget_ns > 0)) return false;
        *budget_ns -= CHECK_NS;
        *rc = explain_size(job, count_one(job, &request->u.declare.params[planning->at], err), err);
    }
    return true;
}

bool pd_planning_check(pd_job *job, pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    *rc = PD_OK;
    if (!planning->checked && !check_params(job, request, budget_ns, rc, err)) return false;
    if (*rc == PD_OK && job->steps.shards > 1 && !spread(job, request, budget_ns, rc, err)) return false;
    if (*rc != PD_OK) return true;
    *budget_ns -= BEGIN_NS * (double)request->u.declare.n;
    *rc = pd_reserves_check_world(job, pd_ranges_reserve_declared(job, request, true),
                                  pd_ranges_reserve_declared(job, request, false), err);
    return true;
}

bool pd_planning_run(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    pd_planning *planning = job->planning;

    *rc = PD_OK;
    while (*rc == PD_OK && planning->stage < PD_FINISHING) {
        if (!(*budget_ns > 0)) return false;
        *rc = planning->at < request->u.declare.n ? advance(job, request, budget_ns, err)
                                                  : next_stage(job, request, budget_ns, err);
    }
    return true;
}

int pd_planning_finish(pd_job *job, const pd_request *request, double *budget_ns, pd_error *err)
{
    size_t scopes = pd_global_clip_scopes(&job->steps.values, job->steps.rules, job->steps.n_rules);
    int rc;

    *budget_ns -= FINISH_NS * job->planning->n;
    job->planning->stage = PD_PLANNED;
    show_params(job);
    if (pd_fragments_make(&job->steps, request->u.declare.params) != PD_OK ||
        pd_step_groups_make(&job->steps) != PD_OK || pd_global_clip_make(&job->steps) != PD_OK ||
        (pd_steps_settle(&job->steps) && pd_settle_make(&job->steps, scopes) != PD_OK) ||
        (job->checkpointing.durable && pd_wal_make(&job->steps) != PD_OK))
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory for its rounds", job->steps.name);
    if ((rc = pd_ranges_take(job, request, err)) != PD_OK) return rc;
    if ((rc = pd_ranges_check_memory(job, err)) == PD_OK)
        pd_outrun_begin(job, job->planning->checkpoint_bytes, job->planning->entry_bytes);
    return rc;
}

static uint32_t count_made(const pd_planning *planning)
{
    return planning->stage < PD_MAKING ? 0 : planning->stage == PD_MAKING ? planning->at : planning->n;
}

void pd_planning_free(pd_job *job)
{
    pd_planning *planning = job->planning;

    if (planning == NULL) return;
    /* An optimizer that is made owns its plan. The other plans are freed here. */
    for (uint32_t i = count_made(planning); planning->plans != NULL && i < planning->n; i++)
        pd_plan_free(&planning->plans[i]);
    if (planning->stage < PD_PLANNED && job->steps.n_params == 0) show_params(job);
    pd_name_maps_free(planning->maps);
    pd_model_facts_free(&planning->facts);
    pd_spread_free(planning->spread);
    pd_whole_free(planning->whole);
    free(planning->map.portions);
    free(planning->plans);
    free(planning);
    job->planning = NULL;
}
