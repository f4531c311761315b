/* import.c - imports optimizer state for an operator: stages the tensors that come, checks them, and then writes them
 * into the optimizers. Also resets optimizer state (reset_state.h). */
#include "import.h"

#include "checkpoint_policy.h"
#include "pages.h"
#include "param_set.h"
#include "readout.h"
#include "save.h"
#include "step_group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t SILENCE_NS = 60 * 1000000000ull, RETRY_NS = 1000000000ull;
/* time for which a commit waits until the job is at rest (check_rest); time between two looks whether it is */
static const uint64_t REST_NS = 10 * 1000000000ull, LOOK_NS = 20 * 1000000ull;
/* most pending roots that can be imported for each preconditioner task of a parameter */
enum { MOST_ROOTS = 4 };
/* longest time for which the answer to a commit waits for the disk */
static const uint64_t DISK_NS = 60 * 1000000000ull;
/* Estimated nanoseconds of one core to write one element of imported state: to read it, convert it to float64, read it
 * again and write it. */
#define NS_PER_ELEMENT 3.0

static size_t size_of(bool wide)
{
    return wide ? sizeof(double) : sizeof(float);
}

/* Returns the smallest step count that the import may give to the parameter's optimizer. Normally this is the present
 * count, because counts must not decrease. Before the parameter has closed a round it is 0: the state may come from a
 * job that skipped some rounds and so counted fewer steps than rounds. */
static int64_t least_count(const pd_job *job, const pd_param *param)
{
    return param->saved.step == pd_job_start_step(job) ? 0 : pd_optim_count(param->optim);
}

/* Writes the error for a step count that would decrease. Returns PD_INVALID_ARGUMENT. */
static int goes_back(const pd_param *param, int64_t count, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s has counted %lld steps: its counter cannot become %lld",
                   param->name, (long long)pd_optim_count(param->optim), (long long)count);
}

static int check_landed(const pd_job *job, pd_error *err)
{
    for (const pd_staged *staged = job->import->first; staged != NULL; staged = staged->next)
        if (staged->landed != staged->elements)
            return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s: of a tensor of %lld elements %lld have come",
                           job->steps.params[staged->address.param].name, (long long)staged->elements,
                           (long long)staged->landed);
    return PD_OK;
}

/* Returns the step count that the import brings for a parameter; -1: it brings none. */
static int64_t brought_count(const pd_job *job, uint32_t param)
{
    return job->import->counts != NULL ? job->import->counts[param] : -1;
}

/* Returns whether the state of a parameter can be written now. An import waits until all results of preconditioner
 * tasks are used; a reset discards results that no step has used yet. */
static bool rests(const pd_job *job, uint32_t param)
{
    const pd_optim *optim = job->steps.params[param].optim;

    if (job->steps.params[param].stage != PD_COLLECTING) return false;
    return job->import->reset != NULL ? pd_optim_is_quiesced(optim) : pd_optim_is_idle(optim);
}

/* Returns a parameter whose state cannot be written yet; NULL: the state of all can. Checks first the parameter that
 * the previous call returned, so that repeated calls cost little. */
static const pd_param *find_busy(pd_job *job)
{
    pd_import *import = job->import;

    if (!rests(job, import->busy)) return &job->steps.params[import->busy];
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        if (rests(job, i)) continue;
        import->busy = i;
        return &job->steps.params[i];
    }
    return NULL;
}

/* Checks that the job is at rest: no step and no preconditioner task prevents the import, and no export or checkpoint
 * copies the job's state. PD_FAILED_PRECONDITION: it is not at rest. */
static int check_rest(pd_job *job, pd_error *err)
{
    const pd_param *busy;

    if (job->steps.cut != NULL && job->checkpointing.making == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s: it is being exported: import when that has ended",
                       job->steps.name);
    if (job->checkpointing.making != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s: a checkpoint is being made: try again in a moment",
                       job->steps.name);
    if ((busy = find_busy(job)) == NULL) return PD_OK;
    if (job->import->reset != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s: a step of %.160s is under way, or a root of it is being computed: try again",
                       job->steps.name, busy->name);
    return pd_fail(
        err, PD_FAILED_PRECONDITION,
        "job %.100s: a step of %.160s is under way, or a root of it: import before the first step, or try again",
        job->steps.name, busy->name);
}

/* Returns the step count that the parameter's optimizer will have after the import. */
static int64_t count_to_be(const pd_job *job, uint32_t param)
{
    int64_t count = brought_count(job, param);

    return count >= 0 ? count : pd_optim_count(job->steps.params[param].optim);
}

/* Returns whether a parameter's state has seen no gradient, neither in the job that saved it nor in this one: the
 * import gives it the step count 0 and brings none of its slots. Such state need not be imported. */
static bool is_fresh(const pd_job *job, uint32_t param, const int64_t *covered)
{
    const pd_plan *plan = pd_optim_plan(job->steps.params[param].optim);

    for (size_t k = 0; k < plan->n_slots; k++)
        if (covered[k] > 0) return false;
    return count_to_be(job, param) == 0 && least_count(job, &job->steps.params[param]) == 0;
}

/* Checks that each slot is staged completely. covered[first_slot[p] + k] is the number of staged elements of slot k of
 * parameter p. PD_FAILED_PRECONDITION: elements are missing. */
static int check_covered(const pd_job *job, const size_t *first_slot, const int64_t *covered, pd_error *err)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_plan *plan = pd_optim_plan(job->steps.params[i].optim);
        if (is_fresh(job, i, &covered[first_slot[i]])) continue;
        for (size_t k = 0; k < plan->n_slots; k++) {
            int64_t elements = 0, came = covered[first_slot[i] + k];
            char name[128];
            if (plan->slots[k].temporary || (int)k == plan->errors_slot) continue;
            (void)pd_shape_elements(&plan->slots[k].shape, &elements);
            if (came == elements) continue;
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.100s: of %.160s's state %s %lld of %lld elements have come: send all of it, or allow "
                           "a partial import",
                           job->steps.name, job->steps.params[i].name, pd_slot_name(&plan->slots[k], name, sizeof name),
                           (long long)came, (long long)elements);
        }
    }
    return PD_OK;
}

static int check_complete(const pd_job *job, pd_error *err)
{
    size_t *first_slot = calloc(job->steps.n_params + 1, sizeof *first_slot), slots = 0;
    int64_t *covered = NULL;
    int rc = PD_NO_MEMORY;

    for (uint32_t i = 0; first_slot != NULL && i < job->steps.n_params; i++) {
        first_slot[i] = slots;
        slots += pd_optim_plan(job->steps.params[i].optim)->n_slots;
    }
    if (first_slot != NULL) covered = calloc(slots + 1, sizeof *covered);
    for (const pd_staged *staged = job->import->first; covered != NULL && staged != NULL; staged = staged->next)
        if (!staged->root) covered[first_slot[staged->address.param] + staged->part.slot] += staged->elements;
    if (covered != NULL)
        rc = check_covered(job, first_slot, covered, err);
    else
        pd_fail(err, rc, "job %.100s: out of memory", job->steps.name);
    free(first_slot);
    free(covered);
    return rc;
}

/* Checks the imported step counts again at the commit, because the job may have taken steps since they came. No count
 * may decrease, and all parameters of a step group must be at the same step. */
static int check_counts(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; job->import->n_counts > 0 && i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        int64_t count = brought_count(job, i);
        if (count < 0) continue;
        if (count < least_count(job, param)) return goes_back(param, count, err);
        if (param->group != NULL && !pd_step_group_is_even(param->group))
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.100s: the parameters of the step group of %.160s are at different steps: "
                           "import before the first step, or try again",
                           job->steps.name, param->name);
    }
    return PD_OK;
}

static int check_roots(const pd_job *job, pd_error *err)
{
    int rc = PD_OK;

    for (const pd_staged *staged = job->import->first; staged != NULL && rc == PD_OK; staged = staged->next)
        if (staged->root)
            rc = pd_pending_root_check(job->steps.params[staged->address.param].optim, (const void *)staged->at,
                                       staged->elements, count_to_be(job, staged->address.param), err);
    return rc;
}

static void forget(pd_job *job)
{
    pd_import *import = job->import;

    if (import == NULL) return;
    HASH_CLEAR(hh, import->table);
    for (pd_staged *staged = import->first, *next; staged != NULL; staged = next) {
        next = staged->next;
        free(staged->at);
        free(staged);
    }
    pd_account_give(&job->steps.account, import->bytes);
    pd_reset_free(job, import->reset);
    free(import->counts);
    free(import->wide);
    free(import);
    job->import = NULL;
}

static int begin(pd_job *job, const pd_request *request, pd_error *err)
{
    if (job->steps.n_params == 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s: no worker has declared its parameters yet: import afterwards", job->steps.name);
    forget(job);
    if ((job->import = calloc(1, sizeof *job->import)) == NULL) return pd_job_no_memory(job, err);
    job->import->conn = request->ticket.conn;
    return PD_OK;
}

/* Finds the key under which a pending root is staged, and checks its form: a list of float64 numbers. The commit checks
 * the list's length, when all of the list has come. */
static int find_root(const pd_param *param, const pd_request *request, pd_address *address, pd_part *part,
                     pd_error *err)
{
    const pd_plan *plan = pd_optim_plan(param->optim);
    int64_t n = request->u.import.shape.rank == 1 ? request->u.import.shape.dim[0] : 0;

    if (request->u.import.number < 0 || (size_t)request->u.import.number >= MOST_ROOTS * plan->n_tasks || n < 1 ||
        n > pd_pending_root_most(plan) || !request->u.import.wide)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.160s: " PD_PENDING_ROOT
                       " %d of %lld elements; expected float64, a number below %zu, and at most %lld elements",
                       param->name, request->u.import.number, (long long)n, MOST_ROOTS * plan->n_tasks,
                       (long long)pd_pending_root_most(plan));
    memset(address, 0, sizeof *address);
    *address =
        (pd_address){ .param = param->index, .block = -1, .slot = UINT64_MAX - (uint64_t)request->u.import.number };
    *part = (pd_part){ .shape = request->u.import.shape };
    return PD_OK;
}

/* Finds the tensor of optimizer state that the request brings, and the key under which this tensor is staged. */
static int find_part(const pd_param *param, const pd_request *request, pd_address *address, pd_part *part,
                     pd_error *err)
{
    char came[192], wanted[192];

    if (strcmp(request->u.import.slot, PD_PENDING_ROOT) == 0) return find_root(param, request, address, part, err);
    if (!pd_plan_part(pd_optim_plan(param->optim), request->u.import.slot, request->u.import.number,
                      request->u.import.block, part))
        return pd_fail(err, PD_NOT_FOUND,
                       "%.160s has no state tensor %.60s with number %d and block %d (paramctl state)", param->name,
                       request->u.import.slot, request->u.import.number, request->u.import.block);
    if (!pd_shape_equal(&part->shape, &request->u.import.shape))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: state %.60s has shape %s, got %s", param->name,
                       request->u.import.slot, pd_shape_text(&part->shape, wanted, sizeof wanted),
                       pd_shape_text(&request->u.import.shape, came, sizeof came));
    memset(address, 0, sizeof *address);
    *address = (pd_address){ .param = param->index,
                             .block = part->box == NULL ? -1 : request->u.import.block,
                             .slot = part->slot };
    return PD_OK;
}

/* Allocates memory in which a tensor of optimizer state is staged until the commit. Called when the tensor's first
 * piece comes. */
static int stage(pd_job *job, const pd_address *address, const pd_part *part, bool wide, pd_staged **out, pd_error *err)
{
    pd_import *import = job->import;
    pd_staged *staged;
    uint64_t bytes;
    int64_t elements;
    int rc = pd_shape_elements(&part->shape, &elements);

    assert(rc == PD_OK);
    bytes = (uint64_t)elements * size_of(wide) + sizeof *staged;
    if ((rc = pd_job_check_room(job, bytes, "staged state", err)) != PD_OK) return rc;
    if ((staged = calloc(1, sizeof *staged)) == NULL || (staged->at = pd_pages_new((size_t)bytes)) == NULL) {
        free(staged);
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory to stage state", job->steps.name);
    }
    *staged = (pd_staged){ .address = *address, .part = *part, .wide = wide, .elements = elements, .at = staged->at };
    HASH_ADD(hh, import->table, address, sizeof staged->address, staged);
    if (staged->hh.tbl == NULL) {
        free(staged->at);
        free(staged);
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory to stage state", job->steps.name);
    }
    if (import->last != NULL)
        import->last->next = staged;
    else
        import->first = staged;
    import->last = staged;
    import->tensors++;
    import->bytes += bytes;
    pd_account_take(&job->steps.account, bytes);
    if (elements > import->largest) import->largest = elements;
    *out = staged;
    return PD_OK;
}

static int check_piece(const pd_request *request, const pd_staged *staged, pd_error *err)
{
    int64_t first = request->u.import.first, count = request->u.import.count;

    if (first != staged->landed || count > staged->elements - first || request->u.import.wide != staged->wide)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%.160s: elements %lld to %lld of state %.60s came, expected those from %lld on, of %lld, in "
                       "the type of the first",
                       request->u.import.param, (long long)first, (long long)(first + count), request->u.import.slot,
                       (long long)staged->landed, (long long)staged->elements);
    return PD_OK;
}

static int take_piece(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_param *param = pd_job_param_or_error(job, request->u.import.param, err);
    pd_staged *staged;
    pd_address address;
    pd_part part;
    size_t each = size_of(request->u.import.wide);
    int rc = param == NULL ? PD_NOT_FOUND : find_part(param, request, &address, &part, err);

    if (rc != PD_OK) return rc;
    HASH_FIND(hh, job->import->table, &address, sizeof address, staged);
    if (staged == NULL && (rc = stage(job, &address, &part, request->u.import.wide, &staged, err)) != PD_OK) return rc;
    staged->root = strcmp(request->u.import.slot, PD_PENDING_ROOT) == 0;
    if ((rc = check_piece(request, staged, err)) != PD_OK) return rc;
    if (request->u.import.count > 0)
        memcpy(staged->at + (size_t)request->u.import.first * each, request->u.import.buffer->at,
               (size_t)request->u.import.count * each);
    staged->landed += request->u.import.count;
    return PD_OK;
}

/* Allocates memory for the step counts of all parameters, and charges it to the job. */
static int make_counts(pd_job *job, pd_error *err)
{
    pd_import *import = job->import;
    uint64_t bytes = job->steps.n_params * sizeof *import->counts;
    int rc = pd_job_check_room(job, bytes, "staged state", err);

    if (rc != PD_OK) return rc;
    if ((import->counts = malloc((size_t)bytes)) == NULL) return pd_job_no_memory(job, err);
    for (uint32_t i = 0; i < job->steps.n_params; i++) import->counts[i] = -1;
    import->bytes += bytes;
    pd_account_take(&job->steps.account, bytes);
    return PD_OK;
}

static int take_count(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_import *import = job->import;
    pd_param *param = pd_job_param_or_error(job, request->u.import.param, err);
    int rc;

    if (param == NULL) return PD_NOT_FOUND;
    if (request->u.import.value < least_count(job, param) || request->u.import.value > INT64_MAX / 2)
        return goes_back(param, request->u.import.value, err);
    if (import->counts == NULL && (rc = make_counts(job, err)) != PD_OK) return rc;
    import->n_counts += import->counts[param->index] < 0;
    if (request->u.import.value > import->counts[param->index]) import->counts[param->index] = request->u.import.value;
    return PD_OK;
}

static bool is_committing(const pd_job *job)
{
    return job->import != NULL && job->import->commit != NULL;
}

bool pd_import_writes(const pd_job *job)
{
    return is_committing(job) && job->import->until_ns == 0;
}

/* Returns the largest step count that the import brings for the parameter or another one of its step group; -1: it
 * brings none. */
static int64_t largest_count(const pd_job *job, const pd_param *param)
{
    int64_t most = brought_count(job, param->index);

    for (const pd_param *member = param->group != NULL ? param->group->members : NULL; member != NULL;
         member = member->links.next_member)
        if (brought_count(job, member->index) > most) most = brought_count(job, member->index);
    return most;
}

/* Sets the imported step counts. If the import brings several for parameters of one step group, sets the largest of
 * them. */
static void set_counts(pd_job *job)
{
    for (uint32_t i = 0; job->import->n_counts > 0 && i < job->steps.n_params; i++) {
        pd_param *param = &job->steps.params[i];
        int64_t count;
        if (param->group != NULL && param->group->members != param) continue; /* once for all parameters of the group */
        if ((count = largest_count(job, param)) < 0 || count == pd_optim_count(param->optim)) continue;
        if (param->group != NULL)
            pd_step_group_set_count(param->group, count);
        else
            pd_optim_set_count(param->optim, count);
    }
}

/* Answers a commit or a reset that is in force when a checkpoint has it: before that, a restart would bring back the
 * state from before it. If no checkpoint of the job was ever begun, answers at once: a restart does not bring such a
 * job back. The request waits as one for a checkpoint. */
static void answer_when_durable(pd_job *job, pd_request *request, uint64_t now_ns)
{
    char *name = request->u.import.job_name;

    pd_checkpoint_policy_now(job);
    if (!job->checkpointing.begun && !job->checkpointing.newest.exists) {
        pd_answer_ok(job->steps.outbox, request);
        pd_request_free(request);
        return;
    }
    free(request->u.import.param);
    free(request->u.import.slot);
    memset(&request->u, 0, sizeof request->u);
    request->kind = PD_REQ_CHECKPOINT;
    request->u.checkpoint.job_name = name;
    request->u.checkpoint.step = pd_steps_least(&job->steps);
    request->u.checkpoint.wait_ns = now_ns + DISK_NS;
    request->u.checkpoint.changes = job->checkpointing.changes;
    request->u.checkpoint.imports = true;
    pd_request_queue_add(&job->checkpointing.asked, request);
}

static void finish(pd_job *job, uint64_t now_ns)
{
    pd_import *import = job->import;
    pd_request *request = import->commit;

    pd_job_say(job, PD_SAY_INFO, "%zu tensors of optimizer state and %zu counters imported", import->tensors,
               import->n_counts);
    import->commit = NULL;
    forget(job);
    pd_readouts_look(&job->steps);
    answer_when_durable(job, request, now_ns);
}

/* Writes one staged tensor into the optimizer that it belongs to. PD_NO_MEMORY: the optimizer's state is unchanged. */
static int write_part(pd_job *job, const pd_staged *staged)
{
    double *wide = job->import->wide;
    pd_optim *optim = job->steps.params[staged->address.param].optim;

    if (staged->root) return pd_pending_root_write(optim, (const void *)staged->at);
    if (staged->wide)
        memcpy(wide, staged->at, (size_t)staged->elements * sizeof *wide);
    else
        for (int64_t i = 0; i < staged->elements; i++) wide[i] = (double)((const float *)(const void *)staged->at)[i];
    return pd_optim_write_part(optim, &staged->part, wide);
}

static void finish_reset(pd_job *job, int rc, const pd_error *err, uint64_t now_ns)
{
    pd_request *request = job->import->commit;

    job->import->commit = NULL;
    if (rc == PD_OK) {
        pd_job_say(job, PD_SAY_INFO, "reset the optimizer state of %u parameters (%.200s)",
                   pd_reset_count(job->import->reset), request->u.import.param);
        answer_when_durable(job, request, now_ns);
    } else {
        pd_request_refuse(job->steps.outbox, request, err);
    }
    forget(job);
    pd_readouts_look(&job->steps);
}

static void reset_some(pd_job *job, double slice_ns, uint64_t now_ns)
{
    pd_error err;
    int rc;

    if (pd_reset_some(job, job->import->reset, slice_ns, &rc, &err))
        finish_reset(job, rc, &err, now_ns);
    else if (rc != PD_OK)
        job->steps.shortage.retry_ns = now_ns + RETRY_NS;
}

void pd_import_write_some(pd_job *job, double slice_ns, uint64_t now_ns)
{
    pd_import *import = job->import;
    double cost_ns = 0;

    job->steps.shortage.retry_ns = 0;
    if (import->reset != NULL) {
        reset_some(job, slice_ns, now_ns);
        return;
    }
    for (; import->next != NULL && cost_ns < slice_ns; import->next = import->next->next) {
        if (write_part(job, import->next) != PD_OK) {
            /* Out of memory: writing continues later. Until all is written the job takes no steps. */
            job->steps.shortage.retry_ns = now_ns + RETRY_NS;
            return;
        }
        cost_ns += NS_PER_ELEMENT * (double)import->next->elements;
    }
    if (import->next == NULL) finish(job, now_ns);
}

/* Begins to write the staged tensors, or to reset, if the job is at rest. PD_FAILED_PRECONDITION: it is not at rest,
 * or what was staged does not agree with the steps that the job has taken. After any error nothing is written. */
static int begin_to_write(pd_job *job, pd_error *err)
{
    pd_import *import = job->import;
    int rc = check_rest(job, err);

    if (rc == PD_OK && import->reset != NULL) {
        import->until_ns = 0;
        return PD_OK;
    }
    /* Step counts and pending roots may disagree with steps that the job has taken since they came. */
    if (rc == PD_OK) rc = check_counts(job, err);
    if (rc == PD_OK) rc = check_roots(job, err);
    if (rc != PD_OK) return rc;
    if ((import->wide = pd_pages_new(((size_t)import->largest + 1) * sizeof *import->wide)) == NULL)
        return pd_job_no_memory(job, err);
    /* The step counts are set first: an optimizer accepts a lower count only while it has no pending roots, and the
     * tensors may be such roots. */
    set_counts(job);
    job->checkpointing.steps.moved = job->checkpointing.decisions.moved = "optimizer state is imported";
    job->checkpointing.changes++;
    import->next = import->first;
    import->until_ns = 0;
    return PD_OK;
}

/* Begins to write the staged tensors, or to reset, if the job is at rest; otherwise keeps the request until it is.
 * After an error the caller owns the request again. */
static int write_or_wait(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    pd_import *import = job->import;
    int rc;

    import->commit = request;
    import->until_ns = now_ns + REST_NS;
    import->look_ns = now_ns + LOOK_NS;
    if ((rc = begin_to_write(job, err)) == PD_OK || check_rest(job, NULL) != PD_OK) return PD_OK;
    import->commit = NULL;
    return rc;
}

static int commit(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    int rc = check_landed(job, err);

    if (rc == PD_OK && !request->u.import.partial) rc = check_complete(job, err);
    return rc == PD_OK ? write_or_wait(job, request, now_ns, err) : rc;
}

/* Begins to reset the state of the parameters that the request names, and keeps the request. PD_UNAVAILABLE: an import
 * or another reset is under way, and continues. */
static int reset(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    int rc;

    if (job->import != NULL)
        return pd_fail(err, PD_UNAVAILABLE, "job %.100s: an import of optimizer state is under way: try again later",
                       job->steps.name);
    if ((rc = begin(job, request, err)) != PD_OK) return rc;
    rc = pd_reset_new(&job->import->reset, job, request->u.import.param, request->u.import.partial, err);
    if (rc == PD_OK) rc = write_or_wait(job, request, now_ns, err);
    if (rc != PD_OK) forget(job);
    return rc;
}

/* Continues a commit or a reset that waits until the job is at rest. Refuses it if it has waited too long. */
static void look(pd_job *job, uint64_t now_ns)
{
    pd_import *import = job->import;
    pd_request *request = import->commit;
    pd_error err;

    import->touched_ns = now_ns;
    import->look_ns = now_ns + LOOK_NS;
    if (begin_to_write(job, &err) == PD_OK || (check_rest(job, NULL) != PD_OK && now_ns < import->until_ns)) return;
    import->commit = NULL;
    pd_request_refuse(job->steps.outbox, request, &err);
    if (import->reset != NULL) forget(job);
}

/* Handles one request of an import. If it returns PD_OK for a commit or a reset, it has kept the request, which is
 * answered when everything is written. */
static int take(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    if (is_committing(job))
        return pd_fail(err, PD_UNAVAILABLE, "job %.100s: an import is being written", job->steps.name);
    if (request->u.import.act == PD_IMPORT_RESET) return reset(job, request, now_ns, err);
    if (request->u.import.act == PD_IMPORT_BEGIN) return begin(job, request, err);
    if (job->import == NULL || job->import->conn != request->ticket.conn)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.100s: this connection has begun no import, or another took its place", job->steps.name);
    if (request->u.import.act == PD_IMPORT_COMMIT) return commit(job, request, now_ns, err);
    return request->u.import.act == PD_IMPORT_PIECE ? take_piece(job, request, err) : take_count(job, request, err);
}

void pd_job_import(pd_job *job, pd_request *request, uint64_t now_ns)
{
    bool commits = request->u.import.act == PD_IMPORT_COMMIT || request->u.import.act == PD_IMPORT_RESET;
    pd_error err;
    int rc = take(job, request, now_ns, &err);

    if (job->import != NULL) job->import->touched_ns = now_ns;
    if (rc != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, &err);
    } else if (!commits) {
        pd_answer_ok(job->steps.outbox, request);
        pd_request_done(job->steps.outbox, request);
    }
}

uint64_t pd_import_expires_ns(const pd_job *job)
{
    if (job->import == NULL || pd_import_writes(job)) return UINT64_MAX;
    return is_committing(job) ? job->import->look_ns : job->import->touched_ns + SILENCE_NS;
}

void pd_import_tick(pd_job *job, uint64_t now_ns)
{
    if (now_ns < pd_import_expires_ns(job)) return;
    if (is_committing(job)) {
        look(job, now_ns);
        return;
    }
    pd_job_say(job, PD_SAY_WARNING, "dropped an import of optimizer state that was not completed");
    forget(job);
}

void pd_import_release(pd_job *job, const pd_error *err)
{
    if (is_committing(job)) pd_request_refuse(job->steps.outbox, job->import->commit, err);
    forget(job);
}
