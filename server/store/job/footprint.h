/* need.h - how many bytes do a job's parameters need? Counted before any of it is made: when a worker declares them,
 * and by paramctl plan. Pure. */
#ifndef PD_NEED_H
#define PD_NEED_H

#include "job_keys.h"
#include "plan.h"
#include "rule.h"

/* What all parameters of a job share. */
typedef struct pd_sizing {
    pd_job_values values;
    uint32_t      world;
    uint64_t      chunk_elements;       /* the daemon's limits.chunk_bytes / 4 */
    int           threads;              /* the daemon's threads.step_threads, */
    int           pool_threads;         /* and threads.pool_threads */
} pd_sizing;

/* Bytes of one parameter, or of several. UINT64_MAX: what does not fit. */
typedef struct pd_footprint {
    uint64_t weights;                   /* published and to come, in each element type that is pulled */
    uint64_t sums;                      /* of gradients: the accumulator */
    uint64_t gathered;                  /* contributions of all workers, where the aggregate needs them all at once: gather.h. Of ranges nothing: they count when they are known */
    uint64_t state;                     /* slots of the optimizer as they are stored */
    uint64_t roots;                     /* private copies and results of the root tasks that may be out together */
    uint64_t step;                      /* temporaries of a step; it may be parked with them */
    uint64_t records;                   /* who has contributed what (chunks, slots, ranges), plan and optimizer, names, what the loop thread keeps */
    uint64_t thread;                    /* of each thread of a batch: the largest of the parameters' counts */
    uint64_t pool;                      /* of each thread that runs root tasks, likewise */
    uint64_t light;                     /* of the pool's thread for light tasks, likewise */
    uint64_t job;                       /* all threads', and what the job itself needs: pd_footprint_complete */
} pd_footprint;

/* A sum of bytes that stays at what does not fit. */
static inline uint64_t pd_footprint_plus(uint64_t bytes, uint64_t more)
{
    return __builtin_add_overflow(bytes, more, &bytes) ? UINT64_MAX : bytes;
}

/* The number of workers is possible and suits the aggregate. PD_INVALID_ARGUMENT, as a worker is told. */
int pd_sizing_check(const pd_sizing *job, pd_error *err);
/* So it is for a parameter that every worker contributes whole. */
int pd_sizing_check_param(const pd_sizing *job, pd_aggregation how, const char *name, pd_error *err);

/* What gradients of a parameter with this optimizer become. */
pd_aggregation pd_aggregation_of(const pd_job_values *values, const pd_row *row);

/* Bytes of a parameter of which only its size is known, before there is a plan: what does not depend on the
 * optimizer. */
void pd_footprint_least(pd_footprint *out, const pd_sizing *job, pd_aggregation how, int64_t elements, bool ranged,
                        const bool pulled[4]);
/* Of a parameter with this plan. `pulled`: by pd_dtype; float32 always counts. PD_NO_MEMORY. */
int pd_footprint_of(pd_footprint *out, const pd_sizing *job, pd_aggregation how, const pd_plan *plan, bool ranged,
                    const bool pulled[4]);
/* Bytes of a parameter's name and the names of its dimensions (NULL: none), of all who keep them: they count among the
 * records. */
uint64_t pd_footprint_name(const pd_sizing *job, const char *name, const char *axes);
/* `n` more like that. */
void pd_footprint_add(pd_footprint *all, const pd_footprint *one, uint64_t n);
/* Of all of a job's parameters, with these rules: also what they need together. */
void pd_footprint_complete(pd_footprint *all, const pd_sizing *job, const pd_rule *rules, size_t n_rules);
/* What counts. */
uint64_t pd_footprint_sum(const pd_footprint *need);

#endif
