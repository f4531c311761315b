/* stats.c - histograms of times, and memory for copies of the figures of jobs. */
#include "stats.h"

#include <math.h>
#include <stdlib.h>

static const uint64_t least_ns = 100000; /* upper bound of the first bucket */

void pd_histogram_add(pd_histogram *histogram, uint64_t ns)
{
    uint64_t bound = least_ns;
    int bucket = 0;

    while (ns > bound && bucket < PD_BUCKETS - 1) {
        bound *= 4;
        bucket++;
    }
    histogram->count[bucket]++;
    histogram->sum_ns += ns;
}

double pd_bucket_bound(int bucket)
{
    return bucket == PD_BUCKETS - 1 ? INFINITY : (double)(least_ns << (2 * bucket)) / 1e9;
}

uint64_t pd_histogram_count(const pd_histogram *histogram)
{
    uint64_t n = 0;

    for (int i = 0; i < PD_BUCKETS; i++) n += histogram->count[i];
    return n;
}

const char *pd_step_phase_name(pd_step_phase phase)
{
    static const char *const names[PD_PHASES] = {
        [PD_PHASE_WAIT] = "wait", [PD_PHASE_SUM] = "sum", [PD_PHASE_STEP] = "step", [PD_PHASE_PUBLISH] = "publish"
    };

    return names[phase];
}

pd_job_stats *pd_job_stats_new(size_t n_ranks)
{
    pd_job_stats *stats = calloc(1, sizeof *stats + n_ranks * sizeof stats->ranks[0]);

    if (stats != NULL) stats->n_ranks = n_ranks;
    return stats;
}
