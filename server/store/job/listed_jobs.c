/* listed_jobs.c - makes pages of the list of jobs: chooses the jobs that an operator may see, and fills their entries.
 * */
#include "listed_jobs.h"

#include "global_clip.h"

#include <stdio.h>
#include <stdlib.h>

/* Estimates of how long it takes to note the number of a job, to find a job by its number, and to fill an entry: for
 * itself, and for each rank. */
#define NUMBER_NS 20.0
#define FIND_NS 60.0
#define ENTRY_NS 4000.0
#define RANK_NS 10.0

/* ---- the entry of a job ---- */

static const char *state_text(const pd_job *job)
{
    if (pd_job_is_over(job)) return "over";
    return job->linger_ns > 0 ? "lingering" : job->steps.n_params > 0 && pd_job_sealed(job) ? "running" : "gathering";
}

static void fill_totals(pd_job_info *info, const pd_job *job)
{
    const pd_job_totals *totals = &job->totals;

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

/* Writes the numbers of the ranks that have not declared the job's parameters, such as "1,3". */
static void list_undeclared(const pd_job *job, char *text, size_t size)
{
    size_t used = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks && used + 16 < size; rank++)
        if (!job->ranks[rank].saved.sealed)
            used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? "," : "", rank);
}

/* Stores in an entry of the list of jobs which ranks the job waits for, and how long it has waited. */
static void fill_waits(pd_job_info *info, const pd_job *job, uint64_t now_ns)
{
    const pd_param *oldest = job->steps.queue.waiting;

    if (!pd_job_sealed(job)) {
        list_undeclared(job, info->waits_for, sizeof info->waits_for);
    } else if (oldest != NULL) {
        pd_round_missing(&oldest->round, info->waits_for, sizeof info->waits_for);
        if (now_ns > oldest->round.started_ns) info->waits_ms = (now_ns - oldest->round.started_ns) / 1000000;
    } else if (job->steps.progress.n_begun < job->steps.n_params) {
        snprintf(info->waits_for, sizeof info->waits_for, "initial weights");
    } else if (job->checkpointing.paused) {
        snprintf(info->waits_for, sizeof info->waits_for, "a checkpoint");
    }
}

/* Stores in an entry of the list of jobs what is wrong with the disk. */
static void describe_trouble(pd_job_info *info, const pd_checkpoint_policy *checkpointing, uint64_t now_ns)
{
    const pd_disk_watch *entries = &checkpointing->log.watch, *checkpoint = &checkpointing->watch;
    const pd_disk_watch *late = checkpoint->late ? checkpoint : entries->late ? entries : NULL;
    uint64_t seconds = late != NULL && now_ns > late->since_ns ? (now_ns - late->since_ns) / 1000000000 : 0;

    if (late == NULL)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error, "%s", checkpointing->error);
    else if (late == checkpoint)
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has had the checkpoint of step %llu for %llu s and does not answer",
                 (unsigned long long)checkpointing->cut_step, (unsigned long long)seconds);
    else
        snprintf(info->checkpoint_error, sizeof info->checkpoint_error,
                 "the disk has had entries of the log for %llu s and does not answer", (unsigned long long)seconds);
}

static void fill_keeping(pd_job_info *info, const pd_checkpoint_policy *checkpointing, uint64_t now_ns)
{
    snprintf(info->durability, sizeof info->durability, "%s",
             checkpointing->log.wanted ? "log"
             : checkpointing->durable  ? "checkpoint"
                                       : "none");
    describe_trouble(info, checkpointing, now_ns);
    info->durable_step = checkpointing->durable_step;
    info->checkpoint_bytes = checkpointing->bytes;
    if (checkpointing->kept && now_ns > checkpointing->durable_ns)
        info->checkpoint_age_ms = (now_ns - checkpointing->durable_ns) / 1000000;
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

void pd_listed_job_fill(pd_job_info *info, const pd_job *job, uint64_t now_ns)
{
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
    info->replayed = job->replayed;
    info->gradient_norm = pd_global_clip_last(&job->steps);
    info->clipped_steps = pd_global_clip_clipped(&job->steps);
    info->outlier_steps = pd_global_clip_outliers(&job->steps);
    info->number = job->steps.number;
    info->steps_per_second = pd_speed_at(&job->speed, now_ns);
    info->loss = job->steps.figures.loss;
    info->loss_step = job->steps.figures.loss_step;
    fill_waits(info, job, now_ns);
    fill_keeping(info, &job->checkpointing, now_ns);
    fill_times(info, &job->steps.times.total);
}

/* ---- pages ---- */

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

/* Chooses the jobs that can be seen, as far as the time allows. Returns whether all are looked at. */
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

/* Leaves out the job that would be entry `i` of the list: it has ended. */
static void leave_out(pd_listed_jobs *listed, size_t i)
{
    for (listed->n_seen--; i < listed->n_seen; i++) listed->numbers[i] = listed->numbers[i + 1];
}

bool pd_listed_jobs_some(pd_listed_jobs *listed, pd_info *info, const pd_jobs *jobs, uint64_t now_ns, double *budget_ns)
{
    if (!choose_some(listed, jobs, budget_ns)) return false;
    while (info->start < listed->n_seen && info->n < PD_INFO_PAGE && info->n < listed->n_seen - info->start) {
        size_t i = (size_t)info->start + info->n;
        pd_job *job;
        if (!(*budget_ns > 0)) return false;
        if ((job = find(jobs, listed->numbers[i], budget_ns)) == NULL) {
            leave_out(listed, i);
            continue;
        }
        if (!pd_totals_some(&listed->counting, job, budget_ns)) return false;
        pd_listed_job_fill(&info->jobs[info->n++], job, now_ns);
        *budget_ns -= ENTRY_NS + RANK_NS * job->steps.members.ranks;
    }
    info->total = listed->n_seen;
    return true;
}
