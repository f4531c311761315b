/* reset_state.c - sets the optimizer state of parameters back to its initial values, in bounded slices. */
#include "reset_state.h"

#include "glob.h"
#include "printable.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

#define PARAM_NS 50.0 /* estimated ns of one core to look at a parameter */

struct pd_reset {
    char *pattern;
    pd_glob *glob; /* the compiled pattern */
    bool keeps_counts;
    bool matched, begun; /* all names have been compared; state has been set back */
    uint32_t param;      /* parameter at which the reset goes on */
    uint32_t n;          /* number of parameters that are reset */
    pd_fill at;          /* place in the state of `param` at which it goes on */
    uint64_t bytes;      /* bytes that count against max_total_bytes */
    bool hit[];          /* for each parameter whether it is reset */
};

/* ---- life ---- */

static int check_glob(const char *glob, pd_error *err)
{
    if (glob[0] == '\0' || strlen(glob) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the pattern for parameters has 1 to %d bytes; * is all of them",
                       PD_NAME_MAX);
    return pd_text_check("the pattern for parameters", glob, err) == PD_OK ? PD_OK : PD_INVALID_ARGUMENT;
}

int pd_reset_new(pd_reset **out, pd_job *job, const char *glob, bool keeps_counts, pd_error *err)
{
    uint64_t bytes = sizeof(pd_reset) + job->steps.n_params * sizeof(bool);
    const pd_budget *budget = pd_account_budget(&job->steps.account, bytes);
    pd_reset *reset;
    int rc = check_glob(glob, err);

    if (rc != PD_OK) return rc;
    if (!pd_budget_fits(budget, bytes))
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "job %.100s: no room for %llu more bytes (%s)", job->steps.name,
                       (unsigned long long)bytes, budget->key);
    reset = calloc(1, bytes);
    if (reset == NULL || (reset->pattern = strdup(glob)) == NULL || (reset->glob = pd_glob_new(glob)) == NULL) {
        if (reset != NULL) free(reset->pattern);
        free(reset);
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name);
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
    free(reset->pattern);
    pd_glob_free(reset->glob);
    free(reset);
}

uint32_t pd_reset_count(const pd_reset *reset)
{
    return reset->n;
}

bool pd_reset_must_wait(const pd_job *job, pd_error *err)
{
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        if (param->stage == PD_COLLECTING && pd_optim_is_still(param->optim)) continue;
        pd_fail(err, PD_FAILED_PRECONDITION,
                "job %.100s: a step of %.160s is under way, or a root of it is being computed: try again",
                job->steps.name, param->name);
        return true;
    }
    return false;
}

/* ---- which parameters are reset ---- */

static void hit(pd_reset *reset, const pd_param *param)
{
    reset->n += !reset->hit[param->index];
    reset->hit[param->index] = true;
}

/* Compares names with the glob, for about *budget_ns. A parameter that counts its steps with others brings these
 * along. */
static void match(const pd_job *job, pd_reset *reset, double *budget_ns)
{
    for (; reset->param<job->steps.n_params && * budget_ns> 0; reset->param++) {
        const pd_param *param = &job->steps.params[reset->param];
        *budget_ns -= PARAM_NS + pd_glob_ns(reset->glob, strlen(param->name));
        if (reset->hit[param->index] || !pd_glob_match(reset->glob, param->name)) continue;
        hit(reset, param);
        if (param->group == NULL) continue;
        for (const pd_param *member = param->group->members; member != NULL; member = member->next_member) {
            *budget_ns -= PARAM_NS;
            hit(reset, member);
        }
    }
    reset->matched = reset->param == job->steps.n_params;
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
                           "job %.100s: the parameters that count their steps with %.160s are at different steps: try "
                           "again",
                           job->steps.name, job->steps.params[i].name);
    return PD_OK;
}

/* Begins to set state back. From now on steps do not follow from what a checkpoint and its log have. */
static void begin(pd_job *job, pd_reset *reset)
{
    job->keeping.log.moved = job->keeping.control.moved = "optimizer state is reset";
    job->keeping.changes++;
    reset->begun = true;
    reset->param = 0;
}

/* ---- setting state back ---- */

static void set_count(const pd_job *job, pd_param *param)
{
    int64_t first = (int64_t)pd_job_start_step(job);

    if (param->group == NULL)
        pd_optim_set_count(param->optim, first);
    else if (param->group->members == param) /* once for all members */
        pd_step_group_set_count(param->group, first);
}

/* Sets parameters back for about *budget_ns. Returns whether all are. PD_NO_MEMORY. */
static bool set_back(pd_job *job, pd_reset *reset, double *budget_ns, int *rc)
{
    for (; reset->param < job->steps.n_params; reset->param++) {
        pd_param *param = &job->steps.params[reset->param];
        if (!(*budget_ns > 0)) return false;
        *budget_ns -= PARAM_NS;
        if (!reset->hit[reset->param]) continue;
        if (reset->at.slot == 0 && reset->at.element == 0) pd_optim_forget_roots(param->optim);
        if (!pd_optim_fill(param->optim, &reset->at, budget_ns, rc)) return false;
        reset->at = (pd_fill){ 0 };
    }
    for (uint32_t i = 0; i < job->steps.n_params && !reset->keeps_counts; i++)
        if (reset->hit[i]) set_count(job, &job->steps.params[i]);
    return true;
}

bool pd_reset_some(pd_job *job, pd_reset *reset, int *rc, pd_error *err)
{
    double budget_ns = (double)job->steps.config->batch_ns;

    *rc = PD_OK;
    if (!reset->matched) match(job, reset, &budget_ns);
    if (!reset->matched) return false;
    if (!reset->begun) {
        if ((*rc = check_hits(job, reset, err)) != PD_OK) return true;
        begin(job, reset);
    }
    return set_back(job, reset, &budget_ns, rc);
}
