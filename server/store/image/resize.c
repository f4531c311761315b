/* resize.c - makes a job with another world size from a job: plans it from the same declarations, and copies
 * the state with the functions that write and read images. */
#include "resize.h"

#include "wal.h"
#include "wal_records.h"
#include "pending_sets.h"
#include "declared_job.h"
#include "declaration.h"
#include "generation.h"
#include "job_turn.h"
#include "export.h"
#include "header_image.h"
#include "image.h"
#include "checkpoint_policy.h"
#include "worker_states.h"
#include "override_command.h"
#include "param_image.h"
#include "param_set.h"
#include "ranks.h"
#include "mutant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the process with this nonce has or had a rank of the job. */
static bool is_known(const pd_job *job, uint64_t nonce)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        const pd_rank_saved *saved = &job->ranks[r].saved;
        if (saved->present && saved->nonce == nonce) return true;
        for (uint32_t i = 0; i < saved->n_superseded && i < PD_SUPERSEDED; i++)
            if (saved->superseded[i] == nonce) return true;
    }
    return false;
}

bool pd_may_resize(const pd_job *job, const pd_request *hello, uint64_t now_ns)
{
    uint32_t world = hello->u.hello.world_size;

    if (world == 0 || world == job->saved.workers) return false;
    if (world == job->membership.forming) return hello->u.hello.generation == job->saved.generation;
    if (hello->u.hello.rejoins || !pd_job_has_one_world(job) || is_known(job, hello->u.hello.nonce)) return false;
    if (job->restart.restored && !job->restart.joined) return true;
    return job->steps.n_params > 0 && pd_generation_has_gone(job, now_ns);
}

/* Replaces the ranges of the old ranks. A single new rank gets the range of all elements, because planning checks that
 * a single rank has them all. Several ranks declare their ranges later. */
static void renew_ranges(pd_declared_job *declared, const pd_job *old)
{
    declared->n_ranges = 0;
    for (uint32_t i = 0; declared->world == 1 && i < old->steps.n_params; i++)
        if (old->steps.params[i].ranged)
            declared->ranges[declared->n_ranges++] =
                (pd_declared_range){ .param = i, .end = old->steps.params[i].elements };
}

static int plan(pd_job **out, const pd_jobs *jobs, const pd_job_env *env, const pd_job *old, uint32_t world,
                pd_error *err)
{
    pd_declared_job declared;
    int rc = pd_declared_job_of(&declared, old, err);

    if (rc != PD_OK) return rc;
    declared.world = world;
    renew_ranges(&declared, old);
    rc = pd_declared_job_make(out, &declared, env, jobs->last_number + 1, err);
    pd_declared_job_free(&declared);
    if (rc != PD_OK) return rc;
    /* Remove the range of a single new rank again, because all new ranks declare their ranges later. */
    pd_ranges_give_back(*out, 0);
    pd_ranges_count(*out);
    return PD_OK;
}

/* Writes or reads section i of a job's state: parameter i, or for i = n_params the header. */
static void visit_part(pd_archive *archive, pd_job *job, uint32_t i)
{
    if (i < job->steps.n_params)
        pd_param_image_visit(archive, &job->steps, &job->steps.params[i]);
    else
        pd_header_image_visit_rankless(archive, job);
}

/* Memory for the copy of one section of the state. All sections use the same memory, since clearing new pages would
 * take longer than the copy. */
typedef struct scratch {
    uint8_t *at;
    size_t bytes;
} scratch;

/* Writes section i of a job's state into the scratch memory. *n becomes its size. */
static int write_part(pd_job *from, uint32_t i, scratch *memory, size_t *n, pd_error *err)
{
    pd_archive archive;
    int rc;

    pd_archive_begin_write(&archive);
    if (memory->at != NULL) pd_archive_use(&archive, memory->at, memory->bytes);
    memory->at = NULL; /* the archive owns it, and returns it, or larger memory, at its end */
    visit_part(&archive, from, i);
    rc = pd_archive_end(&archive, &memory->at, n, err);
    if (memory->bytes < *n) memory->bytes = *n;
    return rc;
}

/* Copies section i of a job's state to another job. Only one section at a time is copied, which takes little memory. */
static int copy_part(pd_job *to, pd_job *from, uint32_t i, scratch *memory, pd_error *err)
{
    pd_archive archive;
    size_t n;
    int rc = write_part(from, i, memory, &n, err);

    if (rc != PD_OK) return rc;
    pd_archive_begin_read(&archive, memory->at, n);
    visit_part(&archive, to, i);
    return pd_archive_end(&archive, NULL, NULL, err);
}

static int copy_param(pd_job *to, pd_job *from, uint32_t i, scratch *memory, pd_error *err)
{
    pd_param *param = &to->steps.params[i];
    int rc = copy_part(to, from, i, memory, err);

    if (rc != PD_OK) return rc;
    if (!PD_MUTANT(resize_forgets_last) || i + 1 < from->steps.n_params)
        memcpy(param->next->at[PD_F32], from->steps.params[i].current->at[PD_F32],
               (size_t)param->elements * sizeof(float));
    pd_param_image_publish(&to->steps, param);
    return PD_OK;
}

/* Copies the state of all parameters, and the header. */
static int copy_state(pd_job *to, pd_job *from, pd_error *err)
{
    scratch memory = { NULL, 0 };
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && i < from->steps.n_params; i++) rc = copy_param(to, from, i, &memory, err);
    if (rc == PD_OK) rc = copy_part(to, from, from->steps.n_params, &memory, err);
    free(memory.at);
    return rc;
}

static int copy_worker_states(pd_job *job, uint32_t r, const pd_rank *from, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && i < from->n_worker_states; i++)
        rc = pd_worker_states_put(job, &job->ranks[r], from->worker_states[i].step, from->worker_states[i].at,
                                  from->worker_states[i].bytes, err);
    return rc;
}

static int copy_ranks(pd_job *to, const pd_job *from, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t r = 0; rc == PD_OK && r < to->steps.members.ranks && r < from->steps.members.ranks; r++) {
        pd_rank_supersede(&to->ranks[r].saved, &from->ranks[r].saved);
        if (!PD_MUTANT(resize_forgets_worker_states)) rc = copy_worker_states(to, r, &from->ranks[r], err);
    }
    return rc;
}

/* Copies the state of checkpointing, because the checkpoints of the old job now belong to the new job. */
static void copy_checkpointing(pd_checkpoint_policy *to, const pd_checkpoint_policy *from)
{
    to->on_disk = from->on_disk;
    to->newest = from->newest;
    to->kept = from->kept;
    to->common = from->common;
    to->floored = from->floored;
    to->floor = from->floor;
    to->newest.changes = 0;
    to->durable_step = PD_MUTANT(resize_undurable) ? 0 : from->durable_step;
    to->durable_place = from->durable_place;
    to->mirrored_step = from->mirrored_step;
    to->steps.retry = from->newest.step + 1;
    to->decisions = (pd_decision_stream){ .number = from->decisions.number, .fresh = true };
    to->counts = from->counts;
    memcpy(to->error, from->error, sizeof to->error);
    to->last.state = from->last.state;
}

static int copy_all(pd_job *to, pd_job *from, uint64_t now_ns, pd_error *err)
{
    int rc = copy_state(to, from, err);

    if (rc == PD_OK) rc = copy_ranks(to, from, err);
    if (rc != PD_OK || (rc = pd_header_image_settle(to, now_ns, err)) != PD_OK) return rc;
    copy_checkpointing(&to->checkpointing, &from->checkpointing);
    to->drain_step = from->drain_step;
    to->steps.epoch = from->steps.epoch + 1;
    to->timers.linger_ns = from->timers.linger_ns;
    return PD_OK;
}

/* Logs the resize, and that worker states of ranks that no longer exist are dropped. */
static void say(pd_job *job, const pd_job *old)
{
    uint64_t step = pd_steps_least(&job->steps);
    uint32_t world = job->steps.members.ranks;
    bool dropped = false;
    const pd_log_facts facts = { .job = job->steps.name, .step = &step };

    for (uint32_t r = world; r < old->steps.members.ranks; r++) dropped |= old->ranks[r].n_worker_states > 0;
    pd_say(job->steps.outbox, PD_SAY_INFO, facts, "continues with %u workers instead of %u", world,
           old->steps.members.ranks);
    if (dropped)
        pd_say(job->steps.outbox, PD_SAY_WARNING, facts,
               "dropped the worker states of ranks above %u, which the job no longer has", world - 1);
}

static int check(const pd_job *old, const pd_request *hello, pd_error *err)
{
    int rc = pd_job_agrees_but_world(old, hello, err);

    if (rc != PD_OK) return rc;
    if (pd_image_is_possible(old) && !old->goes_back && old->checkpointing.making == NULL &&
        !old->checkpointing.writing)
        return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE,
                   "a step, an export, an import or a checkpoint is under way: retry when it has ended");
}

static int make(pd_job **out, pd_jobs *jobs, const pd_job_env *env, pd_job *old, uint32_t world, uint64_t now_ns,
                pd_error *err)
{
    int rc = plan(out, jobs, env, old, world, err);

    if (rc != PD_OK) return rc;
    if ((rc = copy_all(*out, old, now_ns, err)) == PD_OK && (rc = pd_jobs_add(jobs, *out, err)) == PD_OK) return PD_OK;
    pd_param_set_forget(*out);
    pd_job_free(*out);
    return rc;
}

/* Stops charging the memory of the old job, and makes the new job in its place. After an error charges the old job
 * again. */
static int make_in_place(pd_job **out, pd_jobs *jobs, const pd_job_env *env, pd_job *old, uint32_t world,
                         uint64_t now_ns, pd_error *err)
{
    uint64_t used = old->steps.account.used;
    int rc;

    pd_account_give(&old->steps.account, used);
    if ((rc = make(out, jobs, env, old, world, now_ns, err)) != PD_OK) pd_account_take(&old->steps.account, used);
    return rc;
}

/* Returns what the old job holds for workers that it had since the server started. */
static void release(pd_job *old)
{
    pd_error err;

    if (!old->restart.joined) return;
    pd_fail(&err, PD_ABORTED, "job %.100s continues with another number of workers: this process stays out",
            old->steps.name);
    pd_wal_release(old, &err);
    pd_job_release(old, &err);
}

int pd_resize(pd_job **job, pd_jobs *jobs, const pd_job_env *env, const pd_request *hello, uint64_t now_ns,
              pd_error *err)
{
    uint32_t world = hello->u.hello.world_size;
    pd_job *old = *job, *made = NULL;
    pd_error why;
    int rc;

    pd_export_give_way(old, "the job continues with another number of workers");
    rc = check(old, hello, &why);
    if (rc == PD_OK) rc = pd_wal_put_overrides(&old->steps, &why);
    if (rc == PD_OK) rc = make_in_place(&made, jobs, env, old, world, now_ns, &why);
    if (rc != PD_OK)
        return pd_fail(err, rc, "job %.60s has %u workers and cannot continue with %u: %.360s", old->steps.name,
                       old->saved.workers, world, why.text);
    made->checkpointing.asked = old->checkpointing.asked;
    made->checkpointing.exports.waiting = old->checkpointing.exports.waiting;
    old->checkpointing.asked = old->checkpointing.exports.waiting = (pd_request_queue){ 0 };
    pd_sets_move(made, old);
    say(made, old);
    pd_fail(&why, PD_UNAVAILABLE, "job %.100s continues with another number of workers: set it again", old->steps.name);
    pd_job_refuse_sets(old, &why);
    pd_checkpoint_policy_soon(made);
    pd_jobs_drop(jobs, old);
    release(old);
    pd_jobs_free_gone(jobs, old);
    *job = made;
    return PD_OK;
}
