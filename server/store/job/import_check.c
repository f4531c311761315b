/* import_check.c - the conditions of a commit of imported optimizer state, which are checked before anything is
 * written. */
#include "import_check.h"

#include "param_set.h"
#include "save.h"
#include "step_group.h"

#include <stdlib.h>

int64_t pd_import_least_count(const pd_job *job, const pd_param *param)
{
    return param->saved.step == pd_job_start_step(job) ? 0 : pd_optim_count(param->optim);
}

int pd_import_goes_back(const pd_param *param, int64_t count, pd_error *err)
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

int64_t pd_import_brought_count(const pd_job *job, uint32_t param)
{
    return job->import->counts != NULL ? job->import->counts[param] : -1;
}

/* Returns whether a parameter can be written. A reset throws away roots that no step has used yet. */
static bool rests(const pd_job *job, uint32_t param)
{
    const pd_optim *optim = job->steps.params[param].optim;

    if (job->steps.params[param].stage != PD_COLLECTING) return false;
    return job->import->reset != NULL ? pd_optim_is_quiesced(optim) : pd_optim_is_idle(optim);
}

/* Returns a parameter that cannot be written yet; NULL: all can. Looks first at the one that was found last, so that
 * looking again costs little. */
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

int pd_import_check_rest(pd_job *job, pd_error *err)
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
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s: a step of %.160s is under way, or a root of it: import before the first step, or try "
                   "again",
                   job->steps.name, busy->name);
}

/* Returns the step count that the parameter's optimizer will have after the import. */
static int64_t count_to_be(const pd_job *job, uint32_t param)
{
    int64_t count = pd_import_brought_count(job, param);

    return count >= 0 ? count : pd_optim_count(job->steps.params[param].optim);
}

/* Returns whether the state of a parameter has seen no gradient, where it was saved and here: the import says that it
 * has counted no step, and brings none of its slots. */
static bool is_fresh(const pd_job *job, uint32_t param, const int64_t *covered)
{
    const pd_plan *plan = pd_optim_plan(job->steps.params[param].optim);

    for (size_t k = 0; k < plan->n_slots; k++)
        if (covered[k] > 0) return false;
    return count_to_be(job, param) == 0 && pd_import_least_count(job, &job->steps.params[param]) == 0;
}

/* Checks that each slot is staged completely. covered[i] is the number of elements of slot i that are staged. The slots
 * of parameter p begin at index first_slot[p]. */
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
                           "job %.100s: of %.160s's state %s %lld of %lld elements have "
                           "come: bring all of it, or say that part of it is enough",
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
 * may go back, and all parameters of a step group must be at the same step. */
static int check_counts(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; job->import->n_counts > 0 && i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        int64_t count = pd_import_brought_count(job, i);
        if (count < 0) continue;
        if (count < pd_import_least_count(job, param)) return pd_import_goes_back(param, count, err);
        if (param->group != NULL && !pd_step_group_is_even(param->group))
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.100s: the parameters that count their steps with %.160s "
                           "are at different steps: import before the first step, or try again",
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

int pd_import_check_brought(const pd_job *job, bool partial, pd_error *err)
{
    int rc = check_landed(job, err);

    return rc == PD_OK && !partial ? check_complete(job, err) : rc;
}

int pd_import_check_steps(const pd_job *job, pd_error *err)
{
    int rc = check_counts(job, err);

    return rc == PD_OK ? check_roots(job, err) : rc;
}
