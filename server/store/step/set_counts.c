/* set_counts.c - counts in how many steps each rank counts. */
#include "set_counts.h"

enum { WARN_AFTER = 100 }; /* number of steps without the rank after which the first warning is given */

void pd_set_counts_in(pd_set_counts *counts, uint64_t age)
{
    counts->counted++;
    counts->steps++;
    counts->ages += age;
    counts->missed = counts->warn = 0;
    counts->pushes = false;
}

void pd_set_counts_late(pd_set_counts *counts, uint64_t step)
{
    if (step <= counts->pushed) return;
    counts->pushed = step;
    counts->late++;
    counts->pushes = true;
}

void pd_set_counts_missed(const pd_steps *steps, pd_set_counts *counts, uint32_t rank, uint64_t step, bool waits)
{
    uint64_t due = counts->warn > 0 ? counts->warn : WARN_AFTER;

    counts->steps++;
    counts->missed++;
    counts->pushes |= waits;
    if (counts->missed < due || !counts->pushes) return;
    counts->warn = 2 * counts->missed;
    counts->pushes = false;
    pd_say(steps->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = steps->name, .rank = &rank, .step = &step },
           "pushes, but has not counted in the last %llu steps, and in %.0f %% of all %llu: it is too slow for the "
           "others. A longer grace, a larger staleness, or fewer local steps of this worker between its pushes help",
           (unsigned long long)counts->missed, 100.0 * (double)counts->counted / (double)counts->steps,
           (unsigned long long)counts->steps);
}
