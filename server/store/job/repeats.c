/* repeats.c - finds sets of ranks that cannot be repeated after a restart, and lets the job take another course. */
#include "repeats.h"

#include "checkpoint_policy.h"
#include "fragment.h"
#include "job_course.h"
#include "mutant.h"
#include "ranks.h"
#include "wal.h"

#include <inttypes.h>

/* Returns whether sets of the job can have been seen that must be repeated now. */
static bool applies(const pd_job *job)
{
    return job->restart.restored && job->steps.sets.open && job->steps.wal != NULL && !job->steps.withheld.logged;
}

/* Returns whether each rank that may have seen a step has said Hello. */
static bool all_back(const pd_job *job)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (!job->ranks[r].repeats.back && job->ranks[r].state != PD_RANK_LEFT) return false;
    return true;
}

/* Lets it be looked whether sets can be fixed, and whether ranks get leases that have declared meanwhile. */
static void wake(pd_job *job)
{
    pd_fragments_wake(&job->steps);
    job->steps.fragments[0].look = true;
}

/* Lets sets be fixed by the job's rule from the first step on that no worker has seen. */
static void stop_waiting(pd_job *job)
{
    job->steps.repeats.awaits = false;
    wake(job);
}

void pd_repeats_begin(pd_job *job, uint64_t now_ns)
{
    job->restart.since_ns = now_ns;
    if (!applies(job)) return;
    job->steps.repeats = (pd_set_repeats){ .awaits = true };
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        job->steps.fragments[f].seen = job->steps.fragments[f].anew = 0;
}

/* Tells the loop thread of the course. Without memory it learns it from the next effect that brings the course. */
static void tell(pd_job *job)
{
    pd_effect *effect = pd_job_effect(job, PD_EFF_MEMBERS);

    if (effect == NULL) return;
    effect->u.members.epoch = job->steps.epoch;
    effect->u.members.course = job->saved.course;
    pd_withheld_send(&job->steps.withheld, job->steps.outbox, effect);
}

/* Makes the job take another course from the next step on: without the decisions that were read back. A checkpoint
 * of it comes soon, and until then no worker sees a step of it. */
static void change_course(pd_job *job)
{
    pd_wal_forget_course(&job->steps);
    if (!PD_MUTANT(course_unchanged)) job->saved.course++;
    job->steps.repeats.changed = true;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) job->steps.fragments[f].seen = 0;
    job->checkpointing.decisions.moved = "steps take another course than before the restart";
    job->checkpointing.changes++;
    pd_checkpoint_policy_now(job);
    pd_withheld_course(&job->steps.withheld, job->steps.place + 1);
    tell(job);
    wake(job);
}

void pd_repeats_leave(pd_job *job, uint64_t course)
{
    if (!job->steps.sets.open) return;
    job->saved.course = course;
    job->steps.repeats.changed = true;
    stop_waiting(job);
}

/* Notes what a worker has seen of a fragment. Returns whether it has seen a step that was taken otherwise since: its
 * Hello is the first one after the restart (`first`). */
static bool note_seen(const pd_job *job, pd_fragment *fragment, const pd_request *hello, bool first)
{
    pd_fragment_rank *rank = &fragment->ranks[hello->rank];
    uint64_t steps = pd_hello_steps(hello, fragment->declared);

    if (steps <= rank->seen_before) return false;
    rank->seen_before = steps;
    if (job->steps.repeats.changed) return false;
    if (first && fragment->anew > 0 && steps >= fragment->anew) return true;
    if (steps > fragment->seen) fragment->seen = steps;
    return false;
}

static void say_too_late(const pd_job *job, uint32_t rank, const pd_fragment *fragment)
{
    pd_say(job->steps.outbox, PD_SAY_WARNING,
           (pd_log_facts){ .job = job->steps.name, .rank = &rank, .step = &fragment->anew },
           "comes back after other ranks have counted in step %" PRIu64 " than it has seen before the restart: it goes "
           "back to the job's step (reconnect_grace says how long the job waits)",
           fragment->anew);
}

void pd_repeats_joins(pd_job *job, const pd_request *hello, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[hello->rank];
    bool first = !rank->repeats.back, differs = false;

    if (!applies(job)) {
        if (job->steps.sets.open && job->restart.restored && !pd_course_is_known(job, hello->u.hello.course))
            pd_fragments_restart(&job->steps, hello->rank);
        return;
    }
    rank->repeats.back = true;
    rank->repeats.back_ns = now_ns;
    if (rank->saved.nonce != hello->u.hello.nonce) rank->repeats.replaced = true;
    for (uint32_t f = 0; rank->saved.nonce != hello->u.hello.nonce && f < job->steps.n_fragments; f++)
        job->steps.fragments[f].ranks[hello->rank].seen_before = 0;
    /* It goes back, and pushes anew: what it has sent again must not count. */
    if (!pd_course_is_known(job, hello->u.hello.course)) {
        pd_fragments_restart(&job->steps, hello->rank);
        return;
    }
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) {
        if (!note_seen(job, &job->steps.fragments[f], hello, first)) continue;
        if (!differs) say_too_late(job, hello->rank, &job->steps.fragments[f]);
        differs = true;
    }
    if (differs) change_course(job);
}

/* ---- sets that cannot be repeated ---- */

/* Returns the time from which on a rank that is not connected counts as gone for good. */
static uint64_t lost_at(const pd_job *job, const pd_rank *rank)
{
    uint64_t since = rank->since_ns > job->restart.since_ns ? rank->since_ns : job->restart.since_ns;

    if (rank->state == PD_RANK_LEFT) return 0;
    return since + job->steps.sets.reconnect_grace_ns;
}

/* Returns the time since which the rank's worker can have sent a push for the fragment's next step: all connections are
 * new since the restart, and the step before may have been taken since. */
static uint64_t collected_since(const pd_rank *rank, const pd_fragment *fragment)
{
    uint64_t since = rank->repeats.back_ns;

    if (fragment->fixed_ns > since) since = fragment->fixed_ns;
    return fragment->opened_ns > since ? fragment->opened_ns : since;
}

/* Returns the time from which on a connected rank that is not whole in the fragment's next step cannot send what has
 * counted in it: it has seen the step and keeps its pushes, so it would send the one that counted at once and whole,
 * and sends nothing more. So it is if the push of age `age` came and was refused. UINT64_MAX: the rank may still
 * compute its push. */
static uint64_t silent_at(const pd_job *job, const pd_rank *rank, const pd_fragment *fragment,
                          const pd_fragment_rank *given, uint64_t age)
{
    bool refused = given->late > 0 && given->late + age > fragment->fixed;
    uint64_t since = collected_since(rank, fragment);

    if (!refused && (rank->window == 0 || given->seen <= fragment->fixed)) return UINT64_MAX;
    if (given->step > 0 && given->came_ns > since) since = given->came_ns;
    return since + job->steps.sets.reconnect_grace_ns;
}

/* Returns the time from which on the rank's contribution of age `age` to the next step of the fragment cannot come any
 * more; 0: it cannot now; UINT64_MAX: it has come, or may come at any time. */
static uint64_t gone_at(const pd_job *job, const pd_fragment *fragment, uint32_t r, uint64_t age)
{
    const pd_rank *rank = &job->ranks[r];
    const pd_fragment_rank *given = &fragment->ranks[r];
    uint64_t step = fragment->fixed + 1;

    if (pd_fragment_is_whole(fragment, r)) return given->step + age != step ? 0 : UINT64_MAX;
    if (rank->state != PD_RANK_CONNECTED) return lost_at(job, rank);
    /* The process that has contributed had seen the step before. */
    if (rank->repeats.replaced && given->seen_before + 1 + age < step) return 0;
    return silent_at(job, rank, fragment, given, age);
}

/* Returns whether the set of the fragment's next step must be that of before the restart. *set becomes its decision;
 * NULL: all ranks count, with contributions to this step. */
static bool must_repeat(const pd_job *job, const pd_fragment *fragment, const pd_counted **set)
{
    if (fragment->n_closed < fragment->n_params) return false;
    *set = pd_wal_recorded_set(&job->steps, fragment, fragment->fixed + 1);
    return *set != NULL || fragment->fixed < fragment->seen;
}

/* Finds a rank without which the set of the fragment's next step cannot be repeated. Returns the number of ranks if
 * there is none, or if parameters still take the step before. */
static uint32_t find_gone(const pd_job *job, const pd_fragment *fragment, uint64_t now_ns)
{
    const pd_counted *set;

    if (!must_repeat(job, fragment, &set)) return job->steps.members.ranks;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (pd_counted_has(set, r) && now_ns >= gone_at(job, fragment, r, pd_counted_age(set, r))) return r;
    return job->steps.members.ranks;
}

/* Returns whether the rank's worker has seen steps that the job takes again. */
static bool has_seen_more(const pd_job *job, uint32_t r)
{
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        if (job->steps.fragments[f].ranks[r].seen_before > job->steps.fragments[f].fixed) return true;
    return false;
}

/* Ends the connections of the workers that have seen steps which the job takes again, from step `step` on. */
static void send_back(pd_job *job, uint64_t step, uint64_t now_ns)
{
    pd_error why;

    pd_fail(&why, PD_UNAVAILABLE, "job %.100s takes another course from step %" PRIu64 " on: say Hello again",
            job->steps.name, step);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (has_seen_more(job, r) && job->ranks[r].state == PD_RANK_CONNECTED)
            pd_rank_send_away(job, r, &why, "it goes back to an earlier step", now_ns);
}

static void say_gone(const pd_job *job, uint32_t rank, uint64_t step)
{
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name, .rank = &rank, .step = &step },
           "has counted in step %" PRIu64 " before the restart and does not come back to it (reconnect_grace): the job "
           "takes another course from this step on, and workers that have seen it go back",
           step);
}

static void leave_course(pd_job *job, const pd_fragment *fragment, uint32_t rank, uint64_t now_ns)
{
    uint64_t step = fragment->fixed + 1;

    send_back(job, step, now_ns);
    say_gone(job, rank, step);
    for (uint32_t f = 0; f < job->steps.n_fragments; f++)
        for (uint32_t r = 0; r < job->steps.members.ranks; r++) job->steps.fragments[f].ranks[r].seen_before = 0;
    change_course(job);
    stop_waiting(job);
}

void pd_repeats_look(pd_job *job, uint64_t now_ns)
{
    if (!applies(job) || job->gone || job->steps.n_params == 0) return;
    if (job->steps.repeats.awaits &&
        (all_back(job) || now_ns >= job->restart.since_ns + job->steps.sets.reconnect_grace_ns))
        stop_waiting(job);
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) {
        uint32_t rank = find_gone(job, &job->steps.fragments[f], now_ns);
        if (rank < job->steps.members.ranks) leave_course(job, &job->steps.fragments[f], rank, now_ns);
    }
}

/* Returns the time at which the set of the fragment's next step cannot be repeated any more; UINT64_MAX: at none. */
static uint64_t fragment_next(const pd_job *job, const pd_fragment *fragment)
{
    uint64_t at = UINT64_MAX, gone;
    const pd_counted *set;

    if (!must_repeat(job, fragment, &set)) return at;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (!pd_counted_has(set, r)) continue;
        gone = gone_at(job, fragment, r, pd_counted_age(set, r));
        if (gone < at) at = gone;
    }
    return at;
}

uint64_t pd_repeats_next(const pd_job *job)
{
    uint64_t at = UINT64_MAX;

    if (!applies(job) || job->gone || job->steps.n_params == 0) return UINT64_MAX;
    if (job->steps.repeats.awaits) at = job->restart.since_ns + job->steps.sets.reconnect_grace_ns;
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) {
        uint64_t next = fragment_next(job, &job->steps.fragments[f]);
        if (next < at) at = next;
    }
    return at;
}
