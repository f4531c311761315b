/* steps.h - the state that a job's rounds and steps work on: its parameters, the queues of chunks and parameters,
 * and the memory they may use.
 *
 * Step thread. Everything between a checked contribution (job/push.h) and the published weights belongs here:
 *
 *     pd_steps ── pd_param ─┬─ pd_round ── pd_chunk ── pd_slot    which rank has contributed what     store/round
 *                           ├─ pd_optim                           optimizer and its state             server/optim
 *                           └─ pd_snapshot                        weights
 *
 * contribute.h files a contribution. chunk_queue.h and collect.h compute aggregates. step_group.h decides which
 * parameters wait for others, and global_clip.h clips gradients together. step_batch.h runs optimizers. commit.h
 * closes rounds and publishes weights. work.h does a batch of all this work. */
#ifndef PD_STEPS_H
#define PD_STEPS_H

#include "budget.h"
#include "effects.h"
#include "ingest.h"
#include "param.h"

/* The part of this state that survives a restart of the server: store/image. Parameters and their groups are saved
 * besides. */
typedef struct pd_steps_saved {
    uint64_t contributions;  /* number of contributions with a gradient, counted for each chunk and rank */
    uint64_t steps, skipped; /* number of rounds that ended with a step; number of rounds that were skipped */
    uint64_t refused_steps;  /* number of rounds that closed without a step because an optimizer refused it */
    uint64_t skipped_whole;  /* number of steps that all parameters skipped because one parameter's round was skipped */
} pd_steps_saved;

typedef struct pd_steps {
    pd_steps_saved saved;

    /* the job that the steps belong to */
    char *name;
    uint32_t number;
    pd_job_values values;
    pd_rule *rules;
    size_t n_rules; /* number of rules; the last one is the built-in rule for model state */
    pd_membership members;
    pd_param *params;
    uint32_t n_params; /* number of parameters; 0 until the first Declare is planned */
    uint64_t furthest; /* highest step that any parameter has closed; 0: no round has closed since the server started */
    double loss;       /* mean of the scalar "loss" in the last round that had one */
    uint64_t loss_step; /* step of the round that gave `loss`; 0: no round has had a loss */
    uint64_t changes;   /* number of batches, root tasks and commands that may have changed the parameters */

    /* parts of the store, borrowed */
    const pd_store_config *config;
    pd_effects *outbox;
    pd_buffer_pools *pools;
    pd_ingest *ingest;
    struct pd_sums *sums; /* scratch of the present batch */
    struct pd_collect_batch *collecting;

    /* memory that the job uses */
    pd_account account; /* bytes of the job that count against max_total_bytes */
    pd_quota *quotas;   /* one quota of the ingest budget for each rank */
    uint64_t held;      /* bytes of frames whose contributions are not summed yet */

    /* queues of chunks and parameters */
    pd_chunk *complete, *partial; /* chunks that can be summed: complete chunks; incomplete chunks whose first ranks
                                   * have contributed */
    pd_chunk *full, *loose; /* chunks whose aggregate needs all contributions: complete chunks; chunks that wait for
                             * a rank and have contributions in frames */
    pd_param *merging;      /* parameters whose Adasum can be computed; linked by next_ready */
    pd_param *waiting;      /* parameters whose open round waits for ranks or may be held, oldest round first */
    pd_param *ready;        /* parameters whose step can begin or go on */
    bool look, look_loose;  /* true: search the queue `partial` (look) or `loose` (look_loose) for ranks over quota,
                             * because a frame was filed */
    uint32_t n_open;        /* number of open rounds */
    uint32_t n_begun;       /* number of parameters that have weights */
    uint32_t tasks_out;     /* number of root tasks that have not come back */

    /* for parameters that wait for other parameters */
    struct pd_step_group *groups; /* step groups by rule: step_group.h */
    struct pd_global_clip *clip;  /* clips gradients together: global_clip.h. NULL: no limit, of the job or of a rule */
    uint32_t n_held;              /* in a job that steps as a whole: number of parameters whose step waits */
    struct pd_cut *cut;           /* cut of an export under way: cut.h. NULL: none */

    /* the batch of steps that runs now */
    pd_param **batch;  /* array of n_params entries: parameters in the present batch */
    pd_optim **optims; /* array of n_params entries: optimizers of the parameters in the present batch */
    uint64_t retry_ns; /* time before which work is not tried again, because memory was short; 0: memory was not
                        * short */
    pd_effect *notice; /* memory for the message that reports that memory is short */
} pd_steps;

/* Returns whether the rank's frames use more than its quota of the ingest budget: pd_quota_is_exceeded. */
static inline bool pd_rank_is_over_quota(const pd_steps *steps, uint32_t rank)
{
    return pd_quota_is_exceeded(steps->ingest, &steps->quotas[rank]);
}
/* Returns whether any rank of the job is over its quota. */
bool pd_steps_are_over_quota(const pd_steps *steps);

/* Sets the parameter's stage, and puts it into steps->ready. */
void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage);

#endif
