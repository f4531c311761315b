/* lag.c - measures how long the loop thread is busy between two polls. */
#include "lag.h"

#include <math.h>
#include <time.h>

#define FIRST_NS 1000.0

static int bucket_of(uint64_t ns)
{
    int bucket = ns <= FIRST_NS ? 0 : (int)ceil(8.0 * log2((double)ns / FIRST_NS));
    return bucket < PD_LAG_BUCKETS ? bucket : PD_LAG_BUCKETS - 1;
}

void pd_lag_count(pd_lag *lag, uint64_t busy_ns)
{
    lag->count[bucket_of(busy_ns)]++;
    lag->polls++;
    lag->sum_ns += busy_ns;
    if (busy_ns > lag->largest_ns) lag->largest_ns = busy_ns;
}

void pd_lag_poll(pd_lag *lag)
{
    struct timespec now;
    uint64_t ns;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (lag->last_ns != 0) pd_lag_count(lag, ns - lag->last_ns);
    lag->last_ns = ns;
}

double pd_lag_percentile(const pd_lag *lag, double fraction)
{
    uint64_t wanted = (uint64_t)ceil(fraction * (double)lag->polls), seen = 0;

    if (lag->polls == 0) return 0;
    for (int i = 0; i < PD_LAG_BUCKETS - 1; i++) { /* the last bucket of the histogram is left out, because it has no
                                                    * upper bound */
        double upper = FIRST_NS * exp2(i / 8.0);
        seen += lag->count[i];
        if (seen >= wanted) return (upper < (double)lag->largest_ns ? upper : (double)lag->largest_ns) / 1e6;
    }
    return (double)lag->largest_ns / 1e6;
}
