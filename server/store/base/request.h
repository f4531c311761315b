/* request.h - what crosses between the loop thread and the training state: requests in, effects out.
 *
 * The loop thread makes a pd_request, posts it, and from then on the step thread owns it and everything it points
 * to; the step thread makes pd_effects, posts them back, and the loop thread owns those. A buffer or snapshot is
 * owned by one side at a time; snapshots are immutable and both sides may read them. Nothing here knows sockets or
 * protobuf. */
#ifndef PD_REQUEST_H
#define PD_REQUEST_H

#include "paramd/tensor.h"

#define PD_NAME_MAX 256             /* longest name of a job or parameter, without the terminator */
#define PD_MAX_OPTIONS 64
#define PD_MAX_SCALARS 16           /* of a push, and of a round */
#define PD_SCALAR_NAME_MAX 64

/* Bytes that the loop thread keeps of each parameter, at most, and of each declaration of it beside its texts: they
 * count as the job's (need.h). */
#define PD_LOOP_PARAM_BYTES 128
#define PD_LOOP_DECL_BYTES  320
#define PD_LOOP_RANK_BYTES  2560        /* and of each worker's set, if it is small */

/* First member of everything that goes through a mailbox. */
typedef struct pd_mail {
    struct pd_mail *next;
} pd_mail;

/* Whom to answer. Never a pointer: the connection may have gone. id 0: nobody waits for an answer. */
typedef struct pd_ticket {
    uint64_t conn;                  /* connection's number, never reused */
    uint64_t id;                    /* serial number of the request on that connection, never reused */
} pd_ticket;

/* Payload of one frame, read from a socket straight into memory where it stays until it is reduced. */
typedef struct pd_buffer {
    pd_mail  mail;
    uint64_t conn;                  /* whose share it is charged to */
    uint64_t charged;               /* bytes charged */
    size_t   size;                  /* bytes at `at` */
    uint8_t *at;                    /* 64-byte aligned */
    unsigned refs;                  /* pieces not reduced yet; owner side only */
} pd_buffer;

/* A run of elements of one parameter: exactly one chunk of it, or what the rank's range has of that (count 0 where it
 * has nothing), or (count 0, absent) the whole parameter's "no gradient". */
typedef struct pd_piece {
    uint32_t    param;              /* index in the job */
    pd_dtype    dtype;
    bool        absent;             /* this worker has no gradient of this parameter in this step */
    int64_t     first, count;       /* elements */
    const void *at;                 /* inside the request's buffer, 64-byte aligned */
} pd_piece;

/* name=value as text; both owned by the request. */
typedef struct pd_option { char *name, *value; } pd_option;

/* A number that a push brings beside its gradients. */
typedef struct pd_scalar_value {
    char   name[PD_SCALAR_NAME_MAX + 1];
    double value;
} pd_scalar_value;

typedef struct pd_param_decl {
    char    *name;
    pd_shape shape;
    pd_dtype pull_dtype;            /* element type in which this rank pulls the weights, */
    pd_dtype update_dtype;          /* and updates of those that it holds; 0: no updates */
    bool     ranged;                /* it contributes elements [start, end) alone; false: all, and start and end do not count */
    int64_t  start, end;
    char    *axes;                  /* logical names of its dimensions (pd_axes_check); NULL: not given */
    bool     model_state;           /* not trained: no rule is asked */
} pd_param_decl;

typedef enum pd_request_kind {
    PD_REQ_HELLO,           /* a worker joins a job, or comes back */
    PD_REQ_DECLARE,
    PD_REQ_INIT,            /* initial weights of some chunks */
    PD_REQ_PUSH,            /* contributions */
    PD_REQ_BARRIER,
    PD_REQ_LEAVE,
    PD_REQ_LOST,            /* the connection is gone or silent; no ticket */
    PD_REQ_RELEASED,        /* snapshots that the loop thread no longer reads; no ticket */
    PD_REQ_TASK,            /* a root task is back; no ticket (posted by the root pool) */
    PD_REQ_INFO,            /* status, jobs, params, workers, roots, settings, state */
    PD_REQ_DROP,            /* an operator ends a job */
    PD_REQ_SET,             /* an operator sets hyperparameters while the job runs */
    PD_REQ_DRAIN,           /* no new steps; answered when what is under way has finished */
    PD_REQ_IMPORT,          /* an operator brings optimizer state: import.h */
    PD_REQ_STALLED,         /* the rank's connection waits for ingest memory, or an operator's (job 0); no ticket id */
} pd_request_kind;

/* An import: begun, then tensors in pieces and counters, then all of it put into the job or none. */
typedef enum pd_import_act { PD_IMPORT_BEGIN = 1, PD_IMPORT_PIECE, PD_IMPORT_COUNT, PD_IMPORT_COMMIT } pd_import_act;

struct pd_snapshot;
struct pd_task;

struct pd_effect;

typedef struct pd_request {
    pd_mail         mail;
    pd_request_kind kind;
    struct pd_effect *answer;               /* memory for the answer, so that none is lost when there is no other: pd_request_new's */
    pd_ticket       ticket;
    uint32_t        job;                    /* number given by PD_EFF_HELLO; 0 where it is not known yet */
    uint32_t        rank;
    union {
        struct {
            char      *job_name;
            char      *label;               /* "host:pid", for the log and for operators */
            uint32_t   world_size;
            uint64_t   nonce;
            bool       rejoins;             /* it does not create the job, and takes its start_step; */
            uint64_t   creator;             /* and means the job that this process (a nonce) created; 0: whichever it is */
            pd_option *options; size_t n_options;       /* the job's configuration as this worker has it */
            char     **rules;   size_t n_rules;         /* "glob optimizer name=value ..."; first match wins */
        } hello;
        struct { pd_param_decl *params; size_t n; } declare;
        struct {                            /* PD_REQ_INIT and PD_REQ_PUSH */
            pd_piece  *pieces; size_t n;
            pd_buffer *buffer;              /* NULL when no piece has data */
            uint64_t   step;                /* PUSH: the step it contributes to */
            double     weight;              /* PUSH: number of examples; 1 if it does not matter */
            bool       presummed;           /* PUSH: a sum over its examples, not a mean */
            bool       close_step;          /* PUSH: ends the rank's step; parameters of which it has sent nothing for it are absent */
            pd_option *hypers; size_t n_hypers;         /* PUSH: values that hold for this round */
            pd_scalar_value *scalars; size_t n_scalars; /* PUSH: for the round of the first piece's parameter, of which the rank has elements; names differ,
                                                         * values are finite, at most PD_MAX_SCALARS */
        } data;
        struct { uint64_t sequence; } barrier;
        struct { char reason[96]; } lost;
        struct { bool budget; } stalled;    /* the whole budget is used, not the rank's share */
        struct { struct pd_snapshot *first; } released; /* linked by pd_snapshot.next_released */
        struct { struct pd_task *task; uint32_t param; } task;
        struct {
            int      what;                  /* enum pd_info_what */
            char    *job_name;              /* DROP uses it too ("" or NULL: all) */
            char    *pattern;               /* ROOTS, SETTINGS, STATE: glob on the parameter's name; "" or NULL: all */
            uint64_t start;                 /* first entry wanted */
        } info;
        struct { uint64_t deadline_ns; } drain;         /* from now */
        struct {
            char      *job_name;
            char      *pattern;             /* glob on the parameters' names */
            char      *by;                  /* who: the label of the connection */
            pd_option *options; size_t n;   /* an empty value: what was set before no longer holds */
            uint64_t   from_step;           /* 0: each parameter's next step */
        } set;
        struct {
            pd_import_act act;
            char      *job_name;
            char      *param;               /* PIECE, COUNT */
            char      *slot;                /* PIECE: of the state's part, with: */
            int        number, block;       /* -1: none */
            pd_shape   shape;
            bool       wide;                /* float64, else float32 */
            int64_t    first, count;        /* elements in the buffer: those that come next */
            pd_buffer *buffer;              /* NULL where count is 0 */
            int64_t    value;               /* COUNT */
            bool       partial;             /* COMMIT: what did not come stays as it is */
        } import;
    } u;
} pd_request;

/* Zeroed. A request brings the memory of its effects along: no answer and no buffer is lost when memory is short. NULL:
 * out of memory. */
pd_request *pd_request_new(pd_request_kind kind, pd_ticket ticket);
/* Frees the request and all it owns except its buffer, u.released and u.task, which go home by effects. Accepts
 * NULL. */
void        pd_request_free(pd_request *request);

/* ---- snapshots ---- */

/* Published weights of one parameter at one version. Immutable from pd_store's publication to its release. */
typedef struct pd_snapshot {
    uint32_t  job, param;
    uint64_t  version;                  /* step that produced these weights; of initial ones the job's start_step */
    int64_t   elements;
    void     *at[4];                    /* by pd_dtype; NULL where nobody pulls that type; PD_F32 always there; 64-byte aligned */
#define PD_UPDATE 0                     /* at[PD_UPDATE]: what the step added to the weights before, where somebody pulls that, */
    pd_dtype  update_dtype;             /* in this type, */
    uint64_t  builds_on;                /* to 1 + this version; 0: there is none */
    unsigned  store_refs;               /* step thread only */
    unsigned  board_refs;               /* loop thread only; when it falls to 0 the snapshot is posted back by PD_REQ_RELEASED */
    struct pd_snapshot *next_released;
} pd_snapshot;

/* ---- effects ---- */

typedef enum pd_outcome {
    PD_STEPPED = 1,         /* the optimizer took the step */
    PD_SKIPPED = 2,         /* the aggregate was not finite (or all weights were zero): counted, nothing changed */
    PD_NO_GRADIENT = 3,     /* no rank had a gradient */
    PD_REFUSED = 4,         /* the optimizer refused the step, or that of another one in its group: counted, the weights stand */
    PD_LATE = 5,            /* the round closed without this rank (pd_closed.counted): for the rank alone, never a round's outcome */
} pd_outcome;

/* Why a step was refused. Made by the step thread, counted by the loop thread once it is there. */
typedef struct pd_reason {
    unsigned refs;
    char     text[];
} pd_reason;
pd_reason *pd_reason_new(const char *text);             /* one reference. NULL: out of memory */
void       pd_reason_unref(pd_reason *reason);          /* accepts NULL */

/* What a round's scalars became. Made by the step thread, counted by the loop thread once it is there. */
typedef struct pd_scalar_mean {
    char   name[PD_SCALAR_NAME_MAX + 1];
    double mean, weight;        /* over the ranks that gave it; NaN and 0 where they all weigh 0 */
} pd_scalar_mean;

typedef struct pd_scalar_means {
    unsigned       refs;
    size_t         n;
    pd_scalar_mean at[PD_MAX_SCALARS];      /* in the order of their names */
} pd_scalar_means;
void pd_scalar_means_unref(pd_scalar_means *means);     /* accepts NULL */

/* The ranks whose contributions count in a round that closed without some. Made by the step thread, counted by the loop
 * thread once it is there. */
typedef struct pd_counted {
    unsigned refs;
    uint32_t ranks;
    uint64_t set[];         /* bit r: the contribution of rank r counts */
} pd_counted;
pd_counted *pd_counted_new(uint32_t ranks);             /* one reference, nobody counts. NULL: out of memory */
void        pd_counted_add(pd_counted *counted, uint32_t rank);
bool        pd_counted_has(const pd_counted *counted, uint32_t rank);       /* NULL: all count */
void        pd_counted_unref(pd_counted *counted);      /* accepts NULL */

typedef struct pd_closed {
    uint32_t     param;
    pd_outcome   outcome;   /* 0: publication without a round (initialisation) */
    uint64_t     step;      /* the round's step */
    pd_snapshot *snapshot;  /* new weights, or NULL: those published before stand */
    pd_reason   *why;       /* REFUSED, unless memory was short; else NULL */
    pd_scalar_means *scalars;   /* NULL: no rank gave any */
    pd_counted  *counted;   /* the ranks whose contributions count; NULL: those of all ranks do */
} pd_closed;

typedef struct pd_declared {
    uint32_t param;         /* index in the job */
    uint64_t step;          /* closed rounds: the next push is for step + 1 */
    bool     initialised;    /* there are weights, or this rank has sent its part of them */
    char    *note;          /* what its optimizer wants known; NULL: nothing */
} pd_declared;

void pd_declared_free(pd_declared *declared, size_t n);     /* accepts NULL */

typedef enum pd_info_what { PD_INFO_STATUS, PD_INFO_JOBS, PD_INFO_PARAMS, PD_INFO_WORKERS, PD_INFO_ROOTS,
                            PD_INFO_SETTINGS, PD_INFO_STATE } pd_info_what;

#define PD_INFO_PAGE 256            /* most entries of one answer: a model may have a hundred thousand roots */

typedef struct pd_job_info {
    char     name[PD_NAME_MAX + 1];
    char     state[16];                 /* gathering, running, lingering */
    uint32_t world_size, connected;
    uint64_t params, elements, weight_bytes, state_bytes, held_bytes, committed_bytes;
    uint64_t step_least, step_most;     /* over the parameters */
    uint64_t contributions;             /* gradients taken, counted by chunk: a parameter of three chunks counts three a rank and step */
    uint64_t steps, skipped, refused_steps;     /* rounds that stepped, that were skipped, whose step the optimizer refused */
    uint64_t refused, duplicates;       /* frames with data that were refused; pieces that had come before */
    uint64_t roots_due, roots_adopted, roots_failed, roots_replaced;    /* root tasks, as pd_root_stats counts them */
    uint64_t root_waits;                /* times a parameter was parked until a root was there */
    double   gradient_norm;             /* where gradients are clipped together, of the last step's: pd_global_clip_last */
    uint64_t clipped_steps;             /* steps in which a limit was exceeded */
} pd_job_info;

typedef struct pd_param_info {
    char     name[PD_NAME_MAX + 1];
    char     optimizer[64];
    pd_shape shape;
    uint64_t step, version, count, skipped, refused_steps, contributions, state_bytes;
    bool     initialised;
    char     missing[128];              /* ranks an open round waits for, "" when none is open: "1,3" */
    uint64_t roots, roots_failing;      /* roots it has; of them such whose last task was refused */
    uint64_t roots_failed, root_waits;  /* tasks refused so far; times it was parked */
    double   root_error;                /* largest of its roots' errors; 0: none is known */
    char     note[240];                 /* what its optimizer wants known (pd_plan) */
    char     axes[PD_AXES_BYTES];       /* as declared */
    char     aggregate[32];             /* what becomes of its contributions */
    uint64_t gather_bytes;              /* what that may hold of contributions beside one sum; 0: it adds them up as they come */
    size_t   n_scalars;
    pd_scalar_mean scalars[PD_MAX_SCALARS];     /* of the last round */
} pd_param_info;

/* The root of one block and dimension, or whatever one task of the plan recomputes. */
typedef struct pd_root_info {
    char     param[PD_NAME_MAX + 1];
    char     root[64];                  /* the slot's name, "preconditioners.3", "block_3.inv_factor_matrices.1"; of a stack of all blocks' "block_3.Q.0" */
    pd_shape shape;                     /* of the root */
    double   condition, error;          /* of the task that ran last, adopted or refused: condition number; measure of its error. 0: not known */
    double   kept_error;                /* what the state keeps of it (pd_plan.errors_slot); negative: the row keeps nothing */
    uint64_t age;                       /* steps since the statistics of the root in use; of the initial root all steps */
    double   ms;                        /* what the last task took */
    uint64_t adopted, failed;           /* tasks */
    bool     failing;                   /* the last one was refused */
} pd_root_info;

/* A tensor of state. */
typedef struct pd_state_info {
    char        param[PD_NAME_MAX + 1];
    const char *slot, *storage;         /* static text */
    int         number, block;          /* -1: none */
    pd_shape    shape;
    uint64_t    bytes;
    bool        kept;                   /* a measure for operators (pd_plan.errors_slot) */
    bool        follows_known;          /* `follows` says which dimension of the parameter each of its dimensions is; -1: none */
    int8_t      follows[PD_MAX_RANK];
    size_t      n_follows;              /* 0, or as many as there are dimensions */
} pd_state_info;

typedef struct pd_worker_info {
    uint32_t rank;
    char     label[128];
    char     state[16];                 /* absent, connected, lost, left */
    uint64_t nonce, step, contributions, held_bytes;    /* step: highest it contributed to */
} pd_worker_info;

/* One hyperparameter of one parameter, as an operator has set it. */
typedef struct pd_override_info {
    char     param[PD_NAME_MAX + 1], pattern[PD_NAME_MAX + 1];  /* the command's */
    char     name[64], value[160];      /* value "": it is withdrawn from that step on */
    char     by[128];
    uint64_t from;                      /* step from which it holds */
    bool     in_force;                  /* in the parameter's next step; else planned */
} pd_override_info;

/* How an entry holds a field. */
typedef enum pd_info_field_kind {
    PD_INFO_NUMBER,                    /* of any width; paramd.proto has the same type */
    PD_INFO_FLAG,                      /* bool */
    PD_INFO_TEXT,                      /* char[] */
    PD_INFO_WORD,                      /* a pointer to static text */
    PD_INFO_SHAPE,                     /* pd_shape; at most one in an entry, as of the next two */
    PD_INFO_FOLLOWS,                   /* int8_t[PD_MAX_RANK] */
    PD_INFO_SCALARS,                   /* pd_scalar_mean[PD_MAX_SCALARS] */
} pd_info_field_kind;

typedef struct pd_info_field {
    const char   *name;                 /* also in paramd.proto */
    pd_info_field_kind kind;
    size_t        at, bytes;            /* in the entry */
    size_t        count_at;             /* FOLLOWS, SCALARS: where the entry holds the number of values, a size_t */
} pd_info_field;

#define PD_MOST_FIELDS 32               /* of one list */

/* A list that operators ask for. */
typedef struct pd_info_list {
    const char *name;                   /* of the field of ListReply that has the entries */
    const char *about;                  /* as an error names it */
    size_t      entry_bytes;
    const pd_info_field *fields;        /* the last one is empty */
} pd_info_list;

/* One page of a list. */
typedef struct pd_info {
    const pd_info_list *list;
    union {
        void             *entries;
        pd_job_info      *jobs;         /* STATUS and JOBS */
        pd_param_info    *params;
        pd_worker_info   *workers;
        pd_root_info     *roots;
        pd_override_info *settings;
        pd_state_info    *state;
    };
    union { size_t n, n_jobs, n_params, n_workers, n_roots, n_settings, n_state; };
    uint64_t start, total;              /* the entries are those from `start` on, of so many */
    bool     draining;
} pd_info;
void pd_info_free(pd_info *info);

#define PD_MAX_CHANGES 128          /* in the answer to a Set */

/* What a Set has changed: one hyperparameter of the parameters of one rule. */
typedef struct pd_set_change {
    char     optimizer[64], name[64];
    char     before[128], value[128];   /* of a schedule its text and its value now */
    bool     mixed;                     /* before: some of them had other values */
    bool     withdrawn;                 /* what is declared or scheduled holds again: value */
    uint32_t params;                    /* so many parameters */
    uint64_t from_least, from_most;     /* steps from which it holds: of the first of them and of the last */
} pd_set_change;

typedef struct pd_set_result {
    pd_set_change *at;   size_t n;
    size_t         left_off;            /* changes beyond PD_MAX_CHANGES */
    uint32_t       params;              /* that were changed */
} pd_set_result;
void pd_set_result_free(pd_set_result *result);     /* accepts NULL */

typedef enum pd_effect_kind {
    PD_EFF_HELLO,           /* welcome: u.hello */
    PD_EFF_DECLARED,        /* u.declared */
    PD_EFF_OK,              /* Init, Barrier, Leave, Drop, Drain: done */
    PD_EFF_ERROR,           /* u.error: that request is refused and has changed nothing */
    PD_EFF_CLOSED,          /* rounds closed and weights published: u.closed */
    PD_EFF_TIMED_OUT,       /* open rounds of a job at or below a step are overdue, or memory is short for them: u.timed_out; contributions stand */
    PD_EFF_BUFFER,          /* a payload buffer goes home: u.buffer */
    PD_EFF_FENCED,          /* ticket.conn was superseded by another process at its rank: close it, u.error says why */
    PD_EFF_JOB_GONE,        /* job's board entries end: waiters get u.error */
    PD_EFF_INFO,            /* u.info */
    PD_EFF_SET,             /* done: u.set */
    PD_EFF_TASK,            /* a root task for the pool: u.task (the stepper hands it on; never reaches the loop) */
    PD_EFF_LOG,             /* a line for the log: u.log */
} pd_effect_kind;

typedef struct pd_effect {
    pd_mail        mail;
    pd_effect_kind kind;
    pd_ticket      ticket;
    uint64_t       number;              /* in the order in which effects leave the step thread, from 1 (pd_turn_forward) */
    uint32_t       job;
    union {
        struct { uint64_t seed, creator; bool created; } hello;
        struct { pd_declared *params; size_t n; bool must_init, averages_init; uint64_t reserve, held; } declared;   /* reserve: bytes of the rank's largest frame; held: bytes that frames of its earlier connections take */
        pd_error error;
        struct { pd_closed *at; size_t n; } closed;
        struct { uint64_t step; pd_error error; } timed_out;
        pd_buffer *buffer;
        pd_info   *info;
        pd_set_result *set;
        struct { struct pd_task *task; uint32_t param; } task;
        struct { int level; uint64_t site; char text[400]; } log;       /* level as syslog's: 3 error, 4 warning, 6 info, 7 debug; site: pd_say's */
    } u;
} pd_effect;

/* Frees the effect and what it owns (of what has closed: reasons and scalars that nobody has taken) except buffers,
 * snapshots and tasks. Accepts NULL. */
void pd_effect_free(pd_effect *effect);

/* Frees the pieces, hyperparameters and scalars of a data request: what is left is the record of a frame that is
 * held. */
void       pd_request_slim(pd_request *request);
/* Takes the request and turns its memory into an effect: cannot fail. */
pd_effect *pd_request_become(pd_request *request, pd_effect_kind kind, pd_ticket ticket, uint32_t job);

#endif
