#include "plant.h"
#include "listing.h"
#include "training.h"

#include "printable.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static int read_values(pd_job_values *out, const pd_job_values *presets, const pd_request *hello, pd_error *err)
{
    pd_error why;

    *out = *presets;
    for (size_t i = 0; i < hello->u.hello.n_options; i++) {
        const pd_option *option = &hello->u.hello.options[i];
        if (pd_job_values_set(out, option->name, option->value, &why) != PD_OK)
            return pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s: option %.380s", hello->u.hello.job_name, why.text);
    }
    return PD_OK;
}

int pd_job_new(pd_job **out, pd_store *store, const pd_request *hello, pd_error *err)
{
    static const pd_ticket nobody;
    pd_job *job = calloc(1, sizeof *job);
    int rc;

    if (job == NULL) goto no_memory;
    job->store = store;
    job->number = store->last_number + 1;
    job->world = hello->u.hello.world_size;
    job->creator = hello->u.hello.nonce;
    job->drain_step = UINT64_MAX;
    if ((rc = read_values(&job->values, &store->presets, hello, err)) != PD_OK) goto fail;
    if ((rc = pd_aggregate_fits(&job->values, job->world, err)) != PD_OK) goto fail;
    if ((rc = pd_rules_of_job(&job->rules, &job->n_rules, hello->u.hello.rules, hello->u.hello.n_rules, store->config.rows,
                              err)) != PD_OK) goto fail;
    if ((job->name = strdup(hello->u.hello.job_name)) == NULL ||
        (job->ranks = calloc(job->world, sizeof *job->ranks)) == NULL ||
        (job->gone_notice = pd_effect_new(PD_EFF_JOB_GONE, nobody, job->number)) == NULL ||
        (job->notice = pd_effect_new(PD_EFF_TIMED_OUT, nobody, job->number)) == NULL) goto no_memory;
    *out = job;
    return PD_OK;

no_memory:
    rc = pd_fail(err, PD_NO_MEMORY, "out of memory for job %.100s", hello->u.hello.job_name);
fail:
    pd_job_free(job);
    return rc;
}

void pd_job_free(pd_job *job)
{
    if (job == NULL) return;
    pd_job_forget_set(job);
    pd_listing_free(job->listing);
    free(job->ranks);
    pd_rules_free(job->rules, job->n_rules);
    free(job->name);
    pd_effect_free(job->gone_notice);
    pd_effect_free(job->notice);
    free(job);
}

/* ---- the same job? ---- */

static bool says_start_step(const pd_request *hello)
{
    for (size_t i = 0; i < hello->u.hello.n_options; i++)
        if (strcmp(hello->u.hello.options[i].name, pd_job_keys[PD_JOB_KEY_START_STEP].name) == 0) return true;
    return false;
}

/* Returns whether the worker accepts the job's own start_step instead of naming one. Only rank 0 knew the step when it started
 * the job anew: so those who rejoin accept it, and those who name no step and find a job with weights. */
static bool takes_start_step(const pd_job *job, const pd_request *hello)
{
    bool has_begun = job->n_params > 0 && job->params[0].current != NULL;

    return hello->u.hello.rejoins || (has_begun && !says_start_step(hello));
}

static int values_agree(const pd_job *job, const pd_job_values *theirs, bool any_start, pd_error *err)
{
    char ours_text[32], theirs_text[32];

    for (int k = 0; k < PD_JOB_KEYS; k++) {
        if (job->values.at[k] == theirs->at[k] || (k == PD_JOB_KEY_START_STEP && any_start)) continue;
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has %s = %s, this worker comes with %s: give every rank the same options",
                       job->name, pd_job_keys[k].name,
                       pd_job_values_text(&job->values, (enum pd_job_key_index)k, ours_text, sizeof ours_text),
                       pd_job_values_text(theirs, (enum pd_job_key_index)k, theirs_text, sizeof theirs_text));
    }
    return PD_OK;
}

static int rules_agree(const pd_job *job, const pd_rule *theirs, size_t n, pd_error *err)
{
    if (n != job->n_rules)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has %zu optimizer rules, this worker comes with %zu: give every rank "
                       "the same", job->name, job->n_rules - 1, n - 1);
    for (size_t i = 0; i < n; i++)
        if (strcmp(job->rules[i].text, theirs[i].text) != 0)
            return pd_fail(err, PD_FAILED_PRECONDITION, "job %.60s: optimizer rule %zu is \"%.160s\", this worker comes with \"%.160s\"",
                           job->name, i, job->rules[i].text, theirs[i].text);
    return PD_OK;
}

int pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err)
{
    pd_job_values theirs;
    pd_rule *rules;
    size_t n;
    int rc;

    if (hello->u.hello.world_size != job->world)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has world_size = %u, this worker comes with %u", job->name, job->world,
                       hello->u.hello.world_size);
    if ((rc = read_values(&theirs, &job->store->presets, hello, err)) != PD_OK) return rc;
    if ((rc = values_agree(job, &theirs, takes_start_step(job, hello), err)) != PD_OK) return rc;
    if ((rc = pd_rules_of_job(&rules, &n, hello->u.hello.rules, hello->u.hello.n_rules, job->store->config.rows, err)) != PD_OK) return rc;
    rc = rules_agree(job, rules, n, err);
    pd_rules_free(rules, n);
    return rc;
}

/* ---- membership ---- */

/* Tells the connection that had the rank. Takes the Hello: its memory is the message. */
static void fence(pd_job *job, pd_request *hello, uint64_t old_conn, const char *old_label, bool same_process)
{
    pd_rank *rank = &job->ranks[hello->rank];
    uint32_t number = hello->rank;
    pd_effect *effect = pd_request_become(hello, PD_EFF_FENCED, (pd_ticket){ old_conn, 0 }, job->number);

    pd_fail(&effect->u.error, PD_ABORTED, same_process ? "rank %u of job %.100s: this process (%.100s) has a newer connection"
                                                       : "rank %u of job %.100s was taken over by another process, %.100s",
            number, job->name, rank->label);
    pd_effects_add(&job->store->outbox, effect);
    if (!same_process)
        pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: rank %u: %s takes over from %s, which was still connected", job->name, number,
               rank->label, old_label);
}

static void welcome(pd_job *job, pd_request *hello, bool created)
{
    pd_effect *effect = pd_answer(hello, PD_EFF_HELLO);

    effect->job = job->number;
    effect->u.hello.seed = job->values.at[PD_JOB_KEY_SEED];
    effect->u.hello.created = created;
    effect->u.hello.creator = job->creator;
    pd_effects_add(&job->store->outbox, effect);
}

int pd_job_admits(const pd_job *job, const pd_request *hello, pd_error *err)
{
    const pd_rank *rank = &job->ranks[hello->rank];

    for (uint32_t i = 0; i < rank->n_superseded && i < PD_SUPERSEDED; i++)
        if (rank->superseded[i] == hello->u.hello.nonce && rank->nonce != hello->u.hello.nonce && !PD_PLANTED(zombie_takes_rank))
            return pd_fail(err, PD_ABORTED, "rank %u of job %.100s was taken over by another process, %.100s: this one stays out", hello->rank, job->name, rank->label);
    return PD_OK;
}

void pd_job_join(pd_job *job, pd_request *hello, bool created)
{
    pd_rank *rank = &job->ranks[hello->rank], old = *rank;
    bool same = old.state != PD_RANK_ABSENT && old.nonce == hello->u.hello.nonce;

    job->connected += old.state != PD_RANK_CONNECTED;
    rank->state = PD_RANK_CONNECTED;
    rank->conn = hello->ticket.conn;
    rank->nonce = hello->u.hello.nonce;
    pd_text_print(rank->label, sizeof rank->label, hello->u.hello.label != NULL ? hello->u.hello.label : "");
    rank->declared = false;
    if (!same && old.state != PD_RANK_ABSENT) rank->superseded[rank->n_superseded++ % PD_SUPERSEDED] = old.nonce;
    if (!same) {                                /* it counts its own barriers, and has been at none */
        rank->process++;
        rank->barrier_base = job->barrier;
        pd_request_free(rank->barrier);
        rank->barrier = NULL;
        rank->refused_sets = 0;
    }
    job->linger_ns = 0;
    welcome(job, hello, created);
    if (old.state == PD_RANK_CONNECTED && old.conn != rank->conn) {
        fence(job, hello, old.conn, old.label, same);
        return;
    }
    pd_say(&job->store->outbox, PD_SAY_INFO, "job %s: rank %u: %s %s (%u of %u connected)", job->name, hello->rank, rank->label,
           same ? "is back" : old.state == PD_RANK_ABSENT ? "joined" : "takes over", job->connected, job->world);
    pd_request_free(hello);
}

pd_rank *pd_job_speaker(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_rank *rank = request->rank < job->world ? &job->ranks[request->rank] : NULL;

    if (rank == NULL) {
        pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s has ranks 0 to %u, this is rank %u", job->name, job->world - 1, request->rank);
    } else if (rank->conn != request->ticket.conn) {
        pd_fail(err, PD_ABORTED, "rank %u of job %.100s belongs to another process now, %.100s", request->rank, job->name, rank->label);
        rank = NULL;
    } else if (rank->state != PD_RANK_CONNECTED) {
        pd_fail(err, PD_ABORTED, "rank %u of job %.100s has left or was given up: say Hello again", request->rank, job->name);
        rank = NULL;
    }
    return rank;
}

/* The rank was connected. A job without parameters has nothing to keep: who was refused comes again with other options. */
static void gone(pd_job *job, pd_rank *rank, pd_rank_state state, uint64_t now_ns)
{
    job->connected--;
    rank->state = state;
    rank->since_ns = now_ns;
    rank->declared = false;
    if (state == PD_RANK_LEFT) pd_reserve_release(job, rank);
    if (job->connected > 0) return;
    pd_reserve_release_all(job);
    job->linger_ns = now_ns + (job->n_params > 0 ? job->values.at[PD_JOB_KEY_JOB_LINGER] : 0);
}

void pd_job_lost(pd_job *job, const pd_request *request, uint64_t now_ns)
{
    pd_rank *rank = pd_job_speaker(job, request, NULL);

    if (rank == NULL) return;                   /* of a connection that was superseded, or of a worker that has left */
    gone(job, rank, PD_RANK_LOST, now_ns);
    pd_text_print(rank->reason, sizeof rank->reason, request->u.lost.reason);
    pd_say(&job->store->outbox, PD_SAY_WARNING, "job %s: rank %u: %s is lost: %s", job->name, request->rank, rank->label, rank->reason);
}

void pd_job_stalled(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_rank *rank = pd_job_speaker(job, request, NULL);

    if (rank != NULL) {
        rank->stalled = rank->held > 0;
        job->store->short_of_budget = job->store->short_of_budget || request->u.stalled.budget;
        pd_store_look_again(job->store, now_ns);
    }
    pd_request_free(request);
}

void pd_job_leave(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_job_speaker(job, request, &err);

    if (rank == NULL) {
        pd_store_refuse(job->store, request, &err);
        return;
    }
    gone(job, rank, PD_RANK_LEFT, now_ns);
    pd_say(&job->store->outbox, PD_SAY_INFO, "job %s: rank %u: %s has left", job->name, request->rank, rank->label);
    pd_answer_ok(&job->store->outbox, request);
    pd_request_free(request);
}

/* ---- barrier ---- */

static void pass_barrier(pd_job *job)
{
    job->barrier++;
    for (uint32_t r = 0; r < job->world; r++) {
        pd_answer_ok(&job->store->outbox, job->ranks[r].barrier);
        pd_request_free(job->ranks[r].barrier);
        job->ranks[r].barrier = NULL;
    }
}

static bool all_at_barrier(const pd_job *job)
{
    for (uint32_t r = 0; r < job->world; r++)
        if (job->ranks[r].barrier == NULL) return false;
    return true;
}

void pd_job_barrier(pd_job *job, pd_request *request)
{
    uint64_t sequence = request->u.barrier.sequence, passed;
    pd_error err;
    pd_rank *rank = pd_job_speaker(job, request, &err);

    if (rank == NULL) {
        pd_store_refuse(job->store, request, &err);
        return;
    }
    passed = job->barrier - rank->barrier_base;                 /* since this process came */
    if (sequence == 0 || sequence > passed + 1) {
        pd_fail(&err, PD_FAILED_PRECONDITION, "rank %u of job %.100s comes to barrier %llu, but its next one is %llu", request->rank,
                job->name,
                (unsigned long long)sequence, (unsigned long long)passed + 1);
        pd_store_refuse(job->store, request, &err);
    } else if (sequence <= passed) {
        pd_answer_ok(&job->store->outbox, request);             /* sent again: all have been there */
        pd_request_free(request);
    } else if (rank->barrier != NULL && rank->barrier->ticket.conn == request->ticket.conn) {
        pd_fail(&err, PD_FAILED_PRECONDITION, "rank %u of job %.100s waits at barrier %llu already: send the next one when this is "
                "answered", request->rank, job->name, (unsigned long long)sequence);
        pd_store_refuse(job->store, request, &err);
    } else {
        pd_request_free(rank->barrier);
        rank->barrier = request;
        if (all_at_barrier(job)) pass_barrier(job);
    }
}
