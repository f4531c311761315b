/* steps.h - the state that a job's rounds and steps work on: its parameters, the queues of chunks and parameters, and
 * the memory they may use.
 *
 * Step thread. Everything between a checked contribution (job/push.h) and the published weights belongs here:
 *
 *     pd_steps ── pd_param ─┬─ pd_round ── pd_chunk ── pd_contribution    who has contributed what    store/round
 *                           ├─ pd_optim                                   optimizer and its state     server/optim
 *                           └─ pd_published                               weights
 *
 * contribute.h files contributions. fragment.h decides which ranks count. sums.h and collect.h compute aggregates.
 * step_group.h decides which parameters wait for others, and global_clip.h clips gradients together. work.h runs
 * optimizers, closes rounds and publishes weights. riders.h calls what observes each step or holds it back. */
#ifndef PD_STEPS_H
#define PD_STEPS_H

#include "budget.h"
#include "effects.h"
#include "param.h"
#include "set_rule.h"
#include "stats.h"
#include "withheld.h"

/* The counters of a job's rounds and steps that survive a restart of the server: store/image writes and reads them. */
typedef struct pd_steps_saved {
    uint64_t contributions;  /* number of contributions with a gradient, counted for each chunk and rank */
    uint64_t steps, skipped; /* number of rounds that ended with a step; number of rounds that were skipped */
    uint64_t refused_steps;  /* number of rounds that closed without a step because an optimizer refused it */
    uint64_t skipped_whole;  /* number of steps that all parameters skipped together */
} pd_steps_saved;

/* How far the parameters of a job are. */
typedef struct pd_progress {
    uint64_t least;    /* lowest step over all parameters, as long as n_least is not 0 (pd_steps_least) */
    uint32_t n_least;  /* number of parameters at step `least`; 0: `least` must be computed again */
    uint32_t n_begun;  /* number of parameters that have weights */
    uint64_t furthest; /* highest step that any parameter has closed; 0: no round has closed since the server started */
} pd_progress;

/* What operators see of the rounds that have closed. */
typedef struct pd_step_figures {
    double loss;                             /* mean of the scalar "loss" in the last round that had one */
    uint64_t loss_step;                      /* step of the round that `loss` is from; 0: none */
    pd_scalar_stats scalars[PD_MAX_SCALARS]; /* the last mean of each scalar */
    size_t n_scalars;
    uint64_t no_gradient;      /* number of rounds that closed without a gradient since the server started */
    pd_histogram root_times;   /* how long preconditioner tasks took */
    pd_histogram settle_times; /* times from tallies to their verdicts (settle.h) */
} pd_step_figures;

/* Queues of chunks: chunk_queues.h. A chunk is in at most one (pd_chunk.list). */
typedef struct pd_chunk_queues {
    pd_chunk *ready;   /* chunks whose aggregate can be computed */
    pd_chunk *waiting; /* chunks whose aggregate cannot, and whose contributions occupy the memory of frames */
    /* `waiting` must be searched for ranks over quota, because it has changed since the last search, or others need
     * memory now */
    bool look;
} pd_chunk_queues;

/* Queues of parameters. A parameter is in at most one of `ready` and `stopped` (pd_stage). */
typedef struct pd_param_queues {
    /* parameters whose open round waits for ranks, or may have to wait for other parameters; oldest first */
    pd_param *waiting;
    pd_param *ready;   /* parameters whose step can begin, or has begun and can continue */
    pd_param *stopped; /* parameters whose step could begin, but is stopped by a rider */
    /* last step that may begin while the job is paused (pd_pause_begin); UINT64_MAX: it is not paused */
    uint64_t limit;
    uint32_t n_open; /* number of parameters whose round is open */
} pd_param_queues;

/* How parameters of the job step together. */
typedef struct pd_together {
    struct pd_step_group *groups; /* one for each optimizer rule: step_group.h */
    struct pd_global_clip *clip;  /* global_clip.h; NULL: the job neither clips by a norm nor skips outliers */
    struct pd_settle *settle;     /* settle.h; NULL: steps are not settled with other shards */
    uint32_t n_held;              /* if the job steps as a whole: number of parameters that wait for others */
    bool skipped;                 /* if the job steps as a whole: all parameters skip the step that is decided now */
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
    pd_effect *notice; /* memory for the message to waiting workers, allocated in advance */
} pd_shortage;

enum { PD_OPEN_STEPS = 4 };

/* A step that some rank has contributed to, and that not all parameters have closed. */
typedef struct pd_open_step {
    uint64_t step;              /* 0: this entry is not used */
    uint32_t closed;            /* number of parameters that have closed the step */
    uint32_t last_rank;         /* the rank that contributed last */
    uint64_t first_ns, last_ns; /* time of the first contribution to the step; time of the last one */
    uint64_t *at; /* array with an entry for each rank: time of its last contribution to the step; 0: it has none */
} pd_open_step;

/* How long the steps of a job take, and which ranks the others wait for. */
typedef struct pd_step_times {
    pd_job_times total;
    pd_open_step open[PD_OPEN_STEPS]; /* step s is at index s % PD_OPEN_STEPS */
    uint64_t spent[PD_PHASES];        /* time of each phase since all parameters last closed a step */
    uint64_t mark_ns;                 /* time at which the clock was last read */
    uint32_t finished;                /* number of steps that all parameters have closed in the present batch */
    uint64_t *memory;                 /* memory of the arrays pd_open_step.at */
} pd_step_times;

/* Which sets of ranks must be those from before a restart of the server: job/repeats.h. All 0 before a restart. */
typedef struct pd_set_repeats {
    bool awaits;  /* workers may come that have seen more than the fragments know (pd_fragment.seen) */
    bool changed; /* the job has taken another course since the restart */
} pd_set_repeats;

/* The rounds and steps of one job, which owns this struct. */
typedef struct pd_steps {
    pd_steps_saved saved;
    char *name;      /* name of the job */
    uint32_t number; /* number of the job in this daemon */
    /* number of this daemon in its cluster, and how many shards that has; 0 and 1: the daemon is alone */
    uint32_t shard, shards;
    uint64_t
        map; /* fingerprint of the map of portions (job/placement.h); 0: the daemon is alone, or no rank has declared */
    uint32_t n_cut; /* number of cut parameters of the whole declaration */
    pd_job_values values;
    pd_rule *rules;
    size_t n_rules; /* the last rule is the built-in one for model state */
    /* `ranks`: number of slots. The set: the ranks that are members now; all, unless the sets are open */
    pd_rank_set members;
    pd_set_rule sets;              /* how it is decided which ranks count in a step */
    struct pd_fragment *fragments; /* fragment.h; NULL until the parameters are planned */
    uint32_t n_fragments;
    /* Number of steps of all fragments whose sets of ranks are fixed: the next set gets the next number. With one
     * fragment it is the number of the last such step. 0 if the sets are not open */
    uint64_t place;
    bool grouped;             /* some rank has named its group (job/membership.h) */
    struct pd_shares *shares; /* shares.h; NULL: no worker uses shares */
    uint64_t epoch;           /* number of times that the members have changed; survives a restart of the server */
    pd_param *params;
    uint32_t n_params; /* 0 until the parameters of the first Declare are planned */
    /* number of events that may have changed a parameter: batches, preconditioner tasks, commands. A copy of the list
     * of parameters for operators is valid as long as this number stays the same */
    uint64_t changes;
    pd_progress progress;
    pd_step_figures figures;

    const pd_store_config *config; /* like `outbox`, `memory` and `ingest` borrowed from the store */
    pd_effects *outbox;
    pd_memory memory;
    pd_ingest *ingest;
    pd_account account; /* bytes of the job that are charged to max_total_bytes */
    pd_quota *quotas;   /* one for each rank: its use of the ingest budget */
    uint64_t held;      /* bytes of frames whose contributions are not summed yet */
    pd_unread *unread;  /* counts the job's unread weights: published.h */

    pd_chunk_queues chunks;
    pd_param_queues queue;
    pd_together together;
    pd_step_batch batch;
    pd_shortage shortage;
    uint32_t tasks_out; /* number of preconditioner tasks that the pool has not returned */

    struct pd_cut *cut; /* consistent_cut.h. NULL: no export or checkpoint needs a cut now */
    pd_set_repeats repeats;
    pd_withheld withheld; /* reports of closed steps that wait for the disk */
    struct pd_wal *wal;   /* decisions and inputs of steps: wal.h. NULL: the job has no checkpoints */
    pd_step_times times;
} pd_steps;

/* Allocates the times of a job with this number of ranks. PD_NO_MEMORY: the caller calls pd_step_times_free. */
int pd_step_times_make(pd_step_times *times, uint32_t ranks);
void pd_step_times_free(pd_step_times *times);

/* Notes that the rank has contributed to a step of some parameter, or has reported that it has no gradient. */
void pd_step_times_arrived(pd_step_times *times, uint64_t step, uint32_t rank, uint64_t now_ns);
/* Notes that one more of the job's n_params parameters has closed the step. */
void pd_step_times_closed(pd_step_times *times, uint64_t step, uint32_t n_params);
/* Adds the time since the last call to the time of a phase. */
void pd_step_times_spend(pd_step_times *times, pd_step_phase phase, uint64_t now_ns);
/* Ends a batch. If all parameters have closed a step in it, adds the time of each phase since the step before to the
 * histograms. If they have closed several steps, each gets an equal share of the time. */
void pd_step_times_end(pd_step_times *times);

/* Keeps a frame, whose contributions are all filed, as long as one of them lies in its buffer. If none does, frees the
 * frame at once (pd_frame_finish). Takes ownership of the frame. */
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

/* Returns the lowest step over all parameters; 0: there are no parameters. Looks at all parameters only if that step
 * has changed since the last call. */
uint64_t pd_steps_least(pd_steps *steps);
/* Updates steps->progress after a parameter has closed step param->saved.step. */
void pd_steps_closed(pd_steps *steps, const pd_param *param);

/* Sets the parameter's stage, and puts the parameter into steps->queue.ready. */
void pd_steps_ready(pd_steps *steps, pd_param *param, pd_stage stage);

/* Makes a version of the parameter's weights, whose content is undefined. NULL: out of memory. */
pd_published *pd_steps_new_version(const pd_steps *steps, const pd_param *param, uint64_t version);

#endif
