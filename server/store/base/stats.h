/* stats.h - figures of a job for metrics, the dashboard and paramctl: what its steps have cost, who was waited for, and
 * a copy of its counters.
 *
 * The step thread counts into a pd_job_times as it works. Once a second it publishes a pd_job_stats, a copy, of each
 * job that has changed (PD_EFF_STATS). The loop thread keeps the last one of each job, so a reader costs the step
 * thread nothing. Numbers that only grow begin at 0 when the daemon starts, unless their comment says that they survive
 * a restart. Times are in nanoseconds; points of time are those that the store is given (a monotonic clock). */
#ifndef PD_STATS_H
#define PD_STATS_H

#include "info_entries.h"

/* Number of buckets of a histogram. Their upper bounds are 100 microseconds times powers of four. The last bucket has
 * everything above. */
enum { PD_BUCKETS = 12 };

typedef struct pd_histogram {
    uint64_t count[PD_BUCKETS]; /* number of values in each bucket alone, not cumulative */
    uint64_t sum_ns;
} pd_histogram;

/* Parts of the time that a step of a job takes. A step is one round of each parameter. */
typedef enum pd_step_phase {
    PD_PHASE_WAIT,    /* from the first contribution to the step to the last one */
    PD_PHASE_SUM,     /* adding contributions up */
    PD_PHASE_STEP,    /* clipping and optimizers */
    PD_PHASE_PUBLISH, /* converting and publishing weights */
    PD_PHASES
} pd_step_phase;

/* Who was waited for: one for each rank. */
typedef struct pd_straggler {
    uint64_t last;    /* number of steps in which this rank was the last one to contribute */
    uint64_t late_ns; /* by how much it was later than the rank before it, in total */
} pd_straggler;

/* The histograms all have one value for each step that every parameter has closed. */
typedef struct pd_job_times {
    pd_histogram phase[PD_PHASES];
    pd_straggler *rank; /* array of n_ranks entries */
    uint32_t n_ranks;
} pd_job_times;

void pd_histogram_add(pd_histogram *histogram, uint64_t ns);
/* Returns the upper bound of a bucket in seconds; of the last one infinity. */
double pd_bucket_bound(int bucket);
/* Returns the number of values in all buckets. */
uint64_t pd_histogram_count(const pd_histogram *histogram);
/* Returns the name of a phase, such as "wait". */
const char *pd_step_phase_name(pd_step_phase phase);

/* Most ranks of a job whose figures are published: the first ones that have come. The others are only counted
 * (pd_job_stats.workers_in). */
#define PD_STATS_RANKS 256
#define PD_STATS_NS 1000000000ull /* time between two copies of a job's figures: a second */

/* The figures of one rank. */
typedef struct pd_rank_stats {
    pd_worker_info info; /* its entry of the operators' list of workers */
    pd_straggler late;
} pd_rank_stats;

/* The last mean of one scalar that workers push. */
typedef struct pd_scalar_stats {
    char name[PD_SCALAR_NAME_MAX + 1]; /* as the worker has written it: any bytes but control characters */
    double mean;                       /* NaN: all weights were 0 */
    uint64_t step;                     /* step of the round that the mean is from */
} pd_scalar_stats;

/* States of ranks that are counted. */
typedef enum pd_worker_count {
    PD_COUNT_ABSENT,
    PD_COUNT_CONNECTED,
    PD_COUNT_LOST,
    PD_COUNT_LEFT,
    PD_WORKER_COUNTS
} pd_worker_count;

/* A copy of a job's figures at one point of time: one allocation with all that it points to. The step thread makes it
 * and hands it to the loop thread, which then owns it. */
typedef struct pd_job_stats {
    pd_job_info info;    /* its entry of the operators' list of jobs; traffic is filled in by the loop thread */
    uint64_t at_ns;      /* time at which this copy was made */
    uint64_t waits_ns;   /* time of the first contribution to the oldest open round; 0: no round is open */
    uint64_t step_ns;    /* time at which the newest step was closed; 0: none was since the daemon started */
    uint64_t durable_ns; /* time at which the newest checkpoint became durable; 0: there is none */

    uint32_t workers_in[PD_WORKER_COUNTS]; /* number of ranks in each state */
    uint64_t no_gradient;                  /* number of rounds that closed because no rank had a gradient */
    uint64_t rewinds;     /* how often the job went on at an older step: 1 if a restart has brought it back */
    uint64_t roots_out;   /* number of preconditioner tasks at the preconditioner pool now */
    uint64_t root_age;    /* most steps since the statistics were taken from which a root in use was computed */
    uint64_t checkpoints; /* number of checkpoints that were written */
    uint64_t checkpoints_failed, checkpoints_skipped; /* that could not be made or written; that were not begun because
                                                       * something else was under way */
    uint64_t checkpoint_ns; /* time that writing the newest checkpoint took; 0: it was written before the start */
    pd_histogram log_times; /* times that entries of the job's log took to become durable (durability = log) */
    uint64_t log_bytes, log_breaks; /* bytes of these entries; number of times that the entries had to stop */
    uint64_t repeated_steps;        /* number of steps that were repeated from the log at the start */

    size_t n_scalars;
    pd_scalar_stats scalars[PD_MAX_SCALARS]; /* in the order of their first coming */
    pd_job_times times;                      /* times.rank is NULL here: see ranks[i].late */
    pd_histogram root_times;                 /* times of preconditioner tasks that have run */
    size_t n_ranks; /* number of ranks that follow, which have all come: at most PD_STATS_RANKS */
    pd_rank_stats ranks[];
} pd_job_stats;

/* Returns zeroed figures with room for n ranks; free() frees them. NULL: out of memory. */
pd_job_stats *pd_job_stats_new(size_t n_ranks);

#endif
