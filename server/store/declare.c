/* declare.c - the set of parameters: the first rank's is planned (planning.c), the others must declare the same. */
#include "training.h"

#include "footprint.h"
#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* Rough times of one core. */
#define AGAIN_NS   1500.0               /* a parameter that is declared again */
#define AT_ONCE_NS 5e6                  /* a Declare that takes no longer is answered at once; a longer one in batches */

/* ---- names ---- */

pd_param *pd_param_named(const pd_store *store, pd_param *names, const char *name)
{
    pd_param *param = NULL;
    size_t n = strlen(name);
    unsigned hash = pd_store_hash(store, name, n);

    HASH_FIND_BYHASHVALUE(hh, names, name, n, hash, param);
    return param;
}

pd_param *pd_job_param(const pd_job *job, const char *name) { return pd_param_named(job->store, job->names, name); }

pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i)
{
    const char *name = request->u.declare.params[i].name;

    return i < job->n_params && strcmp(job->params[i].name, name) == 0 ? &job->params[i] : pd_job_param(job, name);
}

/* ---- memory ---- */

int pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err)
{
    const pd_store *store = job->store;
    uint64_t limit = store->config.max_total_bytes;

    if (store->committed <= limit && more <= limit - store->committed) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: weights, sums, contributions gathered, optimizer state, roots and snapshots need %llu bytes more; of "
                   "%llu allowed for all jobs, %llu are in use (limits.max_total_bytes)", job->name, (unsigned long long)more,
                   (unsigned long long)limit, (unsigned long long)store->committed);
}

void pd_job_commit(pd_job *job, uint64_t bytes)
{
    job->committed += bytes;
    job->store->committed += bytes;
}

/* What the ranks that have declared ranges may leave behind, all together. */
static uint64_t bytes_of_ranges(const pd_job *job)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].ranged) bytes = pd_footprint_plus(bytes, pd_collect_bytes(job, &job->params[i]));
    return bytes;
}

int pd_job_check_ranges(const pd_job *job, uint32_t rank, pd_error *err)
{
    int rc = pd_reserve_check(job, &job->ranks[rank], pd_ranges_reserve(job, rank), err);

    return rc != PD_OK ? rc : pd_job_check_total(job, bytes_of_ranges(job) - job->gathered, err);
}

/* After ranges were taken, or given back. */
static void count_ranges(pd_job *job)
{
    uint64_t bytes = bytes_of_ranges(job), more = bytes - job->gathered;

    job->gathered = bytes;
    pd_job_commit(job, more);
}

/* ---- the first set ---- */

void pd_job_forget_set(pd_job *job)
{
    pd_planning_free(job);
    job->store->committed -= job->committed;
    pd_reserve_forget(job);
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
    free(job->clip);
    job->params = NULL;
    job->chunks = NULL;
    job->slots = NULL;
    job->ranges = NULL;
    job->batch = NULL;
    job->optims = NULL;
    job->groups = NULL;
    job->clip = NULL;
    job->n_params = job->n_begun = 0;
    job->init_ns = 0;
    job->committed = job->gathered = 0;
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

/* Goes on with the set, as far as the budget goes. False: it needs more time. */
static bool declare_first(pd_job *job, const pd_request *request, double *budget_ns, int *rc, pd_error *err)
{
    *rc = job->planning != NULL ? PD_OK : pd_planning_begin(job, request, budget_ns, err);
    if (*rc != PD_OK) return true;
    if (!pd_planning_run(job, request, budget_ns, rc, err)) return false;
    if (*rc != PD_OK) return true;
    pd_planning_free(job);
    count_ranges(job);
    warn_of_ready_roots(job);
    warn_of_values(job);
    pd_declarations_say(job);
    return true;
}

/* ---- the same set again ---- */

static int declare_again(pd_job *job, const pd_request *request, pd_error *err)
{
    uint64_t frame = ++job->store->frames;
    int rc;

    for (size_t i = 0; i < request->u.declare.n; i++)
        if ((rc = pd_declaration_match(job, pd_declared_param(job, request, i), &request->u.declare.params[i], request->rank, frame, err)) != PD_OK) return rc;
    for (uint32_t i = 0; i < job->n_params; i++)
        if (job->params[i].mark != frame)
            return pd_fail(err, PD_FAILED_PRECONDITION, "parameter %.256s: job %.100s has it, this rank does not declare it; every rank "
                           "declares the same", job->params[i].name, job->name);
    if ((rc = pd_ranges_take(job, request, err)) != PD_OK) return rc;
    if ((rc = pd_job_check_ranges(job, request->rank, err)) != PD_OK) pd_ranges_give_back(job, request->rank);
    else count_ranges(job);
    return rc;
}

/* ---- element types to publish ---- */

static uint64_t type_bytes(const pd_param *param, pd_dtype dtype)
{
    return param->pool[dtype] != NULL ? 0 : 2 * (uint64_t)param->elements * pd_dtype_size(dtype);      /* weights, and those to come */
}

/* Bytes that the element types new with this request add. */
static uint64_t types_bytes(const pd_job *job, const pd_request *request)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < request->u.declare.n; i++) {
        const pd_param_decl *decl = &request->u.declare.params[i];
        const pd_param *param = pd_declared_param(job, request, i);
        bytes += type_bytes(param, decl->pull_dtype);
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
        uint64_t bytes = type_bytes(param, decl->pull_dtype) + (decl->update_dtype != 0 ? pd_param_update_bytes(param, decl->update_dtype) : 0);
        if (decl->update_dtype != 0 && pd_param_pull_updates(param, &job->store->pools, decl->update_dtype) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its updates", decl->name);
        if (pd_param_pull(param, &job->store->pools, decl->pull_dtype, &again) != PD_OK)
            return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its weights in %s", decl->name,
                           pd_dtype_name(decl->pull_dtype));
        pd_job_commit(job, bytes);
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
    else rc = pd_job_check_total(job, bytes, err);
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
    const pd_rank *rank = &job->ranks[request->rank];
    size_t n = request->u.declare.n;

    for (size_t i = 0; i < n; i++) {
        const pd_param *param = pd_declared_param(job, request, i);
        declared[i].param = param->index;
        declared[i].step = param->step;
        declared[i].initialised = pd_param_initialised(job, param, request->rank);
    }
    effect->u.declared.params = declared;
    effect->u.declared.n = n;
    effect->u.declared.must_init = pd_job_asks_init(job, request->rank);
    effect->u.declared.averages_init = pd_job_averages_init(job);
    effect->u.declared.reserve = rank->reserve;
    effect->u.declared.held = rank->declared ? 0 : rank->held;          /* of connections before this one */
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

/* The set stands: answers, once the types that this rank pulls are there. */
static int settle(pd_job *job, pd_request *request, pd_rank *rank, uint64_t now_ns, pd_error *err)
{
    pd_declared *declared = calloc(request->u.declare.n + 1, sizeof *declared);
    int rc = declared == NULL ? pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->name) : PD_OK;

    if (rc == PD_OK) rc = copy_notes(job, request, declared, err);
    if (rc == PD_OK) rc = add_types(job, request, err);
    if (rc != PD_OK) {
        pd_declared_free(declared, request->u.declare.n);
        return rc;
    }
    pd_reserve_take(job, rank, pd_ranges_reserve(job, request->rank));
    pd_store_look_again(job->store, now_ns);
    answer(job, request, declared);
    if (job->init_ns == 0 && job->n_begun < job->n_params) job->init_ns = now_ns;
    if (!rank->sealed) look_at_open(job, now_ns);
    note_declared(job, rank);
    return PD_OK;
}

static void refuse(pd_job *job, pd_request *request, pd_rank *rank, const pd_error *err)
{
    if (rank != NULL) note_refusal(job, rank, request->rank, err);
    pd_store_refuse(job->store, request, err);
}

/* One Declare, the first of job->declares, as far as the budget goes. False: it needs more time. Else takes it. */
static bool declare_one(pd_job *job, pd_request *request, double *budget_ns, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_job_speaker(job, request, &err);
    bool first = job->n_params == 0;
    int rc = rank == NULL ? err.code : PD_OK;

    if (rc == PD_OK && first) {
        if (!declare_first(job, request, budget_ns, &rc, &err)) return false;
    } else if (rc == PD_OK) {
        *budget_ns -= AGAIN_NS * (double)request->u.declare.n;
        rc = declare_again(job, request, &err);
    }
    if (rc == PD_OK && (rc = settle(job, request, rank, now_ns, &err)) != PD_OK && !first) {
        pd_ranges_give_back(job, request->rank);
        count_ranges(job);
    }
    if (rc != PD_OK && first) pd_job_forget_set(job);
    if (rc != PD_OK) refuse(job, request, rank, &err);
    else pd_request_free(request);
    return true;
}

void pd_job_declare_some(pd_job *job, double budget_ns, uint64_t now_ns)
{
    while (job->declares != NULL && budget_ns > 0) {
        pd_request *request = job->declares, *next = (pd_request *)(void *)request->mail.next;
        if (!declare_one(job, request, &budget_ns, now_ns)) return;
        if ((job->declares = next) == NULL) job->declares_last = NULL;
    }
}

void pd_job_declare(pd_job *job, pd_request *request, uint64_t now_ns)
{
    double batch_ns = job->store->config.batch_ns, at_once_ns = batch_ns < AT_ONCE_NS ? batch_ns : AT_ONCE_NS;

    request->mail.next = NULL;
    if (job->declares_last != NULL) job->declares_last->mail.next = &request->mail;
    else job->declares = request;
    job->declares_last = request;
    if (job->declares == request && AGAIN_NS * (double)request->u.declare.n <= at_once_ns) pd_job_declare_some(job, at_once_ns, now_ns);
    pd_store_touch(job->store, job, now_ns);
}

void pd_job_refuse_declares(pd_job *job, const pd_error *err)
{
    while (job->declares != NULL) {
        pd_request *request = job->declares;
        job->declares = (pd_request *)(void *)request->mail.next;
        pd_store_refuse(job->store, request, err);
    }
    job->declares_last = NULL;
    if (job->planning != NULL) pd_job_forget_set(job);
}
