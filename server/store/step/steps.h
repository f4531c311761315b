/* steps.h - the state that a job's rounds and steps work on: its parameters, the queues of chunks and parameters, and
 * the memory they may use.
 *
 * Step thread. Everything between a checked contribution (job/push.h) and the published weights belongs here:
 *
 *     pd_steps ── pd_param ─┬─ pd_round ── pd_chunk ── pd_slot    which rank has contributed what     store/round
 *                           ├─ pd_optim                           optimizer and its state             server/optim
 *                           └─ pd_published                        weights
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
#include "step_times.h"

/* The part of a job's rounds and steps that survives a restart of the server: store/image writes and reads it.
 * Parameters and their groups have such parts of their own. */
typedef struct pd_steps_saved {
    /* number of contributions with a gradient, counted for each chunk (section of a parameter) and rank */
    uint64_t contributions;
    uint64_t steps, skipped; /* number of rounds that ended with a step; number of rounds that were skipped */
    uint64_t refused_steps;  /* number of rounds that closed without a step because an optimizer refused it */
    /* number of steps that all parameters skipped because the round of one of them was skipped */
    uint64_t skipped_whole;
} pd_steps_saved;

typedef struct pd_steps {
    pd_steps_saved saved;

    /* members that describe the job */
    char *name;
    uint32_t number;
    pd_job_values values;
    pd_rule *rules;
    size_t n_rules; /* number of optimizer rules; the last one is the built-in rule for model state (not trained) */
    pd_membership members;
    pd_param *params;
    uint32_t n_params; /* number of parameters; 0 until those of the first Declare are planned */
    uint64_t least;    /* lowest step that any parameter has closed; not known if n_least is 0: pd_steps_least */
    uint32_t n_least;  /* number of parameters that have closed no later step */
    uint64_t furthest; /* highest step that any parameter has closed; 0: no round has closed since the server started */
    double loss;       /* mean of the scalar "loss" in the last round to which workers have sent one */
    uint64_t loss_step;                      /* step of the round that `loss` is from; 0: no round has had one */
    pd_scalar_stats scalars[PD_MAX_SCALARS]; /* the last means of all scalars that workers have sent, for operators */
    size_t n_scalars;
    uint64_t no_gradient;    /* number of rounds that closed because no rank had a gradient, since the server started */
    pd_histogram root_times; /* times of preconditioner tasks that have come back */
    /* number of batches of work, preconditioner tasks and commands that may have changed a parameter; lists for
     * operators that were made at the same number are still valid */
    uint64_t changes;

    /* parts of the store that jobs use, borrowed */
    const pd_store_config *config;
    pd_effects *outbox;
    pd_memory memory;
    pd_ingest *ingest;
    struct pd_sums *sums; /* memory for the sums of the present batch of work */
    struct pd_collect_batch *collecting;

    /* members that count the memory which the job uses */
    pd_account account; /* bytes of the job that count against max_total_bytes */
    pd_quota *quotas;   /* for each rank its quota of the ingest budget (received frames that are not summed yet) */
    uint64_t held;      /* bytes of frames whose contributions are not summed yet */

    /* queues of chunks and of parameters that have work or wait */
    /* Chunks that can be summed: in `complete` those to which all contributions have come, in `partial` others, of
     * which the lowest ranks have contributed. */
    pd_chunk *complete, *partial;
    /* Chunks whose aggregate needs all contributions at once: in `full` those to which they have come, in `loose`
     * those that wait for a rank and have contributions in frames. */
    pd_chunk *full, *loose;
    /* parameters whose open round waits for ranks, or may have to wait for other parameters; oldest round first */
    pd_param *waiting;
    pd_param *ready;   /* parameters whose step can begin, or has begun and can go on */
    pd_param *stopped; /* parameters in stage PD_STOPPED, linked by next_ready */
    uint64_t limit; /* no parameter begins a step beyond this one; UINT64_MAX: the job is not paused (image/pause.h) */
    /* Whether the queue `partial` must be searched for ranks over quota, because a
     * frame was filed since the last search; `look_loose`: the same for the queue `loose`. */
    bool look, look_loose;
    uint32_t n_open;  /* number of parameters whose round is open */
    uint32_t n_begun; /* number of parameters that have weights */
    /* number of preconditioner tasks that have not come back from the preconditioner pool */
    uint32_t tasks_out;

    /* members for parameters that wait for other parameters of the job */
    /* for each optimizer rule its step group: step_group.h */
    struct pd_step_group *groups;
    /* clips the gradients of all parameters together: global_clip.h. NULL: neither the job nor a rule has a limit */
    struct pd_global_clip *clip;
    /* in a job whose parameters begin each step together: number of parameters that wait for other parameters */
    uint32_t n_held;
    /* the step that an export under way reads, and its weights: cut.h. NULL: there is no export */
    struct pd_cut *cut;
    /* what the present step has read, for the job's log: step_log.h. NULL: the job has no log, or none yet */
    struct pd_step_log *log;
    pd_unread *unread; /* earlier weights that answers still have: unread.h */
    /* records of the course of steps, for the job's control log: control.h. NULL: the job has no checkpoints */
    struct pd_control *control;

    pd_step_times times; /* what steps have cost, and which ranks were last */
    /* members for the batch of steps that runs now */
    pd_param **batch;  /* array of n_params entries: the parameters of the batch */
    pd_optim **optims; /* array of n_params entries: the optimizers of the parameters in `batch` */
    /* time until which no work is tried again, because memory was short; 0: memory was not short */
    uint64_t retry_ns;
    pd_effect *notice; /* memory for the message which reports that out of memory, allocated in advance */
} pd_steps;

/* Returns whether the rank is over quota: its frames use nearly all that it may use of the ingest budget
 * (pd_quota_is_exceeded). */
static inline bool pd_rank_is_over_quota(const pd_steps *steps, uint32_t rank)
{
    return pd_quota_is_exceeded(steps->ingest, &steps->quotas[rank]);
}
/* Returns whether any rank of the job is over its quota of the ingest budget. */
bool pd_steps_are_over_quota(const pd_steps *steps);

/* Returns the time of the store's clock, in ns; 0: it has none. */
static inline uint64_t pd_steps_clock_ns(const pd_steps *steps)
{
    return steps->config->clock_ns != NULL ? steps->config->clock_ns(steps->config->clock_arg) : 0;
}

/* Returns the lowest step that any parameter has closed; 0: there are no parameters. Looks at all parameters only if it
 * is asked for the first time since all of them have closed another step. */
uint64_t pd_steps_least(pd_steps *steps);
/* Notes that a parameter has closed step saved.step. */
void pd_steps_closed(pd_steps *steps, const pd_param *param);

/* Sets the parameter's stage (how far it is in its step), and puts the parameter into the queue steps->ready. */
void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage);

#endif
