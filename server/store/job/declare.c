/* declare.c - answers Declare requests, in which each rank lists its parameters. The parameters of the first rank are
 * planned (planning.c), and the other ranks must declare the same ones. */
#include "declare.h"

#include "keeping.h"
#include "aggregate_fit.h"
#include "contribute.h"
#include "declaration.h"
#include "declared_ranges.h"
#include "initial_weights.h"
#include "param_set.h"
#include "plan.h"
#include "planning.h"
#include "ranks.h"
#include "reserves.h"
#include "round_scalars.h"

#include <stdlib.h>
#include <string.h>

/* Estimates of how long parts of a Declare (a rank's list of its parameters) take, in nanoseconds of one core. */
/* time to check one parameter, when a rank declares after the first one */
#define AGAIN_NS 1500.0
/* a Declare that takes at most this time is answered at once, a longer one bit by bit in later batches of work, each of
 * which is limited in time */
#define AT_ONCE_NS 5e6

/* ---- memory for contributions to ranged parameters ---- */

/* Counts the bytes anew that contributions to ranged parameters may take, after ranges were added or removed. (Of a
 * ranged parameter each rank contributes a range of elements.) */
static void count_ranges(pd_job *job)
{
    uint64_t bytes = pd_ranges_collected_bytes(job);

    pd_account_take(&job->steps.account, bytes - job->collected);
    job->collected = bytes;
}

/* ---- the first rank's set ---- */

static void warn_of_ready_roots(pd_job *job)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_plan *plan = pd_optim_plan(job->steps.params[i].optim);
        n += plan->n_tasks > 0 && plan->root_delay == PD_ROOT_READY;
    }
    if (n > 0)
        pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name },
               "roots of %u parameters are used as soon as they are ready: "
               "in which step depends on timing, so this run is not reproducible bit for bit (root_delay = a number of "
               "steps is)",
               n);
}

static void warn_of_values(pd_job *job)
{
    for (size_t i = 0; i < job->steps.n_rules; i++) {
        const pd_hypers *hypers = &job->steps.rules[i].hypers;
        const char *text = hypers->row->warning == NULL ? NULL : hypers->row->warning(hypers);
        if (text != NULL)
            pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name }, "rule \"%.200s\": %s",
                   job->steps.rules[i].text, text);
    }
}

/* Plans (checks and creates) the parameters that the first rank declares, as far as the time budget allows. Returns
 * false if planning needs more time. */
static bool declare_first(pd_job *job, const pd_request *request, double *budget_ns, uint64_t now_ns, int *rc,
                          pd_error *err)
{
    if (job->planning == NULL) {
        *rc = pd_planning_begin(job, request, budget_ns, err);
        if (*rc == PD_OK)
            *rc = pd_reserves_take(job, request->rank, pd_ranges_reserve_declared(job, request, true), now_ns, err);
        if (*rc != PD_OK) return true;
    }
    if (!pd_planning_run(job, request, budget_ns, rc, err)) return false;
    if (*rc != PD_OK) return true;
    pd_planning_free(job);
    pd_keeping_plan(job);
    count_ranges(job);
    warn_of_ready_roots(job);
    warn_of_values(job);
    pd_declarations_say(job);
    return true;
}

/* ---- the same set from another rank, or from the same one again ---- */

static int declare_again(pd_job *job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    uint64_t frame = ++job->frames;
    int rc;

    for (size_t i = 0; i < request->u.declare.n; i++)
        if ((rc = pd_declaration_match(job, pd_declared_param(job, request, i), &request->u.declare.params[i],
                                       request->rank, frame, err)) != PD_OK)
            return rc;
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].seen != frame)
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "parameter %.256s: job %.100s has it, this rank does not "
                           "declare it; every rank declares the same",
                           job->steps.params[i].name, job->steps.name);
    if ((rc = pd_ranges_take(job, request, err)) != PD_OK) return rc;
    if ((rc = pd_ranges_check_memory(job, err)) != PD_OK ||
        (rc = pd_reserves_take(job, request->rank, pd_ranges_reserve(job, request->rank), now_ns, err)) != PD_OK)
        pd_ranges_give_back(job, request->rank);
    else
        count_ranges(job);
    return rc;
}

/* ---- element types in which weights are published ---- */

/* Returns how many more bytes the published weights and updates take if they are also published in the element types
 * that this Declare asks for. */
static uint64_t types_bytes(const pd_job *job, const pd_request *request)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        const pd_param *param = pd_declared_param(job, request, i);
        bytes += pd_param_type_bytes(param, decl->pull_dtype);
        if (decl->update_dtype != 0) bytes += pd_param_update_bytes(param, decl->update_dtype);
    }
    return bytes;
}

static int publish_types(pd_job *job, const pd_request *request, pd_closed *closed, size_t *n_closed, pd_error *err)
{
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        pd_param *param = pd_declared_param(job, request, i);
        pd_snapshot *again;
        uint64_t bytes = pd_param_type_bytes(param, decl->pull_dtype) +
                         (decl->update_dtype != 0 ? pd_param_update_bytes(param, decl->update_dtype) : 0);
        if (decl->update_dtype != 0 && pd_param_pull_updates(param, &job->steps.memory, decl->update_dtype) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its updates", decl->name);
        if (pd_param_pull(param, &job->steps.memory, decl->pull_dtype, &again) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its weights in %s", decl->name,
                           pd_dtype_name(decl->pull_dtype));
        pd_account_take(&job->steps.account, bytes);
        if (again != NULL) pd_param_publish(job->steps.unread, param, again, (pd_outcome)0, &closed[(*n_closed)++]);
    }
    /* Publishes initial weights that were waiting for this Declare. A parameter's may have waited even if the rank has
     * no elements of it: until the Declare, the rank might have had some. */
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        *n_closed += pd_init_publish_landed(job, &job->steps.params[i], &closed[*n_closed]);
    return PD_OK;
}

/* Makes sure that weights are published in the element types in which this rank pulls them. Weights that are
 * published already are published again if a type is new. */
static int add_types(pd_job *job, const pd_request *request, pd_error *err)
{
    uint64_t bytes = types_bytes(job, request);
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, job->steps.number);
    pd_closed *closed = calloc(job->steps.n_params, sizeof *closed);
    int rc;

    if (effect == NULL || closed == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name);
    else
        rc = pd_job_check_total(job, bytes, err);
    if (rc == PD_OK) {
        effect->u.closed.at = closed;
        rc = publish_types(job, request, closed, &effect->u.closed.n, err);
    }
    if (effect != NULL && effect->u.closed.n > 0) {
        /* The effect (an answer or report of the step thread) is sent even after PD_NO_MEMORY, because the parameters
         * in its list have new snapshots (published weights) already. */
        pd_effects_add(job->steps.outbox, effect);
    } else {
        free(closed);
        free(effect);
    }
    return rc;
}

/* Sends the weights and the last outcomes of all parameters to the loop thread, which does not have them yet because
 * the job was read from an image (saved state). */
static int publish_again(pd_job *job, pd_error *err)
{
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, (pd_ticket){ 0, 0 }, job->steps.number);
    pd_closed *closed = calloc(job->steps.n_params, sizeof *closed);

    if (effect == NULL || closed == NULL) {
        pd_effect_free(effect);
        free(closed);
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name);
    }
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        pd_param_publish_again(job->steps.unread, &job->steps.params[i], &closed[i]);
        closed[i].scalars = pd_scalars_again(&job->steps.params[i]);
    }
    effect->u.closed.at = closed;
    effect->u.closed.n = job->steps.n_params;
    pd_effects_add(job->steps.outbox, effect);
    pd_keeping_tell(job);
    job->unpublished = false;
    return PD_OK;
}

/* ---- the answer to a Declare ---- */

static int copy_notes(const pd_job *job, const pd_request *request, pd_declared *declared, pd_error *err)
{
    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param *param = pd_declared_param(job, request, i);
        const char *note = pd_optim_plan(param->optim)->note;
        if (note[0] != '\0' && (declared[i].note = strdup(note)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for the answer", param->name);
    }
    return PD_OK;
}

static void answer(pd_job *job, pd_request *request, pd_declared *declared)
{
    pd_effect *effect = pd_answer(request, PD_EFF_DECLARED);
    const pd_quota *quota = &job->steps.quotas[request->rank];
    size_t n = request->u.declare.n;

    for (size_t i = 0; i < n; i++) {
        const pd_param *param = pd_declared_param(job, request, i);
        declared[i].param = param->index;
        declared[i].step = param->saved.step;
        declared[i].replaced = param->replaced;
        declared[i].initialised = pd_init_has_come(job, param, request->rank);
    }
    effect->u.declared.params = declared;
    effect->u.declared.n = n;
    effect->u.declared.must_init = pd_init_is_asked_of(job, request->rank);
    effect->u.declared.averages_init = pd_job_averages_init(job);
    effect->u.declared.reserve = quota->reserve;
    /* bytes of the rank's frames that came on earlier connections and are not summed yet */
    effect->u.declared.held = quota->declared ? 0 : quota->held;
    pd_effects_add(job->steps.outbox, effect);
}

static void note_declared(pd_job *job, pd_rank *rank)
{
    bool was_sealed = pd_job_sealed(job);

    pd_rank_quota(job, rank)->declared = rank->saved.sealed = true;
    pd_rank_quota(job, rank)->conn = rank->conn;
    if (!was_sealed && pd_job_sealed(job))
        pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name },
               "all %u ranks have declared %u parameters", job->steps.members.ranks, job->steps.n_params);
}

/* Logs that a Declare was refused, and why. A worker that exits because of it may leave no other trace of the
 * reason. */
static void note_refusal(pd_job *job, pd_rank *rank, uint32_t number, const pd_error *err)
{
    if (pd_is_power_of_two(++rank->refused_sets))
        pd_say(job->steps.outbox, PD_SAY_WARNING,
               (pd_log_facts){ .job = job->steps.name, .rank = &number, .code = err->code },
               "what %.60s declares is refused: %.240s", rank->label, err->text);
}

/* Queues chunks (sections) of ranged parameters (each rank contributes a range) again whose rounds are open. Now that
 * this rank's ranges are known, contributions that other ranks have sent may not have to wait for it any more. */
static void look_at_open(pd_job *job)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++)
        if (job->steps.params[i].ranged && job->steps.params[i].round.open &&
            job->steps.params[i].stage == PD_COLLECTING)
            pd_chunks_list_anew(&job->steps, &job->steps.params[i]);
}

/* Answers a Declare whose parameters are checked. Before, makes sure that weights are published in the element types
 * in which this rank pulls them. */
static int settle(pd_job *job, pd_request *request, pd_rank *rank, uint64_t now_ns, pd_error *err)
{
    pd_declared *declared = calloc(request->u.declare.n + 1, sizeof *declared);
    int rc = declared == NULL ? pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name) : PD_OK;

    if (rc == PD_OK) rc = copy_notes(job, request, declared, err);
    if (rc == PD_OK && job->unpublished) rc = publish_again(job, err);
    if (rc == PD_OK) rc = add_types(job, request, err);
    if (rc != PD_OK) {
        pd_declared_free(declared, request->u.declare.n);
        return rc;
    }
    answer(job, request, declared);
    if (job->init_ns == 0 && job->steps.n_begun < job->steps.n_params) job->init_ns = now_ns;
    if (!rank->saved.sealed) look_at_open(job);
    note_declared(job, rank);
    return PD_OK;
}

static void refuse(pd_job *job, pd_request *request, pd_rank *rank, const pd_error *err)
{
    if (rank != NULL) note_refusal(job, rank, request->rank, err);
    pd_request_refuse(job->steps.outbox, request, err);
}

static void forget_set(pd_job *job)
{
    pd_planning_free(job);
    pd_param_set_forget(job);
}

/* Works at a Declare, the oldest one in job->declares, as far as the time budget allows. Returns false if it needs more
 * time. Otherwise it is answered, and the request is freed. */
static bool declare_one(pd_job *job, pd_request *request, double *budget_ns, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_rank_speaker(job, request, &err);
    bool first = job->steps.n_params == 0;
    int rc = rank == NULL ? err.code : PD_OK;

    if (rc == PD_OK && first) {
        if (!declare_first(job, request, budget_ns, now_ns, &rc, &err)) return false;
    } else if (rc == PD_OK) {
        *budget_ns -= AGAIN_NS * (double)request->u.declare.n;
        rc = declare_again(job, request, now_ns, &err);
    }
    if (rc == PD_OK && (rc = settle(job, request, rank, now_ns, &err)) != PD_OK && !first) {
        pd_ranges_give_back(job, request->rank);
        count_ranges(job);
    }
    if (rc != PD_OK && first) forget_set(job);
    if (rc != PD_OK)
        refuse(job, request, rank, &err);
    else
        pd_request_free(request);
    return true;
}

void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns)
{
    while (job->declares.first != NULL && budget_ns > 0) {
        pd_request *request = job->declares.first, *next = (pd_request *)(void *)request->mail.next;
        if (!declare_one(job, request, &budget_ns, now_ns)) return;
        if ((job->declares.first = next) == NULL) job->declares.last = NULL;
    }
}

void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns)
{
    double batch_ns = job->steps.config->batch_ns, at_once_ns = batch_ns < AT_ONCE_NS ? batch_ns : AT_ONCE_NS;

    pd_request_queue_add(&job->declares, request);
    if (job->declares.first == request && AGAIN_NS * (double)request->u.declare.n <= at_once_ns)
        pd_job_declare_some(job, at_once_ns, now_ns);
}

void pd_job_refuse_declares(pd_job *job, const pd_error *err)
{
    pd_request_queue_refuse(&job->declares, job->steps.outbox, err);
    if (job->planning != NULL) forget_set(job);
}
