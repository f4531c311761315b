/* request.h - the messages between the loop thread and the training state: requests go in, effects come out.
 *
 * The loop thread creates a pd_request and posts it. From then on the step thread owns the request and everything it
 * points to. The step thread creates pd_effects and posts them back; then the loop thread owns them. A buffer or
 * snapshot is owned by one of the two threads at a time, but snapshots are immutable, and both threads may read
 * them. Nothing in this file depends on sockets or protobuf. */
#ifndef PD_REQUEST_H
#define PD_REQUEST_H

#include "log_entry.h"
#include "paramd/tensor.h"

#define PD_NAME_MAX 256 /* longest name of a job or parameter, without the terminator */
#define PD_MAX_OPTIONS 64
#define PD_MAX_SCALARS 16 /* most scalars that one push brings, and that one round averages */
#define PD_SCALAR_NAME_MAX 64

/* Most bytes that the loop thread uses for each parameter, and for each declaration of a parameter by a rank
 * (without its texts). The job's footprint includes them (footprint.h). */
#define PD_LOOP_PARAM_BYTES 128
#define PD_LOOP_DECL_BYTES 320
#define PD_LOOP_RANK_BYTES 2560 /* most bytes that the loop thread uses for a worker's small table of parameters */

/* A message in a mailbox: the first member of every struct that is posted. */
typedef struct pd_mail {
    struct pd_mail *next;
} pd_mail;

/* Identifies the request that an effect answers. It is not a pointer, because the connection may be gone by then. id
 * 0: nobody waits for an answer. */
typedef struct pd_ticket {
    uint64_t conn; /* number of the connection, never reused */
    uint64_t id;   /* serial number of the request on that connection, never reused */
} pd_ticket;

/* The payload of one frame. It was read from a socket directly into this memory, and stays there until it is summed. */
typedef struct pd_buffer {
    pd_mail mail;
    uint64_t conn;    /* number of the connection that is charged for this payload */
    uint64_t charged; /* bytes charged to the connection for this payload */
    size_t size;      /* bytes at `at` */
    uint8_t *at;      /* the payload, aligned to 64 bytes */
    unsigned refs;    /* number of chunks in it that are not summed yet; only the owning thread reads it */
} pd_buffer;

/* Consecutive elements of one parameter: a whole chunk, or the part of a chunk that lies in the rank's range. count
 * 0: the range has no element of the chunk. `absent` and count 0: the rank has no gradient of the whole parameter. */
typedef struct pd_piece {
    uint32_t param; /* index of the parameter in the job */
    pd_dtype dtype;
    bool absent;          /* this worker has no gradient of this parameter in this step */
    int64_t first, count; /* first element, and number of elements */
    const void *at;       /* points into the request's buffer, aligned to 64 bytes */
} pd_piece;

/* An option name=value. Both texts belong to the request. */
typedef struct pd_option {
    char *name, *value;
} pd_option;

/* A scalar, such as the loss, that a push brings besides its gradients. */
typedef struct pd_scalar_value {
    char name[PD_SCALAR_NAME_MAX + 1];
    double value;
} pd_scalar_value;

typedef struct pd_param_decl {
    char *name;
    pd_shape shape;
    pd_dtype pull_dtype;   /* element type in which this rank pulls weights */
    pd_dtype update_dtype; /* element type in which this rank pulls updates (what a step adds to the weights); 0: it
                            * pulls none */
    /* true: the rank contributes only elements [start, end); false: all elements, start and end are unused */
    bool ranged;
    int64_t start, end;
    char *axes;       /* logical names of the parameter's dimensions (pd_axes_check); NULL: not given */
    bool model_state; /* model state: averaged but not trained, so optimizer rules do not apply */
} pd_param_decl;

typedef enum pd_request_kind {
    PD_REQ_HELLO, /* a worker joins a job, or comes back to it */
    PD_REQ_DECLARE,
    PD_REQ_INIT, /* initial weights of some chunks */
    PD_REQ_PUSH, /* contributions to a step */
    PD_REQ_BARRIER,
    PD_REQ_LEAVE,
    PD_REQ_LOST,     /* the connection is closed, or silent for too long; it gets no answer */
    PD_REQ_RELEASED, /* returns snapshots that the loop thread no longer reads; it gets no answer */
    PD_REQ_TASK,     /* from the root pool: a root task has run; it gets no answer */
    PD_REQ_INFO,     /* an operator asks for a list: status, jobs, params, workers, roots, settings or state */
    PD_REQ_DROP,     /* an operator ends a job */
    PD_REQ_SET,      /* an operator sets hyperparameters while the job runs */
    PD_REQ_DRAIN,    /* begin no new steps; answered when the steps under way have ended */
    PD_REQ_IMPORT,   /* an operator loads optimizer state into a job: import.h */
    PD_REQ_LIMITS,   /* limits for all jobs have changed; it gets no answer */
    PD_REQ_EXPORT,   /* an operator reads weights or optimizer state: export.h */
    PD_REQ_STALLED,  /* a worker's connection, or an operator's (job 0), is blocked for lack of ingest memory; it
                      * gets no answer */
} pd_request_kind;

/* The requests of an import, in this order: BEGIN; tensors (PIECE: part of a tensor) and counters (COUNT); COMMIT,
 * which puts all of them into the job, or none. */
typedef enum pd_import_act { PD_IMPORT_BEGIN = 1, PD_IMPORT_PIECE, PD_IMPORT_COUNT, PD_IMPORT_COMMIT } pd_import_act;

/* The requests of an export, in this order: BEGIN; tensors (PIECE: part of a tensor) and counters (COUNT), all of
 * the same training step; END. */
typedef enum pd_export_act { PD_EXPORT_BEGIN = 1, PD_EXPORT_PIECE, PD_EXPORT_COUNT, PD_EXPORT_END } pd_export_act;

struct pd_snapshot;
struct pd_task;

struct pd_effect;

typedef struct pd_request {
    pd_mail mail;
    pd_request_kind kind;
    /* memory for the answer, allocated with the request: so every request can be answered when memory is short */
    struct pd_effect *answer;
    pd_ticket ticket;
    uint32_t job; /* number of the job, as the answer to Hello gave it; 0: not known yet */
    uint32_t rank;
    union {
        struct {
            char *job_name;
            char *label; /* "host:pid" of the worker, for the log and for operators */
            uint32_t world_size;
            uint64_t nonce;
            bool rejoins;     /* the worker only joins a job that exists, and takes over its start_step */
            uint64_t creator; /* if it rejoins: nonce of the process that created the job; 0: any job of this name */
            pd_option *options;
            size_t n_options; /* number of options: the job's configuration as this worker gives it */
            char **rules;
            size_t n_rules; /* number of rules, each "glob optimizer name=value ..."; the first rule that matches a
                             * parameter applies */
        } hello;
        struct {
            pd_param_decl *params;
            size_t n;
        } declare;
        struct {
            uint32_t max_jobs;
            uint64_t max_total_bytes;
        } limits;
        struct { /* PD_REQ_INIT and PD_REQ_PUSH */
            pd_piece *pieces;
            size_t n;
            pd_buffer *buffer; /* the frame's payload; NULL if the frame has no elements */
            uint64_t step;     /* PUSH: the step that the push contributes to */
            double weight;     /* PUSH: number of examples behind the gradient; 1 if the job does not weight by
                                * examples */
            bool presummed;    /* PUSH: the gradient is the sum over its examples, not their mean */
            /* PUSH: the rank sends nothing more in this step. It counts as absent in each parameter of which it has
             * sent nothing */
            bool close_step;
            pd_option *hypers;
            size_t n_hypers; /* PUSH: number of hyperparameters whose values apply to this round only */
            pd_scalar_value *scalars;
            /* PUSH: number of scalars, at most PD_MAX_SCALARS. Their names differ, their values are finite. They
             * belong to the round of the parameter that pieces[0] is from, and the rank must contribute elements to
             * that parameter */
            size_t n_scalars;
        } data;
        struct {
            uint64_t sequence;
        } barrier;
        struct {
            char reason[96];
        } lost;
        struct {
            bool budget;
        } stalled; /* budget: the connection is blocked because the whole ingest budget is used up. false: because
                    * the rank's share is */
        struct {
            struct pd_snapshot *first;
        } released; /* list of snapshots, linked by pd_snapshot.next_released */
        struct {
            struct pd_task *task;
            uint32_t param;
        } task;
        struct {
            int what;       /* enum pd_info_what */
            char *job_name; /* name of the job; DROP uses it, too. "" or NULL: all jobs */
            char *pattern;  /* ROOTS, SETTINGS, STATE: glob that names of parameters must match; "" or NULL: all */
            uint64_t start; /* number of the first entry that the page should have */
        } info;
        struct {
            uint64_t deadline_ns;
        } drain; /* time from now on; if rounds are still open after it, the drain fails */
        struct {
            char *job_name;
            char *pattern; /* glob that names of parameters must match */
            char *by;      /* label of the operator's connection */
            pd_option *options;
            size_t n;           /* number of options: hyperparameters with their new values. An empty value withdraws
                                 * the override */
            uint64_t from_step; /* first step with the new values; 0: each parameter's next step */
        } set;
        struct {
            pd_import_act act;
            char *job_name;
            char *param;       /* PIECE, COUNT: name of the parameter */
            char *slot;        /* PIECE: name of the slot that the tensor belongs to */
            int number, block; /* PIECE: number behind the name of the slot, and number of the block; -1: none */
            pd_shape shape;
            bool wide;            /* PIECE: type of the elements: float64 (true) or float32 (false) */
            int64_t first, count; /* PIECE: index in the tensor of the buffer's first element, and number of
                                   * elements. Requests bring them in order */
            pd_buffer *buffer;    /* PIECE: the elements; NULL if count is 0 */
            int64_t value;        /* COUNT: number of steps that the optimizer has counted */
            bool partial;         /* COMMIT: the import need not be complete; state that it does not bring stays
                                   * unchanged */
        } import;
        struct {
            pd_export_act act;
            char *job_name;
            char *by;         /* label of the operator's connection */
            bool state;       /* BEGIN: the operator may read optimizer state, not only weights */
            uint64_t wait_ns; /* BEGIN: how long all parameters may take to reach the step of the export */
            char *param;      /* PIECE, COUNT: name of the parameter */
            /* PIECE: "" for the weights; otherwise name of the slot that the tensor belongs to */
            char *slot;
            int number, block;    /* PIECE: number behind the name of the slot, and number of the block; -1: none */
            int64_t first, count; /* PIECE: first element, and number of elements */
            uint64_t most;        /* PIECE: limit on the bytes of the answer */
        } export;
    } u;
} pd_request;

/* Creates a zeroed request. NULL: out of memory.
 *
 * Memory for its answer is allocated, too, and the request itself can become an effect. So a request can always be
 * answered, and its buffer returned, even if memory is short later. */
pd_request *pd_request_new(pd_request_kind kind, pd_ticket ticket);
/* Frees a request and all that it owns. Three things are not freed, because effects return them to their owners: the
 * buffer, u.released and u.task. Accepts NULL. */
void pd_request_free(pd_request *request);

/* ---- snapshots ---- */

/* Published weights of one parameter at one version. Immutable from its publication by the store until its release. */
typedef struct pd_snapshot {
    uint32_t job, param;
    uint64_t version; /* step that produced these weights; for initial weights the job's start_step */
    int64_t elements;
    void *at[4]; /* weights by pd_dtype, aligned to 64 bytes. NULL: nobody pulls this type. PD_F32 always exists */
/* at[PD_UPDATE], if somebody pulls updates: the difference that the step added to the weights. */
#define PD_UPDATE 0
    pd_dtype update_dtype; /* element type of at[PD_UPDATE] */
    uint64_t builds_on;    /* 1 + version of the weights that the update adds to; 0: there is no update */
    unsigned store_refs;   /* number of references; step thread only */
    unsigned board_refs;   /* number of references; loop thread only. At 0 it posts the snapshot back by
                            * PD_REQ_RELEASED */
    struct pd_snapshot *next_released;
} pd_snapshot;

/* ---- effects ---- */

typedef enum pd_outcome {
    PD_STEPPED = 1, /* the optimizer took the step */
    /* the aggregate was not finite, or all weights of contributions were zero: the step counts, but no weights or
     * state change */
    PD_SKIPPED = 2,
    PD_NO_GRADIENT = 3, /* no rank had a gradient */
    PD_REFUSED = 4,     /* the optimizer refused this step, or the step of another member of its step group: the step
                         * counts, but the weights stay */
    PD_LATE =
        /* the round closed without this rank's contribution (pd_closed.counted). Only an answer to the rank, never
         * the outcome of a round */
    5,
} pd_outcome;

/* The reason why a step was refused. The step thread creates it; after that only the loop thread counts its
 * references. */
typedef struct pd_reason {
    unsigned refs;
    char text[];
} pd_reason;
pd_reason *pd_reason_new(const char *text); /* returns a reason with one reference. NULL: out of memory */
void pd_reason_unref(pd_reason *reason);    /* accepts NULL */

/* The mean of one scalar in a closed round. */
typedef struct pd_scalar_mean {
    char name[PD_SCALAR_NAME_MAX + 1];
    double mean, weight; /* mean over the ranks that sent the scalar, and their total weight; NaN and 0 if all
                          * weights are 0 */
} pd_scalar_mean;

typedef struct pd_scalar_means {
    unsigned refs;
    size_t n;
    pd_scalar_mean at[PD_MAX_SCALARS]; /* sorted by the names of the scalars */
} pd_scalar_means;
void pd_scalar_means_unref(pd_scalar_means *means); /* accepts NULL */

/* The ranks whose contributions count, if a round closed without those of some ranks. The step thread creates it;
 * after that only the loop thread counts its references. */
typedef struct pd_counted {
    unsigned refs;
    uint32_t ranks;
    uint64_t set[]; /* bit r: the contribution of rank r counts */
} pd_counted;
pd_counted *pd_counted_new(uint32_t ranks); /* returns an empty set with one reference. NULL: out of memory */
void pd_counted_add(pd_counted *counted, uint32_t rank);
bool pd_counted_has(const pd_counted *counted, uint32_t rank); /* NULL: all count */
void pd_counted_unref(pd_counted *counted);                    /* accepts NULL */

typedef struct pd_closed {
    uint32_t param;
    pd_outcome outcome;       /* 0: no round, the initial weights are published */
    uint64_t step;            /* the step that the round was for */
    pd_snapshot *snapshot;    /* the new weights; NULL: no new weights are published */
    pd_reason *why;           /* reason of PD_REFUSED; NULL for other outcomes, or if memory was short */
    pd_scalar_means *scalars; /* means of the round's scalars; NULL: no rank sent any */
    pd_counted *counted;      /* the ranks whose contributions count; NULL: all ranks */
} pd_closed;

typedef struct pd_declared {
    uint32_t param;   /* index of the parameter in the job */
    uint64_t step;    /* last step whose round has closed: the next push is for step + 1 */
    bool initialised; /* the parameter has initial weights, or this rank has sent its part of them */
    char *note;       /* the optimizer's remark about the declaration; NULL: none */
} pd_declared;

void pd_declared_free(pd_declared *declared, size_t n); /* accepts NULL */

typedef enum pd_info_what {
    PD_INFO_STATUS,
    PD_INFO_JOBS,
    PD_INFO_PARAMS,
    PD_INFO_WORKERS,
    PD_INFO_ROOTS,
    PD_INFO_SETTINGS,
    PD_INFO_STATE
} pd_info_what;

#define PD_INFO_PAGE 256 /* most entries in one answer to a list request: a model may have a hundred thousand roots */

typedef struct pd_job_info {
    char name[PD_NAME_MAX + 1];
    uint32_t number; /* number of the job in this daemon; not sent to operators */
    char optimizer[64];
    char state[16]; /* gathering, running, lingering */
    uint32_t world_size, connected;
    uint64_t params, elements, weight_bytes, state_bytes, held_bytes, committed_bytes;
    uint64_t step_least, step_most; /* lowest and highest step over the job's parameters */
    uint64_t
        /* contributions taken, counted by chunks: a parameter of three chunks counts three for each rank and step */
        contributions;
    uint64_t steps, skipped,
        /* number of rounds by outcome: the optimizer took a step; the step was skipped; the optimizer refused it */
        refused_steps;
    uint64_t refused, duplicates; /* data frames that were refused; chunks that were sent a second time */
    uint64_t roots_due, roots_adopted, roots_failed, roots_replaced; /* root tasks, as pd_root_stats counts them */
    uint64_t root_waits;     /* how often a parameter's step had to wait for a root */
    double gradient_norm;    /* norm of the gradients in the last step, if they are clipped by their global norm
                              * (pd_global_clip_last) */
    uint64_t clipped_steps;  /* steps in which the global norm exceeded a limit */
    double steps_per_second; /* speed over the last seconds (speed.h) */
    double loss;             /* mean of the scalar "loss" in the last round that had one; NaN: all its weights were 0 */
    uint64_t loss_step;      /* step of the round that `loss` is from; 0: no worker sends a loss */
    char waits_for[128];     /* ranks that the oldest open round waits for, "1,3"; or "initial weights"; "": it waits
                              * for nobody */
    uint64_t waits_ms;       /* time since the first contribution to the oldest open round */
    uint64_t roots_failing;  /* number of roots whose last task failed: the optimizer could not use its result, or
                              * memory was short */
    uint64_t bytes_in, bytes_out; /* bytes on the job's connections; filled in by the loop thread */
} pd_job_info;

typedef struct pd_param_info {
    char name[PD_NAME_MAX + 1];
    char optimizer[64];
    pd_shape shape;
    uint64_t step, version, count, skipped, refused_steps, contributions, state_bytes;
    bool initialised;
    char missing[128];                 /* ranks that the open round waits for, "1,3"; "": no round is open */
    uint64_t roots, roots_failing;     /* number of the parameter's roots; number of those whose last task failed */
    uint64_t roots_failed, root_waits; /* number of root tasks that have failed so far; how often the parameter's
                                        * step had to wait for a root */
    double root_error;                 /* largest error of the parameter's roots; 0: no error is known */
    char note[240];                    /* the optimizer's remark about the declaration (pd_plan.note) */
    char axes[PD_AXES_BYTES];          /* names of the dimensions, as declared */
    char aggregate[32];                /* name of the way in which contributions are aggregated */
    /* most bytes that contributions take while the aggregate waits for all of them; 0: the aggregate is a sum, which
     * collects nothing */
    uint64_t collect_bytes;
    size_t n_scalars;
    pd_scalar_mean scalars[PD_MAX_SCALARS]; /* means of the scalars in the last closed round */
} pd_param_info;

/* A root: the matrix root of one block and dimension, or another tensor that a root task computes. */
typedef struct pd_root_info {
    char param[PD_NAME_MAX + 1];
    char root[64];  /* name of the root's slot, such as "preconditioners.3" or "block_3.inv_factor_matrices.1". If
                     * one slot stacks the roots of all blocks, the block is put in front: "block_3.Q.0" */
    pd_shape shape; /* shape of the root */
    double condition,
        error; /* condition number and error of the last root that a task computed, even if the optimizer could not
                * use it; 0: unknown */
    /* the root's error as the optimizer stores it for operators (pd_plan.errors_slot); negative: it stores none */
    double kept_error;
    /* age of the root in use: number of steps since the step whose statistics it was computed from; for the initial
     * root the number of all steps */
    uint64_t age;
    double ms;                /* duration of the root's last task */
    uint64_t adopted, failed; /* number of the root's tasks whose results were put into use; number of those that
                               * failed */
    bool failing;             /* the root's last task failed, so an older root stays in use */
} pd_root_info;

/* A tensor of a parameter's optimizer state. */
typedef struct pd_state_info {
    char param[PD_NAME_MAX + 1];
    const char *slot, *storage; /* static text */
    int number, block;          /* -1: none */
    pd_shape shape;
    uint64_t bytes;
    bool kept; /* the tensor holds errors of roots for operators (pd_plan.errors_slot), and is not needed to train */
    /* whether `follows` is known. follows[i]: the parameter's dimension that dimension i of the tensor belongs to;
     * -1: none */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
    size_t n_follows; /* number of entries in `follows`: 0, or the tensor's rank */
} pd_state_info;

typedef struct pd_worker_info {
    uint32_t rank;
    char label[128];
    char state[16];                                  /* absent, connected, lost, left */
    uint64_t nonce, step, contributions, held_bytes; /* step: the last step that the rank contributed to */
} pd_worker_info;

/* An override: a hyperparameter of one parameter that an operator has set. */
typedef struct pd_override_info {
    char param[PD_NAME_MAX + 1], pattern[PD_NAME_MAX + 1]; /* name of the parameter; glob that the operator's command
                                                            * gave */
    char name[64], value[160];                             /* value "": from this step on an earlier override is
                                                            * withdrawn */
    char by[128];
    uint64_t from; /* first step with this value */
    bool in_force; /* the parameter's next step uses the override; otherwise it is for a later step */
} pd_override_info;

/* How a field of a list entry is stored in C: which type it has in the entry's struct. */
typedef enum pd_info_field_kind {
    PD_INFO_NUMBER,  /* an integer or a double: the type that paramd.proto gives the field */
    PD_INFO_FLAG,    /* bool */
    PD_INFO_TEXT,    /* char[] */
    PD_INFO_WORD,    /* const char * to static text */
    PD_INFO_SHAPE,   /* pd_shape; an entry has at most one field of this kind */
    PD_INFO_FOLLOWS, /* int8_t[PD_MAX_RANK]; an entry has at most one field of this kind */
    PD_INFO_SCALARS, /* pd_scalar_mean[PD_MAX_SCALARS]; an entry has at most one field of this kind */
} pd_info_field_kind;

typedef struct pd_info_field {
    const char *name; /* name of the field in paramd.proto */
    pd_info_field_kind kind;
    size_t at, bytes; /* offset and size of the field in the entry */
    size_t count_at;  /* FOLLOWS, SCALARS: offset in the entry of the size_t that counts the values */
} pd_info_field;

#define PD_MOST_FIELDS 40 /* most fields of the entries of one list */

/* The description of a list that operators can ask for. */
typedef struct pd_info_list {
    const char *name;  /* name of the field of ListReply that has the entries */
    const char *about; /* how error texts call an entry */
    size_t entry_bytes;
    const pd_info_field *fields; /* array that ends with an empty field */
} pd_info_list;

/* One page of a list. */
typedef struct pd_info {
    const pd_info_list *list;
    union {
        void *entries;
        pd_job_info *jobs; /* STATUS and JOBS */
        pd_param_info *params;
        pd_worker_info *workers;
        pd_root_info *roots;
        pd_override_info *settings;
        pd_state_info *state;
    };
    union {
        size_t n, n_jobs, n_params, n_workers, n_roots, n_settings, n_state;
    };
    uint64_t start, total; /* number of this page's first entry; number of all entries of the list */
    bool draining;
} pd_info;
void pd_info_free(pd_info *info);

#define PD_MAX_CHANGES 128 /* most changes in the answer to a Set request */

/* A change made by a Set request: one hyperparameter, in all parameters that have the same rule. */
typedef struct pd_set_change {
    char optimizer[64], name[64];
    char before[128], value[128];   /* values before and after; a schedule is shown as its text and its present value */
    bool mixed;                     /* the parameters had different values before the change */
    bool withdrawn;                 /* the override was withdrawn; `value` is the declared or scheduled value again */
    uint32_t params;                /* number of parameters that were changed */
    uint64_t from_least, from_most; /* first step with the new value: the lowest and the highest over the parameters */
} pd_set_change;

typedef struct pd_set_result {
    pd_set_change *at;
    size_t n;
    size_t left_off; /* number of changes beyond PD_MAX_CHANGES, which are not in `at` */
    uint32_t params; /* number of parameters that the request changed */
} pd_set_result;
void pd_set_result_free(pd_set_result *result); /* accepts NULL */

/* The answer to one request of an export. */
typedef struct pd_exported {
    uint64_t step;     /* training step that the export shows */
    uint64_t roots;    /* BEGIN, COUNT: number of roots that are being computed, or are computed and not in use yet:
                        * a later step begins to use them */
    uint64_t elements; /* PIECE: number of elements of the whole tensor */
    int64_t count;     /* COUNT: number of steps that the optimizer has counted */
    bool wide;         /* PIECE: type of the elements: float64 (true) or float32 (false) */
    size_t bytes;      /* PIECE: number of bytes at `at` */
    void *at;          /* the bytes, owned by the effect; NULL: none */
} pd_exported;

typedef enum pd_effect_kind {
    PD_EFF_HELLO,    /* welcome: u.hello */
    PD_EFF_DECLARED, /* u.declared */
    PD_EFF_OK,       /* Init, Barrier, Leave, Drop or Drain has succeeded */
    PD_EFF_ERROR,    /* the request was refused and has changed nothing; u.error says why */
    PD_EFF_CLOSED,   /* rounds have closed and weights are published: u.closed */
    /* u.timed_out: the rounds of a job up to a step are overdue, or memory for them is short. Waiting workers get an
     * error. The rounds stay open, and their contributions still count */
    PD_EFF_TIMED_OUT,
    PD_EFF_BUFFER,   /* returns a payload buffer to the loop thread: u.buffer */
    PD_EFF_FENCED,   /* another process has taken over the rank of connection ticket.conn: close this connection;
                      * u.error says why */
    PD_EFF_JOB_GONE, /* the job has ended: remove it from the board, and answer workers that wait for it with u.error */
    PD_EFF_INFO,     /* u.info */
    PD_EFF_SET,      /* done: u.set */
    PD_EFF_EXPORT,   /* done: u.exported */
    PD_EFF_TASK,     /* a root task: u.task. The step thread gives it to the root pool; it never reaches the loop
                      * thread */
    PD_EFF_LOG,      /* a line for the log: u.log */
} pd_effect_kind;

typedef struct pd_effect {
    pd_mail mail;
    pd_effect_kind kind;
    pd_ticket ticket;
    uint64_t number; /* serial number, from 1, in the order in which effects leave the step thread (pd_turn_forward) */
    uint32_t job;
    union {
        struct {
            uint64_t seed, creator, step; /* step: the lowest step over the job's parameters */
            uint32_t linger_ms;           /* how much longer the job would have lingered without this worker; 0:
                                           * other workers were connected */
            bool created;
        } hello;
        struct {
            pd_declared *params;
            size_t n;
            bool must_init, averages_init;
            uint64_t reserve, held;
        } declared; /* reserve: bytes of the rank's largest frame; held: bytes of frames from the rank's earlier
                     * connections that are not summed yet */
        pd_error error;
        struct {
            pd_closed *at;
            size_t n;
        } closed;
        struct {
            uint64_t step;
            pd_error error;
        } timed_out;
        pd_buffer *buffer;
        pd_info *info;
        pd_set_result *set;
        pd_exported exported;
        struct {
            struct pd_task *task;
            uint32_t param;
        } task;
        pd_log_entry log;
    } u;
} pd_effect;

/* Frees an effect and all that it owns, except buffers, snapshots and tasks. A PD_EFF_CLOSED also drops its
 * references to reasons, scalars and sets of ranks. Accepts NULL. */
void pd_effect_free(pd_effect *effect);

/* Frees the parts of a Push or Init request that are not needed once it is filed: the lists of pieces,
 * hyperparameters and scalars. The request itself stays as long as contributions lie in its buffer. */
void pd_request_slim(pd_request *request);
/* Turns a request into an effect in the same memory, so it cannot fail. Takes ownership of the request. */
pd_effect *pd_request_become(pd_request *request, pd_effect_kind kind, pd_ticket ticket, uint32_t job);

#endif
