/* relaunch.c - keeps with how many workers each job was launched, and launches jobs again in another number. */
#include "relaunch.h"

#include "program.h"

#include <stdlib.h>

enum { DELAY_MS = 60 }; /* longest time until a worker of a launch starts */

/* The launches of a job. Processes of an earlier launch keep their job's description to the end of the run. */
typedef struct sim_launch {
    sim_job jobs[SIM_CHANGES];
    const sim_job *now;
    uint32_t changes; /* how often the number of workers has changed */
    uint32_t least;   /* smallest number of workers so far */
    uint64_t n;       /* number of launches */
    uint64_t beside;  /* number of launches beside processes of earlier ones */
} sim_launch;

void sim_relaunch_begin(sim *s)
{
    s->launches = sim_must(calloc(SIM_JOBS, sizeof *s->launches));
    for (uint32_t j = 0; j < s->plan->n_jobs; j++) {
        s->launches[j].now = &s->plan->jobs[j];
        s->launches[j].least = s->plan->jobs[j].world;
    }
}

void sim_relaunch_free(sim *s)
{
    sim_side before = sim_enter(SIM_HARNESS);

    free(s->launches);
    s->launches = NULL;
    sim_enter(before);
}

const sim_job *sim_job_now(const sim *s, const sim_job *job)
{
    return s->launches[job->number].now;
}

uint32_t sim_least_world(const sim *s, const sim_job *job)
{
    return s->launches[job->number].least;
}

/* Kills all processes of the job, and starts one process for each rank of the job as it is now. */
static void launch(sim *s, void *who, uint64_t what)
{
    sim_launch *job = who;
    uint64_t r = sim_mix(s->plan->seed, 18, job->now->number, ++job->n);

    (void)what;
    sim_note(s, job->now->name, job->now->world, "is launched again", job->n, 0);
    for (sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED && w->job->number == job->now->number) sim_worker_kill(w);
    for (uint32_t rank = 0; rank < job->now->world; rank++)
        sim_worker_start(s, job->now, rank, sim_below(&r, DELAY_MS * SIM_MS));
}

/* Returns whether a process of the job works, and none has finished the job. */
static bool is_training(const sim *s, const sim_job *job)
{
    bool works = false;

    for (const sim_worker *w = s->workers; w != NULL; w = w->next) {
        if (w->job->number != job->number) continue;
        if (w->finished || w->phase == LEAVING) return false;
        works = works || w->phase != ENDED;
    }
    return works;
}

/* Returns whether the job has another number of workers for its next launch. */
static bool may_change(const sim_launch *launches)
{
    return launches->changes < SIM_CHANGES && launches->now->later[launches->changes] > 0;
}

/* Gives the job the number of workers of its next launch. */
static void change(sim_launch *launches)
{
    sim_job *next = &launches->jobs[launches->changes];

    *next = *launches->now;
    next->world = next->missing = next->later[launches->changes++];
    if (next->world < launches->least) launches->least = next->world;
    launches->now = next;
}

void sim_relaunch_after_crash(sim *s, uint64_t life)
{
    for (uint32_t j = 0; j < s->plan->n_jobs; j++) {
        sim_launch *launches = &s->launches[j];
        if (!may_change(launches) || !is_training(s, launches->now)) continue;
        if (sim_mix(s->plan->seed, 19, j, life) % 4 == 0) continue;
        change(launches);
        sim_after(s, 0, launch, launches, 0);
    }
}

void sim_relaunch(sim *s, const sim_job *job)
{
    sim_after(s, 0, launch, &s->launches[job->number], 0);
}

bool sim_relaunch_again(sim *s, const sim_job *job)
{
    if (s->launches[job->number].changes == 0) return false;
    sim_relaunch(s, job);
    return true;
}

uint64_t sim_generation(const sim *s, const sim_job *job)
{
    return 1 + s->launches[job->number].beside;
}

void sim_relaunch_again_beside(sim *s, const sim_job *job)
{
    sim_launch *launches = &s->launches[job->number];
    uint64_t r = sim_mix(s->plan->seed, 36, job->number, ++launches->beside);

    for (sim_worker *w = s->workers; w != NULL; w = w->next)
        if (w->phase != ENDED && w->job->number == job->number && sim_once_in(&r, 2)) sim_worker_kill(w);
    if (may_change(launches)) change(launches);
    for (uint32_t place = 0; place < launches->now->world; place++)
        sim_worker_start_beside(s, launches->now, place, sim_below(&r, DELAY_MS * SIM_MS));
}
