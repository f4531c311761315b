/* ranks.c - tracks which process has a rank: a process joins, is lost, leaves, or is superseded by another process that
 * takes over the rank. Also lets ranks wait for each other at barriers. */
#include "ranks.h"

#include "checkpoint_policy.h"
#include "fragment.h"
#include "job.h"
#include "job_course.h"
#include "mutant.h"
#include "pending_sets.h"
#include "text.h"
#include "reserves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Notifies the connection that had the rank before that another connection has taken it over. Takes ownership of the
 * Hello of the new connection; the Hello's memory becomes the notice, so that this works when out of memory. */
static void fence(pd_job *job, pd_request *hello, uint64_t old_conn, const char *old_label, bool same_process)
{
    pd_rank *rank = &job->ranks[hello->rank];
    uint32_t number = hello->rank;
    pd_effect *effect = pd_request_become(hello, PD_EFF_FENCED, (pd_ticket){ old_conn, 0 }, job->steps.number);

    pd_fail(&effect->u.error, PD_ABORTED,
            same_process ? "rank %u of job %.100s: this process (%.100s) has a newer connection"
                         : "rank %u of job %.100s was taken over by another process, %.100s",
            number, job->steps.name, rank->label);
    pd_effects_add(job->steps.outbox, effect);
    if (!same_process)
        pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .rank = &number },
               "%s takes over from %s, which was still connected", rank->label, old_label);
}

static void note_seen(pd_fragment *fragment, const pd_request *hello, bool same)
{
    pd_fragment_rank *rank = &fragment->ranks[hello->rank];
    uint64_t steps = pd_hello_steps(hello, fragment->declared);

    if (!same || steps > rank->seen) rank->seen = steps;
}

static void welcome(pd_job *job, pd_request *hello, bool created, uint32_t linger_ms)
{
    uint64_t course = hello->u.hello.course;
    pd_effect *effect = pd_answer(hello, PD_EFF_HELLO);

    effect->job = job->steps.number;
    effect->u.hello.seed = job->steps.values.at[PD_JOB_KEY_SEED];
    effect->u.hello.created = created;
    effect->u.hello.rank = hello->rank;
    effect->u.hello.creator = job->saved.creator;
    effect->u.hello.cluster = job->saved.cluster;
    effect->u.hello.life = job->life;
    effect->u.hello.step = pd_fragments_told(&job->steps);
    effect->u.hello.course = effect->u.hello.greeted = pd_course_now(job);
    if (pd_course_is_known(job, course)) effect->u.hello.greeted = course;
    effect->u.hello.linger_ms = linger_ms;
    effect->u.hello.rank = hello->rank;
    effect->u.hello.slots = job->steps.members.ranks;
    effect->u.hello.epoch = job->steps.epoch;
    effect->u.hello.generation = job->saved.generation;
    pd_effects_add(job->steps.outbox, effect);
}

static bool is_another(const char *identity, const char *other)
{
    return identity != NULL && other != NULL && strcmp(identity, other) != 0;
}

/* Checks that a Hello does not take the rank from another identity: that it does not use the nonce of the other
 * identity's process, which somebody may have learned, and, if `guarded`, does not replace a connected worker.
 * PD_PERMISSION_DENIED. */
static int check_identity(const pd_job *job, const pd_request *hello, bool guarded, pd_error *err)
{
    const pd_rank *rank = &job->ranks[hello->rank];
    bool same = rank->state != PD_RANK_ABSENT && rank->saved.nonce == hello->u.hello.nonce;

    if (!is_another(hello->u.hello.identity, rank->identity)) return PD_OK;
    if (!same && !(guarded && rank->state == PD_RANK_CONNECTED)) return PD_OK;
    return pd_fail(err, PD_PERMISSION_DENIED,
                   same ? "rank %u of job %.100s belongs to a process of another identity, this Hello comes from %.200s"
                        : "rank %u of job %.100s has a worker of another identity: %.200s may take it over when that "
                          "worker is gone",
                   hello->rank, job->steps.name, hello->u.hello.identity);
}

/* Returns whether another process has superseded the one that sends the Hello. A restored job may not know that it had
 * the rank after the checkpoint: it was welcomed before the restart then, and the process that has the rank was not. */
static bool is_superseded(const pd_job *job, const pd_rank *rank, const pd_request *hello)
{
    uint64_t nonce = hello->u.hello.nonce;

    if (rank->saved.nonce == nonce) return false;
    for (uint32_t i = 0; i < rank->saved.n_superseded && i < PD_SUPERSEDED; i++)
        if (rank->saved.superseded[i] == nonce && !PD_MUTANT(zombie_takes_rank)) return true;
    return rank->fresh && hello->u.hello.rejoins && hello->u.hello.creator == job->saved.creator &&
           !hello->u.hello.any_rank;
}

int pd_rank_admits(const pd_job *job, const pd_request *hello, bool guarded, pd_error *err)
{
    const pd_rank *rank = &job->ranks[hello->rank];

    if (check_identity(job, hello, guarded, err) != PD_OK) return PD_PERMISSION_DENIED;
    /* A process drops its connection before it makes another one, but the server may read its Hellos in any order. */
    if (rank->state == PD_RANK_CONNECTED && rank->saved.nonce == hello->u.hello.nonce &&
        hello->ticket.conn < rank->conn)
        return pd_fail(err, PD_ABORTED, "rank %u of job %.100s: this process (%.100s) has a newer connection",
                       hello->rank, job->steps.name, rank->label);
    if (!is_superseded(job, rank, hello)) return PD_OK;
    return pd_fail(err, PD_ABORTED,
                   "rank %u of job %.100s was taken over by another process, %.100s: this one stays out", hello->rank,
                   job->steps.name, rank->label);
}

/* Lets the next record of decisions say whether the rank has left. Returns false if no decisions are recorded. */
static bool record(pd_job *job, pd_rank *rank)
{
    if (!pd_wal_records_decisions(job) || PD_MUTANT(leave_unrecorded)) return false;
    job->checkpointing.decisions.ranks += !rank->news;
    rank->news = true;
    return true;
}

void pd_rank_returns(pd_job *job, pd_rank *rank)
{
    if (rank->state != PD_RANK_LEFT) return;
    rank->state = PD_RANK_LOST;
    rank->saved.left = false;
    job->left--;
    record(job, rank);
}

/* Marks ranks that have left for good as lost if the Hello belongs to the job's run. A new process of this run takes an
 * earlier one's place, so the run was started again (torchrun --max-restarts), and the ranks that have left will
 * return, too. Until then nobody is told that they have left for good. */
static void expect_back(pd_job *job, const pd_request *hello, uint64_t now_ns)
{
    const char *run = hello->u.hello.run;

    if (job->run == NULL || run == NULL || strcmp(job->run, run) != 0) return;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_rank *rank = &job->ranks[r];
        if (rank->state != PD_RANK_LEFT || !pd_is_member(job, r)) continue;
        pd_rank_returns(job, rank);
        rank->since_ns = now_ns;
        snprintf(rank->reason, sizeof rank->reason, "left before its launch was started again");
    }
}

/* Stores the group that the process has named. */
static void take_group(pd_rank *rank, const pd_request *hello, bool same)
{
    if (!same || rank->saved.grouped != hello->u.hello.grouped || rank->saved.group != hello->u.hello.group)
        rank->saved.mates = 0;
    rank->saved.grouped = hello->u.hello.grouped;
    rank->saved.group = hello->u.hello.grouped ? hello->u.hello.group : 0;
}

bool pd_rank_join(pd_job *job, pd_request *hello, bool created, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[hello->rank], old = *rank;
    bool same = old.state != PD_RANK_ABSENT && old.saved.nonce == hello->u.hello.nonce;
    bool member = pd_is_member(job, hello->rank);
    uint32_t linger_ms = pd_linger_ms(job, now_ns);

    if (job->connected == 0) job->timers.awake_ns = now_ns;
    job->connected += old.state != PD_RANK_CONNECTED;
    pd_rank_returns(job, rank);
    job->saved.over = false;
    job->checkpointing.says_over = false;
    job->restart.joined = true;
    rank->state = PD_RANK_CONNECTED;
    if (PD_MUTANT(joiner_before_declared) && job->steps.n_fragments > 0 && !member) {
        pd_fragments_join(&job->steps, hello->rank, hello->rank);
        job->steps.epoch++;
    }
    if (!same && old.state != PD_RANK_ABSENT && member) expect_back(job, hello, now_ns);
    rank->conn = hello->ticket.conn;
    rank->saved.nonce = hello->u.hello.nonce;
    pd_text_print(rank->label, sizeof rank->label, hello->u.hello.label != NULL ? hello->u.hello.label : "");
    free(rank->identity);
    rank->identity = hello->u.hello.identity;
    hello->u.hello.identity = NULL;
    pd_rank_quota(job, rank)->declared = false;
    rank->early.step = 0; /* the process has read the error, or sends the push again before the end of the step */
    if (!same && old.state != PD_RANK_ABSENT && old.saved.nonce != 0)
        rank->saved.superseded[rank->saved.n_superseded++ % PD_SUPERSEDED] = old.saved.nonce;
    take_group(rank, hello, same);
    if (!same) {
        rank->fresh = job->restart.restored && !hello->u.hello.rejoins;
        rank->saved.process++;
        rank->saved.present = true;
        pd_request_free(rank->barrier);
        pd_request_free(rank->asks_tally);
        pd_request_free(rank->brings_verdict);
        rank->barrier = rank->asks_tally = rank->brings_verdict = NULL;
        rank->refused_sets = 0;
        pd_fragments_restart(&job->steps, hello->rank);
    }
    rank->window = hello->u.hello.window;
    /* A process that has gone back to an earlier step reports a lower number when it reconnects: the highest number
     * counts. */
    if (!same || hello->u.hello.steps > rank->seen) rank->seen = hello->u.hello.steps;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) note_seen(&job->steps.fragments[f], hello, same);
    pd_checkpoint_policy_plan(job);
    job->timers.linger_ns = 0;
    welcome(job, hello, created, linger_ms);
    if (old.state == PD_RANK_CONNECTED && old.conn != rank->conn) {
        fence(job, hello, old.conn, old.label, same);
        return same;
    }
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .rank = &hello->rank },
           "%s %s (%u of %u connected)", rank->label,
           same                          ? "is back"
           : old.state == PD_RANK_ABSENT ? "joined"
                                         : "takes over",
           job->connected, job->steps.members.ranks);
    pd_request_free(hello);
    return same;
}

void pd_rank_supersede(pd_rank_saved *rank, const pd_rank_saved *old)
{
    memcpy(rank->superseded, old->superseded, sizeof rank->superseded);
    rank->n_superseded = old->n_superseded;
    if (old->present) rank->superseded[rank->n_superseded++ % PD_SUPERSEDED] = old->nonce;
}

pd_rank *pd_rank_speaker(pd_job *job, const pd_request *request, pd_error *err)
{
    pd_rank *rank = request->rank < job->steps.members.ranks ? &job->ranks[request->rank] : NULL;

    if (rank == NULL) {
        pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s has ranks 0 to %u, this is rank %u", job->steps.name,
                job->steps.members.ranks - 1, request->rank);
    } else if (rank->conn != request->ticket.conn) {
        pd_fail(err, PD_ABORTED, "rank %u of job %.100s belongs to another process now, %.100s", request->rank,
                job->steps.name, rank->label);
        rank = NULL;
    } else if (rank->state != PD_RANK_CONNECTED) {
        pd_fail(err, PD_ABORTED, "rank %u of job %.100s has left or was given up: say Hello again", request->rank,
                job->steps.name);
        rank = NULL;
    }
    return rank;
}

static bool all_have_left(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_is_member(job, r) && job->ranks[r].state != PD_RANK_LEFT) return false;
    return true;
}

/* Marks a rank as lost or left. If no rank of the job is connected any more, the job begins to linger. A job without
 * parameters ends at once: it has no state worth keeping, and a worker that was refused may return with other
 * options. */
static void gone(pd_job *job, pd_rank *rank, pd_rank_state state, uint64_t now_ns)
{
    job->connected--;
    rank->state = state;
    rank->saved.left = state == PD_RANK_LEFT;
    job->left += rank->saved.left;
    job->saved.over = state == PD_RANK_LEFT && job->connected == 0 && all_have_left(job);
    if (pd_job_is_over(job)) job->timers.over_ns = now_ns;
    pd_checkpoint_policy_plan(job);
    rank->since_ns = now_ns;
    pd_rank_quota(job, rank)->declared = false;
    pd_reserves_gone(job, (uint32_t)(rank - job->ranks), now_ns);
    pd_fragments_wake(&job->steps);
    if (job->connected > 0) return;
    job->timers.linger_ns = now_ns + (job->steps.n_params > 0 ? job->steps.values.at[PD_JOB_KEY_JOB_LINGER] : 0);
}

void pd_rank_send_away(pd_job *job, uint32_t number, const pd_error *err, const char *reason, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[number];
    pd_effect *effect = rank->state == PD_RANK_CONNECTED
                            ? pd_effect_new(PD_EFF_FENCED, (pd_ticket){ rank->conn, 0 }, job->steps.number)
                            : NULL;

    if (effect != NULL) {
        effect->u.error = *err;
        pd_effects_add(job->steps.outbox, effect);
    }
    if (rank->state == PD_RANK_CONNECTED) gone(job, rank, PD_RANK_LOST, now_ns);
    pd_text_print(rank->reason, sizeof rank->reason, reason);
}

void pd_rank_lost(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_rank *rank = pd_rank_speaker(job, request, NULL);

    /* NULL: another connection has taken the rank over, or the worker has left, so that nothing is lost. */
    if (rank != NULL) {
        gone(job, rank, PD_RANK_LOST, now_ns);
        pd_text_print(rank->reason, sizeof rank->reason, request->u.lost.reason);
        pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .rank = &request->rank },
               "%s is lost: %s", rank->label, rank->reason);
        pd_barriers_look(job);
    }
    pd_request_free(request);
}

void pd_rank_stalled(pd_job *job, pd_request *request)
{
    pd_rank *rank = pd_rank_speaker(job, request, NULL);

    if (rank != NULL) {
        pd_quota *quota = pd_rank_quota(job, rank);
        quota->stalled = quota->held > 0;
        job->steps.ingest->exhausted = job->steps.ingest->exhausted || request->u.stalled.budget;
        job->steps.ingest->grown = true;
    }
    pd_request_free(request);
}

void pd_rank_leave(pd_job *job, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_rank *rank = pd_rank_speaker(job, request, &err);

    if (rank == NULL) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    gone(job, rank, PD_RANK_LEFT, now_ns);
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name, .rank = &request->rank },
           "%s has left", rank->label);
    pd_sets_answer(job, request, record(job, rank), now_ns);
    pd_barriers_look(job);
}

void pd_rank_restore(pd_job *job, uint32_t number, bool left)
{
    pd_rank *rank = &job->ranks[number];

    if (left == (rank->state == PD_RANK_LEFT)) return;
    rank->state = left ? PD_RANK_LEFT : PD_RANK_LOST;
    rank->saved.present = true;
    rank->saved.left = left;
    job->left += left ? 1u : -1u;
    job->saved.over = left && all_have_left(job);
}

static void pass_barrier(pd_job *job)
{
    job->saved.barrier++;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (job->ranks[r].barrier == NULL) continue;
        pd_answer_ok(job->steps.outbox, job->ranks[r].barrier);
        pd_request_free(job->ranks[r].barrier);
        job->ranks[r].barrier = NULL;
    }
}

/* Answers ranks that wait at a barrier which the job has passed already. */
static void answer_passed(pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_rank *rank = &job->ranks[r];
        if (rank->barrier == NULL || rank->barrier->u.barrier.sequence > job->saved.barrier - rank->saved.barrier_base)
            continue;
        pd_answer_ok(job->steps.outbox, rank->barrier);
        pd_request_free(rank->barrier);
        rank->barrier = NULL;
    }
}

/* Raises the number of barriers that the job has passed to `passed`. If a process's base was guessed, the number of
 * barriers that it has passed itself is right, so its base rises by the same number. */
static void raise(pd_job *job, uint64_t passed)
{
    uint64_t more = passed - job->saved.barrier;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (job->ranks[r].barrier_guessed) job->ranks[r].saved.barrier_base += more;
    job->saved.barrier = passed;
    answer_passed(job);
}

void pd_barrier_joined(pd_job *job, pd_rank *rank, uint64_t passed, bool same)
{
    if (!same) {
        rank->saved.barrier_base = PD_MUTANT(barriers_of_others) ? 0 : job->saved.barrier - passed;
        rank->barrier_guessed = job->restart.restored && passed > 0;
        return;
    }
    if (!job->restart.restored || rank->barrier_guessed) return;
    passed += rank->saved.barrier_base;
    if (passed > job->saved.barrier && passed - job->saved.barrier < INT64_MAX) raise(job, passed);
}

/* Returns whether the barrier waits for the rank: for members; before there are any, for connected workers. */
static bool is_awaited(const pd_job *job, uint32_t r)
{
    if (PD_MUTANT(barrier_counts_removed) && job->ranks[r].state != PD_RANK_ABSENT) return true;
    return job->steps.members.n > 0 ? pd_is_member(job, r) : job->ranks[r].state == PD_RANK_CONNECTED;
}

static bool all_at_barrier(const pd_job *job)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (job->ranks[r].barrier == NULL && is_awaited(job, r)) return false;
        n += job->ranks[r].barrier != NULL;
    }
    /* When workers have left and nobody is a member, none are to come: those that are here are all. */
    return n > 0 && (job->steps.members.n > 0 || job->left > 0 || n >= job->steps.sets.least);
}

void pd_barriers_look(pd_job *job)
{
    if (all_at_barrier(job)) pass_barrier(job);
}

static void refuse_barrier(pd_job *job, uint32_t r, const pd_error *err)
{
    if (job->ranks[r].barrier != NULL) pd_request_refuse(job->steps.outbox, job->ranks[r].barrier, err);
    job->ranks[r].barrier = NULL;
}

void pd_barrier_forget(pd_job *job, uint32_t rank)
{
    pd_error err;

    pd_fail(&err, PD_ABORTED, "rank %u of job %.100s was removed while it waited at a barrier", rank, job->steps.name);
    refuse_barrier(job, rank, &err);
}

void pd_barriers_refuse(pd_job *job, const pd_error *err)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) refuse_barrier(job, r, err);
}

void pd_job_barrier(pd_job *job, pd_request *request)
{
    uint64_t sequence = request->u.barrier.sequence, passed;
    pd_error err;
    pd_rank *rank = pd_rank_speaker(job, request, &err);

    if (rank == NULL) {
        pd_request_refuse(job->steps.outbox, request, &err);
        return;
    }
    /* number of barriers that the job has passed since this process took the rank */
    passed = job->saved.barrier - rank->saved.barrier_base;
    if (sequence == 0 || sequence > passed + 1) {
        pd_fail(&err, PD_FAILED_PRECONDITION, "rank %u of job %.100s comes to barrier %llu, but its next one is %llu",
                request->rank, job->steps.name, (unsigned long long)sequence, (unsigned long long)passed + 1);
        pd_request_refuse(job->steps.outbox, request, &err);
    } else if (sequence <= passed) {
        /* The job has passed this barrier already: the worker did not receive the answer, and has sent its request
         * again. */
        pd_answer_ok(job->steps.outbox, request);
        pd_request_free(request);
    } else if (rank->barrier != NULL && rank->barrier->ticket.conn == request->ticket.conn) {
        pd_fail(&err, PD_FAILED_PRECONDITION,
                "rank %u of job %.100s waits at barrier %llu already: send the next one when this is answered",
                request->rank, job->steps.name, (unsigned long long)sequence);
        pd_request_refuse(job->steps.outbox, request, &err);
    } else {
        pd_request_free(rank->barrier);
        rank->barrier = request;
        if (all_at_barrier(job)) pass_barrier(job);
    }
}
