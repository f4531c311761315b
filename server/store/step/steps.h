/* steps.h - what a job's rounds and steps work with: its parameters, the queues of chunks and parameters, and what
 * they are allowed to use.
 *
 * Step thread. Everything between a contribution that was checked (job/push.h) and the weights that are published
 * hangs here:
 *
 *     pd_steps ── pd_param ─┬─ pd_round ── pd_chunk ── pd_slot    who has contributed what            store/round
 *                           ├─ pd_optim                           optimizer and its state             server/optim
 *                           └─ pd_snapshot                        weights
 *
 * contribute.h files a contribution; chunk_queue.h and collect.h make aggregates; step_group.h says which parameters
 * wait for others, and global_clip.h clips them together; step_batch.h runs optimizers; commit.h closes rounds and
 * publishes; work.h does a batch of all that. */
#ifndef PD_STEPS_H
#define PD_STEPS_H

#include "budget.h"
#include "effects.h"
#include "ingest.h"
#include "param.h"

/* The part that a restart must bring back, beside the parameters and their groups: store/image. */
typedef struct pd_steps_saved {
    uint64_t contributions;             /* gradients of chunks taken */
    uint64_t steps, skipped;            /* rounds that stepped, that were skipped */
    uint64_t refused_steps;             /* rounds that closed without a step, since an optimizer refused it */
    uint64_t skipped_whole;             /* steps of all parameters skipped because of one */
} pd_steps_saved;

typedef struct pd_steps {
    pd_steps_saved saved;

    /* of the job */
    char           *name;
    uint32_t        number;
    pd_job_values   values;
    pd_rule        *rules;      size_t n_rules;     /* the last is that of model state */
    pd_membership   members;
    pd_param       *params;     uint32_t n_params;  /* none before the first Declare was answered */
    uint64_t        changes;            /* batches of work, tasks and commands that may have changed the parameters */

    /* of the store, borrowed */
    const pd_store_config *config;
    pd_effects     *outbox;
    pd_buffer_pools *pools;
    pd_ingest      *ingest;
    struct pd_sums *sums;               /* scratch of the batch being worked on */
    struct pd_collect_batch *collecting;

    /* memory */
    pd_account      account;            /* bytes counted against max_total_bytes */
    pd_quota       *quotas;             /* by rank */
    uint64_t        held;               /* bytes of frames that are not summed yet */

    /* queues */
    pd_chunk       *complete, *partial; /* chunks to sum: complete ones; such as have come from the first ranks on */
    pd_chunk       *full, *loose;       /* of collected aggregates: complete chunks; chunks that miss somebody and hold frames */
    pd_param       *merging;            /* parameters whose Adasum can run; linked as `ready` */
    pd_param       *waiting;            /* open rounds that miss somebody or may be held, oldest first */
    pd_param       *ready;              /* parameters whose step can begin or go on */
    bool            look, look_loose;   /* something was filed since partial, resp. loose chunks were last looked at */
    uint32_t        n_open;             /* open rounds */
    uint32_t        n_begun;            /* parameters that have weights */
    uint32_t        tasks_out;          /* root tasks not back */

    /* parameters that wait for others */
    struct pd_step_group  *groups;      /* by rule: step_group.h */
    struct pd_global_clip *clip;        /* NULL: the job's gradients are not clipped together. global_clip.h */
    uint32_t        n_held;             /* parameters that wait for the others, where the job steps as a whole */

    /* one batch */
    pd_param      **batch;              /* room for n_params: parameters that it steps, */
    pd_optim      **optims;             /* and their optimizers */
    uint64_t        retry_ns;           /* memory was short: not before then; 0: it was not */
    pd_effect      *notice;             /* memory for a report that memory is short */
} pd_steps;

/* Returns whether the rank holds more than its part of the ingest budget: pd_quota_is_exceeded. */
static inline bool pd_rank_is_over_quota(const pd_steps *steps, uint32_t rank)
{
    return pd_quota_is_exceeded(steps->ingest, &steps->quotas[rank]);
}
/* Returns whether some rank of the job does. */
bool pd_steps_are_over_quota(const pd_steps *steps);

/* Puts a parameter into steps->ready. */
void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage);

#endif
