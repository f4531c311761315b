/* job.h - one model in training: its configuration, its ranks and the worker processes at them, its rounds and
 * steps. Step thread.
 *
 *     pd_jobs ── pd_job ─┬─ pd_rank                one per rank: which process has it
 *                        ├─ pd_checkpoint_policy   its checkpoints: when they are due, what is durable
 *                        └─ pd_steps               parameters, rounds, optimizers: step/steps.h */
#ifndef PD_JOB_H
#define PD_JOB_H

#include "budget.h"
#include "effects.h"
#include "rule.h"
#include "steps.h"
#include "store_config.h"

#include <stdint.h>

enum { PD_SPEED_MARKS = 16 };

/* A mark: a step, and the time at which the job had reached it. */
typedef struct pd_speed_mark {
    uint64_t step, ns;
} pd_speed_mark;

/* Recent steps of a job: those of the last 10 seconds, or the last 15 steps if these took longer. Begins zeroed. */
typedef struct pd_speed {
    /* ring buffer of marks; the oldest is at index `first` */
    pd_speed_mark marks[PD_SPEED_MARKS];
    uint32_t first, n;
    pd_speed_mark last; /* the newest step that was noted, and its time */
} pd_speed;

/* Notes that the job has reached step `step` at the time `now_ns`. Does nothing if it was noted before. */
void pd_speed_note(pd_speed *speed, uint64_t step, uint64_t now_ns);
/* Returns the job's steps per second at the time `now_ns`; 0: fewer than two steps were noted. It falls while a step
 * takes longer than the average of those before it. */
double pd_speed_at(const pd_speed *speed, uint64_t now_ns);

/* The last checkpoint of a job, made when the server drains. */
typedef enum pd_last_checkpoint { PD_LAST_UNWANTED, PD_LAST_WANTED, PD_LAST_DONE } pd_last_checkpoint;

/* Since when the disk has something of the job: checkpoint_due.h. */
typedef struct pd_disk_watch {
    bool runs, late;            /* the disk has something; it was logged that it does not answer */
    uint64_t results;           /* number of results that had returned from it before */
    uint64_t since_ns, next_ns; /* since when; when it is logged that the disk does not answer */
} pd_disk_watch;

/* The stream of steps of a job's WAL, apart from what its steps read (step/wal.h). */
typedef struct pd_step_stream {
    bool wanted;       /* durability = log */
    bool slow;         /* it was logged that the job waits for the disk */
    const char *moved; /* why the state has changed otherwise than by a step, so that the stream must end; NULL: no */
    bool waits;        /* records wait until the checkpoint that they follow is durable */
    struct pd_effect *first, *last; /* the records that wait, oldest first, linked by mail.next */
    /* after a checkpoint that failed, none is begun for the stream before this step; the distance waited last */
    uint64_t retry, distance;
    uint64_t broken; /* number of times that the stream had to end */
    /* for operators, since the server started: times that records took to become durable, and their bytes; number of
     * steps that were replayed at the start */
    pd_histogram times;
    uint64_t bytes, repeated;
    uint64_t results; /* number of records that the WAL thread has returned */
    pd_disk_watch watch;
    bool left; /* the disk does not respond, and the job continues without waiting for the records that it has */
} pd_step_stream;

/* The stream of decisions of a job with checkpoints, apart from those that wait for a record (step/wal.h). */
typedef struct pd_decision_stream {
    bool on;           /* records are handed over */
    bool fresh;        /* the next record begins a chain */
    bool headed;       /* decisions wait for the present checkpoint, whose header was written */
    const char *moved; /* why the state has changed otherwise than by steps, so that the stream must end; NULL: no */
    uint64_t number, base; /* of the last record that was handed over */
    uint64_t mark;         /* number up to which records are not needed once the present checkpoint is durable */
    uint64_t copied;       /* step of the last copy of the job's state, which has all values that were set before */
    uint64_t since;        /* records up to this number do not matter any more, even if they fail */
    /* step at which the stream began; number of steps that were waited after the last error before a checkpoint */
    uint64_t begun_step, distance;
    uint32_t under_way;    /* number of records that are on their way to the disk */
    uint64_t renewed;      /* bytes that the account counts of these, since they have decisions that were read back */
    pd_request_queue sets; /* commands that wait until the disk has their values */
    uint64_t read;         /* number of decisions that were read at the start */
} pd_decision_stream;

/* The newest durable checkpoint of a job. */
typedef struct pd_newest_checkpoint {
    bool exists;
    uint64_t step, bytes;
    uint64_t durable_ns; /* time at which it became durable */
    uint64_t written_ns; /* time that writing it took; 0: it was written before the server started */
    uint64_t changes;    /* pd_checkpoint_policy.changes at its cut */
} pd_newest_checkpoint;

/* The checkpoint that is being made or written. */
typedef struct pd_checkpoint_cut {
    uint64_t step;
    uint64_t changes; /* pd_checkpoint_policy.changes at the cut */
    uint64_t counted; /* bytes that the job counts for its worker states while the checkpoint writer has it */
} pd_checkpoint_cut;

/* When a checkpoint is tried again by time (checkpoint_state.h). */
typedef struct pd_checkpoint_retry {
    uint64_t at_ns;   /* time of the next attempt */
    uint64_t wait_ns; /* time from there to the one after it; 0: none has failed since the newest durable one */
} pd_checkpoint_retry;

typedef struct pd_checkpoint_counts {
    uint64_t written;
    uint64_t skipped;   /* not begun, because something else was under way */
    uint64_t failed;    /* could not be made or written */
    uint64_t unwritten; /* could not be written, since the last one that was */
} pd_checkpoint_counts;

/* What the job writes to the disk. */
typedef struct pd_disk_load {
    /* Bytes of a checkpoint and of a record with aggregates, computed when the job was planned; 0: the disk's speed is
     * not known, or the job writes none. */
    uint64_t checkpoint_bytes, record_bytes;
    bool warned; /* it was logged that the job outruns the disk */
} pd_disk_load;

typedef struct pd_checkpoint_policy {
    bool durable;   /* the job has checkpoints */
    bool on_disk;   /* the disk may have a checkpoint of the job, or something that remains of one */
    bool begun;     /* a checkpoint of the job was begun, whether or not it became durable */
    bool says_over; /* a checkpoint was begun, or read at the start, that says that the job is over */
    /* number of steps between two checkpoints, which are made at its multiples; 0: only on request */
    uint64_t every;
    /* step at which the next checkpoint begins, when the first parameter has closed it; UINT64_MAX: at no step */
    uint64_t next;
    uint64_t soon;                /* step at which a checkpoint is due, besides those at multiples; UINT64_MAX: none */
    struct pd_checkpoint *making; /* the checkpoint that is being made; NULL: none */
    bool writing;                 /* the checkpoint writer has a checkpoint of this job */
    pd_checkpoint_cut cut;
    pd_newest_checkpoint newest;
    uint64_t durable_step; /* steps up to this one are on disk, by a checkpoint or by the WAL */
    /* number of times that the state has changed otherwise than by a step: an import, weights that were replaced */
    uint64_t changes;
    uint64_t results; /* number of checkpoints that have returned from the checkpoint writer */
    pd_disk_watch watch;
    pd_disk_load load;
    bool paused; /* the job begins no step until a checkpoint is on the disk: checkpoint_state.h */
    pd_checkpoint_retry retry;
    pd_checkpoint_counts counts;
    char error[256]; /* why the last attempt failed; empty: it did not */
    pd_step_stream steps;
    pd_decision_stream decisions;
    /* For each parameter, memory for the copy of its state, which returns with a checkpoint and serves the next one:
     * fresh memory would cost as much time as the copy. Its size follows from the optimizer's plan. */
    struct {
        uint8_t **at; /* NULL: there is none */
        uint32_t n;
    } spares;
    pd_request_queue asked; /* requests for a checkpoint that are not answered yet; wait_ns is their deadline */
    struct {
        pd_request_queue waiting; /* begins of exports that wait for another one, or for the cut of a checkpoint */
        uint64_t party;           /* number of the identity that has exported the job last; 0: nobody */
    } exports;
    struct {
        pd_last_checkpoint state;
        bool begun; /* it is being made or written */
    } last;
    pd_effect *farewell; /* tells the checkpoint writer that the job has ended; allocated with the job */
} pd_checkpoint_policy;

typedef enum pd_rank_state { PD_RANK_ABSENT, PD_RANK_CONNECTED, PD_RANK_LOST, PD_RANK_LEFT } pd_rank_state;

enum { PD_SUPERSEDED = 4, PD_WORKER_STATES = 4 };

/* The part of a rank's record that survives a restart of the server: store/image writes and reads it. */
typedef struct pd_rank_saved {
    uint64_t nonce; /* nonce of the process that has the rank, or of the last one that had it */
    /* Number of processes that have had the rank so far. A contribution's record (pd_contribution) stores this number,
     * to tell the contributions of these processes apart. */
    uint32_t process;
    bool present; /* some process has or has had the rank */
    bool left;    /* the process that had the rank last has left it for good: pd_rank.state is LEFT */
    /* a process at this rank has declared its parameters, so the ranges that the rank contributes are fixed */
    bool sealed;
    uint64_t superseded[PD_SUPERSEDED];
    /* number of nonces stored so far in `superseded`, which keeps those of the last processes that lost the rank to
     * another */
    uint32_t n_superseded;
    /* nonce of the process that last sent initial weights; used if the job averages them (initial_weights = mean) */
    uint64_t initialiser;
    /* highest step that the rank has contributed to; number of chunks whose gradients were taken from it */
    uint64_t step, contributions;
    /* Number of barriers that the job had passed when this process took the rank. It is needed because the process
     * counts its barriers from 1. */
    uint64_t barrier_base;
} pd_rank_saved;

/* A rank of the job, and the process that has it. */
typedef struct pd_rank {
    pd_rank_saved saved;
    pd_rank_state state;
    uint64_t conn; /* number of the connection of the process that has the rank, or of the last one that had it */
    char label[128], reason[96]; /* "host:pid" of the worker; why the rank was lost */
    /* who has the rank, or had it last, as its connection proved it; NULL: not known. Survives a restart of the
     * server */
    char *identity;
    uint64_t since_ns; /* time at which the rank's `state` became LOST or LEFT */
    /* number of Declare requests of this rank's process that were refused */
    uint64_t refused_sets;
    pd_request *barrier; /* the barrier request of this rank, which waits for the other ranks; NULL: none */
    uint32_t window;     /* number of its last steps whose pushes the process can send again; 0: none */
    uint64_t seen;       /* number of steps that the process had seen closed when it joined */
    /* Up to this step the rank leaves out no parameter any more: it has ended the step, or the rounds have closed. */
    uint64_t ended;
    uint32_t obstacle; /* index of the parameter because of which the rank could not end a step last: push.c */
    /* The process has passed barriers, but joined after the checkpoint from which the job was restored: so
     * saved.barrier_base is not certain (pd_barrier_joined). */
    bool barrier_guessed;
    pd_worker_state worker_states[PD_WORKER_STATES]; /* the rank's last ones, sorted by step */
    uint32_t n_worker_states;
} pd_rank;

/* Sums over a job's parameters, which are shown to operators (job_figures.h). They are computed again when the job has
 * changed. */
typedef struct pd_job_totals {
    const pd_param *params;
    uint32_t n; /* number of parameters */
    /* value of pd_steps.changes when the sums were computed; they are valid as long as that value is the same */
    uint64_t changes;
    uint64_t elements, state_bytes, step_least, step_most;
    char optimizers[64]; /* names of the optimizers in use; the one with the most elements is first */
    uint64_t roots_due, roots_adopted, roots_failed, roots_unused, root_waits, roots_failing, root_age;
} pd_job_totals;

/* Weights that rank 0 sends to replace published ones, while not all of them have come: replacement.h. */
typedef struct pd_replacing {
    uint64_t number; /* of the change; 0: none come */
    uint64_t step;   /* the step whose weights they replace */
    uint64_t nonce;  /* of the process that sends them */
    uint32_t whole;  /* number of parameters whose weights have all come */
} pd_replacing;

/* The part of a job's record that survives a restart of the server: store/image writes and reads it. Ranks,
 * parameters and steps have such parts of their own. */
typedef struct pd_job_saved {
    /* number that tells the job from all others, also those of its name: made of the nonce of the process whose Hello
     * created it, the start of the server and the job's number */
    uint64_t creator;
    uint64_t barrier; /* number of barriers that the job has passed */
    /* number of refused frames with tensors; number of tensors or chunks that came a second time */
    uint64_t refused, duplicates;
} pd_job_saved;

/* The parameters of a job, and the records of their rounds: arrays over all parameters, one after another. */
typedef struct pd_job_records {
    pd_param *names; /* hash table of the parameters by name */
    pd_chunk *chunks;
    pd_contribution *contributions;
    pd_rank_range *ranges; /* of ranged parameters */
    /* bytes that count against max_total_bytes for contributions to ranged parameters while an aggregate collects
     * them */
    uint64_t collected;
} pd_job_records;

/* Requests that wait, the oldest first. */
typedef struct pd_job_waiting {
    pd_request_queue declares; /* Declare requests that are not answered yet */
    pd_request_queue sets;     /* Set requests that have not come into force yet */
    /* frames that wait to be scanned or copied before they are filed: initial weights, and pushes under nonfinite =
     * reject */
    pd_request_queue inbox;
} pd_job_waiting;

/* What is computed for operators: job_figures.h. */
typedef struct pd_job_figures {
    pd_speed speed;       /* recent steps and their times, for the job's steps per second */
    pd_job_totals totals; /* sums over the job's parameters, as they were last computed */
    /* index of the list that an operator asked for last, which finds a page fast; NULL: none */
    struct pd_listing *listing;
    uint64_t published; /* pd_publishing.number when the figures were copied last */
    bool touched;       /* the figures may have changed since they were copied last */
} pd_job_figures;

typedef struct pd_job_counts {
    uint64_t replayed; /* contributions to steps that their workers had seen closed before they joined */
    /* number of the last frame that was checked; parameters and chunks store such numbers, to find what a frame names
     * twice */
    uint64_t frames;
    uint32_t overrides;     /* overrides in the job */
    uint64_t pushed_hypers; /* contributions that have brought hyperparameters */
} pd_job_counts;

/* What a restart has left to do. */
typedef struct pd_job_restart {
    bool restored;    /* the job was read from an image or a checkpoint */
    bool joined;      /* a worker has joined since the job was created or restored */
    bool unpublished; /* the job was restored, and the loop thread does not have its weights yet */
} pd_job_restart;

typedef struct pd_job_timers {
    uint64_t over_ns;    /* time at which the last rank left, if all have: pd_job_is_over */
    uint64_t linger_ns;  /* time at which the job ends unless a worker connects; 0: a worker is connected */
    uint64_t release_ns; /* time at which lost ranks give their reserves back: reserves.h; 0: none is lost */
} pd_job_timers;

/* Reports to workers that wait: overdue.h. */
typedef struct pd_job_reports {
    /* time at which overdue rounds (open longer than step_timeout) or missing initial weights were last reported; 0:
     * never */
    uint64_t noticed_ns;
    /* Time from which the wait for missing initial weights is counted: that of the first Declare, of the last frame
     * with initial weights, or of the last report that some are missing. */
    uint64_t init_ns;
    /* when to look next for requests that wait for a rank which has left, whether to look earlier, and when that was
     * done last */
    uint64_t look_ns, looked_ns;
    bool look_soon;
    /* the parameter that was named last, and the last step that it had closed then: each overdue round is logged
     * once */
    const pd_param *noticed;
    uint64_t noticed_step;
} pd_job_reports;

/* A job's place in the store's queue of jobs that have work. */
typedef struct pd_job_due {
    struct pd_job *prev, *next;
    bool queued;
    uint64_t turn; /* number of the store's batch of work in which this job worked last */
} pd_job_due;

/* The time of a job's next deadline, as of its last change, and its place in the heap: jobs.h. */
typedef struct pd_job_deadline {
    bool is_set;
    uint64_t at_ns;
    struct pd_job *later, *prev, *next;
} pd_job_deadline;

typedef struct pd_job {
    pd_job_saved saved;
    pd_steps steps;
    /* links in two hash tables of jobs: pd_jobs.names, until the job is dropped, and pd_jobs.numbers */
    UT_hash_handle hh, hh_number;
    const pd_job_values *presets; /* the store's default values of job keys */
    pd_rank *ranks;               /* array with all ranks of the job; its length is steps.members.ranks */
    uint32_t connected;           /* number of ranks that are connected now */
    uint32_t left;                /* number of ranks that have left for good */
    bool shares;                  /* its weights lie in a segment that workers can map (buffer_pool.h) */
    bool gone;                    /* the job is dropped, and exists only until its preconditioner tasks have returned */
    pd_job_records records;
    pd_job_waiting waiting;
    pd_job_figures figures;
    pd_job_counts counts;
    pd_job_restart restart;
    pd_job_timers timers;
    pd_job_reports reports;
    pd_job_due due;
    pd_job_deadline deadline;
    /* the planning of the parameters that the first rank declares; NULL: none is under way. Until it is finished,
     * n_params is 0. */
    struct pd_planning *planning;
    pd_replacing replacing;
    struct pd_import *import; /* an operator's import of optimizer state that is under way; NULL: none */
    struct pd_export *export; /* an operator's export of weights or state that is under way; NULL: none */
    pd_checkpoint_policy checkpointing;
    pd_owner *owner;      /* counts the job against its owner's quota; NULL: nobody counts it */
    char *owner_identity; /* whose job it is; NULL: nobody's. Survives a restart of the server */
    char *run;            /* the run that the job belongs to; NULL: not known. Survives a restart of the server */
    uint64_t drain_step;  /* while the server drains: the last step whose rounds may still close */
    /* the effect JOB_GONE, allocated with the job so that its end can be reported when out of memory */
    pd_effect *gone_notice;
} pd_job;

/* The parts of the store that jobs use. A job borrows them. */
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

/* Queues a line for the log about the job. */
#define pd_job_say(job, level, ...)                                                                                    \
    pd_say((job)->steps.outbox, level, (pd_log_facts){ .job = (job)->steps.name }, __VA_ARGS__)

/* Fails with PD_NO_MEMORY, for the job. */
static inline int pd_job_no_memory(const pd_job *job, pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name);
}

/* Creates an effect for the job that answers no request. NULL: out of memory. */
static inline pd_effect *pd_job_effect(const pd_job *job, pd_effect_kind kind)
{
    return pd_effect_new(kind, (pd_ticket){ 0, 0 }, job->steps.number);
}

/* Makes an effect that can publish n parameters. NULL: out of memory. */
pd_effect *pd_job_new_closed(const pd_job *job, size_t n);
/* Sends the effect if it publishes any parameter. Takes ownership of it. */
void pd_job_send_closed(pd_job *job, pd_effect *effect);

/* Returns the job's start_step: the number of rounds that count as closed before the job begins. */
static inline uint64_t pd_job_start_step(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_START_STEP];
}

/* Returns whether the job is over: all its ranks have left for good. Its weights can be exported until it ends. */
static inline bool pd_job_is_over(const pd_job *job)
{
    return job->left == job->steps.members.ranks;
}

/* Returns whether the job begins with the mean of all ranks' initial weights. */
static inline bool pd_job_averages_init(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_INITIAL_WEIGHTS] == PD_INIT_MEAN;
}

/* Creates the job that a Hello request describes, and stores it in *out. The job is not put into the table of jobs.
 * PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int pd_job_new(pd_job **out, const pd_job_env *env, uint32_t number, const pd_request *hello, pd_error *err);
/* Frees the job; accepts NULL. Before, the caller must release the job's contributions (pd_job_release) and free its
 * parameters (param_set.h), and all its preconditioner tasks must have returned. */
void pd_job_free(pd_job *job);
/* Checks that a Hello request for the job's name describes this job. PD_FAILED_PRECONDITION: it describes another one;
 * the error names the option that differs and both values. PD_INVALID_ARGUMENT: an option of the Hello is not valid. */
int pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err);
/* Checks the same except for the world_size, which a restored job may take over (resize.h). */
int pd_job_agrees_but_world(const pd_job *job, const pd_request *hello, pd_error *err);
/* Returns the largest step that any parameter of the job has closed. */
uint64_t pd_job_largest_step(const pd_job *job);
/* Returns whether every rank has declared its parameters. */
bool pd_job_sealed(const pd_job *job);

/* Answers a worker with a descriptor of the segment that has its job's weights, if there is one. Takes ownership of the
 * request. */
void pd_job_share(pd_job *job, pd_request *request);

/* Returns for how many more milliseconds the job lingers, rounded up; 0: a worker is connected, so the job does not
 * linger. */
uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns);
/* Adds to the error of a refused Hello that the job lingers, at which step it is, and what the user can do. Changes
 * nothing if a worker is connected. */
void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err);

/* Checks the names, options, rules and rank numbers of a Hello. PD_INVALID_ARGUMENT. */
int pd_hello_check(const pd_request *request, pd_error *err);

/* Checks that the globs of a Hello's rules have at most PD_GLOB_MAX bytes. Rules of a job that is there are not
 * checked: older versions took longer ones. PD_INVALID_ARGUMENT. */
int pd_hello_check_globs(const pd_request *request, pd_error *err);

/* Returns the name of a hyperparameter that may not change from step to step, out of those in `mask` (bit i:
 * hyperparameter i of the optimizer `row`); NULL: all of them may change. */
const char *pd_fixed_hyper(const pd_optimizer_ops *row, uint64_t mask);

#endif
