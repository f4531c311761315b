/* drain.c - before a server stops: rounds under way are finished, no new ones begin. */
#include "training.h"

#include "global_clip.h"
#include "step_group.h"

/* ---- what is waited for ---- */

/* All contributions to the open round have come: it closes without anybody's help. */
static bool closes_by_itself(const pd_param *param) { return param->round.open && param->round.missing == 0 && param->stage != PD_HELD; }

/* Returns a parameter whose open round can still close, the oldest that misses somebody where a worker is connected. NULL: there is none. A round
 * that misses somebody of a job without connected workers is not waited for. */
static const pd_param *find_open(const pd_job *job)
{
    bool somebody = job->linger_ns == 0;

    if (job->n_open == 0) return NULL;
    if (job->waiting != NULL && (somebody || pd_global_clip_runs(job))) return job->waiting;
    for (uint32_t i = 0; i < job->n_params; i++)
        if (closes_by_itself(&job->params[i])) return &job->params[i];
    return NULL;
}

/* Returns a job that draining waits for, or NULL. */
static const pd_job *find_open_job(const pd_store *store)
{
    const pd_job *job, *next;

    HASH_ITER(hh, store->names, job, next)
        if (job->inbox != NULL || find_open(job) != NULL) return job;
    return NULL;
}

/* ---- answers ---- */

/* What the deadline found open. */
static void describe(const pd_job *job, pd_error *err)
{
    const pd_param *open = find_open(job), *late = open != NULL && open->stage == PD_HELD ? pd_param_awaited(job, open) : open;
    char what[48], ranks[160];

    if (late == NULL) {
        pd_fail(err, PD_DEADLINE_EXCEEDED, "not drained: pushes of job %.100s are still being looked at", job->name);
        return;
    }
    pd_round_text(late, what, sizeof what);
    pd_round_missing(&late->round, ranks, sizeof ranks);
    if (late->round.missing == 0)
        pd_fail(err, PD_DEADLINE_EXCEEDED, "not drained: job %.100s: %s of %.160s is still under way", job->name, what, late->name);
    else
        pd_fail(err, PD_DEADLINE_EXCEEDED, "not drained: job %.100s: %s of %.160s still misses %s%s; contributions that came stand, drain again to go on waiting",
                job->name, what, late->name, late->round.open ? "rank " : "every rank", ranks);
}

static void answer(pd_store *store, pd_request *request, const pd_job *open)
{
    pd_error err;

    if (open == NULL) {
        pd_answer_ok(&store->outbox, request);
    } else {
        describe(open, &err);
        pd_answer_error(&store->outbox, request, &err);
    }
    pd_request_free(request);
}

void pd_store_answer_drain(pd_store *store, uint64_t now_ns)
{
    const pd_job *open = store->drain != NULL ? find_open_job(store) : NULL;
    pd_request **link = &store->drain;

    while (*link != NULL) {
        pd_request *request = *link;
        if (open != NULL && now_ns < request->u.drain.deadline_ns) {
            link = (pd_request **)(void *)&request->mail.next;
            continue;
        }
        *link = (pd_request *)(void *)request->mail.next;
        answer(store, request, open);
    }
}

/* ---- the request ---- */

/* The step that the job is at: its furthest parameter's, the open round included. The others may still come as far. */
static uint64_t furthest_step(const pd_job *job)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < job->n_params; i++) {
        uint64_t reached = job->params[i].step + (job->params[i].round.open && job->params[i].current != NULL ? 1 : 0);
        if (reached > step) step = reached;
    }
    return step;
}

void pd_store_drain(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_job *job, *next;
    uint64_t *deadline_ns = &request->u.drain.deadline_ns;

    if (__builtin_add_overflow(now_ns, *deadline_ns, deadline_ns)) *deadline_ns = UINT64_MAX;
    if (!store->draining) {
        HASH_ITER(hh, store->names, job, next) job->drain_step = furthest_step(job);
        pd_say(&store->outbox, PD_SAY_INFO, "draining: rounds under way are finished, no new ones begin");
    }
    store->draining = true;
    request->mail.next = store->drain != NULL ? &store->drain->mail : NULL;
    store->drain = request;
}
