/* store.c - the whole training state: passes each request to the part of the store that handles it, lets the jobs work
 * in turn, and writes and reads images of jobs. */
#include "store.h"

#include "checkpoint.h"
#include "checkpoint_due.h"
#include "checkpoint_policy.h"
#include "wal_records.h"
#include "declare.h"
#include "export.h"
#include "image.h"
#include "import.h"
#include "info.h"
#include "reshard.h"
#include "restore.h"
#include "store_go_back.h"
#include "job.h"
#include "job_turn.h"
#include "jobs.h"
#include "wal_replay.h"
#include "kick.h"
#include "membership.h"
#include "mutant.h"
#include "overdue.h"
#include "override_command.h"
#include "push.h"
#include "ranks.h"
#include "readout.h"
#include "settling.h"
#include "store_state.h"
#include "work.h"
#include "worker_states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static int check_config(const pd_store_config *config, pd_error *err)
{
    if (config->chunk_elements == 0 || config->chunk_elements % 16 != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "chunk_elements: expected a positive multiple of 16, got %llu",
                       (unsigned long long)config->chunk_elements);
    if (config->threads < 1)
        return pd_fail(err, PD_INVALID_ARGUMENT, "threads: expected at least 1, got %d", config->threads);
    if (!(config->batch_ns > 0))
        return pd_fail(err, PD_INVALID_ARGUMENT, "batch_ns: expected more than 0, got %g", config->batch_ns);
    return PD_OK;
}

static int read_presets(pd_job_values *presets, const pd_store_config *config, pd_error *err)
{
    int rc = PD_OK;

    pd_job_values_init(presets);
    for (size_t i = 0; i < config->n_job_presets && rc == PD_OK; i++)
        rc = pd_job_values_set(presets, config->job_presets[i].name, config->job_presets[i].value, err);
    return rc;
}

int pd_store_new(pd_store **out, const pd_store_config *config, pd_error *err)
{
    pd_store *store;
    pd_job_values presets;
    int rc = check_config(config, err);

    if (rc != PD_OK || (rc = read_presets(&presets, config, err)) != PD_OK) return rc;
    if ((store = calloc(1, sizeof *store)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the training state");
    store->config = *config;
    if (config->rows == NULL) store->config.rows = pd_optimizer_table;
    store->presets = presets;
    store->budget =
        (pd_budget){ .limit = config->max_total_bytes, .whose = "all jobs", .key = "limits.max_total_bytes" };
    pd_store_relief(store, false);
    store->ingest.limit = config->ingest_bytes;
    store->publishing = (pd_publishing){ .every_ns = config->stats_ns, .wanted = true };
    store->jobs.hash_key[0] = config->hash_key[0];
    store->jobs.hash_key[1] = config->hash_key[1];
    memcpy(store->owners.hash_key, config->hash_key, sizeof store->owners.hash_key);
    store->owners.ingest_bytes = config->ingest_bytes;
    *out = store;
    return PD_OK;
}

static void free_effects(pd_store *store)
{
    for (pd_effect *effect = pd_effects_take(&store->outbox), *next; effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        if (effect->kind == PD_EFF_CLOSED)
            for (size_t i = 0; i < effect->u.closed.n; i++) pd_published_unref(effect->u.closed.at[i].published);
        if (effect->kind == PD_EFF_WRITE_CHECKPOINT) pd_checkpoint_image_drop_weights(effect->u.checkpoint_image);
        if (effect->kind == PD_EFF_WRITE_CHECKPOINT) pd_checkpoint_image_free(effect->u.checkpoint_image);
        if (effect->kind == PD_EFF_GO_BACK) pd_go_back_order_free(effect->u.go_back_order);
        if (effect->kind == PD_EFF_WAL) pd_wal_record_drop(effect->u.wal);
        pd_effect_free(effect);
    }
}

void pd_store_free(pd_store *store)
{
    pd_error err;

    if (store == NULL) return;
    pd_fail(&err, PD_UNAVAILABLE, "the server stops");
    pd_store_end_all(store, &err);
    pd_store_go_back_end(store, &err);
    /* No job is left here, because the caller has returned all preconditioner tasks. */
    assert(store->jobs.numbers == NULL);
    pd_jobs_free_ended(&store->jobs);
    pd_drain_free(&store->drain);
    free_effects(store);
    pd_sums_free(&store->sums);
    pd_collect_batch_free(&store->collecting);
    pd_roles_free(store->roles);
    free(store);
}

pd_effect *pd_store_effects(pd_store *store)
{
    return pd_effects_take(&store->outbox);
}

/* Computes the next deadline of a job that may have changed, and stores it. */
static void note_deadline(pd_store *store, pd_job *job)
{
    uint64_t at = pd_job_next_tick(job), checkpoint = pd_checkpoint_next_tick(job);

    pd_deadlines_set(&store->deadlines, job, checkpoint < at ? checkpoint : at);
}

/* Queues a job if it has work, and stores its next deadline. */
static void queue_unchanged(pd_store *store, pd_job *job, uint64_t now_ns)
{
    note_deadline(store, job);
    if (job->due.queued || !(pd_job_has_work(job, now_ns) || pd_checkpoint_has_work(job))) return;
    DL_APPEND2(store->due, job, due.prev, due.next);
    job->due.queued = true;
}

/* Returns the number of the batch in which the identity that owns the job last had its turn. A job without an owner
 * counts as an identity of its own. */
static uint64_t party_turn(const pd_job *job)
{
    return job->owner != NULL ? pd_owner_turn(job->owner) : job->due.turn;
}

/* Returns the queued job that works next: of the identities that have work, it takes the one whose last turn was
 * longest ago, and of this identity's jobs the one whose last turn was longest ago. So an identity gets no more turns
 * by having more jobs. NULL: no job has work. */
static pd_job *next_due(const pd_store *store)
{
    pd_job *job, *next = store->due;

    DL_FOREACH2(store->due, job, due.next)
    if (party_turn(job) < party_turn(next) || (party_turn(job) == party_turn(next) && job->due.turn < next->due.turn))
        next = job;
    return next;
}

/* Queues a job that a request or a batch of work may have changed, if it has work. First answers the workers that wait
 * for a tally which was made. While the server drains, begins the job's last checkpoint if nothing prevents it any
 * more. Then begins a waiting export if nothing prevents it: a checkpoint that is due goes first. */
static void queue(pd_store *store, pd_job *job, uint64_t now_ns)
{
    pd_settling_look(job, now_ns);
    if (store->drain.draining) pd_checkpoint_look(job, now_ns);
    pd_export_go_on(job, now_ns);
    pd_publishing_note(&store->publishing, job);
    queue_unchanged(store, job, now_ns);
}

/* Makes all jobs check again for ranks over quota, if reserves have grown or a connection is blocked for lack of
 * memory. Either can put ranks of any job over quota. */
static void look_again(pd_store *store, uint64_t now_ns)
{
    pd_job *job, *next;

    if (!store->ingest.grown) return;
    store->ingest.grown = false;
    if (PD_MUTANT(stale_look)) return;
    HASH_ITER(hh, store->jobs.names, job, next)
    {
        job->steps.chunks.look = true;
        queue_unchanged(store, job, now_ns);
    }
}

/* While the server drains: begins the last checkpoints of all jobs, once their rounds have ended. A checkpoint that
 * cannot begin now begins later (queue). */
static void begin_last_checkpoints(pd_store *store, uint64_t now_ns)
{
    pd_job *job, *next;

    if (!pd_drain_keep(&store->drain, &store->jobs, now_ns)) return;
    HASH_ITER(hh, store->jobs.names, job, next)
    {
        pd_checkpoint_look(job, now_ns);
        queue_unchanged(store, job, now_ns);
    }
}

/* Does what may be necessary after any request, batch or deadline: looks for ranks over quota, publishes the figures of
 * jobs; while the server drains, begins last checkpoints and answers the drain requests. */
static void settle(pd_store *store, uint64_t now_ns)
{
    pd_store_go_back_look(store, now_ns);
    look_again(store, now_ns);
    if (store->drain.draining) begin_last_checkpoints(store, now_ns);
    pd_drain_answer(&store->drain, &store->jobs, &store->outbox, now_ns);
    pd_publishing_look(&store->publishing, &store->jobs, &store->outbox, now_ns);
}

static void hello(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_store_hello(store, request, now_ns);

    if (job == NULL) return;
    pd_wal_look_decisions(job); /* a rank that had left may be back */
    queue(store, job, now_ns);
}

static void drop(pd_store *store, pd_request *request)
{
    const char *name = request->u.info.job_name;
    pd_job *job = pd_jobs_find(&store->jobs, name);
    pd_error err;

    pd_fail(&err, PD_ABORTED, "an operator has dropped the job");
    /* The daemon stops, and drops all jobs. */
    if (name == NULL || name[0] == '\0') {
        pd_fail(&err, PD_UNAVAILABLE, "the server stops");
        pd_store_end_all(store, &err);
        pd_store_go_back_end(store, &err);
    } else if (job != NULL) {
        pd_store_end(store, job, &err);
    } else {
        if (pd_store_go_back_check(store, name, &err) == PD_OK)
            pd_fail(&err, PD_NOT_FOUND, "there is no job %.200s", name);
        pd_request_refuse(&store->outbox, request, &err);
        return;
    }
    pd_answer_ok(&store->outbox, request);
    pd_request_free(request);
}

/* Takes published versions back that the loop thread has released, and returns their buffers to their pools. A
 * published version knows its pools, since its parameter may be freed already. */
static void released(pd_request *request)
{
    pd_published *next;

    for (pd_published *published = request->u.released.first; published != NULL; published = next) {
        next = published->next_released;
        pd_published_returned(published);
    }
    pd_request_free(request);
}

/* Handles the notice that the loop thread has forgotten a job. The job may still wait for its preconditioner tasks. */
static void forgotten(pd_store *store, pd_request *request)
{
    const pd_job *job = pd_jobs_numbered(&store->jobs, request->job);
    pd_unread *held = job != NULL ? job->steps.unread : pd_unread_find(&store->budget, request->job);

    if (held != NULL) pd_unread_forgotten(held);
    pd_request_free(request);
}

/* Passes a request for weights to evaluate with to its job. If the job has ended, the loop thread hears so, and nobody
 * waits for the answer. */
static void read_out(pd_store *store, pd_request *request)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, request->job);

    if (job == NULL || job->gone || request->u.read_out.param >= job->steps.n_params)
        pd_request_free(request);
    else
        pd_readout_take(&job->steps, request, pd_import_writes(job));
}

static void task(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, request->job);

    /* The job exists, because it is freed only after its last preconditioner task has returned. */
    assert(job != NULL && request->u.task.param < job->steps.n_params);
    pd_checkpoint_task(job, request->u.task.param, request->u.task.task);
    pd_steps_task(&job->steps, &job->steps.params[request->u.task.param], request->u.task.task, job->gone);
    pd_request_free(request);
    if (job->gone) {
        pd_jobs_free_gone(&store->jobs, job);
        return;
    }
    pd_export_look(job, now_ns);
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

/* Takes a checkpoint back from the checkpoint writer. */
static void checkpoint_written(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, request->u.checkpoint_image->number);

    if (job != NULL && job->gone) job = NULL;
    pd_checkpoint_done(job, &store->outbox, request, now_ns);
    if (job != NULL) queue(store, job, now_ns);
}

/* Returns the job that an operator's request names. If there is none, refuses the request and returns NULL. */
static pd_job *find_named(pd_store *store, pd_request *request, const char *name)
{
    pd_job *job = pd_jobs_find(&store->jobs, name);
    pd_error err;

    if (job != NULL) return job;
    if (pd_store_go_back_check(store, name, &err) == PD_OK) pd_fail(&err, PD_NOT_FOUND, "there is no job %.200s", name);
    pd_request_refuse(&store->outbox, request, &err);
    return NULL;
}

/* Takes a record of a job's WAL back from the WAL thread. */
static void logged(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, request->u.wal->number);

    if (pd_store_wal_dropped(store, request, now_ns)) return;
    if (job != NULL && job->gone) job = NULL;
    pd_wal_returned(job, request);
    if (job == NULL) return;
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

/* Takes an order to go back from the checkpoint writer. If it has failed, the job continues, and begins the checkpoint
 * that may be due. */
static void went_back(pd_store *store, pd_request *request, uint64_t now_ns)
{
    uint32_t number = request->u.go_back_order->number;
    pd_job *job;

    pd_store_went_back(store, request, now_ns);
    job = pd_jobs_numbered(&store->jobs, number);
    if (job == NULL || job->gone) return;
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

/* Takes from the mirror thread up to which step the mirror has a job. */
static void mirrored(pd_store *store, pd_request *request)
{
    pd_job *job = pd_jobs_find(&store->jobs, request->u.mirrored.job_name);

    if (job == NULL || job->saved.creator != request->u.mirrored.creator) {
        pd_request_free(request);
        return;
    }
    job->checkpointing.mirrored_step = request->u.mirrored.step;
    pd_publishing_note(&store->publishing, job);
    pd_checkpoint_policy_answer(job, request);
}

/* Takes an operator's command that sets hyperparameters. */
static void set(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_jobs_find(&store->jobs, request->u.set.job_name);

    pd_job_set(job, &store->outbox, store->drain.draining, request, now_ns);
    if (job == NULL) return;
    pd_wal_look_decisions(job);
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

/* Takes a request for a checkpoint from an operator, who names the job. */
static void checkpoint(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = find_named(store, request, request->u.checkpoint.job_name);

    if (job == NULL) return;
    pd_checkpoint_ask(job, request, now_ns);
    queue(store, job, now_ns);
}

static void import(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = find_named(store, request, request->u.import.job_name);

    if (job == NULL) return;
    pd_store_relief(store, true);
    pd_job_import(job, request, now_ns);
    pd_store_relief(store, false);
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

static void export(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = find_named(store, request, request->u.export.job_name);

    if (job == NULL) return;
    pd_store_relief(store, true);
    pd_job_export(job, request, now_ns);
    pd_store_relief(store, false);
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
}

/* Removes a rank from a job, as an operator has asked. */
static void kick(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = find_named(store, request, request->u.kick.job_name);
    pd_error err;

    if (job == NULL) return;
    if (!pd_job_kick(job, request, now_ns, &err)) {
        pd_store_fail(store, job, &err);
        return;
    }
    pd_checkpoint_look(job, now_ns);
    pd_overdue_look(job);
    queue(store, job, now_ns);
}

/* Ends exports that an operator began on a connection which is lost now. */
static void operator_lost(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job, *next;

    HASH_ITER(hh, store->jobs.names, job, next)
    {
        pd_export_lost(job, request);
        pd_checkpoint_look(job, now_ns);
        queue(store, job, now_ns);
    }
    pd_request_free(request);
}

/* Notes that an operator's connection, on which an import comes, is blocked for lack of ingest memory. The operator has
 * no rank and so no quota: the import continues when the whole ingest budget has room. */
static void operator_stalled(pd_store *store, pd_request *request)
{
    if (store->ingest.held > 0) store->ingest.exhausted = true;
    store->ingest.grown = true;
    pd_request_free(request);
}

static void to_job(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, request->job);
    pd_error err;

    if (request->kind == PD_REQ_STALLED && request->job == 0) {
        operator_stalled(store, request);
        return;
    }
    if (request->kind == PD_REQ_LOST && request->job == 0) {
        operator_lost(store, request, now_ns);
        return;
    }
    if (job == NULL || job->gone) {
        pd_fail(&err, PD_ABORTED, "this job has ended: say Hello again");
        pd_request_refuse(&store->outbox, request, &err);
        return;
    }
    pd_store_relief(store, true);
    switch (request->kind) {
    case PD_REQ_DECLARE: pd_job_declare(job, request, now_ns); break;
    case PD_REQ_INIT: pd_job_init(job, request, now_ns); break;
    case PD_REQ_PUSH: pd_job_push(job, request, now_ns); break;
    case PD_REQ_BARRIER: pd_job_barrier(job, request); break;
    case PD_REQ_LEAVE:
        pd_rank_leave(job, request, now_ns);
        pd_wal_look_decisions(job);
        break;
    case PD_REQ_STALLED: pd_job_stalled(job, request); break;
    case PD_REQ_SHARE: pd_job_share(job, request); break;
    case PD_REQ_WORKER_STATE: pd_worker_states_take(job, request); break;
    case PD_REQ_GET_WORKER_STATE: pd_worker_states_answer(job, request); break;
    case PD_REQ_SETTLE: pd_job_settle(job, request); break;
    case PD_REQ_CHECKPOINT: pd_checkpoint_ask(job, request, now_ns); break;
    default: assert(request->kind == PD_REQ_LOST); pd_rank_lost(job, request, now_ns);
    }
    pd_store_relief(store, false);
    if (!pd_members_look(job, now_ns, &err)) {
        pd_store_fail(store, job, &err);
        return;
    }
    if (pd_job_is_over(job)) pd_checkpoint_look(job, now_ns);
    pd_overdue_look(job);
    queue(store, job, now_ns);
}

/* Sets new limits. Jobs that exceed them stay, but get no more memory. */
static void limit(pd_store *store, pd_request *request)
{
    store->config.max_jobs = request->u.limits.max_jobs;
    store->config.max_total_bytes = store->budget.limit = request->u.limits.max_total_bytes;
    pd_request_free(request);
}

/* Takes new roles. Jobs that exceed new quotas stay, but get no more memory. */
static void take_roles(pd_store *store, pd_request *request)
{
    pd_roles_free(store->roles);
    store->roles = request->u.roles;
    request->u.roles = NULL;
    pd_owners_limit(&store->owners, store->roles);
    pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    pd_request_free(request);
}

bool pd_store_apply_some(pd_store *store, pd_request *request, double budget_ns, uint64_t now_ns)
{
    switch (request->kind) {
    case PD_REQ_HELLO: hello(store, request, now_ns); break;
    case PD_REQ_INFO:
        if (!pd_info_answer_some(&store->jobs, store->roles, &store->outbox, store->drain.draining, request, &budget_ns,
                                 now_ns))
            return false;
        break;
    case PD_REQ_DROP: drop(store, request); break;
    case PD_REQ_KICK: kick(store, request, now_ns); break;
    case PD_REQ_SET: set(store, request, now_ns); break;
    case PD_REQ_DRAIN: pd_drain_take(&store->drain, &store->jobs, &store->outbox, request, now_ns); break;
    case PD_REQ_IMPORT: import(store, request, now_ns); break;
    case PD_REQ_EXPORT: export(store, request, now_ns); break;
    case PD_REQ_RELEASED: released(request); break;
    case PD_REQ_FORGOTTEN: forgotten(store, request); break;
    case PD_REQ_READ_OUT: read_out(store, request); break;
    case PD_REQ_LIMITS: limit(store, request); break;
    case PD_REQ_ROLES: take_roles(store, request); break;
    case PD_REQ_TASK: task(store, request, now_ns); break;
    case PD_REQ_CHECKPOINT_WRITTEN: checkpoint_written(store, request, now_ns); break;
    case PD_REQ_WAL: logged(store, request, now_ns); break;
    case PD_REQ_GO_BACK: pd_store_go_back(store, request, now_ns); break;
    case PD_REQ_WENT_BACK: went_back(store, request, now_ns); break;
    case PD_REQ_MIRRORED: mirrored(store, request); break;
    case PD_REQ_CHECKPOINT:
        if (request->u.checkpoint.job_name != NULL)
            checkpoint(store, request, now_ns);
        else
            to_job(store, request, now_ns);
        break;
    default: to_job(store, request, now_ns); break;
    }
    settle(store, now_ns);
    return true;
}

void pd_store_apply(pd_store *store, pd_request *request, uint64_t now_ns)
{
    while (!pd_store_apply_some(store, request, store->config.batch_ns, now_ns)) continue;
}

bool pd_store_work(pd_store *store, uint64_t now_ns)
{
    pd_job *job = next_due(store);

    pd_jobs_free_some(&store->jobs);
    if (pd_store_go_back_has_work(store)) {
        pd_store_go_back_work(store, now_ns);
        settle(store, now_ns);
    }
    if (job == NULL) return pd_store_has_work(store);
    pd_store_unqueue(store, job);
    job->due.turn = ++store->turns;
    if (job->owner != NULL) pd_owner_set_turn(job->owner, job->due.turn);
    if (pd_checkpoint_has_work(job)) pd_checkpoint_work(job, now_ns);
    pd_store_relief(store, true);
    if (pd_job_has_work(job, now_ns)) pd_job_work(job, now_ns);
    pd_store_relief(store, false);
    pd_wal_look(job);
    pd_checkpoint_look(job, now_ns);
    queue(store, job, now_ns);
    settle(store, now_ns);
    return pd_store_has_work(store);
}

bool pd_store_has_work(const pd_store *store)
{
    return store->due != NULL || store->jobs.ended != NULL || pd_store_go_back_has_work(store);
}

/* Does the work of a job's deadlines that have passed, which may end the job. */
static void tick(pd_store *store, pd_job *job, uint64_t now_ns)
{
    pd_error err;

    switch (pd_job_tick(job, now_ns, &err)) {
    case PD_JOB_STAYS:
        pd_checkpoint_tick(job, now_ns);
        pd_export_go_on(job, now_ns);
        queue_unchanged(store, job, now_ns);
        break;
    case PD_JOB_ENDS: pd_store_end(store, job, &err); break;
    case PD_JOB_FAILS: pd_store_fail(store, job, &err); break;
    }
}

void pd_store_tick(pd_store *store, uint64_t now_ns)
{
    pd_job *job, *next;

    if (store->unknown) {
        store->unknown = false;
        HASH_ITER(hh, store->jobs.names, job, next) note_deadline(store, job);
    }
    /* A job may be due again at once, so the loop handles at most as many deadlines as there are jobs. */
    for (uint32_t n = store->jobs.n; n > 0 && store->deadlines != NULL && store->deadlines->deadline.at_ns <= now_ns;
         n--)
        tick(store, store->deadlines, now_ns);
    pd_store_go_back_tick(store, now_ns);
    settle(store, now_ns);
}

size_t pd_store_count_losing(const pd_store *store)
{
    const pd_job *job, *next;
    size_t n = 0;

    HASH_ITER(hh, store->jobs.names, job, next) n += pd_checkpoint_policy_loses(job);
    return n;
}

uint64_t pd_store_next_tick(const pd_store *store)
{
    uint64_t at = pd_drain_next_tick(&store->drain), jobs = UINT64_MAX;

    if (pd_publishing_next(&store->publishing) < at) at = pd_publishing_next(&store->publishing);
    if (pd_store_go_back_next(store) < at) at = pd_store_go_back_next(store);
    if (store->deadlines != NULL) jobs = store->deadlines->deadline.at_ns;
    if (store->unknown) jobs = 0;
    return jobs < at ? jobs : at;
}

int pd_store_save_job(pd_store *store, const char *name, uint8_t **image, size_t *n, pd_error *err)
{
    pd_job *job = pd_jobs_find(&store->jobs, name);

    if (job == NULL) return pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", name);
    if (!pd_image_is_possible(job))
        return pd_fail(err, PD_UNAVAILABLE,
                       "job %.200s cannot be saved now: a step or a preconditioner task is under way", name);
    return pd_image_write(job, image, n, err);
}

int pd_store_load_job(pd_store *store, const uint8_t *image, size_t n, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    pd_store_forget_deadlines(store);
    rc = pd_image_read(&store->jobs, &env, image, n, now_ns, err);
    if (rc == PD_OK) pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    return rc;
}

int pd_store_restore(pd_store *store, const pd_checkpoint_image *kept, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    pd_store_forget_deadlines(store);
    rc = pd_restore(&store->jobs, &env, kept, now_ns, err);
    if (rc == PD_OK) pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    return rc;
}

int pd_store_replay(pd_store *store, const pd_wal_record *record, uint64_t now_ns, bool *unchanged, pd_error *err)
{
    pd_store_forget_deadlines(store);
    return pd_wal_replay(&store->jobs, record, now_ns, unchanged, err);
}

int pd_store_reshard(pd_reshard **out, pd_store *store, const pd_reshard_source *sources, uint32_t n, uint32_t shards,
                     pd_error *err)
{
    const pd_job_env env = pd_store_env(store);

    return pd_reshard_new(out, &store->jobs, &env, sources, n, shards, err);
}

pd_store_bytes pd_store_count_bytes(const pd_store *store)
{
    pd_store_bytes bytes = { .held = store->ingest.held };
    const pd_job *job, *next;

    HASH_ITER(hh_number, store->jobs.numbers, job, next)
    {
        for (uint32_t i = 0; i < job->steps.n_params; i++) {
            const pd_param *param = &job->steps.params[i];
            if (param->current != NULL) bytes.weights += (uint64_t)param->elements * sizeof(float);
            if (param->buffers.accumulator != NULL) bytes.accumulators += (uint64_t)param->elements * sizeof(float);
            bytes.state += (uint64_t)pd_optim_state_bytes(param->optim);
        }
    }
    bytes.published_list = store->pools.used + store->pools.idle - bytes.weights - bytes.accumulators;
    return bytes;
}
