/* stats.h - figures of a job for operators, metrics and the dashboard: the entries of lists, how long its steps took,
 * which ranks the others waited for, and the events of a trace file.
 *
 * The step thread fills a page of a list, and the loop thread copies it to an answer field by field. The step thread
 * counts times into a pd_job_times as it works. Once a second it publishes a pd_job_stats, a copy, of each job that has
 * changed (PD_EFF_STATS). The loop thread keeps the last one of each job, so a reader costs the step thread nothing.
 * Numbers that only grow begin at 0 when the daemon starts, unless their comment says that they survive a restart.
 * Times are in nanoseconds; points of time are those that the store is given (a monotonic clock). */
#ifndef PD_STATS_H
#define PD_STATS_H

#include "paramd/tensor.h"

#include <stdint.h>

#define PD_NAME_MAX 256   /* longest name of a job or parameter in bytes, without the final '\0' */
#define PD_MAX_SCALARS 16 /* most scalars that one push brings and one round averages */
#define PD_SCALAR_NAME_MAX 64

/* The mean of one scalar in a closed round. */
typedef struct pd_scalar_mean {
    char name[PD_SCALAR_NAME_MAX + 1];
    /* mean over the ranks that sent the scalar, NaN if `weight` is 0; sum of these ranks' weights */
    double mean, weight;
} pd_scalar_mean;

/* Which list an operator asks for. */
typedef enum pd_info_what {
    PD_INFO_STATUS,
    PD_INFO_JOBS,
    PD_INFO_PARAMS,
    PD_INFO_WORKERS,
    PD_INFO_ROOTS,
    PD_INFO_SETTINGS,
    PD_INFO_STATE,
    PD_INFO_ROUNDS,
    PD_INFO_MEMBERS
} pd_info_what;

#define PD_INFO_PAGE 256 /* most entries of a list in one answer: a model may have a hundred thousand matrix roots */

/* An entry of the operators' list of jobs. */
typedef struct pd_job_info {
    char name[PD_NAME_MAX + 1];
    uint32_t number; /* number of the job in this daemon; operators do not see it */
    char optimizer[64];
    /* "gathering" (not all ranks have declared), "running", "lingering" (no worker is connected) or "over" */
    char state[16];
    uint32_t world_size, connected;
    /* held_bytes: bytes of frames that are not summed yet; committed_bytes: all that limits.max_total_bytes counts */
    uint64_t params, elements, weight_bytes, state_bytes, held_bytes, committed_bytes;
    uint64_t step_least, step_most; /* lowest and highest step over the job's parameters */
    /* number of contributions, one for each chunk of a parameter, rank and step */
    uint64_t contributions;
    /* number of rounds in which the optimizer took a step; that were skipped; that the optimizer refused */
    uint64_t steps, skipped, refused_steps;
    uint64_t refused, duplicates; /* data frames that were refused; chunks that were sent a second time */
    /* number of preconditioner tasks that were due; that were adopted; that failed; whose results were never used */
    uint64_t roots_due, roots_adopted, roots_failed, roots_unused;
    uint64_t root_waits;    /* number of times that a step of some parameter had to wait for a root */
    double gradient_norm;   /* norm of all gradients of the last step, if the job clips gradients by their norm */
    uint64_t clipped_steps; /* number of steps in which the global norm exceeded a limit */
    uint64_t outlier_steps; /* number of steps that were skipped because the global norm was an outlier */
    uint32_t shard,
        shards;            /* number of this daemon in the job's cluster, and how many there are; 0 and 1: no cluster */
    uint64_t cluster, map; /* number of the cluster; fingerprint of the map of portions. 0: there is none */
    uint64_t life;         /* number of the job in this daemon's memory */
    double steps_per_second; /* training steps per second over the last seconds (pd_speed_at) */
    double loss;             /* mean of the scalar "loss" in the last round that had one; NaN: all its weights were 0 */
    uint64_t loss_step;      /* step of the round that `loss` is from; 0: no worker sends a loss */
    /* ranks that have not declared, or that the oldest open round waits for ("1,3"); or "initial weights" */
    char waits_for[128];
    uint64_t waits_ms;            /* time since the first contribution to the oldest open round */
    uint64_t roots_failing;       /* number of roots whose last task failed: the optimizer could not use the result, or
                              * memory was short */
    uint64_t bytes_in, bytes_out; /* bytes received and sent on the job's connections; filled in by the loop thread */
    char durability[16];          /* "none", "checkpoint" or "log" */
    uint64_t durable_step;        /* steps up to this one survive a restart; 0: none does */
    /* time since the newest checkpoint became durable; its bytes on the disk; both 0: there is none */
    uint64_t checkpoint_age_ms, checkpoint_bytes;
    char checkpoint_error[256]; /* why the last attempt to make or write a checkpoint failed; "": it did not */
    /* Number of steps that were measured since the daemon started, and how long they took in total, by phase
     * (pd_step_phase). */
    uint64_t timed_steps;
    double waiting_seconds, summing_seconds, stepping_seconds, publishing_seconds;
    uint64_t root_age; /* number of steps since the statistics of the oldest matrix root in use were taken */
    /* number of contributions since the daemon started to steps that their workers had seen closed before */
    uint64_t replayed;
    uint64_t went_back;     /* number of times since the server started that the job went back to an earlier step */
    bool open_sets;         /* not every rank counts in each step */
    uint64_t mirrored_step; /* step up to which the mirror has the job; 0: it has nothing, or there is none */
} pd_job_info;

/* An entry of the operators' list of parameters. */
typedef struct pd_param_info {
    char name[PD_NAME_MAX + 1];
    char optimizer[64];
    pd_shape shape;
    /* step: last closed step; version: step of the published weights; count: the optimizer's count of steps */
    uint64_t step, version, count, skipped, refused_steps, contributions, state_bytes;
    bool initialised;  /* the parameter has initial weights */
    char missing[128]; /* ranks that the parameter's open round waits for, such as "1,3"; "": no round is open */
    uint64_t roots, roots_failing; /* number of the parameter's matrix roots; number of those whose last task failed */
    /* number of preconditioner tasks that have failed; how often a step waited for a root */
    uint64_t roots_failed, root_waits;
    double root_error;        /* largest error among the parameter's roots; 0: no error is known */
    char note[240];           /* the optimizer's remark about the parameter (pd_plan.note) */
    char axes[PD_AXES_BYTES]; /* names of the parameter's dimensions, as workers declared them */
    uint32_t fragment;        /* number of the fragment that the parameter belongs to */
    bool cut;                 /* this is a portion of a parameter that is cut */
    char aggregate[32];       /* how contributions are aggregated: a value of the job key `aggregate` */
    /* most bytes of contributions that wait until all have come; 0: the aggregate is a sum, which does not wait */
    uint64_t collect_bytes;
    size_t n_scalars;
    pd_scalar_mean scalars[PD_MAX_SCALARS]; /* means of the scalars in the last closed round */
} pd_param_info;

/* An entry of the operators' list of roots: the inverse root of one factor of a parameter, or another tensor that a
 * preconditioner task computes. */
typedef struct pd_root_info {
    char param[PD_NAME_MAX + 1];
    /* Name of the tensor of optimizer state that stores the root, such as "preconditioners.3". If it stacks the roots
     * of all blocks, the block is put in front: "block_3.Q.0". */
    char root[64];
    pd_shape shape; /* shape of the root */
    /* condition number and error of the root computed last, even if not used; 0: unknown */
    double condition, error;
    /* error of the root in the optimizer's slot of errors (pd_plan.errors_slot); negative: it has no such slot */
    double kept_error;
    /* number of steps since the statistics were taken from which the root in use was computed */
    uint64_t age;
    double ms;                /* duration in ms of the root's last task */
    uint64_t adopted, failed; /* number of the root's tasks that were adopted; number of those that failed */
    bool failing;             /* the root's last task failed, so an older root stays in use */
} pd_root_info;

/* An entry of the operators' list of state: a tensor of a parameter's optimizer state. */
typedef struct pd_state_info {
    char param[PD_NAME_MAX + 1];
    const char *slot, *storage; /* static texts: name and storage type of the tensor's slot (pd_plan.slots) */
    /* number of the optimizer slot among those of the same name; number of the parameter's block; -1: none */
    int number, block;
    pd_shape shape;
    uint64_t bytes;
    bool kept; /* the tensor has the errors of roots (pd_plan.errors_slot): operators read it, training does not */
    /* follows[i], if `follows_known`, is the parameter's dimension to which the tensor's dimension i belongs; -1:
     * none */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
    size_t n_follows; /* number of entries in `follows`: the dimensions of the tensor; 0: `follows` is not known */
} pd_state_info;

/* An entry of the operators' list of workers. */
typedef struct pd_worker_info {
    uint32_t rank;
    char label[128];
    char state[16]; /* state of the rank: absent (no worker has come yet), connected, lost or left */
    /* who the worker is, as its connection proves it; "": not known, or the operator is not an admin of the job */
    char identity[256];
    /* nonce of the rank's process; last step that the rank has contributed to; number of contributions; bytes of frames
     * that are not summed yet */
    uint64_t nonce, step, contributions, held_bytes;
    /* number of steps in which the rank was the last one to contribute; number of steps that were measured */
    uint64_t times_last, timed_steps;
    double late_seconds; /* total time in these steps from the next to last rank's contribution to that of this rank */
} pd_worker_info;

/* An entry of the operators' list of overrides: one hyperparameter of one parameter. */
typedef struct pd_override_info {
    /* name of the parameter; glob on names of parameters that the operator's command gave */
    char param[PD_NAME_MAX + 1], pattern[PD_NAME_MAX + 1];
    /* name and value of the hyperparameter; value "": from step `from` on, an earlier override does not apply any
     * more */
    char name[64], value[160];
    char by[128];  /* label of the operator's connection */
    uint64_t from; /* first step to which the override applies */
    bool in_force; /* true: the parameter's next step uses the operator's value; false: a later step is the first */
} pd_override_info;

/* An entry of the operators' list of rounds: the step that a fragment collects. RoundInfo in paramd.proto explains the
 * members. */
typedef struct pd_round_info {
    char job[PD_NAME_MAX + 1];
    const char *state; /* a static text */
    uint32_t fragment, expected, whole, quorum, members, least, hasty;
    uint64_t step, fixed, epoch, since_ms, left_ms, grace_waits;
    char missing[128], waits_for[256], counted[256], ages[128];
} pd_round_info;

/* An entry of the operators' list of members. MemberInfo in paramd.proto explains the members. */
typedef struct pd_member_info {
    uint32_t rank, group;
    char label[128];
    const char *state; /* a static text */
    bool whole;
    uint64_t since_ms, epoch, next, counted, steps, late, patience_ms, missed;
    uint64_t ages; /* sum of the ages whose mean is mean_age; not a field of the list */
    double mean_age, share;
} pd_member_info;

/* Type of the C struct member that stores a field of a list entry. */
typedef enum pd_info_field_kind {
    PD_INFO_NUMBER,  /* an integer or a double, of the type that paramd.proto gives the field */
    PD_INFO_FLAG,    /* bool */
    PD_INFO_TEXT,    /* a text, stored in an array of char */
    PD_INFO_WORD,    /* a static text, stored as a pointer (const char *) */
    PD_INFO_SHAPE,   /* shape of a tensor (pd_shape); an entry has at most one such field */
    PD_INFO_FOLLOWS, /* indices of dimensions (int8_t[PD_MAX_RANK]); an entry has at most one such field */
    PD_INFO_SCALARS, /* means of scalars (pd_scalar_mean[PD_MAX_SCALARS]); an entry has at most one such field */
} pd_info_field_kind;

/* One field of the entries of a list for operators, such as the list of jobs. */
typedef struct pd_info_field {
    const char *name; /* name of the field in the message of paramd.proto */
    pd_info_field_kind kind;
    size_t at, bytes; /* offset and size in bytes of the field in the C struct of a list entry */
    size_t count_at;  /* FOLLOWS, SCALARS: offset in the C struct of the number of values, a size_t */
} pd_info_field;

#define PD_MOST_FIELDS 56 /* most fields that an entry of any list has */

/* Describes a list that operators can ask for: where its entries go in the answer, and which fields they have. */
typedef struct pd_info_list {
    const char *name;  /* name of the field of the message ListReply that has the entries */
    const char *about; /* what error texts call the entries, such as "parameters" */
    size_t entry_bytes;
    const pd_info_field *fields; /* table of the entry's fields; it ends with an empty field */
} pd_info_list;

/* One page of a list that an operator asked for. */
typedef struct pd_info {
    const pd_info_list *list;
    union {
        void *entries;
        pd_job_info *jobs; /* entries of the lists STATUS and JOBS */
        pd_param_info *params;
        pd_worker_info *workers;
        pd_root_info *roots;
        pd_override_info *settings;
        pd_state_info *state;
        pd_round_info *rounds;
        pd_member_info *members;
    };
    union {
        size_t n, n_jobs, n_params, n_workers, n_roots, n_settings, n_state, n_rounds, n_members;
    };
    uint64_t start, total; /* index in the list of this page's first entry; number of entries of the whole list */
    bool draining;         /* the server drains */
} pd_info;
void pd_info_free(pd_info *info);

/* Number of buckets of a histogram. Their upper bounds are 100 microseconds times powers of four. The last bucket has
 * everything above. */
enum { PD_BUCKETS = 12 };

/* A histogram of durations. */
typedef struct pd_histogram {
    uint64_t count[PD_BUCKETS]; /* number of values in each bucket alone, not cumulative */
    uint64_t sum_ns;
} pd_histogram;

/* The phases of a step of a job, whose times are measured. A step is one round of each parameter. */
typedef enum pd_step_phase {
    PD_PHASE_WAIT,    /* from the first contribution to the step to the last one */
    PD_PHASE_SUM,     /* aggregating contributions */
    PD_PHASE_STEP,    /* clipping and optimizers */
    PD_PHASE_PUBLISH, /* converting and publishing weights */
    PD_PHASES
} pd_step_phase;

/* How often, and how long, the other ranks of the job have waited for one rank. */
typedef struct pd_straggler {
    uint64_t last;    /* number of steps in which this rank was the last one to contribute */
    uint64_t late_ns; /* total time in these steps from the next to last rank's contribution to that of this rank */
} pd_straggler;

/* How long the steps of a job took. Each histogram has one value for each step that all parameters have closed. */
typedef struct pd_job_times {
    pd_histogram phase[PD_PHASES];
    pd_straggler *rank; /* n_ranks entries, one for each rank */
    uint32_t n_ranks;
} pd_job_times;

void pd_histogram_add(pd_histogram *histogram, uint64_t ns);
/* Returns the upper bound of a bucket in seconds; of the last one infinity. */
double pd_bucket_bound(int bucket);
/* Returns the number of values in all buckets. */
uint64_t pd_histogram_count(const pd_histogram *histogram);
/* Returns the name of a phase, such as "wait". */
const char *pd_step_phase_name(pd_step_phase phase);

/* Most ranks of a job whose figures are in a pd_job_stats: the first ones that have joined. The others are only counted
 * (pd_job_stats.workers_in). */
#define PD_STATS_RANKS 256
#define PD_STATS_NS 1000000000ull /* time between two copies of a job's figures: a second */

/* The figures of one rank. */
typedef struct pd_rank_stats {
    pd_worker_info info; /* the rank's entry of the operators' list of workers */
    pd_straggler late;
    pd_member_info member; /* the rank's entry of the operators' list of members */
} pd_rank_stats;

/* The last mean of one scalar that workers push. */
typedef struct pd_scalar_stats {
    char name[PD_SCALAR_NAME_MAX + 1]; /* as workers push it: any bytes but control characters */
    double mean;                       /* NaN: all weights were 0 */
    uint64_t step;                     /* step of the round that the mean is from */
} pd_scalar_stats;

/* The states of ranks: see pd_worker_info.state. */
typedef enum pd_worker_count {
    PD_COUNT_ABSENT,
    PD_COUNT_CONNECTED,
    PD_COUNT_LOST,
    PD_COUNT_LEFT,
    PD_WORKER_COUNTS
} pd_worker_count;

/* A copy of a job's figures at one point of time: one allocation with all that it points to. The step thread makes it
 * and hands it to the loop thread, which then owns it. */
typedef struct pd_job_stats {
    pd_job_info info;    /* the job's entry of the operators' list of jobs; the loop thread fills in the traffic */
    uint64_t at_ns;      /* time at which this copy was made */
    uint64_t waits_ns;   /* time of the first contribution to the oldest open round; 0: no round is open */
    uint64_t step_ns;    /* time at which the newest step was closed; 0: none since the daemon started */
    uint64_t durable_ns; /* time at which the newest checkpoint became durable; 0: there is none */

    uint32_t workers_in[PD_WORKER_COUNTS]; /* number of ranks in each state */
    bool sets_open;                        /* it is decided for each step which ranks count (step/fragment.h) */
    pd_round_info
        round; /* entry of the operators' list of rounds: that of the fragment whose step is open for longest */
    uint64_t late_pushes; /* number of pushes that were too late to count */
    uint64_t grace_waits; /* number of steps that waited for others after their quorum had come */
    uint64_t no_gradient; /* number of rounds that closed because no rank had a gradient */
    /* 1 if the job was restored when the daemon started, so that it continued from an older step; else 0 */
    uint64_t rewinds;
    uint64_t roots_out;   /* number of preconditioner tasks that the preconditioner pool has now */
    uint64_t root_age;    /* age in steps of the statistics from which the oldest root in use was computed */
    uint64_t checkpoints; /* number of checkpoints that were written */
    uint64_t checkpoints_failed, checkpoints_skipped; /* number of checkpoints that could not be made or written; that
                                                       * were not begun because something else was under way */
    uint64_t checkpoint_ns; /* time that writing the newest checkpoint took; 0: it was written before the start */
    pd_histogram log_times; /* times that records of the stream of steps took to become durable (durability = log) */
    uint64_t log_bytes, log_breaks; /* bytes of these records; number of times that the stream of steps had to end */
    uint64_t repeated_steps;        /* number of steps that the daemon repeated from the WAL when it started */

    size_t n_scalars;
    pd_scalar_stats scalars[PD_MAX_SCALARS]; /* in the order in which they were first pushed */
    pd_job_times times;                      /* times.rank is NULL: ranks[i].late has these figures */
    pd_histogram root_times;                 /* times of preconditioner tasks that have run */
    pd_histogram settle_times;               /* times from a tally of this shard to the verdict of all shards */
    size_t n_ranks; /* number of entries of `ranks`, at most PD_STATS_RANKS: ranks that have joined */
    pd_rank_stats ranks[];
} pd_job_stats;

/* Returns zeroed figures with room for n ranks; free() frees them. NULL: out of memory. */
pd_job_stats *pd_job_stats_new(size_t n_ranks);

/* When a round of one parameter went through its phases: points of time in ns. A time is 0 if the round has skipped the
 * phase: without a gradient there is no step. */
typedef struct pd_traced_round {
    uint64_t first, last; /* when the first contribution to the round came; when the last one came */
    /* when the aggregation of the last contributions began; when the aggregate was complete */
    uint64_t summing, summed;
    uint64_t begun, stepped; /* when the optimizer began the step; when it ended the step, after waits for roots */
    uint64_t published;      /* when the new weights were published, which closes the round */
} pd_traced_round;

typedef enum pd_traced_kind {
    PD_TRACED_WORK,  /* a phase of a batch of work on all the job's parameters */
    PD_TRACED_ROUND, /* a round of a parameter has closed */
    PD_TRACED_ROOT,  /* a preconditioner task has returned from the preconditioner pool */
} pd_traced_kind;

/* An event for the trace file. The comment of a member names the kinds of events that have it. */
typedef struct pd_traced {
    pd_traced_kind kind;
    const char *job;
    pd_step_phase phase;   /* WORK */
    uint64_t begin, end;   /* WORK, ROOT: points of time in ns */
    const char *param;     /* ROUND, ROOT: name of the parameter; NULL: none */
    uint32_t index;        /* ROUND, ROOT: number of the parameter in its job */
    uint64_t step;         /* ROUND: step of the round; ROOT: step that the parameter had closed */
    int outcome;           /* ROUND: pd_outcome */
    pd_traced_round round; /* ROUND */
} pd_traced;

/* A function that takes an event. The event and its texts are borrowed for the call, which must not wait. */
typedef void pd_trace_user(void *arg, const pd_traced *event);

#endif
