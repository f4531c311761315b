/* step_times.c - measures what the steps of a job cost, and which rank was the last one to contribute to each. */
#include "step_times.h"

#include <stdlib.h>
#include <string.h>

#include "paramd/error.h"

int pd_step_times_make(pd_step_times *times, uint32_t ranks)
{
    times->total.n_ranks = ranks;
    times->total.rank = calloc(ranks, sizeof *times->total.rank);
    times->memory = calloc((size_t)ranks * PD_OPEN_STEPS, sizeof *times->memory);
    if (times->total.rank == NULL || times->memory == NULL) return PD_NO_MEMORY;
    for (uint32_t i = 0; i < PD_OPEN_STEPS; i++) times->open[i].at = times->memory + (size_t)i * ranks;
    return PD_OK;
}

void pd_step_times_free(pd_step_times *times)
{
    free(times->total.rank);
    free(times->memory);
}

/* ---- waiting, and who was last ---- */

static void open_step(pd_step_times *times, pd_open_step *open, uint64_t step, uint64_t now_ns)
{
    uint64_t *at = open->at;

    memset(at, 0, times->total.n_ranks * sizeof *at);
    *open = (pd_open_step){ .step = step, .first_ns = now_ns, .at = at };
}

void pd_step_times_arrived(pd_step_times *times, uint64_t step, uint32_t rank, uint64_t now_ns)
{
    pd_open_step *open = &times->open[step % PD_OPEN_STEPS];

    if (step < open->step) return; /* later steps have overtaken this one */
    if (step > open->step) open_step(times, open, step, now_ns);
    open->at[rank] = open->last_ns = now_ns;
    open->last_rank = rank;
}

/* Returns when the last rank but one had contributed everything; 0: only one rank has contributed. */
static uint64_t second_last_ns(const pd_open_step *open, uint32_t ranks)
{
    uint64_t second = 0;

    for (uint32_t rank = 0; rank < ranks; rank++)
        if (rank != open->last_rank && open->at[rank] > second) second = open->at[rank];
    return second;
}

static void count_last(pd_job_times *total, const pd_open_step *open)
{
    uint64_t second = second_last_ns(open, total->n_ranks);

    if (second == 0) return;
    total->rank[open->last_rank].last++;
    total->rank[open->last_rank].late_ns += open->last_ns - second;
}

void pd_step_times_closed(pd_step_times *times, uint64_t step, uint32_t n_params)
{
    pd_open_step *open = &times->open[step % PD_OPEN_STEPS];

    if (open->step != step || ++open->closed < n_params) return;
    pd_histogram_add(&times->total.phase[PD_PHASE_WAIT], open->last_ns - open->first_ns);
    count_last(&times->total, open);
    times->finished++;
}

/* ---- work ---- */

void pd_step_times_spend(pd_step_times *times, pd_step_phase phase, uint64_t now_ns)
{
    if (now_ns > times->mark_ns) times->spent[phase] += now_ns - times->mark_ns;
    times->mark_ns = now_ns;
}

void pd_step_times_end(pd_step_times *times)
{
    if (times->finished == 0) return;
    for (int phase = PD_PHASE_SUM; phase < PD_PHASES; phase++) {
        for (uint32_t i = 0; i < times->finished; i++)
            pd_histogram_add(&times->total.phase[phase], times->spent[phase] / times->finished);
        times->spent[phase] = 0;
    }
    times->finished = 0;
}
