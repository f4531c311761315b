/* reset_state.c - sets the optimizer state of parameters back to its initial values, in parts of bounded time. */
#include "reset_state.h"

#include "glob.h"
#include "param_set.h"
#include "text.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

#define PARAM_NS 50.0 /* estimated ns of one core to look at a parameter, without the comparison of its name */

/* A reset while it is under way: first names are compared, then state is set back, then step counts. */
struct pd_reset {
    char *pattern;
    pd_glob *glob;
    bool keeps_counts;
    bool matched, begun; /* true: all names are compared with the glob; true: state is being set back */
    bool filled;         /* true: all state is set back, except step counts */
    uint32_t param;      /* index of the parameter at which the reset continues */
    uint32_t n;          /* number of parameters to reset */
    pd_fill at;          /* position in the state of parameter `param` at which the reset continues */
    uint64_t bytes;      /* bytes of this struct, which are charged to the job */
    bool hit[];          /* for each parameter of the job: true if it is to be reset */
};

static void free_reset(pd_reset *reset)
{
    if (reset == NULL) return;
    pd_glob_free(reset->glob);
    free(reset->pattern);
    free(reset);
}

int pd_reset_new(pd_reset **out, pd_job *job, const char *glob, bool keeps_counts, pd_error *err)
{
    uint64_t bytes = sizeof(pd_reset) + job->steps.n_params * sizeof(bool);
    pd_reset *reset;
    int rc = pd_pattern_check(glob, err);

    if (rc != PD_OK || (rc = pd_job_check_room(job, bytes, "records of a reset", err)) != PD_OK) return rc;
    if ((reset = calloc(1, bytes)) == NULL || (reset->pattern = strdup(glob)) == NULL ||
        (reset->glob = pd_glob_new(glob)) == NULL) {
        free_reset(reset);
        return pd_job_no_memory(job, err);
    }
    reset->keeps_counts = keeps_counts;
    reset->bytes = bytes;
    pd_account_take(&job->steps.account, bytes);
    *out = reset;
    return PD_OK;
}

void pd_reset_free(pd_job *job, pd_reset *reset)
{
    if (reset == NULL) return;
    pd_account_give(&job->steps.account, reset->bytes);
    free_reset(reset);
}

uint32_t pd_reset_count(const pd_reset *reset)
{
    return reset->n;
}

static void hit(pd_reset *reset, const pd_param *param)
{
    reset->n += !reset->hit[param->index];
    reset->hit[param->index] = true;
}

/* Compares names of parameters with the glob, for about *budget_ns. If a parameter matches, all parameters of its step
 * group are reset. */
static void match(const pd_job *job, pd_reset *reset, double *budget_ns)
{
    for (; reset->param < job->steps.n_params; reset->param++) {
        const pd_param *param = &job->steps.params[reset->param];
        if (!(*budget_ns > 0)) return;
        *budget_ns -= PARAM_NS + pd_glob_ns(reset->glob, strlen(param->name));
        if (reset->hit[param->index] || !pd_param_is_meant(param, reset->glob)) continue;
        hit(reset, param);
        if (param->group == NULL) continue;
        for (const pd_param *member = param->group->members; member != NULL; member = member->links.next_member) {
            *budget_ns -= PARAM_NS;
            hit(reset, member);
        }
    }
    reset->matched = true;
}

static int check_hits(const pd_job *job, const pd_reset *reset, pd_error *err)
{
    if (reset->n == 0)
        return pd_fail(err, PD_NOT_FOUND, "job %.100s has no parameter that matches \"%.100s\"", job->steps.name,
                       reset->pattern);
    for (uint32_t i = 0; i < job->steps.n_params && !reset->keeps_counts; i++)
        if (reset->hit[i] && job->steps.params[i].group != NULL &&
            job->steps.params[i].group->members == &job->steps.params[i] &&
            !pd_step_group_is_even(job->steps.params[i].group))
            return pd_fail(err, PD_FAILED_PRECONDITION,
                           "job %.100s: the parameters of the step group of %.160s are at different steps: try again",
                           job->steps.name, job->steps.params[i].name);
    return PD_OK;
}

static void set_count(const pd_job *job, pd_param *param, double *budget_ns)
{
    int64_t first = (int64_t)pd_job_start_step(job);

    if (param->group == NULL) {
        pd_optim_set_count(param->optim, first);
    } else if (param->group->members == param) { /* once for all parameters of the group */
        pd_step_group_set_count(param->group, first);
        *budget_ns -= PARAM_NS * param->group->n_members;
    }
}

/* Sets step counts back, for about *budget_ns. Returns whether all are set back. */
static bool set_counts(const pd_job *job, pd_reset *reset, double *budget_ns)
{
    for (; reset->param < job->steps.n_params; reset->param++) {
        if (!(*budget_ns > 0)) return false;
        *budget_ns -= PARAM_NS;
        if (reset->hit[reset->param]) set_count(job, &job->steps.params[reset->param], budget_ns);
    }
    return true;
}

/* Sets the state of parameters back, except step counts, for about *budget_ns. Returns whether all state is set back.
 * *rc PD_NO_MEMORY: the caller may call it again later. */
static bool fill_state(pd_job *job, pd_reset *reset, double *budget_ns, int *rc)
{
    for (; reset->param < job->steps.n_params; reset->param++) {
        pd_param *param = &job->steps.params[reset->param];
        if (!(*budget_ns > 0)) return false;
        if (!reset->hit[reset->param]) {
            *budget_ns -= PARAM_NS;
            continue;
        }
        if (reset->at.slot == 0 && reset->at.element == 0) pd_optim_forget_roots(param->optim);
        if (!pd_optim_fill(param->optim, &reset->at, budget_ns, rc)) return false;
        reset->at = (pd_fill){ 0 };
        *budget_ns -= PARAM_NS;
    }
    reset->filled = true;
    reset->param = 0;
    return true;
}

bool pd_reset_some(pd_job *job, pd_reset *reset, double budget_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    if (!reset->matched) match(job, reset, &budget_ns);
    if (!reset->matched) return false;
    if (!reset->begun) {
        if ((*rc = check_hits(job, reset, err)) != PD_OK) return true;
        /* From now on, what a checkpoint and its WAL have does not determine the steps. */
        job->checkpointing.steps.moved = job->checkpointing.decisions.moved = "optimizer state is reset";
        job->checkpointing.changes++;
        reset->begun = true;
        reset->param = 0;
    }
    if (!reset->filled && !fill_state(job, reset, &budget_ns, rc)) return false;
    return reset->keeps_counts || set_counts(job, reset, &budget_ns);
}
