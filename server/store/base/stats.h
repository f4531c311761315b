/* stats.h - what a job's steps have cost and who was waited for: numbers for metrics, the dashboard and paramctl.
 *
 * The step thread counts into a pd_job_times as it works. Once a second it publishes a copy of what has changed, so a
 * reader costs it nothing. All numbers are cumulative since the daemon started, times in nanoseconds. */
#ifndef PD_STATS_H
#define PD_STATS_H

#include <stdint.h>

/* Upper bounds of the buckets of a histogram, in seconds: powers of four from 100 microseconds on. The last bucket has
 * everything above. */
enum { PD_BUCKETS = 12 };

typedef struct pd_histogram {
    uint64_t count[PD_BUCKETS]; /* number of values in each bucket alone, not cumulative */
    uint64_t sum_ns;
} pd_histogram;

/* Parts of a job's time. */
typedef enum pd_phase {
    PD_PHASE_WAIT,    /* from the first contribution to a round to its last */
    PD_PHASE_SUM,     /* adding contributions up */
    PD_PHASE_STEP,    /* optimizers */
    PD_PHASE_PUBLISH, /* converting and publishing weights */
    PD_PHASES
} pd_phase;

/* Who was waited for: one for each rank. */
typedef struct pd_straggler {
    uint64_t last;    /* number of steps in which this rank was the last one to contribute */
    uint64_t late_ns; /* by how much it was later than the rank before it, in total */
} pd_straggler;

typedef struct pd_job_times {
    pd_histogram phase[PD_PHASES];
    pd_straggler *rank; /* array of n_ranks entries */
    uint32_t n_ranks;
} pd_job_times;

void pd_histogram_add(pd_histogram *histogram, uint64_t ns);
/* Returns the upper bound of a bucket in seconds; of the last one infinity. */
double pd_bucket_bound(int bucket);

#endif
