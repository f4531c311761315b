/* job.h - one model in training: its configuration, its ranks and the worker processes at them, its rounds and
 * steps. Step thread.
 *
 *     pd_jobs ── pd_job ─┬─ pd_rank                one for each rank: which process has it
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

/* A step, and the time (ns) at which the job reached it. */
typedef struct pd_speed_mark {
    uint64_t step, ns;
} pd_speed_mark;

/* The job's recent steps, from which its speed is computed: those of the last 10 seconds, or the last 15 steps if these
 * took longer. Begins zeroed. */
typedef struct pd_speed {
    /* ring buffer of `n` marks; the oldest is at index `first` */
    pd_speed_mark marks[PD_SPEED_MARKS];
    uint32_t first, n;
    pd_speed_mark last; /* the newest step that pd_speed_note was told of */
} pd_speed;

/* Remembers that the job has reached step `step` at the time `now_ns`. Does nothing if it was told of this step
 * before. */
void pd_speed_note(pd_speed *speed, uint64_t step, uint64_t now_ns);
/* Returns the job's steps per second at the time `now_ns`; 0 if fewer than two steps are known. The result falls while
 * a step takes longer than the average of the steps before it. */
double pd_speed_at(const pd_speed *speed, uint64_t now_ns);

/* Whether the job still needs the last checkpoint, which is made when the server drains. */
typedef enum pd_last_checkpoint { PD_LAST_UNWANTED, PD_LAST_WANTED, PD_LAST_DONE } pd_last_checkpoint;

/* Watches whether the disk still answers (image/checkpoint_due.c). There is one for the job's checkpoints, and one for
 * the records of each of its streams. */
typedef struct pd_disk_watch {
    /* the disk has a checkpoint or records of the job; the log says already that the disk does not answer */
    bool runs, late;
    uint64_t results; /* number of checkpoints or records that had returned when the watch began */
    /* time at which the watch began; time at which a line is logged that the disk does not answer */
    uint64_t since_ns, next_ns;
} pd_disk_watch;

/* State of the WAL stream that has all that steps took. What the steps themselves use of it is in step/wal.h. */
typedef struct pd_step_stream {
    bool wanted; /* the job says durability = log */
    bool slow;   /* the log says already that the job waits for the disk */
    /* names what changed the state without a step (such as an import), so that the stream must end; NULL: nothing
     * did */
    const char *moved;
    bool waits;                     /* true: records are held back until the checkpoint before them is durable */
    struct pd_effect *first, *last; /* the records that are held back, oldest first, linked by mail.next */
    /* after a checkpoint has failed: the step before which no new one is begun for the stream; number of steps from the
     * failure to it */
    uint64_t retry, distance;
    uint64_t broken; /* number of times that the stream had to end */
    /* The disk has the records after place `oldest` up to place `end`; those up to `oldest` are no longer needed. If
     * the stream has ended, it may begin anew once no shard of the cluster can have to go back to `end` or before:
     * wal_records.h. */
    uint64_t oldest, end;
    /* For operators, since the server started: how long records took to become durable; bytes of these records; number
     * of steps that were replayed at the start. */
    pd_histogram times;
    uint64_t bytes, repeated;
    uint64_t results; /* number of records that the WAL thread has returned */
    pd_disk_watch watch;
    bool left; /* true: the disk does not answer, and the job no longer waits for the records that the disk has */
} pd_step_stream;

/* State of the WAL stream that has decisions alone, for a job with checkpoints. The decisions that are not in a record
 * yet are in step/wal.h. */
typedef struct pd_decision_stream {
    bool on;    /* true: records are handed to the WAL thread */
    bool fresh; /* true: the next record begins a new chain */
    /* true: decisions are held back until the checkpoint that is being made, whose header exists, is durable */
    bool headed;
    /* names what changed the state without a step (such as an import), so that the stream must end; NULL: nothing
     * did */
    const char *moved;
    /* number of the last record that was handed over; number up to which the newest durable checkpoint replaces
     * records */
    uint64_t number, base;
    uint64_t mark; /* what `base` becomes when the checkpoint that is being made is durable */
    /* step of the last cut whose state was copied; the copy has all overrides that were set before it */
    uint64_t copied;
    /* number of a record: if this or an earlier record cannot be written, the stream continues */
    uint64_t since;
    /* step at which the stream began; number of steps between the last error and the checkpoint that begins the stream
     * again */
    uint64_t begun_step, distance;
    uint32_t under_way; /* number of records that the WAL thread has */
    uint64_t results;   /* number of records that it has returned */
    pd_disk_watch watch;
    /* bytes that are charged to the job for records under way that repeat decisions which were read after a restart */
    uint64_t renewed;
    pd_request_queue sets; /* commands and Leaves that wait until they are durable: pending_sets.h */
    uint32_t ranks;        /* number of ranks with news (pd_rank.news) for the next record */
    uint64_t read;         /* number of decisions that were read when the server started */
} pd_decision_stream;

/* The newest durable checkpoint of a job. */
typedef struct pd_newest_checkpoint {
    bool exists;
    uint64_t step, bytes;
    uint64_t place;      /* number of its last step (pd_steps.place) */
    uint64_t durable_ns; /* time at which it became durable */
    uint64_t written_ns; /* duration (ns) of writing it; 0: it was written before the server started */
    uint64_t changes;    /* pd_checkpoint_policy.changes at its cut */
} pd_newest_checkpoint;

/* The checkpoint that is being made, or that the checkpoint writer has. */
typedef struct pd_checkpoint_cut {
    uint64_t step;    /* with several fragments: the highest step of one */
    uint64_t least;   /* the lowest step of a fragment */
    uint64_t place;   /* number of its last step (pd_steps.place) */
    uint64_t changes; /* pd_checkpoint_policy.changes at the cut */
    /* bytes that are charged to the job for the checkpoint's worker states while the checkpoint writer has them */
    uint64_t counted;
} pd_checkpoint_cut;

/* When a checkpoint is tried again after one has failed (checkpoint_state.h). */
typedef struct pd_checkpoint_retry {
    uint64_t at_ns; /* time of the next attempt */
    /* time from this attempt to the one after it; 0: no checkpoint has failed since the newest durable one */
    uint64_t wait_ns;
} pd_checkpoint_retry;

typedef struct pd_checkpoint_counts {
    uint64_t written;
    uint64_t skipped;   /* number of checkpoints that were not begun, because something else was under way */
    uint64_t failed;    /* number of checkpoints that could not be made or written */
    uint64_t unwritten; /* number of checkpoints that could not be written since the last one that was */
} pd_checkpoint_counts;

/* How much the job writes to the disk, compared with the disk's speed: pd_outrun_begin. */
typedef struct pd_disk_load {
    /* Bytes of a checkpoint and of a record with aggregates, computed when the job was planned; 0: the speed of the
     * disk is not known, or the job writes no such data. */
    uint64_t checkpoint_bytes, record_bytes;
    bool warned; /* the log says already that the job writes faster than the disk */
} pd_disk_load;

typedef struct pd_checkpoint_policy {
    bool durable;   /* the job has checkpoints */
    bool on_disk;   /* the disk may have a checkpoint of the job, or something that remains of one */
    bool begun;     /* a checkpoint of the job was begun, whether or not it became durable */
    bool says_over; /* the newest checkpoint that was begun, or read at the start, says that the job is over */
    /* number of steps between two checkpoints, which are made at its multiples; 0: only on request */
    uint64_t every;
    /* step at which the next checkpoint begins, as soon as any parameter has closed this step; UINT64_MAX: at no
     * step */
    uint64_t next;
    /* step at which a checkpoint is due besides the multiples of `every`; 0: at once; UINT64_MAX: none */
    uint64_t soon;
    struct pd_checkpoint *making; /* the checkpoint that is being made; NULL: none */
    bool writing;                 /* the checkpoint writer has a checkpoint of this job */
    pd_checkpoint_cut cut;
    pd_newest_checkpoint newest;
    pd_kept_steps kept; /* steps of the checkpoints on the disk, to which the job can go back, the newest first */
    /* The newest step to which, as workers know, all shards of the cluster can go back (0: none), and the one before
     * it, from which on checkpoints stay (with `floored`): a worker that just looks for a step to go back to may not
     * know the newest one yet. */
    uint64_t common, floor;
    bool floored;
    uint64_t durable_step;  /* steps up to this one are on disk, by a checkpoint or by the WAL, of all fragments */
    uint64_t durable_place; /* number of the last step (pd_steps.place) that is */
    uint64_t mirrored_step; /* step up to which the mirror has the job; 0: it has nothing, or there is none */
    /* number of changes of the state without a step, such as imports and replaced weights */
    uint64_t changes;
    uint64_t results; /* number of checkpoints that have returned from the checkpoint writer */
    pd_disk_watch watch;
    pd_disk_load load;
    bool paused; /* the job begins no step until a checkpoint is on the disk: checkpoint_state.h */
    pd_checkpoint_retry retry;
    pd_checkpoint_counts counts;
    char error[256]; /* why the last attempt at a checkpoint failed; empty: it did not */
    pd_step_stream steps;
    pd_decision_stream decisions;
    /* For each parameter a buffer for the copy of its state. It returns with a written checkpoint and is used for the
     * next one, because new memory would cost as much time as the copy. Its size follows from the optimizer's plan. */
    struct {
        uint8_t **at; /* NULL: there is none */
        uint32_t n;
    } spares;
    pd_request_queue asked; /* requests for a checkpoint that are not answered yet; wait_ns is their deadline */
    struct {
        /* requests to begin an export; they wait for the end of another export, or for the cut of a checkpoint */
        pd_request_queue waiting;
        uint64_t party; /* number of the identity that has exported the job last; 0: nobody */
    } exports;
    struct {
        pd_last_checkpoint state;
        bool begun; /* the last checkpoint is being made or written */
    } last;
    pd_effect *farewell; /* tells the checkpoint writer that the job has ended; allocated with the job */
} pd_checkpoint_policy;

typedef enum pd_rank_state { PD_RANK_ABSENT, PD_RANK_CONNECTED, PD_RANK_LOST, PD_RANK_LEFT } pd_rank_state;

enum { PD_SUPERSEDED = 4, PD_WORKER_STATES = 4, PD_KICKED = 16 };

/* What an image keeps of a rank, so that it survives a restart of the server. */
typedef struct pd_rank_saved {
    /* nonce of the process that has the rank, or of the last one that had it; 0: that one must not come back
     * (generation.h) */
    uint64_t nonce;
    /* Number of processes that have had the rank so far. Each pd_contribution stores this number, to tell the
     * contributions of these processes apart. */
    uint32_t process;
    bool present; /* some process has or has had the rank */
    bool left;    /* the process that had the rank last has left it for good: pd_rank.state is LEFT */
    /* a process at this rank has declared its parameters, so the ranges that the rank contributes are fixed */
    bool sealed;
    uint64_t superseded[PD_SUPERSEDED];
    /* number of processes so far that lost the rank to another one; `superseded` has the nonces of the last of them */
    uint32_t n_superseded;
    /* nonce of the process that last sent initial weights; used if the job averages them (initial_weights = mean) */
    uint64_t initialiser;
    /* highest step that the rank has contributed to; number of chunks whose gradients were taken from it */
    uint64_t step, contributions;
    /* Number of barriers that the job had passed when this process took the rank. It is needed because the process
     * counts its barriers from 1. */
    uint64_t barrier_base;
    bool grouped; /* the process has named its group, `group`: job/membership.h */
    uint32_t group;
    uint32_t mates; /* largest number of ranks that the rank's unit has had since this process has the rank */
} pd_rank_saved;

/* A rank of the job, and the process that has it. */
typedef struct pd_rank {
    pd_rank_saved saved;
    pd_rank_state state;
    uint64_t conn; /* number of the connection of the process that has the rank, or of the last one that had it */
    char label[128], reason[96]; /* "host:pid" of the worker; why the rank was lost */
    /* identity of the process that has the rank, or had it last; NULL: not known. Survives a restart of the server */
    char *identity;
    uint64_t since_ns; /* time at which the rank's `state` became LOST or LEFT */
    /* the rank has left, or has come back since: the next record of decisions says so (pd_decision_stream.ranks) */
    bool news;
    /* number of Declare requests of this process that were refused */
    uint64_t refused_sets;
    /* The process that has the rank has come since the job was restored, and nobody had welcomed it before. */
    bool fresh;
    /* what the rank's workers have said since the job was restored: repeats.h */
    struct {
        bool back;        /* a process has said Hello */
        bool replaced;    /* it is not the one of the image */
        uint64_t back_ns; /* time of its last Hello */
    } repeats;
    pd_request *barrier; /* the barrier request of this rank, which waits for the other ranks; NULL: none */
    /* Requests of this rank that wait for a tally: one that asks for it, one that brings a verdict (settling.h). NULL:
     * none */
    pd_request *asks_tally, *brings_verdict;
    /* number of last steps whose pushes the process can send again: length of its resend window; 0: none */
    uint32_t window;
    uint64_t seen; /* number of steps that the process had seen closed when it joined */
    /* If all ranks count in each step: the rank has ended all steps up to this one, or their rounds have closed. It has
     * pushed each parameter or is filed as absent (push.c). */
    uint64_t ended;
    uint32_t obstacle; /* index of the parameter that last prevented the rank from ending a step: push.c */
    /* Step and parameter of the last push of this connection that was refused because it came too early. Step 0: none
     * was. */
    struct {
        uint64_t step;
        uint32_t param;
    } early;
    /* The process has passed barriers, but joined after the checkpoint from which the job was restored: so
     * saved.barrier_base is not certain (pd_barrier_joined). */
    bool barrier_guessed;
    pd_worker_state worker_states[PD_WORKER_STATES]; /* the rank's last worker states, sorted by step */
    uint32_t n_worker_states;
} pd_rank;

/* Sums over a job's parameters, which are shown to operators (job_figures.h). They are computed again after the job has
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

/* A replacement of published weights by the leader, while some of the new weights have not come yet: replacement.h. */
typedef struct pd_replacing {
    uint64_t number; /* number of the replacement; 0: none is under way */
    uint32_t rank;   /* rank that sends the new weights */
    uint64_t nonce;  /* nonce of the process that sends the new weights */
    uint32_t whole;  /* number of parameters whose new weights have all come */
} pd_replacing;

/* What an image keeps of a job, so that it survives a restart of the server. Structs of ranks, parameters and steps
 * have their own saved fields. */
typedef struct pd_job_saved {
    /* number that no other job has, not even one of the same name. It is made of the nonce of the process whose Hello
     * created the job, the server's start and the job's number. */
    uint64_t creator;
    uint64_t cluster; /* number that all shards of the cluster have of this job; 0: the daemon is alone */
    uint64_t barrier; /* number of barriers that the job has passed */
    /* number of refused frames with tensors; number of tensors or chunks that came a second time */
    uint64_t refused, duplicates;
    /* number of times that steps after a restart could not be those from before it, because a rank that had counted in
     * them did not come back (repeats.h) */
    uint64_t course;
    uint32_t workers;           /* number of workers that the job began with, or was resized to */
    uint64_t generation;        /* generation of the launch that the job belongs to; 0: not known */
    bool over;                  /* if the sets of ranks are open: all members have left for good */
    uint64_t kicked[PD_KICKED]; /* nonces of the processes that operators have removed last */
    uint32_t n_kicked;          /* number of processes that operators have removed */
} pd_job_saved;

/* Memory of all parameters of a job and of their rounds: each array has the entries of one parameter after those of
 * another. */
typedef struct pd_job_records {
    pd_param *names; /* hash table of the parameters by name */
    pd_chunk *chunks;
    pd_contribution *contributions;
    pd_rank_range *ranges; /* ranges of the ranks, for ranged parameters only */
    /* bytes that are charged for contributions to ranged parameters, which a median, trimmed mean, Adasum or
     * radial mean collects */
    uint64_t collected;
} pd_job_records;

/* Requests that wait, the oldest first. */
typedef struct pd_job_waiting {
    pd_request_queue declares; /* Declare requests that are not answered yet */
    pd_request_queue sets;     /* Set requests (overrides) that are not in force yet */
    /* frames that wait to be scanned or copied before they are filed: initial weights, and pushes under nonfinite =
     * reject; and notes that a connection waits for memory (PD_REQ_STALLED) which came after such frames */
    pd_request_queue inbox;
} pd_job_waiting;

/* Numbers about a job that are computed for operators: job_figures.h. */
typedef struct pd_job_figures {
    pd_speed speed;       /* recent steps and their times, for the job's steps per second */
    pd_job_totals totals; /* sums over the job's parameters, as they were last computed */
    /* index of the list that an operator asked for last, which finds a page fast; NULL: none */
    struct pd_listing *listing;
    uint64_t published; /* pd_publishing.number when the figures were copied last */
    bool touched;       /* the figures may have changed since they were copied last */
} pd_job_figures;

typedef struct pd_job_counts {
    uint64_t replayed; /* number of contributions to steps that their workers had seen closed before they joined */
    /* number of the last frame that was checked; parameters and chunks store such numbers, to find what a frame names
     * twice */
    uint64_t frames;
    uint64_t went_back;     /* number of times that the job went back to an earlier step: store_go_back.h */
    uint32_t overrides;     /* number of overrides in the job */
    uint64_t pushed_hypers; /* number of contributions that have brought hyperparameters */
} pd_job_counts;

/* What the job knows of a restart of the server. */
typedef struct pd_job_restart {
    bool restored;     /* the job was read from an image or a checkpoint */
    bool joined;       /* a worker has joined since the job was created or restored */
    uint64_t since_ns; /* time at which the job was read */
    uint64_t step;     /* lowest step of a parameter when it was read */
    bool unpublished;  /* the job was restored, and the loop thread does not have its weights yet */
} pd_job_restart;

typedef struct pd_job_timers {
    uint64_t over_ns;    /* time at which the last rank left, if all have: pd_job_is_over */
    uint64_t linger_ns;  /* time at which the job ends unless a worker connects; 0: a worker is connected */
    uint64_t awake_ns;   /* time at which a worker connected when none was connected */
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

/* A job's links and state in the store's queue of jobs that have work. */
typedef struct pd_job_due {
    struct pd_job *prev, *next;
    bool queued;
    uint64_t turn; /* number of the store's batch of work in which this job worked last */
} pd_job_due;

/* The time of a job's next deadline, as it was last computed, and the job's links in the heap of deadlines:
 * pd_deadlines_set. */
typedef struct pd_job_deadline {
    bool is_set;
    uint64_t at_ns;
    struct pd_job *later, *prev, *next;
} pd_job_deadline;

/* What a job knows of its members, besides pd_steps.members: membership.h. */
typedef struct pd_membership {
    /* the rank that sends the initial weights of parameters that are not ranged; PD_MAX_WORLD: the next one that
     * declares */
    uint32_t giver;
    /* the last rank that was `giver`, while there is none: some of its weights may have come; PD_MAX_WORLD: none */
    uint32_t gave;
    /* the rank that was told to come again, so that it declares and sends them; PD_MAX_WORLD: none */
    uint32_t asked;
    uint32_t leader;   /* the job's leader, as the loop thread was told; PD_MAX_WORLD: none */
    uint32_t forming;  /* number of workers that the job is to be resized to, as soon as that is possible; 0: none */
    bool untold;       /* the members have changed since the loop thread was told of them */
    uint64_t retry_ns; /* if `untold`: time at which it is told again, after memory was short */
} pd_membership;

typedef struct pd_job {
    pd_job_saved saved;
    uint64_t life; /* number that is drawn whenever a daemon makes or loads the job; never 0 */
    pd_steps steps;
    /* links in two hash tables of jobs: pd_jobs.names, until the job is dropped, and pd_jobs.numbers */
    UT_hash_handle hh, hh_number;
    const pd_job_values *presets; /* the store's default values of job keys */
    /* the whole declaration, if the job's parameters lie on several shards (whole.h); NULL: they lie on this daemon */
    struct pd_whole *whole;
    pd_rank *ranks;     /* array with all slots of the job; its length is steps.members.ranks */
    uint32_t connected; /* number of ranks that are connected now */
    uint32_t left;      /* number of ranks that have left for good */
    bool shares;        /* the weights lie in a segment that workers can map (buffer_pool.h) */
    bool goes_back;     /* the job is about to go back to an earlier step, so it begins no checkpoint */
    bool gone;          /* the job is dropped, and exists only until its preconditioner tasks have returned */
    pd_job_records records;
    pd_job_waiting waiting;
    pd_job_figures figures;
    pd_job_counts counts;
    pd_job_restart restart;
    pd_job_timers timers;
    pd_membership membership;
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
    pd_owner *owner;      /* the owner, whose quota counts the job; NULL: no quota counts it */
    char *owner_identity; /* identity of the owner; NULL: the job has none. Survives a restart of the server */
    char *run;            /* the run that the job belongs to; NULL: not known. Survives a restart of the server */
    uint64_t drain_step;  /* while the server drains: the last step whose rounds may still close */
    /* the effect PD_EFF_JOB_GONE, allocated with the job so that the job's end can be reported when out of memory */
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

/* Queues a line about the job for the log. */
#define pd_job_say(job, level, ...)                                                                                    \
    pd_say((job)->steps.outbox, level, (pd_log_facts){ .job = (job)->steps.name }, __VA_ARGS__)

/* Writes an error that names the job. Returns PD_NO_MEMORY. */
static inline int pd_job_no_memory(const pd_job *job, pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory", job->steps.name);
}

/* Creates an effect of the job that answers no request. Returns NULL if out of memory. */
static inline pd_effect *pd_job_effect(const pd_job *job, pd_effect_kind kind)
{
    return pd_effect_new(kind, (pd_ticket){ 0, 0 }, job->steps.number);
}

/* Makes an effect that can publish n parameters. Returns NULL if out of memory. */
pd_effect *pd_job_new_closed(const pd_job *job, size_t n);
/* Sends the effect if it publishes any parameter. Takes ownership of it. */
void pd_job_send_closed(pd_job *job, pd_effect *effect);

/* Returns the job's start_step: the number of rounds that count as closed before the job begins. */
static inline uint64_t pd_job_start_step(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_START_STEP];
}

/* Returns whether the rank is a member of the job: steps wait for it. */
static inline bool pd_is_member(const pd_job *job, uint32_t rank)
{
    return pd_rank_set_has(&job->steps.members, rank);
}

/* Returns whether the job is over: all its members have left for good. Its weights can be exported until it ends. */
static inline bool pd_job_is_over(const pd_job *job)
{
    return job->steps.sets.open ? job->saved.over : job->left == job->steps.members.ranks;
}

/* Returns whether the job begins with the mean of all ranks' initial weights. */
static inline bool pd_job_averages_init(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_INITIAL_WEIGHTS] == PD_INIT_MEAN;
}

/* Creates the job that a Hello request describes, and stores it in *out. The job is not put into the table of jobs.
 * PD_INVALID_ARGUMENT, PD_NO_MEMORY. */
int pd_job_new(pd_job **out, const pd_job_env *env, uint32_t number, const pd_request *hello, pd_error *err);
/* Makes the slots of a job whose values and set rule are known, instead of those that it has. With `any_rank` the job
 * has no members yet; otherwise the first `workers` ranks are members. If the sets of ranks are not open, all are. */
int pd_job_make_ranks(pd_job *job, uint32_t workers, bool any_rank);
/* Frees the job; accepts NULL. Before, the caller must release the job's contributions (pd_job_release) and free its
 * parameters (param_set.h), and all its preconditioner tasks must have returned. */
void pd_job_free(pd_job *job);
/* Checks that a Hello request for the job's name describes this job. PD_FAILED_PRECONDITION: it describes another one;
 * the error names the option that differs and both values. PD_INVALID_ARGUMENT: an option of the Hello is not valid. */
int pd_job_agrees(const pd_job *job, const pd_request *hello, pd_error *err);
/* Checks that a Hello asks this daemon for the shard of the cluster that the job is. PD_FAILED_PRECONDITION: the
 * worker's list has another length or order, or the job is of another cluster. */
int pd_job_shard_agrees(const pd_job *job, const pd_request *hello, pd_error *err);
/* Returns whether all workers of the job come with the same world size, which is its number of workers. */
bool pd_job_has_one_world(const pd_job *job);
/* Does what pd_job_agrees does, but ignores the world size: a restored job may take the Hello's (resize.h). */
int pd_job_agrees_but_world(const pd_job *job, const pd_request *hello, pd_error *err);
/* Returns the largest step that any parameter of the job has closed. */
uint64_t pd_job_largest_step(const pd_job *job);
/* Returns whether the job has members, and all have declared their parameters. */
bool pd_job_sealed(const pd_job *job);

/* Answers a worker's request with the file descriptor of the segment that has the job's weights, if there is one. Takes
 * ownership of the request. */
void pd_job_share(pd_job *job, pd_request *request);

/* Returns for how many more milliseconds the job lingers, rounded up; 0: a worker is connected, so the job does not
 * linger. */
uint32_t pd_linger_ms(const pd_job *job, uint64_t now_ns);
/* Adds to the error of a refused Hello that the job lingers, at which step it is, and what the user can do. Changes
 * nothing if a worker is connected. */
void pd_linger_explain(pd_job *job, uint64_t now_ns, pd_error *err);

/* Checks the names, options, rules and rank numbers of a Hello. PD_INVALID_ARGUMENT. */
int pd_hello_check(const pd_request *request, pd_error *err);

/* Checks that the globs of a Hello's rules have at most PD_GLOB_MAX bytes. Call it only for a new job: an existing job
 * may have longer globs, which older versions allowed. PD_INVALID_ARGUMENT. */
int pd_hello_check_globs(const pd_request *request, pd_error *err);

#endif
