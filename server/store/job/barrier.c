/* barrier.c - lets workers wait for each other: a barrier is passed when every rank has come to it. */
#include "barrier.h"

#include "mutant.h"
#include "ranks.h"

static void pass_barrier(pd_job *job)
{
    job->saved.barrier++;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        pd_answer_ok(job->steps.outbox, job->ranks[r].barrier);
        pd_request_free(job->ranks[r].barrier);
        job->ranks[r].barrier = NULL;
    }
}

/* Answers those ranks that wait at a barrier which the job has passed already. */
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

/* Raises the number of barriers that the job has passed. A process whose base was guessed has passed as many as it has
 * reported, so its base rises, too. */
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
        rank->barrier_guessed = job->restored && passed > 0;
        return;
    }
    if (!job->restored || rank->barrier_guessed) return;
    passed += rank->saved.barrier_base;
    if (passed > job->saved.barrier && passed - job->saved.barrier < INT64_MAX) raise(job, passed);
}

static bool all_at_barrier(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (job->ranks[r].barrier == NULL) return false;
    return true;
}

void pd_barriers_refuse(pd_job *job, const pd_error *err)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (job->ranks[r].barrier != NULL) pd_request_refuse(job->steps.outbox, job->ranks[r].barrier, err);
        job->ranks[r].barrier = NULL;
    }
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
        /* The job has passed this barrier already: the worker has missed the answer, and has sent its request again. */
        pd_answer_ok(job->steps.outbox, request);
        pd_request_free(request);
    } else if (rank->barrier != NULL && rank->barrier->ticket.conn == request->ticket.conn) {
        pd_fail(&err, PD_FAILED_PRECONDITION,
                "rank %u of job %.100s waits at barrier %llu already: send the next one "
                "when this is answered",
                request->rank, job->steps.name, (unsigned long long)sequence);
        pd_request_refuse(job->steps.outbox, request, &err);
    } else {
        pd_request_free(rank->barrier);
        rank->barrier = request;
        if (all_at_barrier(job)) pass_barrier(job);
    }
}
