/* deadlines.c - a pairing heap of jobs. Its links are in the jobs, so no memory is needed. */
#include "deadlines.h"

/* Joins two heaps. The first job of each has no siblings. */
static pd_job *meld(pd_job *a, pd_job *b)
{
    pd_job *first = b == NULL || (a != NULL && a->tick_ns <= b->tick_ns) ? a : b, *other = first == a ? b : a;

    if (other == NULL) return first;
    other->prev_tick = first;
    other->next_tick = first->later;
    if (other->next_tick != NULL) other->next_tick->prev_tick = other;
    first->later = other;
    return first;
}

static pd_job *take_alone(pd_job **list)
{
    pd_job *job = *list;

    if (job == NULL) return NULL;
    *list = job->next_tick;
    job->next_tick = job->prev_tick = NULL;
    return job;
}

/* Joins heaps whose first jobs are siblings: in pairs, then the pairs. */
static pd_job *meld_all(pd_job *siblings)
{
    pd_job *pairs = NULL, *pair, *all = NULL;

    while ((pair = take_alone(&siblings)) != NULL) {
        pair = meld(pair, take_alone(&siblings));
        pair->next_tick = pairs;
        pairs = pair;
    }
    while ((pair = take_alone(&pairs)) != NULL) all = meld(all, pair);
    return all;
}

static void remove_job(pd_job **first, pd_job *job)
{
    pd_job *rest = meld_all(job->later), *before = job->prev_tick;

    if (job == *first) {
        *first = rest;
    } else {
        if (before->later == job)
            before->later = job->next_tick;
        else
            before->next_tick = job->next_tick;
        if (job->next_tick != NULL) job->next_tick->prev_tick = before;
        *first = meld(*first, rest);
    }
    job->later = job->prev_tick = job->next_tick = NULL;
}

void pd_deadlines_set(pd_job **first, pd_job *job, uint64_t at_ns)
{
    if (job->has_deadline ? job->tick_ns == at_ns : at_ns == UINT64_MAX) return;
    if (job->has_deadline) remove_job(first, job);
    job->tick_ns = at_ns;
    job->has_deadline = at_ns != UINT64_MAX;
    if (job->has_deadline) *first = meld(*first, job);
}
