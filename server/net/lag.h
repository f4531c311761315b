/* lag.h - measures how long the loop thread is busy between two polls: a histogram of its CPU time. Loop thread. */
#ifndef PD_LAG_H
#define PD_LAG_H

#include <stdint.h>

#define PD_LAG_BUCKETS 192

typedef struct pd_lag {
    uint64_t count[PD_LAG_BUCKETS];     /* eight to an octave, from 1 us: a bucket is 9 % wide */
    uint64_t polls;
    uint64_t largest_ns;
    uint64_t last_ns;                   /* CPU clock at the last poll; 0: none yet */
} pd_lag;

/* Counts the CPU time since the last poll. Called just before a poll. */
void   pd_lag_poll(pd_lag *lag);
void   pd_lag_count(pd_lag *lag, uint64_t busy_ns);
/* Returns the milliseconds that a fraction (0.999) of the polls did not exceed; 0 if there were no polls. */
double pd_lag_percentile(const pd_lag *lag, double fraction);

#endif
