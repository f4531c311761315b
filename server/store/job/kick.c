/* kick.c - removes a rank from a job at an operator's request, and keeps its process out. */
#include "kick.h"

#include "membership.h"
#include "mutant.h"
#include "ranks.h"

#include <stdio.h>

int pd_kick_admits(const pd_job *job, const pd_request *hello, pd_error *err)
{
    for (uint32_t i = 0; i < job->saved.n_kicked && i < PD_KICKED; i++)
        if (job->saved.kicked[i] == hello->u.hello.nonce && !PD_MUTANT(kicked_comes_back))
            return pd_fail(err, PD_ABORTED,
                           "an operator has removed this process from job %.100s: it stays out, start a new one",
                           job->steps.name);
    return PD_OK;
}

/* Checks that there is something to remove. */
static int check(const pd_job *job, uint32_t rank, pd_error *err)
{
    if (rank >= job->steps.members.ranks)
        return pd_fail(err, PD_NOT_FOUND, "job %.100s has ranks 0 to %u, not %u", job->steps.name,
                       job->steps.members.ranks - 1, rank);
    if (job->ranks[rank].state != PD_RANK_ABSENT) return PD_OK;
    if (job->steps.sets.on_lost == PD_LOST_SHRINK && pd_is_member(job, rank)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION, "rank %u of job %.100s has no worker that could be removed", rank,
                   job->steps.name);
}

/* Ends the connection of the rank, and keeps its process out. */
static void shut_out(pd_job *job, uint32_t number, const char *by, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[number];
    char reason[96];
    pd_error err;

    if (rank->state == PD_RANK_ABSENT) return;
    job->saved.kicked[job->saved.n_kicked++ % PD_KICKED] = rank->saved.nonce;
    snprintf(reason, sizeof reason, "removed by %.70s", by);
    pd_fail(&err, PD_ABORTED, "rank %u of job %.100s was %s: this process stays out", number, job->steps.name, reason);
    pd_rank_send_away(job, number, &err, reason, now_ns);
}

bool pd_job_kick(pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    uint32_t rank = request->u.kick.rank;
    const char *by = request->u.kick.by != NULL ? request->u.kick.by : "an operator";
    char why[96];

    if (check(job, rank, err) != PD_OK) {
        pd_request_refuse(job->steps.outbox, request, err);
        return true;
    }
    snprintf(why, sizeof why, "was removed by %.70s", by);
    pd_fail(err, PD_ABORTED,
            "job %.100s has ended (on_lost_worker = fail): rank %u (%.60s) %s. Its checkpoints stay, and are restored "
            "when the server starts again",
            job->steps.name, rank, job->ranks[rank].label, why);
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .rank = &rank }, "%s %s",
           job->ranks[rank].label, why);
    shut_out(job, rank, by, now_ns);
    if (job->steps.sets.on_lost == PD_LOST_SHRINK) pd_member_remove(job, rank, why, now_ns);
    pd_members_tell(job, now_ns);
    pd_answer_ok(job->steps.outbox, request);
    pd_request_free(request);
    return job->steps.sets.on_lost != PD_LOST_FAIL;
}
