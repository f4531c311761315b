/* step_times.h - measures what the steps of a job cost, and which rank was the last one to contribute to each. Step
 * thread.
 *
 * Steps overlap: a rank may contribute to the next step of one parameter while another parameter's round is still open.
 * So a few open steps are recorded at a time. A step that more than PD_OPEN_STEPS - 1 later steps overtake is not
 * measured.
 *
 * Waiting is measured with the times that requests come with, and everything else with the store's clock, which is read
 * a few times in a batch of work. No arithmetic on tensors depends on it. Nothing here is saved for a restart. */
#ifndef PD_STEP_TIMES_H
#define PD_STEP_TIMES_H

#include <stdint.h>

#include "stats.h"

enum { PD_OPEN_STEPS = 4 };

/* A step that some rank has contributed to, and that not all parameters have closed. */
typedef struct pd_open_step {
    uint64_t step;      /* 0: no step is recorded here */
    uint32_t closed;    /* number of parameters that have closed the step */
    uint32_t last_rank; /* the rank that contributed last */
    uint64_t first_ns, last_ns;
    uint64_t *at; /* array with an entry for each rank: time of its last contribution to the step; 0: it has none */
} pd_open_step;

typedef struct pd_step_times {
    pd_job_times total;
    pd_open_step open[PD_OPEN_STEPS]; /* step S is at index S % PD_OPEN_STEPS */
    uint64_t spent[PD_PHASES];        /* time of batches of work since the last step was closed by all parameters */
    uint64_t mark_ns;                 /* time at which the clock was last read */
    uint32_t finished; /* number of steps that all parameters have closed, and that are not counted yet */
    uint64_t *memory;  /* memory of the arrays pd_open_step.at */
} pd_step_times;

/* Allocates the records of a job with this number of ranks. PD_NO_MEMORY. */
int pd_step_times_make(pd_step_times *times, uint32_t ranks);
void pd_step_times_free(pd_step_times *times);

/* Notes that the rank has contributed to a step of some parameter, or has reported that it has no gradient. */
void pd_step_times_arrived(pd_step_times *times, uint64_t step, uint32_t rank, uint64_t now_ns);
/* Notes that one more of the job's parameters, of which there are n_params, has closed the step. */
void pd_step_times_closed(pd_step_times *times, uint64_t step, uint32_t n_params);
/* Begins a batch of work at this time of the store's clock. */
static inline void pd_step_times_begin(pd_step_times *times, uint64_t now_ns)
{
    times->mark_ns = now_ns;
}
/* Adds the time since the last call to a phase. */
void pd_step_times_spend(pd_step_times *times, pd_step_phase phase, uint64_t now_ns);
/* Ends a batch of work. If all parameters have closed a step in it, the time since the last such step is that step's.
 * If they have closed several steps, these share it. */
void pd_step_times_end(pd_step_times *times);

#endif
