/* footprint.h - computes how many bytes a job and its parameters will take, before anything is allocated: when a
 * worker declares the parameters, and for the command paramctl plan. Pure. */
#ifndef PD_FOOTPRINT_H
#define PD_FOOTPRINT_H

#include "job_keys.h"
#include "plan.h"
#include "rule.h"
#include "set_rule.h"

/* What determines how many bytes a job's parameters take: values of the job and settings of the daemon. */
typedef struct pd_sizing {
    pd_job_values values;
    uint32_t world;          /* number of slots for workers */
    uint64_t chunk_elements; /* elements in a chunk: the daemon's limits.chunk_bytes / 4 */
    int threads;             /* number of threads that run steps: the daemon's setting threads.step_threads */
    int pool_threads;   /* number of threads that compute matrix roots: the daemon's setting threads.pool_threads */
    bool durable;       /* the job has checkpoints */
    bool logged;        /* the job also has a stream of steps (durability = log) */
    pd_set_rule sets;   /* how the ranks that count in a step are fixed; pd_sizing_check fills it in */
    uint32_t fragments; /* number of fragments */
    uint32_t shards;    /* number of daemons that share the job; 0 or 1: one has all of it */
    uint32_t n_cut;     /* number of parameters that are cut, on several shards */
    pd_dtype pushed;    /* in forecasts: element type in which workers push all parameters; 0: any */
} pd_sizing;

/* The bytes that one parameter takes, by purpose, or the sums over several parameters. In each field UINT64_MAX means
 * too many to count. */
typedef struct pd_footprint {
    uint64_t weights; /* published weights and the weights of the next step, in each element type that workers pull */
    uint64_t sums;    /* sums of the gradients of one round */
    /* Contributions of all workers in the element type that they push, if the aggregate needs all of them at once, or
     * the ranks that count are fixed before they are summed. 0 for a ranged parameter: its contributions are counted
     * when the ranks have declared their ranges. */
    uint64_t collected;
    uint64_t state; /* optimizer state, in the element types in which it is stored */
    /* Memory for a checkpoint, if the job has checkpoints: a copy of the optimizer state, and old weights until they
     * are on the disk. With a stream of steps also the aggregates of the records that the WAL thread has. Worker states
     * and headers of records are charged when they are made. */
    uint64_t kept;
    /* inputs and results of the preconditioner tasks that may run at the same time */
    uint64_t roots;
    uint64_t step; /* temporary memory of a step; a step that waits for a root keeps it */
    /* structs of contributions (by chunk, rank and range), the optimizer's plan and structs, names, and structs of the
     * loop thread */
    uint64_t records;
    uint64_t thread; /* scratch memory that one step thread needs: the largest need of any parameter */
    /* scratch memory that one thread of the preconditioner pool needs to compute a root: the largest need of any
     * parameter */
    uint64_t pool;
    /* scratch memory of the one pool thread that computes small matrix roots: the largest need of any parameter */
    uint64_t light;
    /* memory that all parameters share: scratch memory of all threads, the global clip, and the tallies of several
     * shards. Only pd_footprint_complete sets it. */
    uint64_t job;
} pd_footprint;

/* Returns the sum of two numbers of bytes; UINT64_MAX if the sum does not fit or one of them is UINT64_MAX. */
static inline uint64_t pd_footprint_plus(uint64_t bytes, uint64_t more)
{
    return __builtin_add_overflow(bytes, more, &bytes) ? UINT64_MAX : bytes;
}

/* Checks that a job may begin with `world` workers, and that the number suits its values. Fills in job->sets, and sets
 * `world` to the number of workers that the job may have at once. PD_INVALID_ARGUMENT, with the error text that a
 * worker gets. */
int pd_sizing_check(pd_sizing *job, pd_error *err);
/* Checks that the aggregation `how` is possible with this number of workers, if each contributes all elements of the
 * parameter. PD_INVALID_ARGUMENT. */
int pd_sizing_check_param(const pd_sizing *job, pd_aggregation how, const char *name, pd_error *err);

/* Returns whether all parameters of a job with these values and rules step together. */
bool pd_sizing_is_whole(const pd_sizing *job, const pd_rule *rules, size_t n_rules);

/* Returns how contributions to a parameter with the optimizer `row` are aggregated. */
pd_aggregation pd_aggregation_of(const pd_job_values *values, const pd_optimizer_ops *row);

/* Stores in *out the bytes of a parameter that do not depend on its optimizer's plan. `pushed` is the element type in
 * which all ranks push; 0: any. */
void pd_footprint_least(pd_footprint *out, const pd_sizing *job, pd_aggregation how, int64_t elements, pd_dtype pushed,
                        bool ranged, const bool pulled[4]);
/* Stores in *out the bytes of a parameter whose optimizer has made this plan. pulled[t] says whether weights are
 * published in element type t (pd_dtype); in float32 they always are. PD_NO_MEMORY. */
int pd_footprint_of(pd_footprint *out, const pd_sizing *job, pd_aggregation how, const pd_plan *plan, pd_dtype pushed,
                    bool ranged, const bool pulled[4]);
/* Returns the bytes of all copies of a parameter's name and of its dimensions' names (`axes`; NULL: it has none).
 * They belong to pd_footprint.records. */
uint64_t pd_footprint_name(const pd_sizing *job, const char *name, const char *axes);
/* Adds the bytes of `n` parameters to *all, each of which takes as many as *one. */
void pd_footprint_add(pd_footprint *all, const pd_footprint *one, uint64_t n);
/* Completes the sum over all parameters of a job: adds the memory that they share, and the structs of the job, of its
 * ranks and of its `n_rules` optimizer rules. */
void pd_footprint_complete(pd_footprint *all, const pd_sizing *job, const pd_rule *rules, size_t n_rules);
/* Returns all bytes of the footprint together, as they count against max_total_bytes. */
uint64_t pd_footprint_sum(const pd_footprint *need);

#endif
