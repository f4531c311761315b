/* lag.h - measures how long the loop thread is busy between two polls: a histogram of its CPU time. Loop thread. */
#ifndef PD_LAG_H
#define PD_LAG_H

#include <stdint.h>

#define PD_LAG_BUCKETS 192

typedef struct pd_lag {
    uint64_t count[PD_LAG_BUCKETS]; /* number of polls by busy time; bucket bounds start at 1 us and grow by 9 % (8
                                     * buckets double them) */
    uint64_t polls;
    uint64_t largest_ns;
    uint64_t last_ns; /* CPU time of the thread at the last poll; 0: there was no poll yet */
} pd_lag;

/* Counts the thread's CPU time since the last poll. Called just before the loop polls. */
void pd_lag_poll(pd_lag *lag);
void pd_lag_count(pd_lag *lag, uint64_t busy_ns);
/* Returns the busy time in milliseconds that the given fraction of the polls (for example 0.999) did not exceed; 0
 * if there were no polls. */
double pd_lag_percentile(const pd_lag *lag, double fraction);

#endif
