/* param_set.c - finds a job's parameters by name, counts their bytes, and frees them. */
#include "param_set.h"

#include "fragment.h"
#include "settle.h"
#include "shares.h"
#include "wal.h"
#include "name_hash.h"
#include "whole.h"
#include "override.h"
#include "text.h"
#include "reserves.h"
#include "pushed_hypers.h"
#include "round_scalars.h"

#include <stdlib.h>
#include <string.h>

pd_param *pd_param_named(const pd_job *job, pd_param *names, const char *name)
{
    pd_param *param = NULL;
    size_t n = strlen(name);
    unsigned hash = pd_name_hash(job->steps.config->hash_key, name, n);

    HASH_FIND_BYHASHVALUE(hh, names, name, n, hash, param);
    return param;
}

pd_param *pd_job_param(const pd_job *job, const char *name)
{
    return pd_param_named(job, job->records.names, name);
}

pd_param *pd_job_param_or_error(const pd_job *job, const char *name, pd_error *err)
{
    pd_param *param = pd_job_param(job, name);

    if (param == NULL) pd_fail(err, PD_NOT_FOUND, "job %.100s has no parameter %.160s", job->steps.name, name);
    return param;
}

int pd_pattern_check(const char *pattern, pd_error *err)
{
    if (pattern[0] == '\0' || strlen(pattern) > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the pattern for parameters has 1 to %d bytes; * is all of them",
                       PD_NAME_MAX);
    return pd_text_check("the pattern for parameters", pattern, err) == PD_OK ? PD_OK : PD_INVALID_ARGUMENT;
}

bool pd_param_is_meant(const pd_param *param, pd_glob *pattern)
{
    return pd_glob_match(pattern, param->declared_name) ||
           (param->declared_name != param->name && pd_glob_match(pattern, param->name));
}

pd_param *pd_declared_param(const pd_job *job, const pd_request *request, size_t i)
{
    pd_param_decl *decl = &request->u.declare.params[i];
    pd_param *param;

    if (decl->found > 0) return &job->steps.params[decl->found - 1];
    param = i < job->steps.n_params && strcmp(job->steps.params[i].name, decl->name) == 0
                ? &job->steps.params[i]
                : pd_job_param(job, decl->name);
    if (param != NULL) decl->found = 1 + param->index;
    return param;
}

int pd_job_check_room(const pd_job *job, uint64_t bytes, const char *what, pd_error *err)
{
    const pd_budget *budget = pd_account_budget(&job->steps.account, bytes);

    if (pd_budget_fits(budget, bytes)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: no room for %llu more bytes of %s: of %llu allowed for %.100s, %llu are in use (%s)",
                   job->steps.name, (unsigned long long)bytes, what, (unsigned long long)budget->limit, budget->whose,
                   (unsigned long long)budget->used, budget->key);
}

int pd_job_check_total(const pd_job *job, uint64_t more, pd_error *err)
{
    const pd_budget *budget = pd_account_budget(&job->steps.account, more);

    if (pd_budget_fits(budget, more)) return PD_OK;
    return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                   "job %.100s: published weights, sums, contributions collected, optimizer state and roots need %llu "
                   "bytes more; of %llu allowed for %.100s, %llu are in use (%s)",
                   job->steps.name, (unsigned long long)more, (unsigned long long)budget->limit, budget->whose,
                   (unsigned long long)budget->used, budget->key);
}

/* Frees the memory that the parameter owns. Does not free its struct, an element of the job's array. The parameter must
 * have no contribution in an open round, and none of its preconditioner tasks may be running. */
static void clear_param(pd_unread *unread, pd_param *param)
{
    pd_param_end_update(param);
    pd_request_free(param->reader);
    if (param->buffers.pool[PD_F32] != NULL)
        pd_buffer_pool_give(param->buffers.pool[PD_F32], param->buffers.accumulator);
    pd_published_unref(param->next);
    pd_published_replace(unread, NULL, param->current);
    pd_published_unref(param->current);
    pd_optim_free(param->optim);
    pd_param_leave_pools(param);
    pd_buffer_pool_leave(param->buffers.spills);
    pd_pushed_free(param->pushed);
    pd_scalars_free(param->scalars);
    pd_overrides_clear(param);
    free(param->roots.log);
    free(param->axes);
    free(param->name);
}

void pd_param_set_leave(pd_job *job)
{
    pd_wal_free(&job->steps);
    pd_unread_leave(job->steps.unread);
    pd_account_give(&job->steps.account, job->steps.account.used);
    pd_reserves_forget(job);
    job->steps.changes++;
    HASH_CLEAR(hh, job->records.names);
}

bool pd_param_set_free_some(pd_job *job, uint32_t n)
{
    for (; n > 0 && job->steps.n_params > 0; n--)
        clear_param(job->steps.unread, &job->steps.params[--job->steps.n_params]);
    return job->steps.n_params == 0;
}

void pd_param_set_free_rest(pd_job *job)
{
    pd_unread_note_segment(job->steps.unread, pd_shared_weights_left(job->steps.memory.shared));
    pd_shared_weights_unref(job->steps.memory.shared);
    job->steps.memory.shared = NULL;
    free(job->steps.params);
    free(job->records.chunks);
    free(job->records.contributions);
    free(job->records.ranges);
    free(job->steps.batch.params);
    free(job->steps.batch.optims);
    pd_fragments_free(&job->steps);
    pd_shares_free(job->steps.shares);
    job->steps.shares = NULL;
    free(job->steps.together.groups);
    free(job->steps.together.clip);
    pd_settle_free(job->steps.together.settle);
    pd_whole_free(job->whole);
    job->whole = NULL;
    job->steps.map = 0;
    job->steps.params = NULL;
    job->records.chunks = NULL;
    job->records.contributions = NULL;
    job->records.ranges = NULL;
    job->steps.batch.params = NULL;
    job->steps.batch.optims = NULL;
    job->steps.together.groups = NULL;
    job->steps.together.clip = NULL;
    job->steps.together.settle = NULL;
    job->steps.n_params = job->steps.progress.n_begun = job->steps.progress.n_least = 0;
    job->reports.init_ns = 0;
    job->records.collected = 0;
    if (!job->gone) pd_unread_return(job->steps.unread);
}

void pd_param_set_forget(pd_job *job)
{
    pd_param_set_leave(job);
    (void)pd_param_set_free_some(job, UINT32_MAX);
    pd_param_set_free_rest(job);
}
