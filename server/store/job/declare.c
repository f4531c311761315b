/* declare.c - answers Declare requests, in which each rank lists its parameters. The parameters of the first rank are
 * planned (planning.c), and the other ranks must declare the same ones.
 *
 * A rank may declare 65,536 parameters, so a Declare goes through stages, each of which is done in parts of bounded
 * time. Steps continue between two parts, because no stage before the last depends on them. The last stage fills the
 * answer and marks the rank as declared, in one part. */
#include "declare.h"

#include "checkpoint_policy.h"
#include "aggregate_fit.h"
#include "contribute.h"
#include "declaration.h"
#include "initial_weights.h"
#include "membership.h"
#include "fragment.h"
#include "leases.h"
#include "shares.h"
#include "param_set.h"
#include "plan.h"
#include "planning.h"
#include "ranks.h"
#include "reserves.h"
#include "round_scalars.h"
#include "whole.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

/* Estimates of how long parts of a Declare take, in nanoseconds of one core. */
/* time to check one parameter of a Declare after the job's first one */
#define AGAIN_NS 1500.0
/* a Declare that takes at most this time is answered at once, a longer one in parts, in later batches of work */
#define AT_ONCE_NS 5e6
#define MATCH_NS 150.0 /* time to compare one parameter with the job's */
#define BYTE_NS 2.0    /* time to find a parameter by its name, for each byte of the name */
/* time to copy the note of one parameter's plan, and to count the bytes of the parameter's types */
#define NOTE_NS 100.0
#define PLACE_NS 15.0      /* time to list where one portion lies */
#define PULL_NS 120.0      /* time to publish one parameter's weights in another type, without their conversion */
#define CONVERT_NS 0.5     /* time to convert one element */
#define AGAIN_ALL_NS 150.0 /* time to publish one parameter of a job that was read from an image */
#define END_NS 150.0       /* time for one parameter in the last stage */

typedef enum stage {
    CHECKING,  /* for the first Declare: its parameters are checked */
    PLANNING,  /* for the first Declare: its parameters are planned and their memory is allocated */
    MATCHING,  /* for every other Declare: its parameters are compared with those of the job */
    EXPANDING, /* for every other Declare, in a job on several shards: its parameters become portions of this one */
    NOTING,    /* the notes of the parameters' plans are copied into the answer, and the bytes of types are counted */
    PULLING,   /* weights are published in the element types in which this rank pulls them */
    LISTING,   /* in a job on several shards: places of portions are listed in the answer */
    ENDING,
} stage;

/* The progress of a Declare; pd_request.part points to it. */
typedef struct declaring {
    stage stage;
    uint64_t now_ns;
    /* index of what the stage handles next; number of it: parameters in the Declare, or portions */
    size_t at, n;
    bool first;            /* true: this is the job's first Declare */
    bool ranged;           /* true: the ranges that it declares are stored in the job */
    pd_declared *declared; /* the answer */
    size_t n_declared;
    uint64_t *seen;            /* set of bits; bit i: the Declare has named parameter i of the job */
    pd_declared_place *places; /* of the answer, in a job on several shards */
    size_t n_places;
    /* NOTING: bytes that the published element types of the parameters so far need. PULLING: those of them that are
     * charged to the job but not used yet. */
    uint64_t bytes;
    /* number of parameters with notes; number of parameters whose roots are used as soon as they are ready */
    uint32_t notes, ready;
} declaring;

static bool has_ready_roots(const pd_param *param)
{
    const pd_plan *plan = pd_optim_plan(param->optim);

    return plan->n_tasks > 0 && plan->root_delay == PD_ROOT_READY;
}

static void warn_of_values(pd_job *job)
{
    for (size_t i = 0; i < job->steps.n_rules; i++) {
        const pd_hypers *hypers = &job->steps.rules[i].hypers;
        const char *text = hypers->row->warning == NULL ? NULL : hypers->row->warning(hypers);
        if (text != NULL) pd_job_say(job, PD_SAY_WARNING, "rule \"%.200s\": %s", job->steps.rules[i].text, text);
    }
}

/* Gives the job the parameters of its first Declare. */
static int finish_first(pd_job *job, const pd_request *request, const declaring *d, double *budget_ns, pd_error *err)
{
    int rc = pd_planning_finish(job, request, budget_ns, err);

    if (rc != PD_OK) return rc;
    pd_planning_free(job);
    pd_checkpoint_policy_plan(job);
    pd_ranges_count(job);
    if (d->ready > 0)
        pd_job_say(job, PD_SAY_WARNING,
                   "roots of %u parameters are used as soon as they are ready: in which step depends on timing, so "
                   "this run is not reproducible bit for bit (root_delay = a number of steps is)",
                   d->ready);
    warn_of_values(job);
    pd_declarations_said(job, d->notes);
    return PD_OK;
}

static int match_one(const pd_job *job, const pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    const pd_param_decl *decl = &request->u.declare.params[d->at];
    const pd_param *param;

    *budget_ns -= MATCH_NS + BYTE_NS * (double)strlen(decl->name);
    if (job->whole != NULL) return pd_declaration_match_whole(job, request, d->at, err);
    param = pd_declared_param(job, request, d->at);
    return pd_declaration_match(job, param, decl, request->rank, d->seen, err);
}

static int refuse_missing(const pd_job *job, const char *name, pd_error *err)
{
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "parameter %.256s: job %.100s has it, this rank does not declare it; every rank declares the same",
                   name, job->steps.name);
}

/* Checks that the Declare has named all parameters of the job. */
static int check_whole(const pd_job *job, const declaring *d, pd_error *err)
{
    const char *missing = job->whole != NULL && d->n < job->whole->n ? job->whole->params[d->n].name : NULL;

    if (job->whole != NULL) return missing != NULL ? refuse_missing(job, missing, err) : PD_OK;
    /* A Declare cannot name a parameter twice, so n names are n parameters. */
    for (uint32_t i = 0; d->n < job->steps.n_params && i < job->steps.n_params; i++)
        if ((d->seen[i / 64] >> i % 64 & 1) == 0) return refuse_missing(job, job->steps.params[i].name, err);
    return PD_OK;
}

static int take_ranges(pd_job *job, const pd_request *request, declaring *d, pd_error *err)
{
    int rc = pd_ranges_take(job, request, err);

    if (rc != PD_OK) return rc;
    d->ranged = true;
    if ((rc = pd_ranges_check_memory(job, err)) == PD_OK) pd_ranges_count(job);
    return rc;
}

/* Returns how many more bytes the published weights and updates of a parameter take if they are also published in the
 * element types that this Declare asks for. */
static uint64_t type_bytes(const pd_param *param, const pd_param_decl *decl)
{
    return pd_param_type_bytes(param, decl->pull_dtype) +
           (decl->update_dtype != 0 ? pd_param_update_bytes(param, decl->update_dtype) : 0);
}

/* Publishes the weights of the next parameter in the element types that this Declare asks for. If the weights were
 * published before without one of these types, adds an entry to `closed`. */
static int pull_one(pd_job *job, const pd_request *request, declaring *d, pd_effect *closed, double *budget_ns,
                    pd_error *err)
{
    const pd_param_decl *decl = &request->u.declare.params[d->at];
    pd_param *param = pd_declared_param(job, request, d->at);
    uint64_t bytes = type_bytes(param, decl);
    pd_published *again;

    *budget_ns -= PULL_NS;
    if (decl->update_dtype != 0 && pd_param_pull_updates(param, &job->steps.memory, decl->update_dtype) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its updates", decl->name);
    if (pd_param_pull(param, &job->steps.memory, decl->pull_dtype, &again) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its weights in %s", decl->name,
                       pd_dtype_name(decl->pull_dtype));
    d->bytes -= bytes;
    if (again == NULL) return PD_OK;
    *budget_ns -= CONVERT_NS * (double)param->elements;
    pd_param_publish(job->steps.unread, param, again, (pd_outcome)0, &closed->u.closed.at[closed->u.closed.n++]);
    return PD_OK;
}

/* Publishes weights of the next parameters until the time is used, but of at least one. PD_NO_MEMORY: some parameters
 * have new published versions already, which are sent all the same. */
static int pull_some(pd_job *job, const pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    enum { FEW = 1024 };
    pd_effect *closed = pd_job_new_closed(job, FEW);
    size_t end = d->n - d->at < FEW ? d->n : d->at + FEW;
    int rc = PD_OK;

    if (closed == NULL) return pd_job_no_memory(job, err);
    do {
        rc = pull_one(job, request, d, closed, budget_ns, err);
        d->at++;
    } while (rc == PD_OK && d->at<end && * budget_ns> 0);
    pd_job_send_closed(job, closed);
    return rc;
}

/* Publishes initial weights that were waiting for this Declare. Initial weights of a ranged parameter wait until every
 * rank has declared, even if this rank has no elements of the parameter. */
static int publish_landed(pd_job *job, pd_error *err)
{
    pd_effect *effect = pd_job_new_closed(job, job->steps.n_params);

    if (effect == NULL) return pd_job_no_memory(job, err);
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        effect->u.closed.n +=
            pd_init_publish_landed(job, &job->steps.params[i], &effect->u.closed.at[effect->u.closed.n]);
    pd_job_send_closed(job, effect);
    return PD_OK;
}

/* Adds to a report of a job that was read from an image who counted in the last step. */
static void name_last_set(const pd_job *job, const pd_fragment *fragment, pd_effect *effect)
{
    pd_counted *set = job->steps.sets.open ? pd_fragment_last_set(fragment) : NULL;

    for (uint32_t i = 0; set != NULL && i < job->steps.n_params; i++) {
        pd_closed *closed = &effect->u.closed.at[i];
        if (job->steps.params[i].fragment != fragment || closed->step != fragment->fixed || closed->outcome == 0)
            continue;
        closed->counted = set;
        set->refs++;
    }
    pd_counted_unref(set);
}

/* Sends the weights and the last outcomes of all parameters to the loop thread, which does not have them yet because
 * the job was read from an image. */
static int publish_again(pd_job *job, pd_error *err)
{
    pd_effect *effect = pd_job_new_closed(job, job->steps.n_params);

    if (effect == NULL) return pd_job_no_memory(job, err);
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param_publish_again(job->steps.unread, &job->steps.params[i], &effect->u.closed.at[i]);
        effect->u.closed.at[i].scalars = pd_scalars_again(&job->steps.params[i]);
    }
    effect->u.closed.n = job->steps.n_params;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) name_last_set(job, &job->steps.fragments[f], effect);
    pd_effects_add(job->steps.outbox, effect);
    pd_checkpoint_policy_tell(job);
    job->restart.unpublished = false;
    return PD_OK;
}

/* Copies the note of the next parameter's plan into the answer, and counts the bytes of the parameter's types. */
static int note_one(pd_job *job, const pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    const pd_param *param = pd_declared_param(job, request, d->at);
    const char *note = pd_optim_plan(param->optim)->note;

    *budget_ns -= NOTE_NS;
    d->bytes += type_bytes(param, &request->u.declare.params[d->at]);
    if (d->first) {
        d->ready += has_ready_roots(param);
        pd_declaration_say(job, param, &d->notes);
    }
    if (note[0] == '\0' || (d->declared[d->at].note = strdup(note)) != NULL) return PD_OK;
    return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for the answer", param->name);
}

static void answer(pd_job *job, pd_request *request, declaring *d)
{
    pd_effect *effect = pd_answer(request, PD_EFF_DECLARED);
    const pd_quota *quota = &job->steps.quotas[request->rank];
    pd_declared *declared = d->declared;
    size_t n = request->u.declare.n;

    d->declared = NULL;

    for (size_t i = 0; i < n; i++) {
        const pd_param *param = pd_declared_param(job, request, i);
        declared[i].param = param->index;
        declared[i].step = pd_fragment_told(&job->steps, param);
        declared[i].replaced = param->change.number;
        declared[i].initialised = pd_init_has_come(job, param, request->rank);
    }
    effect->u.declared.params = declared;
    effect->u.declared.n = n;
    effect->u.declared.places = d->places;
    effect->u.declared.n_places = d->n_places;
    d->places = NULL;
    effect->u.declared.shard = job->steps.shard;
    effect->u.declared.shards = job->steps.shards;
    effect->u.declared.map = job->steps.map;
    effect->u.declared.settles = pd_steps_settle(&job->steps);
    effect->u.declared.files = job->steps.sets.open;
    effect->u.declared.must_init = pd_init_is_asked_of(job, request->rank);
    effect->u.declared.averages_init = pd_job_averages_init(job);
    effect->u.declared.sends_whole = effect->u.declared.must_init && request->rank == job->membership.giver;
    effect->u.declared.kept = job->checkpointing.kept;
    effect->u.declared.fresh = job->restart.restored && job->restart.step == pd_steps_least(&job->steps);
    effect->u.declared.replays = pd_checkpoint_policy_replays(job, &effect->u.declared.first, &effect->u.declared.last);
    effect->u.declared.reserve = quota->reserve;
    /* bytes of the rank's frames from earlier connections that are not summed yet */
    effect->u.declared.held = quota->declared ? 0 : quota->held;
    if (job->steps.sets.open)
        pd_leases_answer(&job->steps, request->rank, effect, job->ranks[request->rank].seen == 0);
    else
        pd_effects_add(job->steps.outbox, effect);
}

static void note_declared(pd_job *job, pd_rank *rank, uint64_t now_ns)
{
    bool was_sealed = pd_job_sealed(job);

    pd_rank_quota(job, rank)->declared = rank->saved.sealed = true;
    pd_rank_quota(job, rank)->conn = rank->conn;
    pd_fragments_declared(&job->steps, (uint32_t)(rank - job->ranks));
    pd_member_declared(job, (uint32_t)(rank - job->ranks), now_ns);
    if (!was_sealed && pd_job_sealed(job))
        pd_job_say(job, PD_SAY_INFO, "all %u ranks have declared %u parameters", job->steps.members.n,
                   job->steps.n_params);
}

/* Logs that a Declare was refused, and why. A worker that exits because of the refusal may leave no other trace of the
 * reason. */
static void note_refusal(pd_job *job, pd_rank *rank, uint32_t number, const pd_error *err)
{
    if (pd_is_power_of_two(++rank->refused_sets))
        pd_say(job->steps.outbox, PD_SAY_WARNING,
               (pd_log_facts){ .job = job->steps.name, .rank = &number, .code = err->code },
               "refused what %.60s declares: %.240s", rank->label, err->text);
}

/* Marks the rank as declared, and answers its Declare. After an error, the caller must call `undo`. */
static int end_declare(pd_job *job, pd_request *request, declaring *d, pd_rank *rank, double *budget_ns,
                       uint64_t now_ns, pd_error *err)
{
    int rc = d->first ? finish_first(job, request, d, budget_ns, err) : take_ranges(job, request, d, err);

    *budget_ns -= END_NS * (double)d->n;
    if (rc == PD_OK) rc = pd_member_declares(job, request->rank, err);
    if (rc == PD_OK) rc = pd_leases_check(&job->steps, request->u.declare.wants, err);
    if (rc == PD_OK && pd_leases_declared(&job->steps, request->rank, request->u.declare.wants) != PD_OK)
        rc = pd_job_no_memory(job, err);
    if (rc == PD_OK) rc = publish_landed(job, err);
    if (rc != PD_OK) return rc;
    answer(job, request, d);
    if (job->reports.init_ns == 0 && job->steps.progress.n_begun < job->steps.n_params) job->reports.init_ns = now_ns;
    /* Contributions of other ranks may have waited for this rank's ranges, which are known now. */
    for (uint32_t i = 0; !rank->saved.sealed && i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged && job->steps.params[i].round.open &&
            job->steps.params[i].stage == PD_COLLECTING)
            pd_contribute_ranges(&job->steps, &job->steps.params[i]);
    note_declared(job, rank, now_ns);
    return PD_OK;
}

static void free_declaring(void *part)
{
    declaring *d = part;

    pd_declared_free(d->declared, d->n_declared);
    free(d->places);
    free(d->seen);
    free(d);
}

/* Returns the progress of the Declare, which it creates at the first call. Returns NULL if out of memory. */
static declaring *declaring_of(const pd_job *job, pd_request *request, pd_error *err)
{
    declaring *d = request->part;

    if (d != NULL) return d;
    if ((d = calloc(1, sizeof *d)) == NULL ||
        (d->seen = calloc(job->steps.n_params / 64 + 1, sizeof *d->seen)) == NULL) {
        free(d);
        pd_job_no_memory(job, err);
        return NULL;
    }
    d->first = job->steps.n_params == 0;
    d->stage = d->first ? CHECKING : MATCHING;
    d->n = request->u.declare.n;
    request->part = d;
    request->free_part = free_declaring;
    return d;
}

static int expand_one(const pd_job *job, pd_request *request, double *budget_ns, pd_error *err)
{
    *budget_ns -= PD_EXPAND_NS;
    return pd_whole_expand_one(job, request, err);
}

static int list_one(const pd_job *job, declaring *d, double *budget_ns)
{
    *budget_ns -= PLACE_NS;
    d->places[d->n_places++] = pd_whole_place(job->whole, d->at);
    return PD_OK;
}

/* Does the work of the present stage for the next parameter or portion; in the stage PULLING for several. */
static int advance(pd_job *job, pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    int rc = PD_OK;

    switch (d->stage) {
    case PULLING: return pull_some(job, request, d, budget_ns, err);
    case MATCHING: rc = match_one(job, request, d, budget_ns, err); break;
    case EXPANDING: rc = expand_one(job, request, budget_ns, err); break;
    case LISTING: rc = list_one(job, d, budget_ns); break;
    default: rc = note_one(job, request, d, budget_ns, err); break;
    }
    d->at++;
    return rc;
}

/* Returns how many parameters or portions a stage handles. */
static size_t count_of(const pd_job *job, const pd_request *request, stage of)
{
    switch (of) {
    case EXPANDING: return job->whole != NULL ? job->whole->n_own : 0;
    case LISTING: return job->whole != NULL ? job->whole->map.n : 0;
    default: return request->u.declare.n;
    }
}

/* Reserves ingest memory for the frames of the rank. */
static int reserve(pd_job *job, const pd_request *request, const declaring *d, pd_error *err)
{
    return pd_reserves_take(job, request->rank, pd_ranges_reserve_declared(job, request, true), d->now_ns, err);
}

static int begin_answer(const pd_job *job, const pd_request *request, declaring *d, pd_error *err)
{
    d->n_declared = request->u.declare.n;
    d->declared = calloc(d->n_declared + 1, sizeof *d->declared);
    return d->declared != NULL ? PD_OK : pd_job_no_memory(job, err);
}

/* Charges the bytes of all types to the job. A parameter's share of them is used when the parameter is published. */
static int charge_types(pd_job *job, declaring *d, double *budget_ns, pd_error *err)
{
    int rc = pd_job_check_total(job, d->bytes, err);

    if (rc != PD_OK) d->bytes = 0;
    pd_account_take(&job->steps.account, d->bytes);
    if (rc != PD_OK || !job->restart.unpublished) return rc;
    *budget_ns -= AGAIN_ALL_NS * (double)d->n;
    return publish_again(job, err);
}

static int begin_listing(const pd_job *job, declaring *d, pd_error *err)
{
    if (job->whole == NULL) return PD_OK;
    d->places = calloc(job->whole->map.n, sizeof *d->places);
    return d->places != NULL ? PD_OK : pd_job_no_memory(job, err);
}

/* Ends the present stage, all of whose parameters or portions are handled. */
static int end_stage(pd_job *job, pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    int rc;

    switch (d->stage) {
    case CHECKING: return reserve(job, request, d, err);
    case MATCHING:
        rc = check_whole(job, d, err);
        return rc == PD_OK && job->whole != NULL ? pd_whole_expand(job, request, err) : rc;
    case EXPANDING: rc = reserve(job, request, d, err); return rc == PD_OK ? begin_answer(job, request, d, err) : rc;
    case PLANNING: return begin_answer(job, request, d, err);
    case NOTING: return charge_types(job, d, budget_ns, err);
    case PULLING: return begin_listing(job, d, err);
    default: return PD_OK;
    }
}

static int next_stage(pd_job *job, pd_request *request, declaring *d, double *budget_ns, pd_error *err)
{
    int rc = end_stage(job, request, d, budget_ns, err);

    d->stage = d->stage == PLANNING ? NOTING : d->stage + 1;
    d->at = 0;
    d->n = count_of(job, request, d->stage);
    return rc;
}

/* Checks and plans the parameters of the first Declare until the time is used. Returns false if that needs more time.
 * When it returns true, *rc is PD_OK or an error. */
static bool plan_some(pd_job *job, pd_request *request, declaring *d, double *budget_ns, int *rc, pd_error *err)
{
    *rc = job->planning == NULL ? pd_planning_begin(job, request, err) : PD_OK;
    if (*rc == PD_OK && d->stage == CHECKING) {
        if (!pd_planning_check(job, request, budget_ns, rc, err)) return false;
        if (*rc == PD_OK) *rc = next_stage(job, request, d, budget_ns, err);
    }
    if (*rc == PD_OK && !pd_planning_run(job, request, budget_ns, rc, err)) return false;
    if (*rc == PD_OK) *rc = next_stage(job, request, d, budget_ns, err);
    return true;
}

/* Does the stages of a Declare before the last until the time is used. Returns false if they need more time. When it
 * returns true, *rc is PD_OK or an error. */
static bool declare_some(pd_job *job, pd_request *request, declaring *d, double *budget_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    if (d->stage <= PLANNING && !plan_some(job, request, d, budget_ns, rc, err)) return false;
    while (*rc == PD_OK && d->stage < ENDING) {
        if (!(*budget_ns > 0)) return false;
        *rc = d->at < d->n ? advance(job, request, d, budget_ns, err) : next_stage(job, request, d, budget_ns, err);
    }
    return *rc != PD_OK || *budget_ns > 0;
}

static void forget_set(pd_job *job)
{
    pd_planning_free(job);
    pd_param_set_forget(job);
}

/* Undoes what a refused Declare has changed in the job. */
static void undo(pd_job *job, const pd_request *request)
{
    declaring *d = request->part;

    if (d == NULL) return;
    if (d->first) {
        forget_set(job);
        return;
    }
    if (d->stage > NOTING) pd_account_give(&job->steps.account, d->bytes);
    if (!d->ranged) return;
    pd_ranges_give_back(job, request->rank);
    pd_ranges_count(job);
}

/* Works at the oldest Declare in job->waiting.declares until the time is used. Returns false if the Declare needs more
 * time. Returns true when it is answered; the request is freed. */
static bool declare_one(pd_job *job, pd_request *request, double *budget_ns, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_rank_speaker(job, request, &err);
    declaring *d = rank != NULL ? declaring_of(job, request, &err) : NULL;
    int rc = d != NULL ? PD_OK : err.code;

    if (d != NULL) d->now_ns = now_ns;
    if (rc == PD_OK && !declare_some(job, request, d, budget_ns, &rc, &err)) return false;
    if (rc == PD_OK) rc = end_declare(job, request, d, rank, budget_ns, now_ns, &err);
    if (rc == PD_OK) {
        pd_request_free(request);
        return true;
    }
    undo(job, request);
    if (rank != NULL) note_refusal(job, rank, request->rank, &err);
    pd_request_refuse(job->steps.outbox, request, &err);
    return true;
}

void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns)
{
    while (job->waiting.declares.first != NULL && budget_ns > 0) {
        pd_request *request = job->waiting.declares.first, *next = pd_request_next(request);
        if (!declare_one(job, request, &budget_ns, now_ns)) return;
        if ((job->waiting.declares.first = next) == NULL) job->waiting.declares.last = NULL;
    }
}

void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns)
{
    double batch_ns = job->steps.config->batch_ns, at_once_ns = batch_ns < AT_ONCE_NS ? batch_ns : AT_ONCE_NS;

    pd_request_queue_add(&job->waiting.declares, request);
    if (job->waiting.declares.first == request && AGAIN_NS * (double)request->u.declare.n <= at_once_ns)
        pd_job_declare_some(job, at_once_ns, now_ns);
}

void pd_job_refuse_declares(pd_job *job, const pd_error *err)
{
    pd_request_queue_refuse(&job->waiting.declares, job->steps.outbox, err);
    if (job->planning != NULL) forget_set(job);
}
