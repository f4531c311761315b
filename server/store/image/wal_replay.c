/* wal_replay.c - repeats a step of a job from a record of its WAL, and reads records of decisions. */
#include "wal_replay.h"

#include "batch.h"
#include "header_image.h"
#include "wal_image.h"
#include "wal_records.h"
#include "mutant.h"
#include "optimizer.h"
#include "step_group.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 }; /* most preconditioner tasks that are run at the same time */

/* Estimates of how long the work takes, in nanoseconds of one core. */
#define BEGIN_NS 1000.0 /* time to begin the step of one parameter */
#define CLOSE_NS 500.0  /* time to publish its weights */
#define COST_NS 1.0     /* time of one unit of pd_task_cost */

/* A repeated step goes through these stages. STEPPING and ROOTING are repeated, since steps may wait for the results of
 * preconditioner tasks, and for other steps of their atomic group. */
typedef enum stage {
    BEGINNING,  /* the steps of the parameters begin */
    STEPPING,   /* phases of the optimizers run, up to one that waits for roots */
    ROOTING,    /* the preconditioner tasks run that this has made due */
    PUBLISHING, /* the new weights are published */
} stage;

struct pd_wal_repeat {
    pd_job *job;
    const pd_wal_record *record;
    pd_archive archive; /* reads record->head */
    stage stage;
    size_t at;         /* index of the parameter or optimizer that the stage handles next */
    pd_optim **optims; /* the optimizers that run in this step; optims[i] belongs to parameter of[i] */
    uint32_t *of;
    size_t n;       /* number of these optimizers */
    size_t done;    /* number of their steps that had ended before STEPPING began */
    bool any_tasks; /* tasks have run since STEPPING began */
    pd_batch *batch;
};

static int check_job(const pd_job *job, const pd_wal_record *record, pd_error *err)
{
    if (job == NULL) return pd_fail(err, PD_NOT_FOUND, "no job %.200s for the record of a step", record->job);
    if (job->saved.creator != record->creator || job->steps.n_params != record->n_parts)
        return pd_fail(err, PD_DATA_LOSS,
                       "job %.100s has creator %016" PRIx64 " and %u parameters, but the record of step %" PRIu64
                       " has %016" PRIx64 " and %u",
                       record->job, job->saved.creator, job->steps.n_params, record->step, record->creator,
                       record->n_parts);
    return PD_OK;
}

/* Returns whether the record has a step of the parameter. */
static bool is_of(const pd_job *job, const pd_param *param)
{
    return param->fragment == job->steps.wal->inputs.fragment;
}

static bool is_done(const pd_param *param, uint64_t step)
{
    return param->saved.step == step;
}

static int check_param(const pd_param *param, const pd_step_input *input, const pd_wal_record *record, uint64_t step,
                       pd_error *err)
{
    const pd_wal_part *part = &record->parts[param->index];

    if (!is_done(param, step) && param->saved.step + 1 != step)
        return pd_fail(err, PD_DATA_LOSS, "%.160s is at step %" PRIu64 ", but the record is of step %" PRIu64,
                       param->name, param->saved.step, step);
    if (!input->began || is_done(param, step)) return PD_OK;
    if (part->at == NULL || part->elements != param->elements)
        return pd_fail(err, PD_DATA_LOSS,
                       "%.160s has %lld elements, but the record of step %" PRIu64 " has an aggregate of %lld",
                       param->name, (long long)param->elements, step, (long long)part->elements);
    if (input->count < pd_optim_count(param->optim) ||
        (param->group == NULL && input->count != pd_optim_count(param->optim)))
        return pd_fail(err, PD_DATA_LOSS,
                       "%.160s has counted %lld steps, but before step %" PRIu64 " it had counted %lld", param->name,
                       (long long)pd_optim_count(param->optim), step, (long long)input->count);
    return PD_OK;
}

/* Reads the inputs of the step into the job's WAL, and checks that they fit the job. The state of the job stays
 * unchanged. */
static int read_inputs(pd_archive *archive, pd_job *job, const pd_wal_record *record, pd_error *err)
{
    int rc = PD_OK;

    if (job->steps.wal == NULL || job->steps.wal->inputs.at == NULL)
        return pd_fail(err, PD_DATA_LOSS, "job %.100s: a record of a step, but durability is not log", record->job);
    pd_wal_image_visit_inputs(archive, job, record->step);
    if (pd_archive_status(archive) != PD_OK) return pd_archive_end(archive, NULL, NULL, err);
    for (uint32_t i = 0; i < job->steps.n_params && rc == PD_OK; i++)
        if (is_of(job, &job->steps.params[i]))
            rc = check_param(&job->steps.params[i], &job->steps.wal->inputs.at[i], record, job->steps.wal->inputs.step,
                             err);
    return rc;
}

static int begin(pd_wal_repeat *r, pd_param *param)
{
    pd_step_input *input = &r->job->steps.wal->inputs.at[param->index];
    pd_step_io io = { .gradient = r->record->parts[param->index].at,
                      .before = param->current->at[PD_F32],
                      .hypers = input->hypers,
                      .hypers_mask = input->hypers_mask };

    if ((param->next = pd_published_new(param->buffers.pool, param->elements)) == NULL) return PD_NO_MEMORY;
    param->next->job = r->job->steps.number;
    param->next->param = param->index;
    param->next->version = r->job->steps.wal->inputs.step;
    io.after = param->next->at[PD_F32];
    if (input->count != pd_optim_count(param->optim)) pd_optim_set_count(param->optim, input->count);
    if (pd_param_begin_update(param, &io.update) != PD_OK || pd_optim_begin(param->optim, &io) != PD_OK)
        return PD_NO_MEMORY;
    if (r->job->steps.values.at[PD_JOB_KEY_NONFINITE] != PD_APPLY) pd_optim_guard(param->optim);
    pd_optim_take_as_noted(param->optim, &r->job->steps.wal->params[param->index].taken);
    r->of[r->n] = param->index;
    r->optims[r->n++] = param->optim;
    return PD_OK;
}

/* Begins the step of the next parameter, if the record has one of it. */
static int begin_next(pd_wal_repeat *r, double *budget_ns)
{
    pd_param *param = &r->job->steps.params[r->at++];

    if (!is_of(r->job, param) || !r->job->steps.wal->inputs.at[param->index].began ||
        is_done(param, r->job->steps.wal->inputs.step))
        return PD_OK;
    *budget_ns -= BEGIN_NS;
    return begin(r, param);
}

/* Binds the steps of an atomic group that also has steps on other shards, of which the record says whether one was
 * refused. */
static void bind_settled(pd_optim *const *bound, size_t n, pd_step_group *group)
{
    size_t before = group->before_refusal < n ? group->before_refusal : n;

    pd_optim_bind_with_others(bound, n, &group->atomic);
    pd_atomic_group_others(&group->atomic, group->refused, before, "a step of the group was refused");
}

/* Tells the optimizers of an atomic group that their steps all happen or none, as in the original step. */
static int bind_group(const pd_wal_repeat *r, pd_step_group *group)
{
    pd_optim **bound = calloc(r->n + 1, sizeof(pd_optim *));
    size_t n = 0;

    if (bound == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < r->n; i++) {
        const pd_param *param = &r->job->steps.params[r->of[i]];
        if (param->group == group && pd_param_is_bound(&r->job->steps, param)) bound[n++] = param->optim;
    }
    if (n > 0 && r->job->steps.together.settle != NULL)
        bind_settled(bound, n, group);
    else if (n > 0)
        pd_optim_bind(bound, n, &group->atomic);
    free(bound);
    return PD_OK;
}

/* Ends the stage BEGINNING, once all steps have begun. */
static int end_beginning(pd_wal_repeat *r)
{
    int rc = PD_OK;

    r->at = 0;
    r->stage = r->n > 0 ? STEPPING : PUBLISHING;
    if (r->n == 0) return PD_OK;
    if ((r->batch = pd_batch_new(r->optims, r->n, r->job->steps.config->threads)) == NULL) return PD_NO_MEMORY;
    for (size_t g = 0; rc == PD_OK && g < r->job->steps.n_rules; g++)
        rc = bind_group(r, &r->job->steps.together.groups[g]);
    return rc;
}

/* Runs the next optimizers: as many as fit into the budget, and at least one. */
static void step_some(pd_wal_repeat *r, double *budget_ns)
{
    double threads = r->job->steps.config->threads, ns = 0;
    size_t n = 0;

    do {
        pd_optim *optim = r->optims[r->at + n++];
        ns += pd_optim_done(optim) ? 0 : pd_optim_cost_ns(optim);
    } while (r->at + n < r->n && ns < *budget_ns * threads);
    pd_batch_run_steps(r->batch, r->optims + r->at, n);
    r->at += n;
    *budget_ns -= ns / threads;
    if (r->at < r->n) return;
    r->at = 0;
    r->stage = ROOTING;
}

/* Takes the next preconditioner tasks: as many as fit into the budget, and at least one. Returns their number. */
static size_t take_tasks(pd_wal_repeat *r, pd_task **task, pd_optim **owner, double *budget_ns)
{
    double threads = r->job->steps.config->threads, ns = 0;
    size_t taken = 0;

    while (r->at < r->n && taken < AT_ONCE && ns < *budget_ns * threads) {
        pd_optim *optim = r->optims[r->at];
        if ((task[taken] = pd_optim_capture(optim)) == NULL) {
            r->at++;
            continue;
        }
        ns += COST_NS * pd_task_cost(task[taken]);
        owner[taken++] = optim;
    }
    *budget_ns -= ns / threads;
    return taken;
}

/* Ends the stage ROOTING, once all tasks have run: optimizers continue if any did, or if the end of some steps may let
 * others of their group go on. */
static void end_rooting(pd_wal_repeat *r)
{
    size_t done = 0;
    bool goes_on;

    for (size_t i = 0; i < r->n; i++) done += pd_optim_done(r->optims[i]);
    goes_on = r->any_tasks || (done > r->done && done < r->n);
    r->stage = goes_on ? STEPPING : PUBLISHING;
    r->done = done;
    r->any_tasks = false;
    r->at = 0;
}

/* Runs some preconditioner tasks of the repeated step, and delivers the results to their optimizers. */
static void root_some(pd_wal_repeat *r, double *budget_ns)
{
    pd_task *task[AT_ONCE];
    pd_optim *owner[AT_ONCE];
    size_t taken = take_tasks(r, task, owner, budget_ns);

    if (taken > 0) pd_batch_run_tasks(r->batch, task, taken);
    for (size_t i = 0; i < taken; i++) pd_optim_deliver(owner[i], task[i]);
    r->any_tasks = r->any_tasks || taken > 0;
    if (r->at == r->n) end_rooting(r);
}

static int check_course(const pd_wal_repeat *r, const pd_param *param, pd_error *err)
{
    const pd_step_input *input = &r->job->steps.wal->inputs.at[param->index];
    bool refused = pd_optim_refused(param->optim) != NULL;

    if (!pd_optim_done(param->optim) || r->job->steps.wal->params[param->index].taken.missed ||
        refused != (input->outcome == PD_REFUSED))
        return pd_fail(err, PD_DATA_LOSS, "step %" PRIu64 " of %.160s differs from the recorded one: %s",
                       r->job->steps.wal->inputs.step, param->name,
                       refused != (input->outcome == PD_REFUSED) ? "the optimizer's answer is another one"
                                                                 : "roots that it took are missing");
    return PD_OK;
}

static int publish(const pd_wal_repeat *r, pd_param *param, pd_error *err)
{
    if (check_course(r, param, err) != PD_OK) return err->code;
    if (pd_optim_refused(param->optim) != NULL) {
        pd_published_unref(param->next);
        param->next = NULL;
    }
    pd_params_convert(&param, 1, r->job->steps.config->threads);
    pd_param_end_update(param);
    if (param->next == NULL) return PD_OK;
    pd_published_unref(param->current);
    param->current = param->next;
    param->next = NULL;
    return PD_OK;
}

/* Does some work of the present stage. */
static int advance(pd_wal_repeat *r, double *budget_ns, pd_error *err)
{
    int rc = PD_OK;

    switch (r->stage) {
    case BEGINNING:
        rc = r->at < r->job->steps.n_params ? begin_next(r, budget_ns) : end_beginning(r);
        if (rc == PD_OK) return PD_OK;
        return pd_fail(err, rc, "job %.100s: out of memory for step %" PRIu64 " of its WAL", r->record->job,
                       r->record->step);
    case STEPPING: step_some(r, budget_ns); return PD_OK;
    case ROOTING: root_some(r, budget_ns); return PD_OK;
    default: *budget_ns -= CLOSE_NS; return publish(r, &r->job->steps.params[r->of[r->at++]], err);
    }
}

/* Reads the state after the step. Afterwards all parameters of its fragment are at its step. */
static int read_rest(pd_archive *archive, pd_job *job, const pd_wal_record *record, uint64_t now_ns, pd_error *err)
{
    int rc;

    pd_wal_image_visit_rest(archive, job);
    rc = pd_archive_end(archive, NULL, NULL, err);
    if (rc == PD_OK) rc = pd_header_image_settle(job, now_ns, err);
    if (rc == PD_OK) pd_wal_resume(job, record->step);
    return rc;
}

static void drop(pd_jobs *jobs, pd_job *job)
{
    pd_jobs_drop(jobs, job);
    pd_jobs_free_gone(jobs, job);
}

int pd_wal_repeat_begin(pd_wal_repeat **out, pd_job *job, const pd_wal_record *record, pd_error *err)
{
    int rc = check_job(job, record, err);
    pd_wal_repeat *r;

    *out = NULL;
    if (rc != PD_OK) return rc;
    if ((r = calloc(1, sizeof *r)) == NULL) return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", record->job);
    r->job = job;
    r->record = record;
    r->optims = calloc(job->steps.n_params + 1, sizeof(pd_optim *));
    r->of = calloc(job->steps.n_params + 1, sizeof *r->of);
    if (r->optims == NULL || r->of == NULL) rc = pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", record->job);
    if (rc == PD_OK) {
        pd_archive_begin_read(&r->archive, record->head, record->head_bytes);
        rc = read_inputs(&r->archive, job, record, err);
    }
    if (rc == PD_OK)
        *out = r;
    else
        pd_wal_repeat_free(r);
    return rc;
}

bool pd_wal_repeat_some(pd_wal_repeat *r, double budget_ns, uint64_t now_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    while (*rc == PD_OK && (r->stage != PUBLISHING || r->at < r->n)) {
        if (!(budget_ns > 0)) return false;
        *rc = advance(r, &budget_ns, err);
    }
    if (*rc == PD_OK) *rc = read_rest(&r->archive, r->job, r->record, now_ns, err);
    if (*rc == PD_OK) r->job->checkpointing.steps.repeated++;
    return true;
}

void pd_wal_repeat_free(pd_wal_repeat *r)
{
    if (r == NULL) return;
    pd_batch_free(r->batch);
    free(r->of);
    free(r->optims);
    free(r);
}

/* Repeats the step of a record, at once. */
static int replay_step(pd_jobs *jobs, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err)
{
    pd_job *job = pd_jobs_find(jobs, record->job);
    pd_wal_repeat *repeat;
    int rc = pd_wal_repeat_begin(&repeat, job, record, err);

    if (rc != PD_OK) return rc;
    (void)pd_wal_repeat_some(repeat, INFINITY, now_ns, &rc, err);
    pd_wal_repeat_free(repeat);
    *unchanged = rc == PD_OK;
    if (!*unchanged) drop(jobs, job);
    return rc;
}

/* Reads a record of decisions, for steps that the job will take again. After an error the job has no decisions to
 * repeat. */
static int read_decisions(pd_jobs *jobs, const pd_wal_record *record, pd_error *err)
{
    pd_job *job = pd_jobs_find(jobs, record->job);
    pd_archive archive;
    int rc = PD_OK;

    if (job == NULL || job->saved.creator != record->creator || job->steps.wal == NULL)
        return pd_fail(err, PD_NOT_FOUND, "no job %.200s for a record of decisions", record->job);
    if (!PD_MUTANT(decisions_unread)) {
        pd_archive_begin_read(&archive, record->head, record->head_bytes);
        pd_wal_image_read_decisions(&archive, job);
        rc = pd_archive_end(&archive, NULL, NULL, err);
    }
    job->checkpointing.decisions.number = job->checkpointing.decisions.since = record->step;
    job->checkpointing.decisions.base = record->base;
    job->checkpointing.decisions.fresh = rc != PD_OK;
    if (rc != PD_OK) pd_wal_drop_read(&job->steps, true);
    return rc;
}

int pd_wal_replay(pd_jobs *jobs, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err)
{
    *unchanged = true;
    return record->stream == PD_WAL_STEPS ? replay_step(jobs, record, now_ns, unchanged, err)
                                          : read_decisions(jobs, record, err);
}
