/* job.h - one model in training: its configuration, its ranks and the processes that have them, its rounds and
 * steps. Step thread.
 *
 *     pd_jobs ── pd_job ─┬─ pd_rank      one per rank: which process has it
 *                        └─ pd_steps     parameters, rounds, optimizers: step/steps.h */
#ifndef PD_JOB_H
#define PD_JOB_H

#include "steps.h"

typedef enum pd_rank_state { PD_RANK_ABSENT, PD_RANK_CONNECTED, PD_RANK_LOST, PD_RANK_LEFT } pd_rank_state;

enum { PD_SUPERSEDED = 4 };

/* The part of a rank that a restart must bring back: store/image. */
typedef struct pd_rank_saved {
    uint64_t    nonce;                  /* of the process that has the rank, or had it last */
    uint32_t    process;                /* number of processes that have had the rank; a slot notes it to tell them apart */
    bool        present;                /* some process has had it */
    bool        sealed;                 /* some process at this rank has declared: its ranges stand */
    uint64_t    superseded[PD_SUPERSEDED]; uint32_t n_superseded;       /* nonces of processes that others took the rank from: the last few */
    uint64_t    initialiser;            /* nonce of the process whose initial weights came last, where these are averaged */
    uint64_t    step, contributions;    /* highest step contributed to; gradients of chunks taken */
    uint64_t    barrier_base;           /* barriers that the job had passed when this process came: it counts its own from 1 */
} pd_rank_saved;

/* A rank and the process that has it. */
typedef struct pd_rank {
    pd_rank_saved saved;
    pd_rank_state state;
    uint64_t    conn;                   /* of the process that has it, or had it last */
    char        label[128], reason[96]; /* "host:pid"; LOST: why */
    uint64_t    since_ns;               /* LOST, LEFT: when */
    uint64_t    refused_sets;           /* declarations of this process that were refused */
    pd_request *barrier;                /* waits for the others, or NULL */
} pd_rank;

/* Sums over the parameters, for operators: listing.h. */
typedef struct pd_job_totals {
    const pd_param *params; uint32_t n; /* of which parameters, */
    uint64_t    changes;                /* and as they were after so many changes of the job */
    uint64_t    elements, state_bytes, step_least, step_most;
    uint64_t    roots_due, roots_adopted, roots_failed, roots_replaced, root_waits;
} pd_job_totals;

/* The part of a job that a restart must bring back, beside its ranks, parameters and steps: store/image. */
typedef struct pd_job_saved {
    uint64_t    creator;                /* nonce of the process whose Hello created it */
    uint64_t    barrier;                /* barriers passed */
    uint64_t    refused, duplicates;    /* frames with data that were refused; pieces that had come before */
} pd_job_saved;

/* Requests that wait, oldest first, linked by mail.next. */
typedef struct pd_request_queue { pd_request *first, *last; } pd_request_queue;
void        pd_request_queue_add(pd_request_queue *queue, pd_request *request);     /* takes */
pd_request *pd_request_queue_take(pd_request_queue *queue);                         /* gives the first; there is one */
/* Answers all of them with the error. */
void        pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err);

typedef struct pd_job {
    pd_job_saved saved;
    pd_steps    steps;
    UT_hash_handle hh, hh_number;       /* pd_jobs.names (until dropped), pd_jobs.numbers */
    const pd_job_values *presets;       /* the store's */
    pd_rank    *ranks;                  /* steps.members.ranks of them */
    uint32_t    connected;              /* of them: connected now */
    bool        gone;                   /* dropped; waits for its root tasks to come back */

    pd_param   *names;                  /* hash table of the parameters */
    pd_chunk   *chunks;                 /* of all parameters, behind one another */
    pd_slot    *slots;
    pd_range   *ranges;                 /* of all ranged parameters, behind one another */
    uint64_t    collected;              /* bytes counted for contributions that ranks with ranges may leave behind */
    uint64_t    frames;                 /* number of the last frame looked at: pd_param.seen, pd_chunk.seen */
    uint32_t    n_overrides;            /* by operators: override.h */
    pd_job_totals totals;               /* as they were counted last */
    struct pd_listing *listing;         /* the list that was asked for last; NULL: none */

    pd_request_queue declares;          /* Declares that are not answered yet */
    struct pd_planning *planning;       /* the first set, while it is planned; n_params is 0 until it is finished. NULL: none is */
    pd_request_queue inbox;             /* frames that need arithmetic before they are taken: Init, and Push under nonfinite = reject */
    bool        unpublished;            /* it was read from an image, and the loop thread does not know its weights */
    struct pd_import *import;           /* optimizer state on its way into the job; NULL: none */

    struct pd_job *prev_due, *next_due; /* the store's queue of jobs with something to do */
    bool        queued;                 /* it is in that queue */
    uint64_t    turn;                   /* number of the last batch it had */
    uint64_t    linger_ns;              /* when it ends because nobody is there; 0: somebody is */
    uint64_t    noticed_ns;             /* when overdue rounds were last reported; 0: never */
    uint64_t    init_ns;                /* since when initial weights are waited for: the first Declare, the last weights or report */
    const pd_param *noticed; uint64_t noticed_step;     /* which one the log has named */
    uint64_t    drain_step;             /* draining: the highest step that still closes */
    pd_effect  *gone_notice;            /* memory for JOB_GONE */
} pd_job;

/* What jobs use of the store, borrowed. */
typedef struct pd_job_env {
    const pd_store_config *config;
    const pd_job_values   *presets;
    pd_effects       *outbox;
    pd_buffer_pools  *pools;
    pd_budget        *budget;
    pd_ingest        *ingest;
    struct pd_sums   *sums;
    struct pd_collect_batch *collecting;
} pd_job_env;

/* Returns the rounds that count as closed before the first one. */
static inline uint64_t pd_job_start_step(const pd_job *job) { return job->steps.values.at[PD_JOB_KEY_START_STEP]; }

/* Returns whether initial weights are the mean of those of all ranks. */
static inline bool pd_job_averages_init(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_INITIAL_WEIGHTS] == PD_INIT_MEAN;
}

/* Creates a job as the Hello describes it. Gives *out, in no table yet. PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int  pd_job_new(pd_job **out, const pd_job_env *env, uint32_t number, const pd_request *hello, pd_error *err);
/* Frees the job: all contributions are released (job_end.h), the parameters forgotten (param_set.h), all root tasks
 * back. Accepts NULL. */
void pd_job_free(pd_job *job);
/* Checks that the Hello describes this job. PD_FAILED_PRECONDITION: another job of this name; names the key and both
 * values. PD_INVALID_ARGUMENT. */
int  pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err);
/* Returns whether every rank has declared. */
bool pd_job_sealed(const pd_job *job);

#endif
