/* steps.h - the state that a job's rounds and steps work on: its parameters, the queues of chunks and parameters, and
 * the memory they may use.
 *
 * Step thread. Everything between a checked contribution (job/push.h) and the published weights belongs here:
 *
 *     pd_steps ── pd_param ─┬─ pd_round ── pd_chunk ── pd_contribution    who has contributed what    store/round
 *                           ├─ pd_optim                                   optimizer and its state     server/optim
 *                           └─ pd_published                               weights
 *
 * contribute.h files a contribution. sums.h and collect.h compute aggregates. step_group.h decides which parameters
 * wait for others, and global_clip.h clips gradients together. work.h runs optimizers, closes rounds and publishes
 * weights. riders.h is what accompanies a step. */
#ifndef PD_STEPS_H
#define PD_STEPS_H

#include "budget.h"
#include "effects.h"
#include "param.h"
#include "stats.h"

/* The part of a job's rounds and steps that survives a restart of the server: store/image writes and reads it.
 * Parameters and their groups have such parts of their own. */
typedef struct pd_steps_saved {
    uint64_t contributions;  /* contributions with a gradient, counted for each chunk and rank */
    uint64_t steps, skipped; /* rounds that ended with a step; rounds that were skipped */
    uint64_t refused_steps;  /* rounds that closed without a step because an optimizer refused it */
    uint64_t skipped_whole;  /* steps that all parameters skipped because the round of one of them was skipped */
} pd_steps_saved;

/* How far the parameters of a job are. */
typedef struct pd_progress {
    uint64_t least;    /* lowest step that any parameter has closed; not known if n_least is 0: pd_steps_least */
    uint32_t n_least;  /* parameters that have closed no later step */
    uint32_t n_begun;  /* parameters that have weights */
    uint64_t furthest; /* highest step that any parameter has closed; 0: no round has closed since the server started */
} pd_progress;

/* What operators see of the rounds that have closed. */
typedef struct pd_step_figures {
    double loss;                             /* mean of the scalar "loss" in the last round that had one */
    uint64_t loss_step;                      /* step of that round; 0: none */
    pd_scalar_stats scalars[PD_MAX_SCALARS]; /* the last mean of each scalar */
    size_t n_scalars;
    uint64_t no_gradient; /* rounds that closed because no rank had a gradient, since the server started */
    pd_histogram root_times;
} pd_step_figures;

/* Chunks that have work, or contributions in frames. A chunk is in at most one of the queues (pd_chunk.list). */
typedef struct pd_chunk_queues {
    /* Aggregates that are sums: in `complete` chunks to which all contributions have come, in `partial` those of which
     * the lowest ranks have contributed. */
    pd_chunk *complete, *partial;
    /* Aggregates that need all contributions at once: in `full` chunks to which they have come, in `loose` those that
     * wait for a rank. The first chunk stands for all in an Adasum. */
    pd_chunk *full, *loose;
    /* Whether `partial` or `loose` must be searched for ranks over quota: a frame was filed since the last search. */
    bool look, look_loose;
} pd_chunk_queues;

/* Parameters that have work or wait. A parameter is in `ready` or `stopped`, or in neither (pd_stage). */
typedef struct pd_param_queues {
    pd_param *waiting; /* whose open round waits for ranks, or may have to wait for other parameters; oldest first */
    pd_param *ready;   /* whose step can begin, or has begun and can go on */
    pd_param *stopped; /* whose step could begin, if no rider stopped it */
    uint64_t limit;  /* no parameter begins a step beyond this one; UINT64_MAX: the job is not paused (image/pause.h) */
    uint32_t n_open; /* parameters whose round is open */
} pd_param_queues;

/* What parameters that step together share. */
typedef struct pd_together {
    struct pd_step_group *groups; /* for each optimizer rule its step group: step_group.h */
    struct pd_global_clip *clip;  /* global_clip.h. NULL: neither the job nor a rule has a limit */
    uint32_t n_held;              /* in a job that steps as a whole: parameters that wait for others */
} pd_together;

/* Memory for one batch of work. Sums and aggregates borrow it from the store. */
typedef struct pd_step_batch {
    pd_param **params; /* n_params entries: the parameters of the batch */
    pd_optim **optims; /* n_params entries: their optimizers */
    struct pd_sums *sums;
    struct pd_collect_batch *collect;
} pd_step_batch;

/* What a job does when it is out of memory. */
typedef struct pd_shortage {
    uint64_t retry_ns; /* time until which no work is tried again; 0: memory was not short */
    pd_effect *notice; /* memory for the message which reports it, allocated in advance */
} pd_shortage;

enum { PD_OPEN_STEPS = 4 };

/* A step that some rank has contributed to, and that not all parameters have closed. */
typedef struct pd_open_step {
    uint64_t step;      /* 0: no step is recorded here */
    uint32_t closed;    /* number of parameters that have closed the step */
    uint32_t last_rank; /* the rank that contributed last */
    uint64_t first_ns, last_ns;
    uint64_t *at; /* array with an entry for each rank: time of its last contribution to the step; 0: it has none */
} pd_open_step;

typedef struct pd_step_times {
    pd_job_times total;
    pd_open_step open[PD_OPEN_STEPS]; /* step S is at index S % PD_OPEN_STEPS */
    uint64_t spent[PD_PHASES];        /* time of batches of work since the last step was closed by all parameters */
    uint64_t mark_ns;                 /* time at which the clock was last read */
    uint32_t finished; /* number of steps that all parameters have closed, and that are not counted yet */
    uint64_t *memory;  /* memory of the arrays pd_open_step.at */
} pd_step_times;

typedef struct pd_steps {
    pd_steps_saved saved;
    char *name;
    uint32_t number;
    pd_job_values values;
    pd_rule *rules;
    size_t n_rules; /* the last rule is the built-in one for model state */
    pd_membership members;
    pd_param *params;
    uint32_t n_params; /* 0 until the parameters of the first Declare are planned */
    /* counts what may have changed a parameter: batches of work, preconditioner tasks, commands. Lists for operators
     * that were made at the same number are still valid */
    uint64_t changes;
    pd_progress progress;
    pd_step_figures figures;

    const pd_store_config *config; /* these four are parts of the store, borrowed */
    pd_effects *outbox;
    pd_memory memory;
    pd_ingest *ingest;
    pd_account account; /* bytes of the job that count against max_total_bytes */
    pd_quota *quotas;   /* for each rank its quota of the ingest budget */
    uint64_t held;      /* bytes of frames whose contributions are not summed yet */
    pd_unread *unread;  /* earlier weights that answers still have: unread.h */

    pd_chunk_queues chunks;
    pd_param_queues queue;
    pd_together together;
    pd_step_batch batch;
    pd_shortage shortage;
    uint32_t tasks_out; /* preconditioner tasks that have not come back */

    struct pd_cut *cut; /* consistent_cut.h. NULL: nobody reads the state of one step */
    struct pd_wal *wal; /* decisions and inputs of steps: wal.h. NULL: the job has no checkpoints */
    pd_step_times times;
} pd_steps;

/* PD_NO_MEMORY. */
int pd_step_times_make(pd_step_times *times, uint32_t ranks);
void pd_step_times_free(pd_step_times *times);

/* Records that the rank has contributed to a step of some parameter, or has reported that it has no gradient. */
void pd_step_times_arrived(pd_step_times *times, uint64_t step, uint32_t rank, uint64_t now_ns);
/* Records that one more of the job's n_params parameters has closed the step. */
void pd_step_times_closed(pd_step_times *times, uint64_t step, uint32_t n_params);
/* Adds the time since the last call to a phase. */
void pd_step_times_spend(pd_step_times *times, pd_step_phase phase, uint64_t now_ns);
/* Ends a batch of work. If all parameters have closed a step in it, the time since the last such step is that step's.
 * If they have closed several steps, these share it. */
void pd_step_times_end(pd_step_times *times);

/* Keeps a frame as long as one of its contributions, which are all filed, still lies in its buffer. If none does, the
 * frame is finished at once. Takes ownership of the frame. */
void pd_frame_keep(pd_steps *steps, pd_request *frame);
/* Releases one contribution that lies in a frame's buffer. If it is the last one, the frame is freed and its buffer
 * goes back to the connection. */
void pd_frame_let_go(pd_steps *steps, pd_request *frame);
/* Frees a frame in whose buffer no contribution lies, and returns the buffer to the connection. Takes ownership of
 * the frame. */
void pd_frame_finish(pd_steps *steps, pd_request *frame);

/* Return whether the rank, or any rank, is over its quota of the ingest budget. */
static inline bool pd_rank_is_over_quota(const pd_steps *steps, uint32_t rank)
{
    return pd_quota_is_exceeded(steps->ingest, &steps->quotas[rank]);
}
bool pd_steps_are_over_quota(const pd_steps *steps);

/* Returns the time of the store's clock, in ns; 0: it has none. */
static inline uint64_t pd_steps_clock_ns(const pd_steps *steps)
{
    return steps->config->clock_ns != NULL ? steps->config->clock_ns(steps->config->clock_arg) : 0;
}

/* Returns the lowest step that any parameter has closed; 0: there are no parameters. Looks at all parameters only if it
 * is asked for the first time since all of them have closed another step. */
uint64_t pd_steps_least(pd_steps *steps);
/* Records that a parameter has closed step saved.step. */
void pd_steps_closed(pd_steps *steps, const pd_param *param);

/* Sets the parameter's stage, and puts the parameter into steps->queue.ready. */
void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage);

/* Makes a version of the parameter's weights, not written yet. NULL: out of memory. */
pd_published *pd_steps_new_version(const pd_steps *steps, const pd_param *param, uint64_t version);

#endif
