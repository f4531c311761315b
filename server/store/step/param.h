/* param.h - one parameter of a job: its weights, its optimizer, and the round that collects its contributions. Step
 * thread. */
#ifndef PD_PARAM_H
#define PD_PARAM_H

#include "job_keys.h"
#include "optimizer.h"
#include "round.h"
#include "rule.h"
#include "snapshot.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Hyperparameters that were sent with pushes of the open round. */
typedef struct pd_pushed {
    uint64_t mask;                /* bit h: hyperparameter h was sent */
    uint32_t rank[PD_MAX_HYPERS]; /* for each hyperparameter the rank that sent it first */
    pd_hypers hypers;             /* values for the round's step: for hyperparameters in `mask` the values that were
                                   * sent, for the others declared or scheduled values */
} pd_pushed;

/* How far a parameter's round and step are. */
typedef enum pd_stage {
    PD_COLLECTING, /* contributions to the round are missing, or not summed yet */
    PD_HELD,       /* the aggregate is complete, and the parameter waits for other parameters: step_group.h */
    PD_RESTING,    /* the step could begin, but waits for the end of a cut: cut.h */
    PD_READY,      /* in steps->ready: the aggregate is complete, the step has not begun */
    PD_BEGUN,      /* the step has begun, and waits until the steps of all its atomic group have begun: step_group.h */
    PD_STEPPING,   /* in steps->ready: the step has begun and can go on */
    PD_PARKED,     /* the step has begun, and waits for a root task or for another member of its atomic group */
} pd_stage;

/* The part of a parameter's record that survives a restart of the server: store/image. Weights, optimizer, scalars
 * and overrides are saved besides. */
typedef struct pd_param_saved {
    uint64_t step;             /* number of closed rounds */
    uint64_t skipped, refused; /* number of steps that were skipped; number of steps that the optimizer refused */
    uint64_t gaps;             /* number of rounds without a step because some elements had no gradient */
    uint64_t contributions;    /* number of contributions with a gradient, counted for each chunk and rank */
    uint32_t outcome;          /* outcome of the last closed round (pd_outcome); 0: no round has closed yet */
    uint64_t initialiser;      /* nonce of the process that last sent initial weights; ranged parameters have one in
                                * each range instead */
} pd_param_saved;

typedef struct pd_param {
    pd_param_saved saved;
    UT_hash_handle hh; /* link in the hash table pd_job.names */

    /* as the ranks have declared it */
    char *name;
    uint32_t index;
    pd_shape shape;
    int64_t elements;
    char *axes;       /* names of the dimensions, which every rank declares alike; NULL: none were declared */
    bool ranged;      /* each rank contributes a declared range of the elements */
    bool model_state; /* model state, which is averaged and not trained */
    pd_rule *rule;
    pd_aggregation how;    /* how contributions are aggregated, see pd_param_how */
    pd_dtype update_dtype; /* element type in which workers pull updates; 0: none pulls updates */

    /* weights and optimizer */
    pd_optim *optim;
    pd_snapshot *current; /* published weights; NULL until the initial weights are published */
    pd_snapshot *next;    /* weights that the present step writes, or initial weights that are not complete yet */
    uint64_t unlanded;    /* chunks of initial weights that have not come yet: rank 0's; if ranged, every rank's */
    float *added;         /* float32 update of the present step, until it is converted; NULL: no conversion is needed */
    pd_buffer_pool *pool[4]; /* buffers of each element type (pd_dtype), and of updates (PD_UPDATE); NULL: no worker
                              * pulls this type */
    struct pd_override_entry *overrides;
    uint32_t n_overrides, overrides_room; /* number of entries in `overrides`, sorted by step (override.h); number of
                                           * entries allocated */
    struct pd_root_log *root_log;         /* what the log has reported of the root of each task; NULL: the parameter
                                           * has no roots */
    int64_t roots_looked_at;              /* number of adopted and failed roots when the log last counted them */

    /* the open round of contributions */
    pd_round round;              /* the round of step saved.step + 1; or the round that averages initial weights */
    float *accumulator;          /* the round's sum, which becomes its aggregate; NULL: nothing is summed yet */
    pd_buffer_pool *spills;      /* pool of chunk-sized buffers for spilled contributions (collect.h); NULL:
                                  * contributions are never spilled */
    struct pd_adasum_tree *tree; /* the round's Adasum while it is being computed, else NULL */
    pd_pushed *pushed;           /* hyperparameters sent with pushes of the round; NULL until some are sent for the
                                  * first time */
    struct pd_scalars *scalars;  /* scalars sent with pushes of the round: round_scalars.h. NULL until some are sent
                                  * for the first time */
    uint64_t seen;               /* number of the last frame that named this parameter */
    bool seen_absent;            /* frame `seen` has reported that the rank has no gradient of the parameter */

    /* the step that ends the round */
    pd_stage stage;
    /* From PD_READY on: how the round ends. PD_STEPPED: the optimizer steps. 0: the initial weights are published.
     * In PD_HELD: how the round would end if no other parameter mattered. */
    pd_outcome outcome;
    pd_counted *counted;          /* from PD_READY on: ranks whose contributions count, for pd_closed; NULL: all
                                   * expected ranks */
    bool uncaptured;              /* memory was short before all root tasks of the step were handed out */
    struct pd_step_group *group;  /* group that counts steps together; NULL: it counts alone */
    struct pd_param *next_member; /* next parameter of the step group */
    struct pd_param *prev_waiting, *next_waiting; /* links in steps->waiting */
    struct pd_param *prev_ready, *next_ready; /* links in steps->ready, steps->merging, cut->resting, or group->held */
} pd_param;

/* Returns how the contributions to the open round are aggregated. Initial weights are always averaged. */
static inline pd_aggregation pd_param_how(const pd_param *param)
{
    return param->current == NULL ? PD_MEAN : param->how;
}

/* Asks the policy whether the rank may contribute to a step of the parameter. */
static inline pd_admit pd_param_admit(const pd_param *param, uint32_t rank, uint64_t step)
{
    return param->round.policy->admit(&param->round, rank, param->saved.step, step);
}

/* Returns the bytes of the published weights and of the next ones in these element types. float32 always counts. */
uint64_t pd_weight_bytes(int64_t elements, const bool pulled[4]);
/* Returns the bytes that publishing the weights in this element type would add; 0: they are published in it already. */
uint64_t pd_param_type_bytes(const pd_param *param, pd_dtype dtype);
/* Publishes the weights in this element type, too, from now on. If weights are published already, *again is a copy
 * of them with the new type, for the caller to publish instead: a published snapshot is immutable. Otherwise *again
 * is NULL. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull(pd_param *param, pd_buffer_pools *all, pd_dtype dtype, pd_snapshot **again);
/* Publishes the update of each step (what the step adds to the weights) in this element type from now on. A
 * parameter has one type of updates. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull_updates(pd_param *param, pd_buffer_pools *all, pd_dtype dtype);
/* Returns the bytes that publishing updates would add; 0: they are published already. */
uint64_t pd_param_update_bytes(const pd_param *param, pd_dtype dtype);
/* Gives in *update the memory to which the step that is about to begin writes its update; NULL: no worker pulls
 * updates. PD_NO_MEMORY. */
int pd_param_begin_update(pd_param *param, float **update);
/* Gives the update's float32 buffer back to its pool. Call it when the step is over, after param->next was converted
 * or discarded. */
void pd_param_end_update(pd_param *param);
/* Publishes the snapshot as the parameter's weights, and fills *closed for the loop thread, with a reference to the
 * snapshot. Takes `snapshot`; NULL: the published weights stay. */
void pd_param_publish(pd_param *param, pd_snapshot *snapshot, pd_outcome outcome, pd_closed *closed);

/* Fills *closed again with the published weights and the outcome of the last closed round: after a restart the loop
 * thread does not have them. */
void pd_param_publish_again(pd_param *param, pd_closed *closed);

/* Writes the name of the open round: "step 7", or "the initial weights". Returns `text`. */
char *pd_round_text(const pd_param *param, char *text, size_t size);

/* Converts the float32 weights in `next` of n parameters to their other element types, under one parallel region.
 * Skips parameters whose `next` is NULL. */
void pd_params_convert(pd_param *const *params, size_t n, int threads);

#endif
