/* publishing.c - copies the figures of jobs that have changed, once a second, a few jobs at a time. */
#include "publishing.h"

#include "info.h"
#include "listed_jobs.h"
#include "listing.h"

#include <stdlib.h>

/* ---- the copy of one job ---- */

/* Returns the number of ranks whose figures are published: the first ones that have come. */
static size_t count_published(const pd_job *job)
{
    size_t n = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks && n < PD_STATS_RANKS; r++)
        n += job->ranks[r].state != PD_RANK_ABSENT;
    return n;
}

static void copy_workers(pd_job_stats *stats, const pd_job *job)
{
    size_t n = 0;

    _Static_assert((int)PD_COUNT_LEFT == (int)PD_RANK_LEFT, "states of ranks are counted in their order");
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        stats->workers_in[job->ranks[r].state]++;
        if (job->ranks[r].state == PD_RANK_ABSENT || n == stats->n_ranks) continue;
        pd_info_fill_worker(&stats->ranks[n].info, job, r);
        stats->ranks[n++].late = job->steps.times.total.rank[r];
    }
}

static void copy_progress(pd_job_stats *stats, const pd_job *job)
{
    const pd_steps *steps = &job->steps;

    stats->waits_ns = pd_job_sealed(job) && steps->queue.waiting != NULL ? steps->queue.waiting->round.started_ns : 0;
    stats->step_ns = job->speed.n > 0 ? job->speed.last.ns : 0;
    stats->no_gradient = steps->figures.no_gradient;
    stats->rewinds = job->restored;
    stats->n_scalars = steps->figures.n_scalars;
    for (size_t i = 0; i < steps->figures.n_scalars; i++) stats->scalars[i] = steps->figures.scalars[i];
    stats->roots_out = steps->tasks_out;
    stats->root_times = steps->figures.root_times;
}

static void copy_times(pd_job_stats *stats, const pd_job_times *times)
{
    stats->times = *times;
    stats->times.rank = NULL;
    stats->times.n_ranks = 0;
}

static void copy_keeping(pd_job_stats *stats, const pd_checkpoint_policy *checkpointing)
{
    stats->durable_ns = checkpointing->kept ? checkpointing->durable_ns : 0;
    stats->checkpoints = checkpointing->written;
    stats->checkpoints_failed = checkpointing->failed;
    stats->checkpoints_skipped = checkpointing->skipped;
    stats->checkpoint_ns = checkpointing->written_ns;
    stats->log_times = checkpointing->log.times;
    stats->log_bytes = checkpointing->log.bytes;
    stats->log_breaks = checkpointing->log.broken;
    stats->repeated_steps = checkpointing->log.repeated;
}

static pd_job_stats *copy(pd_job *job, uint64_t now_ns)
{
    pd_job_stats *stats = pd_job_stats_new(count_published(job));

    if (stats == NULL) return NULL;
    stats->at_ns = now_ns;
    pd_listed_job_fill(&stats->info, job, now_ns);
    stats->root_age = job->totals.root_age;
    copy_workers(stats, job);
    copy_progress(stats, job);
    copy_times(stats, &job->steps.times.total);
    copy_keeping(stats, &job->checkpointing);
    return stats;
}

/* ---- when copies are made ---- */

/* Estimates of how long it takes to copy the figures of a job: for itself, for each rank, and for each rank whose
 * figures are published. A part takes PART_NS. */
#define JOB_NS 10000.0
#define RANK_NS 20.0
#define PUBLISHED_NS 500.0
#define PART_NS 5e5

void pd_publishing_note(pd_publishing *publishing, pd_job *job)
{
    job->touched = publishing->wanted = true;
}

static bool publish(pd_job *job, pd_effects *outbox, uint64_t now_ns)
{
    pd_effect *effect = pd_effect_new(PD_EFF_STATS, (pd_ticket){ 0, 0 }, job->steps.number);

    if (effect == NULL || (effect->u.stats = copy(job, now_ns)) == NULL) {
        free(effect);
        return false;
    }
    pd_effects_add(outbox, effect);
    return true;
}

static double cost_of(const pd_job *job)
{
    return JOB_NS + RANK_NS * job->steps.members.ranks + PUBLISHED_NS * (double)count_published(job);
}

/* Publishes the next copies, as far as the time allows. Returns whether all of this time are made. */
static bool publish_some(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns)
{
    double budget_ns = PART_NS;
    pd_job *job, *next;

    HASH_ITER(hh, jobs->names, job, next)
    {
        if (!job->touched || job->published == publishing->number) continue;
        if (!(budget_ns > 0) || !pd_totals_some(&publishing->counting, job, &budget_ns)) return false;
        job->published = publishing->number;
        job->touched = !publish(job, outbox, now_ns);
        publishing->wanted |= job->touched;
        budget_ns -= cost_of(job);
    }
    return true;
}

void pd_publishing_look(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns)
{
    if (now_ns < pd_publishing_next(publishing)) return;
    if (!publishing->under_way) {
        publishing->under_way = true;
        publishing->wanted = false;
        publishing->number++;
        publishing->began_ns = now_ns;
    }
    if (!publish_some(publishing, jobs, outbox, now_ns)) return;
    publishing->under_way = false;
    publishing->next_ns = publishing->began_ns + publishing->every_ns;
}

uint64_t pd_publishing_next(const pd_publishing *publishing)
{
    return publishing->every_ns > 0 && (publishing->wanted || publishing->under_way) ? publishing->next_ns : UINT64_MAX;
}
