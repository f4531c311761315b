/* footprint.h - how many bytes a job's parameters will take. Computed before anything is allocated: when a worker
 * declares the parameters, and by paramctl plan. Pure. */
#ifndef PD_NEED_H
#define PD_NEED_H

#include "job_keys.h"
#include "plan.h"
#include "rule.h"

/* The properties of a job that determine how many bytes its parameters take. */
typedef struct pd_sizing {
    pd_job_values values;
    uint32_t world;
    uint64_t chunk_elements; /* elements in a chunk: the daemon's limits.chunk_bytes / 4 */
    int threads;             /* number of step threads: the daemon's threads.step_threads */
    int pool_threads;        /* number of pool threads: threads.pool_threads */
} pd_sizing;

/* The bytes that one parameter takes, or the sum over several parameters. UINT64_MAX: too many to count. */
typedef struct pd_footprint {
    uint64_t weights; /* published weights and the weights of the next step, in each element type that workers pull */
    uint64_t sums;    /* sums of the gradients of one round */
    /* contributions of all workers, where the aggregate needs all of them at once. 0 for a ranged parameter: its
     * contributions are counted when the ranks have declared their ranges */
    uint64_t collected;
    uint64_t state; /* the optimizer's slots, in the element types in which they are stored */
    uint64_t roots; /* inputs and results of the root tasks that may be running at the same time */
    uint64_t step;  /* temporary memory of a step; a step that waits for a root keeps it */
    /* records of contributions (chunks, slots, ranges), plan, optimizer, names, and the loop thread's records */
    uint64_t records;
    uint64_t thread; /* scratch memory of one step thread: the most that any parameter needs */
    uint64_t pool;   /* scratch memory of one pool thread that runs root tasks: the most that any parameter needs */
    uint64_t light;  /* scratch memory of the pool thread for light tasks: the most that any parameter needs */
    uint64_t job;    /* memory that all parameters share: scratch of all threads, and the global clip. Set by
                      * pd_footprint_complete */
} pd_footprint;

/* Returns the sum of two numbers of bytes; UINT64_MAX if the sum does not fit or one of them is UINT64_MAX. */
static inline uint64_t pd_footprint_plus(uint64_t bytes, uint64_t more)
{
    return __builtin_add_overflow(bytes, more, &bytes) ? UINT64_MAX : bytes;
}

/* Checks that the number of workers is possible, and that it suits the job's aggregate. PD_INVALID_ARGUMENT, with
 * the error text that a worker gets. */
int pd_sizing_check(const pd_sizing *job, pd_error *err);
/* Checks that the number of workers suits the aggregate `how` of a parameter that every worker contributes whole.
 * PD_INVALID_ARGUMENT. */
int pd_sizing_check_param(const pd_sizing *job, pd_aggregation how, const char *name, pd_error *err);

/* Returns how contributions to a parameter with this optimizer are aggregated. */
pd_aggregation pd_aggregation_of(const pd_job_values *values, const pd_row *row);

/* Counts the bytes of a parameter before its plan is made: only those that do not depend on its optimizer. */
void pd_footprint_least(pd_footprint *out, const pd_sizing *job, pd_aggregation how, int64_t elements, bool ranged,
                        const bool pulled[4]);
/* Counts the bytes of a parameter with this plan. `pulled` says by pd_dtype which element types are published;
 * float32 always is. PD_NO_MEMORY. */
int pd_footprint_of(pd_footprint *out, const pd_sizing *job, pd_aggregation how, const pd_plan *plan, bool ranged,
                    const bool pulled[4]);
/* Returns the bytes of all copies of a parameter's name and of its dimensions' names (`axes`; NULL: it has none).
 * They belong to pd_footprint.records. */
uint64_t pd_footprint_name(const pd_sizing *job, const char *name, const char *axes);
/* Adds the bytes of `n` parameters, each as large as `one`, to *all. */
void pd_footprint_add(pd_footprint *all, const pd_footprint *one, uint64_t n);
/* Completes the sum over all parameters of a job: adds the memory that they share, and the records of the job, its
 * ranks and these rules. */
void pd_footprint_complete(pd_footprint *all, const pd_sizing *job, const pd_rule *rules, size_t n_rules);
/* Returns all bytes of the footprint together, as they count against max_total_bytes. */
uint64_t pd_footprint_sum(const pd_footprint *need);

#endif
