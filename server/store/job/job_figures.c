/* job_figures.c - computes sums over a job's parameters, fills the entries of jobs and workers in operators' lists, and
 * publishes copies of these figures to the loop thread. */
#include "job_figures.h"

#include "fragment.h"
#include "global_clip.h"
#include "listing.h"
#include "set_figures.h"
#include "settle.h"
#include "step_group.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Estimated nanoseconds to copy the number of a job, to find a job by its number, and to fill the entry of a job;
 * RANK_NS more for each of its ranks. */
#define NUMBER_NS 20.0
#define FIND_NS 60.0
#define ENTRY_NS 4000.0
#define RANK_NS 10.0

static const char *state_text(const pd_job *job)
{
    if (pd_job_is_over(job)) return "over";
    return job->timers.linger_ns > 0                       ? "lingering"
           : job->steps.n_params > 0 && pd_job_sealed(job) ? "running"
                                                           : "gathering";
}

static void fill_totals(pd_job_info *info, const pd_job *job)
{
    const pd_job_totals *totals = &job->figures.totals;

    info->elements = totals->elements;
    info->weight_bytes = totals->elements * sizeof(float);
    info->state_bytes = totals->state_bytes;
    info->step_least = totals->step_least;
    info->step_most = totals->step_most;
    info->roots_due = totals->roots_due;
    info->roots_adopted = totals->roots_adopted;
    info->roots_failed = totals->roots_failed;
    info->roots_unused = totals->roots_unused;
    info->root_waits = totals->root_waits;
    info->roots_failing = totals->roots_failing;
    info->root_age = totals->root_age;
    snprintf(info->optimizer, sizeof info->optimizer, "%s", totals->optimizers);
}

/* Writes the numbers of the ranks that have not declared, such as "1,3". */
static void list_undeclared(const pd_job *job, char *text, size_t size)
{
    size_t used = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks && used + 16 < size; rank++)
        if (!job->ranks[rank].saved.sealed && pd_is_member(job, rank))
            used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", rank);
}

/* Writes into the entry of a job which ranks, or what else, the job waits for, and for how long. */
static void fill_waits(pd_job_info *info, const pd_job *job, uint64_t now_ns)
{
    const pd_param *oldest = job->steps.queue.waiting;
    uint64_t since_ns = 0;

    if (job->steps.sets.open) since_ns = pd_sets_wait(job, info->waits_for, sizeof info->waits_for);
    if (info->waits_for[0] != '\0') {
        if (since_ns > 0 && now_ns > since_ns) info->waits_ms = (now_ns - since_ns) / 1000000;
    } else if (!pd_job_sealed(job)) {
        list_undeclared(job, info->waits_for, sizeof info->waits_for);
    } else if (pd_settle_waits(&job->steps)) {
        if (pd_step_groups_unsettled(&job->steps) != NULL) oldest = pd_step_groups_unsettled(&job->steps);
        snprintf(info->waits_for, sizeof info->waits_for, "the verdict of %u shards", job->steps.shards);
        if (oldest != NULL && now_ns > oldest->round.started_ns)
            info->waits_ms = (now_ns - oldest->round.started_ns) / 1000000;
    } else if (oldest != NULL) {
        pd_round_missing(&oldest->round, info->waits_for, sizeof info->waits_for);
        if (now_ns > oldest->round.started_ns) info->waits_ms = (now_ns - oldest->round.started_ns) / 1000000;
    } else if (job->steps.progress.n_begun < job->steps.n_params) {
        snprintf(info->waits_for, sizeof info->waits_for, "initial weights");
    } else if (job->checkpointing.paused) {
        snprintf(info->waits_for, sizeof info->waits_for, "a checkpoint");
    }
}

/* Writes into the entry of a job what is wrong with its checkpoints or its disk. */
static void describe_trouble(pd_job_info *info, const pd_checkpoint_policy *checkpointing, uint64_t now_ns)
{
    const pd_disk_watch *entries = &checkpointing->steps.watch, *checkpoint = &checkpointing->watch;
    const pd_disk_watch *late = checkpoint->late ? checkpoint : entries->late ? entries : NULL;
    uint64_t seconds = late != NULL && now_ns > late->since_ns ? (now_ns - late->since_ns) / 1000000000 : 0;

    if (late == NULL)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error, "%s", checkpointing->error);
    else if (late == checkpoint)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has not answered for %llu s: it has the checkpoint of step %llu",
                 (unsigned long long)seconds, (unsigned long long)checkpointing->cut.step);
    else
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has not answered for %llu s: it has WAL records", (unsigned long long)seconds);
}

static void fill_checkpoints(pd_job_info *info, const pd_checkpoint_policy *checkpointing, uint64_t now_ns)
{
    snprintf(info->durability, sizeof info->durability, "%s",
             checkpointing->steps.wanted ? "log"
             : checkpointing->durable    ? "checkpoint"
                                         : "none");
    describe_trouble(info, checkpointing, now_ns);
    info->durable_step = checkpointing->durable_step;
    info->mirrored_step = checkpointing->mirrored_step;
    info->checkpoint_bytes = checkpointing->newest.bytes;
    if (checkpointing->newest.exists && now_ns > checkpointing->newest.durable_ns)
        info->checkpoint_age_ms = (now_ns - checkpointing->newest.durable_ns) / 1000000;
}

static double seconds_of(const pd_job_times *times, pd_step_phase phase)
{
    return (double)times->phase[phase].sum_ns / 1e9;
}

static void fill_times(pd_job_info *info, const pd_job_times *times)
{
    info->timed_steps = pd_histogram_count(&times->phase[PD_PHASE_WAIT]);
    info->waiting_seconds = seconds_of(times, PD_PHASE_WAIT);
    info->summing_seconds = seconds_of(times, PD_PHASE_SUM);
    info->stepping_seconds = seconds_of(times, PD_PHASE_STEP);
    info->publishing_seconds = seconds_of(times, PD_PHASE_PUBLISH);
}

void pd_listed_worker_fill(pd_worker_info *info, const pd_job *job, uint32_t r)
{
    static const char *const states[] = {
        [PD_RANK_ABSENT] = "absent", [PD_RANK_CONNECTED] = "connected", [PD_RANK_LOST] = "lost", [PD_RANK_LEFT] = "left"
    };
    const pd_rank *rank = &job->ranks[r];
    const pd_job_times *times = &job->steps.times.total;

    info->rank = r;
    snprintf(info->label, sizeof info->label, "%s", rank->label);
    snprintf(info->state, sizeof info->state, "%s", states[rank->state]);
    snprintf(info->identity, sizeof info->identity, "%s", rank->identity != NULL ? rank->identity : "");
    info->nonce = rank->saved.nonce;
    info->step = rank->saved.step;
    info->contributions = rank->saved.contributions;
    info->held_bytes = job->steps.quotas[r].held;
    info->timed_steps = pd_histogram_count(&times->phase[PD_PHASE_WAIT]);
    info->times_last = times->rank[r].last;
    info->late_seconds = (double)times->rank[r].late_ns / 1e9;
}

/* Fills the entry of a job. The caller has computed the job's sums (pd_totals_some). */
static void fill_job(pd_job_info *info, const pd_job *job, uint64_t now_ns)
{
    const pd_global_clip_saved *clip = pd_global_clip_saved_of(&job->steps);

    snprintf(info->name, sizeof info->name, "%s", job->steps.name);
    snprintf(info->state, sizeof info->state, "%s", state_text(job));
    info->world_size = job->steps.members.ranks;
    info->connected = job->connected;
    info->held_bytes = job->steps.held;
    info->params = job->steps.n_params;
    info->committed_bytes = job->steps.account.used;
    fill_totals(info, job);
    info->contributions = job->steps.saved.contributions;
    info->steps = job->steps.saved.steps;
    info->skipped = job->steps.saved.skipped;
    info->refused_steps = job->steps.saved.refused_steps;
    info->refused = job->saved.refused;
    info->duplicates = job->saved.duplicates;
    info->replayed = job->counts.replayed;
    info->went_back = job->counts.went_back;
    if (clip != NULL) {
        info->gradient_norm = clip->last;
        info->clipped_steps = clip->clipped;
        info->outlier_steps = clip->outliers;
    }
    info->shard = job->steps.shard;
    info->shards = job->steps.shards;
    info->cluster = job->saved.cluster;
    info->map = job->steps.map;
    info->life = job->life;
    info->open_sets = job->steps.sets.open;
    info->number = job->steps.number;
    info->steps_per_second = pd_speed_at(&job->figures.speed, now_ns);
    info->loss = job->steps.figures.loss;
    info->loss_step = job->steps.figures.loss_step;
    fill_waits(info, job, now_ns);
    fill_checkpoints(info, &job->checkpointing, now_ns);
    fill_times(info, &job->steps.times.total);
}

int pd_listed_jobs_begin(pd_listed_jobs *listed, const pd_jobs *jobs, pd_roles *roles, const char *identity,
                         double *budget_ns)
{
    const pd_job *job, *next;
    double cost_ns = NUMBER_NS * jobs->n;

    *listed = (pd_listed_jobs){ .numbers = calloc(jobs->n + 1, sizeof *listed->numbers) };
    if (listed->numbers == NULL || pd_roles_view_new(&listed->view, roles, identity, &cost_ns) != PD_OK)
        return PD_NO_MEMORY;
    HASH_ITER(hh, jobs->names, job, next) listed->numbers[listed->n++] = job->steps.number;
    *budget_ns -= cost_ns;
    return PD_OK;
}

void pd_listed_jobs_end(pd_listed_jobs *listed)
{
    pd_roles_view_free(listed->view);
    free(listed->numbers);
    *listed = (pd_listed_jobs){ 0 };
}

/* Returns the job with this number; NULL: it has ended. */
static pd_job *find(const pd_jobs *jobs, uint32_t number, double *budget_ns)
{
    pd_job *job = pd_jobs_numbered(jobs, number);

    *budget_ns -= FIND_NS;
    return job != NULL && !job->gone ? job : NULL;
}

/* Chooses the jobs for which the operator has a role, until the time is used. Returns whether all jobs are examined. */
static bool choose_some(pd_listed_jobs *listed, const pd_jobs *jobs, double *budget_ns)
{
    for (; listed->at < listed->n; listed->at++) {
        const pd_job *job;
        double cost_ns = 0;
        if (!(*budget_ns > 0)) return false;
        job = find(jobs, listed->numbers[listed->at], budget_ns);
        if (job != NULL && pd_roles_view_has(listed->view, job->steps.name, &cost_ns))
            listed->numbers[listed->n_seen++] = listed->numbers[listed->at];
        *budget_ns -= cost_ns;
    }
    return true;
}

bool pd_listed_jobs_some(pd_listed_jobs *listed, pd_info *info, const pd_jobs *jobs, uint64_t now_ns, double *budget_ns)
{
    if (!choose_some(listed, jobs, budget_ns)) return false;
    while (info->start < listed->n_seen && info->n < PD_INFO_PAGE && info->n < listed->n_seen - info->start) {
        size_t i = (size_t)info->start + info->n;
        pd_job *job;
        if (!(*budget_ns > 0)) return false;
        if ((job = find(jobs, listed->numbers[i], budget_ns)) == NULL) {
            /* The job has ended meanwhile: it is removed from the list. */
            for (listed->n_seen--; i < listed->n_seen; i++) listed->numbers[i] = listed->numbers[i + 1];
            continue;
        }
        if (!pd_totals_some(&listed->counting, job, budget_ns)) return false;
        fill_job(&info->jobs[info->n++], job, now_ns);
        *budget_ns -= ENTRY_NS + RANK_NS * job->steps.members.ranks;
    }
    info->total = listed->n_seen;
    return true;
}

/* Estimated nanoseconds to add a parameter, and one of its roots, to the sums. */
#define PARAM_NS 60.0
#define ROOT_NS 4.0

static bool is_valid(const pd_job *job)
{
    const pd_job_totals *totals = &job->figures.totals;

    return totals->params == job->steps.params && totals->n == job->steps.n_params &&
           totals->changes == job->steps.changes;
}

static void begin(pd_totals_count *count, const pd_job *job)
{
    *count = (pd_totals_count){ .job = job->steps.number };
    count->sofar = (pd_job_totals){ .params = job->steps.params,
                                    .n = job->steps.n_params,
                                    .changes = job->steps.changes,
                                    .step_least = job->steps.n_params > 0 ? UINT64_MAX : 0 };
}

static bool is_of(const pd_totals_count *count, const pd_job *job)
{
    return count->job == job->steps.number && count->sofar.params == job->steps.params &&
           count->sofar.n == job->steps.n_params;
}

static void add_elements(pd_totals_count *count, const pd_param *param)
{
    size_t i = 0;

    while (i < count->n_optimizers && count->optimizers[i].rule->hypers.row != param->rule->hypers.row) i++;
    if (i == PD_TOTALS_OPTIMIZERS) return; /* there are more optimizers than the sums can name */
    if (i == count->n_optimizers) {
        count->n_optimizers++;
        count->optimizers[i].rule = param->rule;
    }
    if (param->rule < count->optimizers[i].rule) count->optimizers[i].rule = param->rule;
    count->optimizers[i].elements += (uint64_t)param->elements;
}

static void add_param(pd_totals_count *count, const pd_param *param)
{
    pd_job_totals *totals = &count->sofar;
    pd_root_stats stats = pd_optim_root_stats(param->optim);

    totals->elements += (uint64_t)param->elements;
    totals->state_bytes += (uint64_t)pd_optim_state_bytes(param->optim);
    if (param->saved.step < totals->step_least) totals->step_least = param->saved.step;
    if (param->saved.step > totals->step_most) totals->step_most = param->saved.step;
    totals->roots_due += (uint64_t)stats.due;
    totals->roots_adopted += (uint64_t)stats.adopted;
    totals->roots_failed += (uint64_t)stats.failed;
    totals->roots_unused += (uint64_t)stats.replaced;
    totals->root_waits += (uint64_t)stats.waits;
    add_elements(count, param);
}

static void add_root(pd_job_totals *totals, const pd_param *param, size_t i)
{
    pd_root_state root = pd_optim_root(param->optim, i);
    uint64_t age = root.adopted > 0 ? (uint64_t)(pd_optim_count(param->optim) - root.count) : 0;

    totals->roots_failing += root.failing;
    if (age > totals->root_age) totals->root_age = age;
}

/* Adds the roots of a parameter until the time is used, but at least one. Returns whether all are added. */
static bool add_roots(pd_totals_count *count, const pd_param *param, double *budget_ns)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);
    size_t n = stats.failed == 0 && stats.adopted == 0 ? 0 : pd_optim_plan(param->optim)->n_tasks;

    while (count->root < n) {
        add_root(&count->sofar, param, count->root++);
        if ((*budget_ns -= ROOT_NS) <= 0) break;
    }
    return count->root >= n;
}

/* Writes the names of the optimizers in use. The optimizer with the most elements is first. */
static void name_optimizers(pd_totals_count *count)
{
    pd_job_totals *totals = &count->sofar;
    size_t used = 0;

    while (used < sizeof totals->optimizers) {
        size_t most = 0;
        for (size_t i = 1; i < count->n_optimizers; i++)
            if (count->optimizers[i].elements > count->optimizers[most].elements ||
                (count->optimizers[i].elements == count->optimizers[most].elements &&
                 count->optimizers[i].rule < count->optimizers[most].rule))
                most = i;
        if (count->optimizers[most].elements == 0) return;
        used += (size_t)snprintf(totals->optimizers + used, sizeof totals->optimizers - used, "%s%s",
                                 used > 0 ? "," : "", pd_optimizer_name(count->optimizers[most].rule->hypers.row));
        count->optimizers[most].elements = 0;
    }
}

bool pd_totals_some(pd_totals_count *count, pd_job *job, double *budget_ns)
{
    if (!is_of(count, job)) {
        if (is_valid(job)) return true;
        begin(count, job);
    }
    while (count->at < job->steps.n_params) {
        const pd_param *param = &job->steps.params[count->at];
        *budget_ns -= PARAM_NS;
        if (count->root == 0) add_param(count, param);
        if (!add_roots(count, param, budget_ns)) return false;
        count->root = 0;
        if (++count->at < job->steps.n_params && !(*budget_ns > 0)) return false;
    }
    name_optimizers(count);
    job->figures.totals = count->sofar;
    *count = (pd_totals_count){ 0 };
    return true;
}

/* Returns the number of ranks whose figures are published: the first ranks that are not absent, at most
 * PD_STATS_RANKS. */
static size_t count_published(const pd_job *job)
{
    size_t n = 0;

    for (uint32_t r = 0; r < job->steps.members.ranks && n < PD_STATS_RANKS; r++)
        n += job->ranks[r].state != PD_RANK_ABSENT;
    return n;
}

/* Copies what operators see of the step that the job collects, and of pushes that did not count. */
static void copy_sets(pd_job_stats *stats, const pd_job *job, uint64_t now_ns)
{
    const pd_fragment *oldest = pd_oldest_fragment(job);

    stats->sets_open = job->steps.sets.open && oldest != NULL;
    stats->round = (pd_round_info){ .state = "idle", .members = job->steps.members.n };
    if (oldest != NULL) pd_listed_round_fill(&stats->round, job, (uint32_t)(oldest - job->steps.fragments), now_ns);
    for (uint32_t i = 0; i < job->steps.n_fragments; i++) {
        const pd_fragment *fragment = &job->steps.fragments[i];
        stats->grace_waits += fragment->graces;
        for (uint32_t r = 0; r < job->steps.members.ranks; r++) stats->late_pushes += fragment->ranks[r].counts.late;
    }
}

static void copy_workers(pd_job_stats *stats, const pd_job *job, uint64_t now_ns)
{
    size_t n = 0;

    _Static_assert((int)PD_COUNT_LEFT == (int)PD_RANK_LEFT, "states of ranks are counted in their order");
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        stats->workers_in[job->ranks[r].state]++;
        if (job->ranks[r].state == PD_RANK_ABSENT || n == stats->n_ranks) continue;
        pd_listed_worker_fill(&stats->ranks[n].info, job, r);
        pd_listed_member_fill(&stats->ranks[n].member, job, r, now_ns);
        stats->ranks[n++].late = job->steps.times.total.rank[r];
    }
}

static void copy_progress(pd_job_stats *stats, const pd_job *job)
{
    const pd_steps *steps = &job->steps;

    stats->waits_ns = pd_job_sealed(job) && steps->queue.waiting != NULL ? steps->queue.waiting->round.started_ns : 0;
    stats->step_ns = job->figures.speed.n > 0 ? job->figures.speed.last.ns : 0;
    stats->no_gradient = steps->figures.no_gradient;
    stats->rewinds = job->restart.restored;
    stats->n_scalars = steps->figures.n_scalars;
    for (size_t i = 0; i < steps->figures.n_scalars; i++) stats->scalars[i] = steps->figures.scalars[i];
    stats->roots_out = steps->tasks_out;
    stats->root_times = steps->figures.root_times;
    stats->settle_times = steps->figures.settle_times;
}

static void copy_checkpoints(pd_job_stats *stats, const pd_checkpoint_policy *checkpointing)
{
    stats->durable_ns = checkpointing->newest.exists ? checkpointing->newest.durable_ns : 0;
    stats->checkpoints = checkpointing->counts.written;
    stats->checkpoints_failed = checkpointing->counts.failed;
    stats->checkpoints_skipped = checkpointing->counts.skipped;
    stats->checkpoint_ns = checkpointing->newest.written_ns;
    stats->log_times = checkpointing->steps.times;
    stats->log_bytes = checkpointing->steps.bytes;
    stats->log_breaks = checkpointing->steps.broken;
    stats->repeated_steps = checkpointing->steps.repeated;
}

static pd_job_stats *copy(pd_job *job, uint64_t now_ns)
{
    pd_job_stats *stats = pd_job_stats_new(count_published(job));

    if (stats == NULL) return NULL;
    stats->at_ns = now_ns;
    fill_job(&stats->info, job, now_ns);
    stats->root_age = job->figures.totals.root_age;
    copy_workers(stats, job, now_ns);
    copy_sets(stats, job, now_ns);
    copy_progress(stats, job);
    stats->times = job->steps.times.total;
    stats->times.rank = NULL; /* the copies of these times are in ranks[i].late */
    stats->times.n_ranks = 0;
    copy_checkpoints(stats, &job->checkpointing);
    return stats;
}

/* Estimated nanoseconds to copy the figures of a job; more for each rank; more for each rank whose figures are
 * published. PART_NS is the length of a part of this work. */
#define JOB_NS 10000.0
#define COUNT_NS 20.0
#define PUBLISHED_NS 1000.0
#define PART_NS 5e5

void pd_publishing_note(pd_publishing *publishing, pd_job *job)
{
    job->figures.touched = publishing->wanted = true;
}

static bool publish(pd_job *job, pd_effects *outbox, uint64_t now_ns)
{
    pd_effect *effect = pd_job_effect(job, PD_EFF_STATS);

    if (effect == NULL || (effect->u.stats = copy(job, now_ns)) == NULL) {
        free(effect);
        return false;
    }
    pd_effects_add(outbox, effect);
    return true;
}

static double cost_of(const pd_job *job)
{
    const pd_fragment *oldest = pd_oldest_fragment(job);
    double round_ns = oldest != NULL ? pd_listed_round_ns(job, (uint32_t)(oldest - job->steps.fragments)) : 0;

    return JOB_NS + round_ns + COUNT_NS * (1.0 + job->steps.n_fragments) * job->steps.members.ranks +
           PUBLISHED_NS * (double)count_published(job);
}

/* Publishes copies of the figures of jobs until PART_NS is used. Returns whether every job that needs one has a copy of
 * this time (publishing->number). */
static bool publish_some(pd_publishing *publishing, const pd_jobs *jobs, pd_effects *outbox, uint64_t now_ns)
{
    double budget_ns = PART_NS;
    pd_job *job, *next;

    HASH_ITER(hh, jobs->names, job, next)
    {
        if (!job->figures.touched || job->figures.published == publishing->number) continue;
        if (!(budget_ns > 0) || !pd_totals_some(&publishing->counting, job, &budget_ns)) return false;
        job->figures.published = publishing->number;
        job->figures.touched = !publish(job, outbox, now_ns);
        publishing->wanted |= job->figures.touched;
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
