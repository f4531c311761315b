/* job.h - one model in training: its configuration, its ranks and the worker processes at them, its rounds and
 * steps. Step thread.
 *
 *     pd_jobs ── pd_job ─┬─ pd_rank      one per rank: which process has it
 *                        └─ pd_steps     parameters, rounds, optimizers: step/steps.h */
#ifndef PD_JOB_H
#define PD_JOB_H

#include "speed.h"
#include "steps.h"

typedef enum pd_rank_state { PD_RANK_ABSENT, PD_RANK_CONNECTED, PD_RANK_LOST, PD_RANK_LEFT } pd_rank_state;

enum { PD_SUPERSEDED = 4 };

/* The part of a rank's record that survives a restart of the server: store/image. */
typedef struct pd_rank_saved {
    uint64_t nonce; /* nonce of the process that has the rank, or of the last one that had it */
    /* number of processes that have had the rank so far. A slot stores this number, to tell the contributions of
     * these processes apart */
    uint32_t process;
    bool present; /* some process has or has had the rank */
    bool sealed;  /* a process at this rank has declared, so the rank's ranges are fixed */
    uint64_t superseded[PD_SUPERSEDED];
    /* number of nonces in `superseded`: those of the last processes that lost the rank to a newer process */
    uint32_t n_superseded;
    uint64_t initialiser;         /* with initial_weights = mean: nonce of the process that last sent initial weights */
    uint64_t step, contributions; /* highest step that the rank has contributed to; number of chunks with gradients
                                   * that were taken from it */
    /* number of barriers that the job had passed when this process took the rank: the process counts its barriers
     * from 1 */
    uint64_t barrier_base;
} pd_rank_saved;

/* A rank, and the process at it. */
typedef struct pd_rank {
    pd_rank_saved saved;
    pd_rank_state state;
    uint64_t conn;               /* connection of the process that has the rank, or of the last one that had it */
    char label[128], reason[96]; /* the worker's "host:pid"; why its rank was lost */
    uint64_t since_ns;           /* time at which `state` became LOST or LEFT */
    uint64_t refused_sets;       /* number of Declares of this process that were refused */
    pd_request *barrier;         /* the rank's barrier request, which waits for the other ranks; NULL: none */
} pd_rank;

/* Sums over a job's parameters, shown to operators: listing.h. */
typedef struct pd_job_totals {
    const pd_param *params;
    uint32_t n;       /* number of parameters */
    uint64_t changes; /* value of pd_steps.changes when the sums were computed: while it is the same they are valid */
    uint64_t elements, state_bytes, step_least, step_most;
    char optimizers[64]; /* names of the optimizers in use; the one with the most elements is first */
    uint64_t roots_due, roots_adopted, roots_failed, roots_replaced, root_waits, roots_failing;
} pd_job_totals;

/* The part of a job's record that survives a restart of the server. Ranks, parameters and steps have such parts of
 * their own: store/image. */
typedef struct pd_job_saved {
    uint64_t creator;             /* nonce of the process whose Hello created the job */
    uint64_t barrier;             /* number of barriers that the job has passed */
    uint64_t refused, duplicates; /* number of refused frames with data; number of duplicate tensors or chunks */
} pd_job_saved;

/* A queue of waiting requests, oldest first, linked by mail.next. */
typedef struct pd_request_queue {
    pd_request *first, *last;
} pd_request_queue;
void pd_request_queue_add(pd_request_queue *queue, pd_request *request); /* takes the request */
/* removes and returns the oldest request; the queue is not empty */
pd_request *pd_request_queue_take(pd_request_queue *queue);
/* Answers all requests of the queue with the error, and frees them. */
void pd_request_queue_refuse(pd_request_queue *queue, pd_effects *outbox, const pd_error *err);

typedef struct pd_job {
    pd_job_saved saved;
    pd_steps steps;
    UT_hash_handle hh, hh_number; /* links in the hash tables pd_jobs.names (until the job is dropped) and
                                   * pd_jobs.numbers */
    const pd_job_values *presets; /* the store's default values of job keys */
    pd_rank *ranks;               /* array of all ranks; their number is steps.members.ranks */
    uint32_t connected;           /* number of ranks that are connected now */
    bool gone;                    /* the job is dropped, and waits only for its running root tasks */

    pd_param *names;  /* hash table of the parameters by name */
    pd_chunk *chunks; /* array with the chunks of all parameters, one parameter after another */
    pd_slot *slots;
    pd_range *ranges;           /* array with the ranges of all ranged parameters, one parameter after another */
    uint64_t collected;         /* bytes counted against max_total_bytes for collected contributions to ranged
                                 * parameters */
    uint64_t frames;            /* number of the last checked frame; it is compared with pd_param.seen and
                                 * pd_chunk.seen */
    uint32_t n_overrides;       /* number of operators' overrides in the job: override.h */
    pd_speed speed;             /* measures the job's steps per second, for operators */
    pd_job_totals totals;       /* sums over the parameters, as last computed */
    struct pd_listing *listing; /* index of the list that an operator asked for last; NULL: none */

    pd_request_queue declares; /* Declares that are not answered yet */
    struct pd_planning
        /* the first rank's set of parameters while it is being planned; n_params is 0 until the plan is finished.
         * NULL: no planning is under way */
        *planning;
    pd_request_queue
        inbox;        /* frames that must be scanned or copied before they are filed: Init, and Push under nonfinite
                       * = reject */
    bool unpublished; /* the job was read from an image, and the loop thread does not have its weights yet */
    struct pd_import *import; /* an import under way; NULL: none */
    struct pd_export *export; /* an export under way; NULL: none */

    struct pd_job *prev_due, *next_due; /* links in the store's queue of jobs that have work */
    bool queued;                        /* the job is in the store's queue of jobs that have work */
    uint64_t turn;                      /* number of the last batch of the store in which this job worked */
    /* time at which the job ends unless a worker connects; 0: a worker is connected */
    uint64_t linger_ns;
    uint64_t noticed_ns; /* time at which overdue rounds were last reported; 0: never */
    /* since when the job waits for missing initial weights: the time of the first Declare, of the last weights that
     * came, or of the last report */
    uint64_t init_ns;
    const pd_param *noticed;
    uint64_t noticed_step;  /* last closed step of `noticed` at the last report: a round is logged only once */
    uint64_t drain_step;    /* while draining: the last step that may still close */
    pd_effect *gone_notice; /* memory for the JOB_GONE effect, reserved when the job is created */
} pd_job;

/* The parts of the store that a job uses. A job borrows them. */
typedef struct pd_job_env {
    const pd_store_config *config;
    const pd_job_values *presets;
    pd_effects *outbox;
    pd_buffer_pools *pools;
    pd_budget *budget;
    pd_ingest *ingest;
    struct pd_sums *sums;
    struct pd_collect_batch *collecting;
} pd_job_env;

/* Returns the job's start_step: the number of rounds that count as closed when the job begins. */
static inline uint64_t pd_job_start_step(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_START_STEP];
}

/* Returns whether the job begins with the mean of all ranks' initial weights. */
static inline bool pd_job_averages_init(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_INITIAL_WEIGHTS] == PD_INIT_MEAN;
}

/* Creates the job that the Hello describes, and gives it in *out. The job is not in the table of jobs yet.
 * PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int pd_job_new(pd_job **out, const pd_job_env *env, uint32_t number, const pd_request *hello, pd_error *err);
/* Frees the job; accepts NULL. The caller must release its contributions (job_end.h) and free its parameters
 * (param_set.h) before. Its root tasks must have come back. */
void pd_job_free(pd_job *job);
/* Checks that the Hello describes this job. PD_FAILED_PRECONDITION: it describes another job of the same name; the
 * error names the option that differs and both values. PD_INVALID_ARGUMENT. */
int pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err);
/* Returns whether every rank has declared its parameters. */
bool pd_job_sealed(const pd_job *job);

#endif
