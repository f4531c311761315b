/* set_counts.h - counts, for operators, in how many steps a rank counts, and warns of a rank that pushes but never
 * counts. Step thread. */
#ifndef PD_SET_COUNTS_H
#define PD_SET_COUNTS_H

#include "steps.h"

/* What has become of the pushes of a rank in a fragment, since the server started. */
typedef struct pd_set_counts {
    uint64_t counted, late; /* number of steps in which the rank counted; number of its pushes that were too late */
    uint64_t ages;          /* sum of the ages of those that counted */
    uint64_t steps;         /* number of steps that were fixed while the rank was a member */
    uint64_t missed;        /* number of the last of these steps in which it did not count */
    uint64_t pushed;        /* step of the last push that has counted in `late` */
    bool pushes;            /* since the rank counted last, or the last warning, a push of it has not counted */
    uint64_t warn;          /* value of `missed` at which the next warning is due; 0: none was given yet */
} pd_set_counts;

/* Notes that the rank counts in a step, with a contribution of this age. */
void pd_set_counts_in(pd_set_counts *counts, uint64_t age);
/* Notes that the push of the rank for step `step` is too late. Each push counts once, however often it is told. */
void pd_set_counts_late(pd_set_counts *counts, uint64_t step);
/* Notes that the rank, which is a member, does not count in step `step`. `waits`: a contribution of it is kept. Logs a
 * warning if that was so in the last 100 steps though the rank pushes; then after 200 steps, 400, and so on. */
void pd_set_counts_missed(const pd_steps *steps, pd_set_counts *counts, uint32_t rank, uint64_t step, bool waits);

#endif
