/* lag.h - measures how long the loop thread is busy between two polls: a histogram of its CPU time.
 * While it is busy, all connections wait. Loop thread. */
#ifndef PD_LAG_H
#define PD_LAG_H

#include <stdint.h>

#define PD_LAG_BUCKETS 192

typedef struct pd_lag {
    uint64_t count[PD_LAG_BUCKETS]; /* number of polls with a busy time in each bucket of the histogram. The first
                                     * bucket ends at 1 us; each other one ends 9 % later than the one before (8 buckets
                                     * double the time) */
    uint64_t polls;
    uint64_t largest_ns;
    uint64_t sum_ns;  /* sum of all busy times */
    uint64_t last_ns; /* CPU time that the thread had used at the last poll; 0: it has not waited for events yet */
} pd_lag;

/* Enters the CPU time that the thread has used since the last poll (wait for events) into the histogram. Called just
 * before the loop polls. */
void pd_lag_poll(pd_lag *lag);
void pd_lag_count(pd_lag *lag, uint64_t busy_ns);
/* Returns a busy time in milliseconds that the given fraction of the polls (0.999: 999 of 1000) did not exceed; 0 if
 * there were no polls. */
double pd_lag_percentile(const pd_lag *lag, double fraction);

#endif
