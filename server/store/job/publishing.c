/* publishing.c - copies the figures of jobs that have changed, once a second, a few jobs at a time. */
#include "publishing.h"

#include "info.h"
#include "listing.h"

#include <stdlib.h>

/* Estimates of what the copy of a job takes, for each of its parameters and ranks, and how long a slice of copies may
 * be. */
enum { COPY_NS = 2000, PARAM_NS = 50, RANK_NS = 500, SLICE_NS = 500000 };

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

    stats->waits_ns = pd_job_sealed(job) && steps->waiting != NULL ? steps->waiting->round.started_ns : 0;
    stats->step_ns = job->speed.n > 0 ? job->speed.last.ns : 0;
    stats->no_gradient = steps->no_gradient;
    stats->rewinds = job->restored;
    stats->n_scalars = steps->n_scalars;
    for (size_t i = 0; i < steps->n_scalars; i++) stats->scalars[i] = steps->scalars[i];
    stats->roots_out = steps->tasks_out;
    stats->root_times = steps->root_times;
}

static void copy_times(pd_job_stats *stats, const pd_job_times *times)
{
    stats->times = *times;
    stats->times.rank = NULL;
    stats->times.n_ranks = 0;
}

static void copy_keeping(pd_job_stats *stats, const pd_keeping *keeping)
{
    stats->durable_ns = keeping->kept ? keeping->durable_ns : 0;
    stats->checkpoints = keeping->written;
    stats->checkpoints_failed = keeping->failed;
    stats->checkpoints_skipped = keeping->skipped;
    stats->checkpoint_ns = keeping->written_ns;
    stats->log_times = keeping->log.times;
    stats->log_bytes = keeping->log.bytes;
    stats->log_breaks = keeping->log.broken;
    stats->repeated_steps = keeping->log.repeated;
}

static pd_job_stats *copy(pd_job *job, uint64_t now_ns)
{
    pd_job_stats *stats = pd_job_stats_new(count_published(job));

    if (stats == NULL) return NULL;
    stats->at_ns = now_ns;
    pd_info_fill_job(&stats->info, job, now_ns);
    stats->root_age = pd_job_count_totals(job)->root_age;
    copy_workers(stats, job);
    copy_progress(stats, job);
    copy_times(stats, &job->steps.times.total);
    copy_keeping(stats, &job->keeping);
    return stats;
}

/* ---- when copies are made ---- */

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

static uint64_t cost_of(const pd_job *job)
{
    return COPY_NS + (uint64_t)PARAM_NS * job->steps.n_params + (uint64_t)RANK_NS * job->steps.members.ranks;
}

/* Begins to publish, in slices from now on. */
static void begin(pd_publishing *publishing, uint64_t now_ns)
{
    publishing->under_way = true;
    publishing->began_ns = now_ns;
    publishing->number++;
    publishing->wanted = false;
}

static void finish(pd_publishing *publishing)
{
    publishing->under_way = false;
    publishing->next_ns = publishing->began_ns + publishing->every_ns;
}

void pd_publishing_look(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns)
{
    pd_job *job, *next;
    uint64_t spent_ns = 0;

    if (now_ns < pd_publishing_next(publishing)) return;
    if (!publishing->under_way) begin(publishing, now_ns);
    HASH_ITER(hh, jobs->names, job, next)
    {
        if (!job->touched || job->published == publishing->number) continue;
        if (spent_ns >= SLICE_NS) return;
        spent_ns += cost_of(job);
        job->published = publishing->number;
        job->touched = !publish(job, outbox, now_ns);
        publishing->wanted |= job->touched;
    }
    finish(publishing);
}

uint64_t pd_publishing_next(const pd_publishing *publishing)
{
    if (publishing->under_way) return 0;
    return publishing->every_ns > 0 && publishing->wanted ? publishing->next_ns : UINT64_MAX;
}
