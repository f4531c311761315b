/* generation.c - ends the connections of the workers of an earlier launch, and keeps these processes out. */
#include "generation.h"

#include "membership.h"
#include "mutant.h"
#include "ranks.h"
#include "settling.h"

#include <inttypes.h>

bool pd_generation_is_later(const pd_job *job, const pd_request *hello)
{
    return hello->u.hello.generation > job->saved.generation;
}

int pd_generation_check(const pd_job *job, const pd_request *hello, pd_error *err)
{
    if (hello->u.hello.generation == 0 || hello->u.hello.generation >= job->saved.generation) return PD_OK;
    if (PD_MUTANT(old_generation_pushes)) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "job %.100s was formed again as generation %" PRIu64 ", and this worker is of generation %" PRIu64
                   ": it stays out",
                   job->steps.name, job->saved.generation, hello->u.hello.generation);
}

/* Ends the connection of a rank. Its process cannot come back, and the rank has not left: a new one will take it. */
static void end_process(pd_job *job, uint32_t r, const pd_error *err, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[r];

    if (rank->state == PD_RANK_ABSENT) return;
    pd_rank_returns(job, rank);
    pd_rank_send_away(job, r, err, "its launch was formed again", now_ns);
    rank->since_ns = now_ns;
    if (rank->saved.nonce != 0) rank->saved.superseded[rank->saved.n_superseded++ % PD_SUPERSEDED] = rank->saved.nonce;
    rank->saved.nonce = 0;
}

void pd_generation_rise(pd_job *job, const pd_request *hello, uint64_t now_ns)
{
    pd_error err;

    pd_fail(&err, PD_ABORTED,
            "job %.100s was formed again as generation %" PRIu64 ": the processes of generation %" PRIu64 " stay out",
            job->steps.name, hello->u.hello.generation, job->saved.generation);
    pd_say(job->steps.outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name },
           "formed again as generation %" PRIu64, hello->u.hello.generation);
    pd_barriers_refuse(job, &err);
    pd_settling_refuse(job, &err);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) end_process(job, r, &err, now_ns);
    job->saved.generation = hello->u.hello.generation;
    job->saved.over = false;
    pd_members_renew(job, hello->u.hello.world_size, hello->u.hello.any_rank);
}

bool pd_generation_has_gone(const pd_job *job, uint64_t now_ns)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        const pd_rank *rank = &job->ranks[r];
        if (rank->state == PD_RANK_CONNECTED) return false;
        if (rank->state != PD_RANK_ABSENT && now_ns - rank->since_ns <= job->steps.sets.reconnect_grace_ns)
            return false;
    }
    return true;
}
