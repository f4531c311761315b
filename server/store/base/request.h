/* request.h - the messages between the loop thread and the training state: requests go in, effects come out.
 *
 * The loop thread creates a pd_request and posts it. From then on the step thread owns the request and everything it
 * points to. The step thread creates pd_effects and posts them back; then the loop thread owns them. A buffer or
 * published version is owned by one of the two threads at a time, but published versions are immutable, and both
 * threads may read them. Nothing in this file depends on sockets or protobuf. */
#ifndef PD_REQUEST_H
#define PD_REQUEST_H

#include "checkpoint_image.h"
#include "log_entry.h"
#include "wal_record.h"
#include "stats.h"
#include "paramd/tensor.h"
#include "roles.h"

#define PD_MAX_OPTIONS 64
#define PD_NEWEST UINT64_MAX /* the step of an operator's GoBack: that of the newest checkpoint */
#define PD_MAX_RULES 256

/* Most bytes that the loop thread uses for each parameter, and for each declaration of it by a rank, without texts.
 * They are part of the job's footprint (footprint.h). */
#define PD_LOOP_PARAM_BYTES 128
#define PD_LOOP_DECL_BYTES 320
#define PD_LOOP_FRAGMENT_BYTES 24 /* bytes that it uses for each fragment, if there are several */
#define PD_LOOP_RANK_BYTES 2560   /* most bytes that the loop thread uses for each worker's parameter table */

/* The link of a message in a mailbox: first member of every struct that is posted. */
typedef struct pd_mail {
    struct pd_mail *next;
} pd_mail;

/* Identifies the request that an effect answers. It is not a pointer, because the connection may be gone by then. If
 * `id` is 0, nobody waits for an answer. */
typedef struct pd_ticket {
    uint64_t conn; /* number of the connection, never reused */
    uint64_t id;   /* serial number of the request on its connection, never reused */
} pd_ticket;

/* The payload of one frame. It was read from a socket directly into this memory, and stays there
 * until all its gradients are summed. */
typedef struct pd_buffer {
    pd_mail mail;
    uint64_t conn;    /* number of the connection that is charged for this payload */
    uint64_t charged; /* bytes charged to the connection for this payload; 0: it lies in the worker's memory */
    size_t size;      /* number of bytes of the payload */
    uint8_t *at;      /* the payload, aligned to 64 bytes */
    unsigned refs;    /* number of contributions in the payload that are not summed yet; only its owner reads it */
    void *lender; /* used by the loop thread: the worker's shared memory in which the payload lies, so that the worker
                       * can still change it. NULL: the payload lies in memory of the daemon */
} pd_buffer;

/* A piece of a push or Init: a whole chunk of one parameter, or those elements of the chunk that lie in the rank's
 * slice. `count` 0: the rank contributes no element of the chunk. */
typedef struct pd_piece {
    uint32_t param; /* index of the parameter in the job */
    pd_dtype dtype;
    bool absent;          /* the rank has no gradient of the whole parameter in this step; `count` is 0 */
    int64_t first, count; /* the piece's first element in the parameter, and its number of elements */
    const void *at;       /* the elements' bytes, in the request's payload buffer, aligned to 64 bytes */
} pd_piece;

/* A configuration option or hyperparameter, name=value. Both texts belong to the request. */
typedef struct pd_option {
    char *name, *value;
} pd_option;

/* A scalar, such as the loss, that a push brings besides its gradients. */
typedef struct pd_scalar_value {
    char name[PD_SCALAR_NAME_MAX + 1];
    double value;
} pd_scalar_value;

/* A parameter as one rank declares it. */
typedef struct pd_param_decl {
    char *name;
    pd_shape shape;
    pd_dtype pull_dtype;   /* element type in which this rank pulls weights */
    pd_dtype update_dtype; /* element type in which this rank pulls updates; 0: none */
    pd_dtype push_dtype;   /* element type in which all ranks push; 0: any */
    /* true: the rank contributes only elements [start, end); false: it contributes all */
    bool ranged;
    /* model state (such as running statistics): averaged, not trained; optimizer rules do not apply */
    bool model_state;
    /* Filled in by the step thread. `rule`: 1 + index of the optimizer rule that applies; `found`: 1 + index of the
     * job's parameter with this name. 0: not looked up yet, or there is none. */
    uint16_t rule;
    uint32_t found;
    uint32_t fragment; /* number of the fragment that the parameter belongs to */
    int64_t start, end;
    char *axes; /* logical names of the parameter's dimensions (pd_axes_check); NULL: not given */
} pd_param_decl;

/* Copies the declaration of a parameter with its strings. PD_NO_MEMORY: *to owns no memory. */
int pd_decl_copy(pd_param_decl *to, const pd_param_decl *from);
/* Cuts the range that a rank has of a parameter to the elements [first, first + count) of it, and counts it from
 * `first`. A range without any of them becomes 0 to 0. */
void pd_decl_cut_range(pd_param_decl *decl, int64_t first, int64_t count);
/* Frees a list of n declarations with their strings; accepts NULL. */
void pd_decls_free(pd_param_decl *decls, size_t n);

/* A tally as bytes (step/tally.h). */
typedef struct pd_tally_view {
    const uint8_t *at;
    size_t n;
} pd_tally_view;

/* What a Settle says. With tallies: it is a verdict of this step and phase. n 0: the worker asks for the first tally of
 * this shard at or after them. */
typedef struct pd_tallies {
    uint64_t step;
    uint32_t phase;
    pd_tally_view *at; /* in the order of the shards, with their bytes in the same allocation */
    size_t n;
    uint64_t hash; /* of all bytes. Ranks bring the same verdict: only the first one is read */
} pd_tallies;

/* Copies n tallies into one allocation, and sets the hash. PD_NO_MEMORY. */
int pd_tallies_copy(pd_tallies *out, const pd_tally_view *from, size_t n);

/* What a worker wants of a job that exists: the values of HelloRequest.resume. */
typedef enum pd_intent { PD_INTENT_BY_RUN, PD_INTENT_RESUME, PD_INTENT_ANEW } pd_intent;

enum { PD_RUN_MAX = 128 }; /* most bytes of the id of a run */

/* Largest weight of a push, as a number of examples: 2^53. With larger weights the float32 sums of a round could
 * overflow. */
#define PD_WEIGHT_MOST 9007199254740992.0

typedef enum pd_request_kind {
    PD_REQ_HELLO, /* a worker joins a job, or returns to a job that it was in */
    PD_REQ_DECLARE,
    PD_REQ_INIT, /* a worker sends initial weights of some chunks */
    PD_REQ_PUSH, /* a worker contributes gradients to a step */
    PD_REQ_BARRIER,
    PD_REQ_LEAVE,
    PD_REQ_LOST,     /* from the loop thread: the connection is closed, or silent for too long; no answer */
    PD_REQ_RELEASED, /* from the loop thread: returns published versions that it no longer reads; no answer */
    /* from the loop thread: it has forgotten an ended job, so only answers have its weights; no answer */
    PD_REQ_FORGOTTEN,
    PD_REQ_TASK, /* from the preconditioner pool: a preconditioner task has run; no answer */
    PD_REQ_INFO, /* an operator asks for a list: status, jobs, params, workers, roots, settings or state */
    PD_REQ_DROP, /* an operator ends a job */
    PD_REQ_SET,  /* an operator sets hyperparameters while the job runs */
    /* the server is about to stop: jobs begin no new steps; answered when the steps under way have ended */
    PD_REQ_DRAIN,
    PD_REQ_IMPORT, /* an operator loads optimizer state into a job: import.h */
    PD_REQ_LIMITS, /* from the loop thread: the operator has changed limits for all jobs; no answer */
    PD_REQ_ROLES, /* from the loop thread: roles and quotas of identities, at the start and after a reload; no answer */
    PD_REQ_EXPORT, /* an operator reads weights or optimizer state of a job: export.h */
    PD_REQ_SHARE,  /* a worker asks for the segment of shared memory that has its job's weights */
    /* from the loop thread: it has blocked a connection because frames use too much memory (job 0: the connection is
     * an operator's); no answer */
    PD_REQ_STALLED,
    PD_REQ_WORKER_STATE,     /* a worker stores its worker state with a step */
    PD_REQ_GET_WORKER_STATE, /* a worker asks for its worker state */
    /* a worker asks for a tally of this shard, or brings a verdict of all shards (job/settling.h); answered when the
     * tally is made */
    PD_REQ_SETTLE,
    /* from the loop thread: a worker wants weights to evaluate with; answered by a PD_EFF_CLOSED whose only entry has
     * `read_out` set, or not at all if the job has ended */
    PD_REQ_READ_OUT,
    /* an operator or a worker asks for a checkpoint; answered when it is durable */
    PD_REQ_CHECKPOINT,
    PD_REQ_KICK, /* an operator removes a rank from a job */
    /* from the checkpoint writer: a checkpoint is on disk, or could not be written; no answer */
    PD_REQ_CHECKPOINT_WRITTEN,
    PD_REQ_WAL, /* from the WAL thread: a record is on disk, or could not be written; no answer */
    /* a worker or an operator asks a job to go back to the checkpoint of an earlier step */
    PD_REQ_GO_BACK,
    PD_REQ_WENT_BACK, /* from the checkpoint writer: it has carried out an order to go back; no answer */
    PD_REQ_MIRRORED,  /* from the mirror thread: the mirror has a job up to a step; no answer */
} pd_request_kind;

/* The requests of an import, in this order: BEGIN; PIECE for some elements of a tensor and COUNT for a step counter, as
 * often as necessary; COMMIT, which puts everything into the job, or nothing. RESET belongs to no import: it resets the
 * optimizer state of parameters. */
typedef enum pd_import_act {
    PD_IMPORT_BEGIN = 1,
    PD_IMPORT_PIECE,
    PD_IMPORT_COUNT,
    PD_IMPORT_COMMIT,
    PD_IMPORT_RESET
} pd_import_act;

/* The requests of an export, in this order: BEGIN; PIECE for some elements of a tensor and COUNT for a step counter,
 * all as of the same training step; END. */
typedef enum pd_export_act { PD_EXPORT_BEGIN = 1, PD_EXPORT_PIECE, PD_EXPORT_COUNT, PD_EXPORT_END } pd_export_act;

struct pd_published;
struct pd_task;

struct pd_effect;

typedef struct pd_request {
    pd_mail mail;
    pd_request_kind kind;
    /* memory for the answer, allocated with the request; NULL: it was answered, or no answer is wanted */
    struct pd_effect *answer;
    pd_ticket ticket;
    uint32_t job; /* number of the job, as the answer to Hello gave it; 0: the worker does not know it yet */
    uint32_t rank;
    uint64_t party; /* number of the identity that sends the request (pd_usage.number); 0: the daemon itself */
    /* progress of a request that the store applies in parts (pd_store_apply_some), owned by the step thread, and the
     * function that frees it; NULL: the request has not begun */
    void *part;
    void (*free_part)(void *part);
    union {
        struct {
            char *job_name;
            char *label;    /* "host:pid" of the worker, for the log and for operators */
            char *identity; /* who the worker is, as its connection proves it (transport.h); NULL: not known */
            uint32_t world_size;
            uint64_t nonce;    /* random number of the worker's process */
            bool shares;       /* the worker can map shared memory: a job that it creates has shared weights */
            uint32_t window;   /* number of its last steps whose pushes the worker can send again; 0: none */
            uint64_t barriers; /* number of barriers that this process has passed */
            /* number of steps that this process has seen closed for all its parameters; in a job whose sets of ranks
             * are open, for any parameter of fragment 0 */
            uint64_t steps;
            uint64_t
                *fragment_steps; /* the same of fragment 1, 2 ...: n_fragment_steps numbers; NULL: there are none */
            size_t n_fragment_steps;
            uint64_t course;  /* the course of these steps (pd_job_saved.course), as far as the worker knows it */
            bool rejoins;     /* the worker rejoins a job that must exist, and accepts that job's start_step */
            uint64_t creator; /* if `rejoins`: pd_job_saved.creator of the job that is meant; 0: any job of this name */
            char *run;        /* id of the run that the worker belongs to; NULL: not known */
            pd_intent intent; /* whether the worker continues a job that exists or begins again */
            bool joins;       /* the worker never creates the job, and accepts its start_step and seed */
            bool unsure;      /* another daemon may own this one's shard, and have the job: no job is created */
            /* the job chooses the rank: the one that `nonce` has, or else the lowest that is free; `rank` is 0 */
            bool any_rank;
            bool grouped;        /* the worker names its group; false: its rank is a group of its own */
            uint32_t group;      /* ranks with the same number count together, or not at all (job/membership.h) */
            uint64_t generation; /* number of the launch, which rises when it is formed again; 0: not known */
            /* number of this daemon in the worker's list of daemons, and how many there are; 0 and 1: it is alone */
            uint32_t shard, shards;
            uint64_t cluster; /* the cluster number of the list's other daemons; 0: not known yet */
            pd_option *options;
            size_t n_options; /* number of `options`: the job's configuration as this worker gives it */
            char **rules;
            /* number of rules "glob optimizer name=value ..."; the first whose glob matches applies */
            size_t n_rules;
        } hello;
        struct {
            pd_param_decl *params;
            size_t n;
            uint32_t wants; /* number of shares that the rank wants for its first step; 0: it uses no shares */
            /* Used by the step thread, in a job on several shards: n_whole parameters, those that the rank has
             * declared. `params` are the portions of this shard then (job/whole.h). NULL: `params` are the declared
             * ones. */
            pd_param_decl *whole;
            size_t n_whole;
        } declare;
        struct {
            uint32_t max_jobs;
            uint64_t max_total_bytes;
        } limits;
        pd_roles *roles; /* a copy for the step thread, which owns it */
        struct {         /* the data of a PD_REQ_INIT (initial weights) or a PD_REQ_PUSH */
            pd_piece *pieces;
            size_t n;
            pd_buffer *buffer; /* the frame's payload, with the elements of all pieces; NULL: there are no elements */
            /* PUSH requests: the step that the push contributes to. INIT requests with `replaces`: the step whose
             * weights are replaced */
            uint64_t step;
            /* number of the change, if a worker has changed its weights by hand (job/replacement.h). 0 in PUSH
             * requests: the weights were not changed; 0 in INIT requests: these are initial weights */
            uint64_t replaces;
            /* INIT requests with `replaces`: number of parameters that the change replaces, in all of its frames */
            uint32_t whole;
            /* PUSH requests: weight in a weighted mean, the gradient's number of examples, at most PD_WEIGHT_MOST;
             * otherwise 1 */
            double weight;
            bool presummed; /* PUSH requests: the gradient is the sum over its examples, not their mean */
            /* PUSH requests: time for which the worker can do without the answer; 0: it waits for it */
            uint64_t patience_ns;
            uint32_t wants; /* PUSH requests: number of shares that the rank wants when the push counts */
            /* PUSH requests: 1 + the first share that the gradient is made of; 0: not said. If it is not leased to the
             * rank, the push is late. */
            uint64_t share;
            /* PUSH requests: newest step of which the rank knows that all shards have a checkpoint; 0: none */
            uint64_t common;
            bool carried; /* PUSH requests: the gradient has the data of the rank's last push, which came too late */
            /* PUSH requests: the rank sends nothing more in this step. It counts as without a gradient of each
             * parameter for which it has sent nothing. */
            bool close_step;
            pd_option *hypers;
            size_t n_hypers; /* PUSH requests: number of hyperparameters that are sent for this round only */
            pd_scalar_value *scalars;
            /* PUSH requests: number of scalars, at most PD_MAX_SCALARS. Their names differ, their values are finite.
             * They are averaged in the round of the parameter of pieces[0], and the rank must contribute elements to
             * it. */
            size_t n_scalars;
        } data;
        struct {
            uint64_t sequence;
        } barrier;
        pd_tallies settle;
        struct {
            char *job_name;
            uint64_t creator; /* pd_job_saved.creator of the job that is meant */
            uint64_t step;
        } mirrored;
        struct {
            uint32_t param;
            struct pd_closed *at; /* memory for the entry of the answer */
        } read_out;
        struct {
            char reason[96];
        } lost;
        struct {
            /* the connection is blocked because the whole ingest budget is used; false: the rank's share of it */
            bool budget;
        } stalled;
        struct {
            /* first of the published versions that the loop thread reads no more, linked by next_released */
            struct pd_published *first;
        } released;
        struct {
            struct pd_task *task;
            uint32_t param;
        } task;
        struct {
            int what;       /* the list that the operator asks for: enum pd_info_what */
            char *job_name; /* name of the job to list, or for DROP of the job to end; "" or NULL: all jobs */
            char *pattern;  /* ROOTS, SETTINGS, STATE: glob that names of parameters must match; NULL: all */
            uint64_t start; /* index in the list of the first entry that the answer should have */
            /* identity of the operator: the list leaves out jobs that it may not see; NULL: not known */
            char *identity;
        } info;
        struct {
            /* longest duration of the drain, which fails if rounds are still open then. The store puts the point of
             * time at which the drain fails in its place */
            uint64_t deadline_ns;
            uint64_t keep_ns; /* longest time that the answer then waits for the last checkpoints of jobs */
        } drain;
        struct {
            char *job_name;
            char *pattern; /* glob: the command applies to parameters whose names match */
            char *by;      /* label of the operator's connection, for the log */
            pd_option *options;
            size_t n;           /* number of hyperparameters with new values; value "": withdraw the override */
            uint64_t from_step; /* first step with the new values; 0: the next step of each parameter */
            /* The members below belong to the step thread, while the command waits for the disk. A Leave that waits has
             * them, too, but no result: job/pending_sets.h */
            struct pd_set_result *result; /* what the command has changed */
            /* `entry`: number of the record of decisions that has the command; `until_ns`: time at which the command
             * gets an error if the record is not durable */
            uint64_t entry, until_ns;
            bool in_head; /* the checkpoint that is being made has the command's values */
        } set;
        struct {
            pd_import_act act;
            char *job_name;
            /* PIECE and COUNT requests: name of the parameter; RESET requests: glob of the parameters' names */
            char *param;
            char *slot; /* PIECE requests: name of the slot that the piece is from */
            /* PIECE requests: number of the slot among those of its name; number of the parameter's block; -1: none */
            int number, block;
            pd_shape shape;
            bool wide;            /* PIECE requests: type of the elements: float64 (true) or float32 (false) */
            int64_t first, count; /* PIECE requests: index in the tensor of its first element; number of elements */
            pd_buffer *buffer;    /* PIECE requests: the elements; NULL if there are none */
            int64_t value;        /* COUNT requests: the step count that the parameter's optimizer gets */
            /* COMMIT requests: state that the import lacks stays as it is; false: the import must bring all state.
             * RESET requests: counts of steps stay as they are */
            bool partial;
        } import;
        struct {
            pd_export_act act;
            char *job_name;
            char *by;       /* label of the operator's connection, for the log */
            bool state;     /* BEGIN requests: true: optimizer state is read, too; false: only weights */
            bool evaluates; /* BEGIN requests: the weights to evaluate with are read, not those that are trained */
            bool may_stop;  /* BEGIN requests with `evaluates`: the operator may quiesce the job */
            bool replaces;  /* BEGIN requests: the job's export that is under way ends, in favor of this one */
            uint64_t step;  /* BEGIN requests: step that is read; 0: the present one */
            /* BEGIN requests: time for which the export may wait for others, and for parameters that have not reached
             * the step that is read. In the store: the deadline. */
            uint64_t wait_ns;
            char *param; /* PIECE and COUNT requests: name of the parameter */
            /* PIECE requests: "": weights; otherwise name of the optimizer slot to read */
            char *slot;
            /* PIECE requests: number of the slot among those of its name; number of the parameter's block; -1: none */
            int number, block;
            int64_t first, count; /* PIECE requests: index of the first element to read, and number of elements */
            uint64_t most;        /* PIECE requests: largest number of bytes that the answer may have */
        } export;
        struct {
            uint64_t step;     /* step after which the worker can continue from this state */
            pd_buffer *buffer; /* the state; NULL: it is empty */
            size_t bytes;
        } worker_state;
        struct {
            char *job_name;   /* name of the job, from an operator; NULL: the job of the worker who asks */
            uint64_t step;    /* lowest step that the checkpoint may have; 0: the present one */
            uint64_t wait_ns; /* longest time to wait for the checkpoint */
            uint64_t changes; /* used by the step thread: value of pd_checkpoint_policy.changes when the request came */
            bool imports;     /* used by the step thread: it was an Import, which is in force (job/import.c) */
        } checkpoint;
        struct {
            char *job_name;
            char *by;      /* label of the operator's connection, for the log */
            uint32_t rank; /* the rank to remove */
        } kick;
        struct {
            char *job_name;   /* name of the job, from an operator; NULL: the job of the worker who asks */
            uint64_t step;    /* step of the checkpoint */
            uint64_t life;    /* the job's life (pd_job.life) that is meant; 0: any, from an operator */
            uint64_t durable; /* 1 + the durable step that the worker has seen; 0: it does not say */
            uint64_t wait_ns; /* longest time to wait for the disk; in the store: the deadline */
        } go_back;
        pd_checkpoint_image *checkpoint_image;
        pd_go_back_order *go_back_order;
        pd_wal_record *wal;
    } u;
} pd_request;

/* Creates a zeroed request. NULL: out of memory.
 *
 * The memory for its answer is allocated with it, and the request itself can be turned into an effect. So a request
 * can always be answered, and its payload buffer returned, even if out of memory later. */
pd_request *pd_request_new(pd_request_kind kind, pd_ticket ticket);
/* Frees a request and all that it owns. Six things are not freed, because effects return them to their owners, or they
 * have another one: the payload buffer, the published versions of u.released, the task of u.task, u.checkpoint_image,
 * u.go_back_order and u.wal. Accepts NULL. */
void pd_request_free(pd_request *request);

/* A published version: published weights of one parameter after one step. Nobody changes it between its publication and
 * its release. */
typedef struct pd_published {
    uint32_t job, param;
    uint64_t version; /* step that produced these weights; for initial weights the job's start_step */
    int64_t elements;
    void *at[4]; /* weights by element type (pd_dtype), aligned to 64 bytes; NULL: nobody pulls this type */
/* index in `at` of the update, which is what the step added to the weights */
#define PD_UPDATE 0
    pd_dtype update_dtype; /* element type of at[PD_UPDATE] */
    uint64_t builds_on;    /* 1 + version of the weights that the update adds to; 0: there is no update */
    unsigned store_refs;   /* number of references that the step thread holds and counts */
    unsigned version_refs; /* number of the loop thread's references; at 0 it returns the version (PD_REQ_RELEASED) */
    struct pd_published *next_released; /* link in the list of PD_REQ_RELEASED (u.released) */
} pd_published;

typedef enum pd_outcome {
    PD_STEPPED = 1, /* the optimizer took the step */
    /* the aggregate was not finite or too large, or all contributions had weight 0: only the number of steps changes */
    PD_SKIPPED = 2,
    PD_NO_GRADIENT = 3, /* no rank had a gradient of the parameter, so no step was taken */
    /* The optimizer refused this step, or the step of another parameter with which this one counts steps together:
     * the step counts, but the weights stay. */
    PD_REFUSED = 4,
    /* The round closed without this rank's contribution (pd_closed.counted): an answer to the rank, not how the round
     * ended. */
    PD_LATE = 5,
} pd_outcome;

/* The reason why an optimizer refused a step. The step thread creates it; after that only the loop thread counts its
 * references. */
typedef struct pd_reason {
    unsigned refs;
    char text[];
} pd_reason;
pd_reason *pd_reason_new(const char *text); /* Returns a reason with one reference. NULL: out of memory. */
void pd_reason_unref(pd_reason *reason);    /* accepts NULL */

/* The means of the scalars of one round. The step thread creates them; after that only the loop thread counts their
 * references. */
typedef struct pd_scalar_means {
    unsigned refs;
    size_t n;
    pd_scalar_mean at[PD_MAX_SCALARS]; /* the means, sorted by the names of the scalars */
} pd_scalar_means;
void pd_scalar_means_unref(pd_scalar_means *means); /* accepts NULL */

/* The ranks whose contributions count in one step, and how old these are. The step thread has sets of its own; a set
 * in an effect is a copy, whose references only the loop thread counts. */
typedef struct pd_counted {
    unsigned refs;
    uint32_t ranks; /* number of ranks of the job */
    uint32_t n;     /* number of ranks that count */
    uint64_t *kept; /* bit r: the contributions of rank r do not count in this step, but may in a later one */
    uint32_t *age;  /* by rank: the step minus the one that its contributions were for; 0 for other ranks */
    uint64_t set[]; /* bit r: the contributions of rank r count; `kept` and `age` lie behind */
} pd_counted;
/* Returns an empty set of ranks with one reference. NULL: out of memory. */
pd_counted *pd_counted_new(uint32_t ranks);
/* Returns a copy with one reference. NULL: out of memory. */
pd_counted *pd_counted_copy(const pd_counted *counted);
size_t pd_counted_bytes(uint32_t ranks); /* memory that a set takes */
void pd_counted_add(pd_counted *counted, uint32_t rank, uint32_t age);
void pd_counted_keep(pd_counted *counted, uint32_t rank);
/* pd_counted_has returns whether the contributions of a rank count, pd_counted_keeps whether they are kept for a later
 * step, pd_counted_age how old they are. `counted` NULL: all ranks count, with age 0. */
bool pd_counted_has(const pd_counted *counted, uint32_t rank);
bool pd_counted_keeps(const pd_counted *counted, uint32_t rank);
uint32_t pd_counted_age(const pd_counted *counted, uint32_t rank);
void pd_counted_unref(pd_counted *counted); /* accepts NULL */

/* The report that a round of one parameter has closed. */
typedef struct pd_closed {
    uint32_t param;           /* index of the parameter in the job */
    pd_outcome outcome;       /* how the round ended; 0: there was no round, the initial weights are published */
    uint64_t step;            /* the step that the round's contributions were for */
    pd_published *published;  /* the new weights; NULL: no new weights are published */
    pd_reason *why;           /* why the optimizer refused the step; NULL: it did not, or memory was short */
    pd_scalar_means *scalars; /* means of the round's scalars; NULL: no rank sent any */
    pd_counted *counted;      /* the ranks that count; NULL: all, each with a contribution to this very step */
    /* No round has closed. `published` are the weights to evaluate with, at the version that was published last; NULL:
     * they are the published weights, or there was no memory for them (`starved`). */
    bool read_out, starved;
} pd_closed;

/* What the answer to Declare says of one parameter. */
typedef struct pd_declared {
    uint32_t param;   /* index of the parameter in the job */
    uint64_t step;    /* last step whose round has closed: the next push is for step + 1 */
    bool initialised; /* the parameter has initial weights, or this rank has sent all that it must send of them */
    /* number of the change by hand that pushes of the next step must name (job/replacement.h); 0: none */
    uint64_t replaced;
    char *note; /* the optimizer's remark about the parameter, for the worker's log; NULL: it has none */
} pd_declared;

void pd_declared_free(pd_declared *declared, size_t n); /* accepts NULL */

/* Where a portion lies, in a job on several shards. */
typedef struct pd_declared_place {
    uint32_t param;       /* index of its parameter in the Declare */
    uint32_t shard;       /* the shard that it lies on */
    int64_t first, count; /* its elements in the parameter; all of them if the parameter is not cut */
    uint32_t own;         /* index in u.declared.params; UINT32_MAX: it lies on another shard */
} pd_declared_place;

#define PD_MAX_CHANGES 128 /* most changes that the answer to a Set request lists */

/* One change that a Set request has made: one hyperparameter of all parameters that have the same rule. */
typedef struct pd_set_change {
    char optimizer[64], name[64];
    char before[128], value[128];   /* values before and after; of a schedule its text and present value */
    bool mixed;                     /* the parameters had different values before the change */
    bool withdrawn;                 /* the request withdrew an override: `value` is declared or scheduled again */
    uint32_t params;                /* number of parameters that were changed */
    uint64_t from_least, from_most; /* first steps with the new value: lowest and highest over the parameters */
} pd_set_change;

/* What a Set request has changed. */
typedef struct pd_set_result {
    pd_set_change *at;
    size_t n;
    size_t left_off; /* number of changes that `at` has no room for (PD_MAX_CHANGES) */
    uint32_t params; /* number of parameters in which the request changed something */
} pd_set_result;
void pd_set_result_free(pd_set_result *result); /* accepts NULL */

/* The answer to one request of an export. */
typedef struct pd_exported {
    uint64_t step;  /* training step whose weights and state the export reads */
    uint64_t roots; /* BEGIN and COUNT answers: number of inverse roots that a later step will adopt, computed or not */
    uint64_t elements; /* PIECE answers: number of elements of the whole tensor, not only of this piece */
    int64_t count;     /* COUNT answers: number of steps that the parameter's optimizer has counted */
    bool wide;         /* PIECE answers: type of the elements: float64 (true) or float32 (false) */
    size_t bytes;      /* PIECE answers: number of bytes of this piece */
    void *at;          /* the bytes of the piece, owned by the effect; NULL: there are none */
} pd_exported;

typedef enum pd_effect_kind {
    PD_EFF_HELLO,    /* welcomes a worker that joins a job: u.hello */
    PD_EFF_DECLARED, /* a worker's parameters are accepted: u.declared */
    PD_EFF_OK,       /* a request Init, Barrier, Leave, Drop or Drain has succeeded */
    PD_EFF_ERROR,    /* the request was refused and has changed nothing; u.error says why */
    PD_EFF_CLOSED,   /* rounds have closed and new weights are published: u.closed */
    /* says in which step a push may count (u.filed). Only in jobs whose sets of ranks are open (step/fragment.h), where
     * it precedes the answer to each push */
    PD_EFF_FILED,
    PD_EFF_MEMBERS, /* the members of the job have changed: u.members */
    PD_EFF_LEASES,  /* a rank has other leases: u.leases. It precedes the answers of the step that has changed them */
    /* Rounds up to step u.timed_out.step are overdue, or memory for them is short. Workers that wait get the error; the
     * rounds stay open, and contributions to them still count. */
    PD_EFF_TIMED_OUT,
    PD_EFF_BUFFER,   /* returns a payload buffer to the loop thread, which reuses it: u.buffer */
    PD_EFF_FENCED,   /* the loop thread must close connection ticket.conn, whose rank has a new process: u.error */
    PD_EFF_JOB_GONE, /* a job has ended: the loop thread forgets its weights, and waiting workers get u.error */
    PD_EFF_INFO,     /* one page of a list: u.info */
    PD_EFF_SET,      /* an operator's Set request is done: u.set */
    PD_EFF_EXPORT,   /* answers a request of an operator's export: u.exported */
    PD_EFF_SHARE,    /* answers a worker that asked for its job's shared weights: u.share */
    PD_EFF_TASK,     /* a preconditioner task for the preconditioner pool, u.task; it never reaches the loop thread */
    PD_EFF_WRITE_CHECKPOINT, /* u.checkpoint_image for the checkpoint writer; it never reaches the loop thread */
    PD_EFF_GO_BACK,          /* u.go_back_order for the checkpoint writer; it never reaches the loop thread */
    PD_EFF_WAL,              /* a record for the WAL thread, u.wal; it never reaches the loop thread */
    PD_EFF_DURABLE,          /* steps of the job up to u.durable.step are on disk */
    PD_EFF_WORKER_STATE,     /* answers PD_REQ_GET_WORKER_STATE: u.worker_state */
    PD_EFF_SETTLED,          /* answers PD_REQ_SETTLE: u.settled */
    PD_EFF_CHECKPOINT,       /* a checkpoint that was asked for is on disk: u.checkpoint */
    PD_EFF_LOG,              /* an entry of the log: u.log */
    PD_EFF_STATS,            /* a copy of the figures of a job, once a second if the job has changed: u.stats */
} pd_effect_kind;

/* The shares first to first + count - 1: step/shares.h. */
typedef struct pd_share_range {
    uint64_t first, count;
} pd_share_range;

#define PD_LEASES 4       /* most leases that a rank has at a time */
#define PD_LEASE_RANGES 8 /* most ranges of a lease */

/* All that is leased to a rank. */
typedef struct pd_rank_leases {
    uint64_t step;         /* the answer to the rank's push to this step brings the leases; 0: any answer does */
    uint64_t least_unused; /* least share that no rank has used */
    uint32_t n;
    pd_share_range ranges[PD_LEASES * PD_LEASE_RANGES];
} pd_rank_leases;

#define PD_ALL_FRAGMENTS UINT32_MAX
#define PD_MIRROR_LAGS UINT64_MAX /* pd_effect.u.durable.mirrored: the mirror does not count */

/* What becomes of a push, in a job whose sets of ranks are open. */
typedef enum pd_filed {
    PD_FILED_FOR,     /* it is filed: it may count in a step */
    PD_FILED_COUNTED, /* it came before, and has counted */
    PD_FILED_LATE,    /* it is too old to count */
} pd_filed;

typedef struct pd_effect {
    pd_mail mail;
    pd_effect_kind kind;
    pd_ticket ticket;
    uint64_t number; /* serial number, from 1, in the order in which effects leave the step thread */
    uint32_t job;
    union {
        struct {
            uint64_t seed, creator, step; /* step: lowest step of all parameters of the job */
            uint64_t cluster, life;       /* pd_job_saved.cluster; pd_job.life */
            /* number of ms that the job would have lingered on without this worker; 0: other workers are connected */
            uint32_t linger_ms;
            bool created;         /* the worker has created the job */
            uint32_t rank, slots; /* the worker's rank; number of workers that the job can have at once */
            uint64_t epoch;       /* number of times that the members of the job have changed */
            uint64_t generation;  /* generation of the launch that the job belongs to; 0: not known */
            /* course: changes when the job has had to take other steps than before a restart, or could have to.
             * greeted: the one that the answer names, since it is the worker's: the job still has all its steps */
            uint64_t course, greeted;
        } hello;
        struct {
            pd_declared *params; /* of a job on several shards: the portions of this one */
            size_t n;
            /* where all portions lie, in the order of the Declare and of their elements; NULL: the job is on one
             * daemon */
            pd_declared_place *places;
            size_t n_places;
            uint32_t shard, shards; /* number of this shard in the cluster, and how many there are */
            uint64_t map;           /* fingerprint of the map; 0: the job is on one daemon */
            bool settles;           /* steps wait for verdicts of all shards (step/settle.h) */
            /* this rank must send initial weights; initial weights are averaged over all ranks */
            bool must_init, averages_init;
            bool sends_whole;      /* with must_init: it sends the parameters that are not ranged */
            bool files;            /* each push of the job gets a PD_EFF_FILED before its answer */
            pd_rank_leases leases; /* what is leased to the rank; n = 0: nothing */
            pd_kept_steps kept;    /* steps of the checkpoints to which the job can go back */
            /* it can also go back to each step from `first` to `last` that its parameters have closed; UINT64_MAX: to
             * all from `first` on */
            bool replays;
            uint64_t first, last;
            bool fresh;       /* the job has taken no step since it was read from the disk */
            uint64_t place;   /* place of step leases.step of fragment 0, as in u.closed; 0: it was not fixed */
            uint64_t changes; /* number of changes of leases that the disk must have first (step/withheld.h) */
            uint64_t reserve, held;
        } declared; /* reserve: bytes of the rank's largest frame; held: bytes of frames from the rank's earlier
                     * connections that are not summed yet */
        pd_error error;
        struct {
            pd_closed *at;
            size_t n;
            /* lowest and highest place of their steps in the order in which sets were fixed (step/withheld.h); 0: the
             * sets are not open, or the effect is none of a step */
            uint64_t first, place;
            uint64_t course;  /* the job's course from these rounds on, as in u.hello; 0: the same as before */
            uint64_t changes; /* as in u.declared */
        } closed;
        struct {
            pd_filed how;
            /* FOR: the step in which the push counts, or for which it is decided whether it counts later; COUNTED: the
             * step in which it has counted, or its own step if a later push has counted since; LATE: the last step that
             * is decided */
            uint64_t step;
        } filed;
        pd_rank_leases leases; /* of the rank on connection ticket.conn */
        struct {
            uint64_t epoch;  /* number of times that the members have changed */
            uint64_t course; /* as in u.hello */
            /* the ranks that are members; a reference. NULL: these and their leader are as before */
            pd_counted *set;
            uint32_t leader; /* the lowest member whose worker is connected; PD_MAX_WORLD: none is */
        } members;
        struct {
            uint32_t fragment; /* the fragment whose rounds are overdue; PD_ALL_FRAGMENTS: those of any */
            uint64_t step;
            pd_error error;
        } timed_out;
        pd_buffer *buffer;
        pd_info *info;
        pd_set_result *set;
        pd_exported exported;
        struct {
            int fd; /* new descriptor of the segment, owned by the effect; -1: the job's weights are not shared */
            const uint8_t *at; /* where this process has mapped the segment */
            uint64_t bytes;    /* size of the segment */
        } share;
        struct {
            struct pd_task *task;
            uint32_t param;
        } task;
        pd_checkpoint_image *checkpoint_image;
        pd_go_back_order *go_back_order;
        pd_wal_record *wal;
        struct {
            uint64_t step;
            uint64_t unbroken; /* the job can go back to each step from this one to `step`; 0: it has no WAL of steps */
            /* 1 + the step up to which the mirror has the job; 0: there is no mirror; PD_MIRROR_LAGS */
            uint64_t mirrored;
        } durable;
        struct {
            uint64_t step; /* step after which the worker can continue from it; 0: the rank has no worker state */
            uint8_t *at;   /* the worker state, owned by the effect; NULL: it is empty */
            size_t bytes;
        } worker_state;
        struct {
            uint64_t step; /* step and phase of the tally, or of the verdict that was taken */
            uint32_t phase;
            uint8_t *at; /* the bytes of the tally, owned by the effect; NULL: the request brought a verdict */
            size_t bytes;
        } settled;
        struct {
            /* step of the checkpoint; bytes written; 0: an earlier checkpoint was recent enough */
            uint64_t step, bytes;
            uint64_t ns;       /* time that writing it took */
            uint64_t unbroken; /* to a worker: as in `durable` */
        } checkpoint;
        pd_log_entry log;
        pd_job_stats *stats; /* owned by the effect; NULL: the loop thread has taken it */
    } u;
} pd_effect;

/* Frees an effect and all that it owns, except buffers, published versions, tasks, checkpoints, orders to go back and
 * records of a WAL.
 * If it is a PD_EFF_CLOSED, its references to reasons, means of scalars and sets of ranks are dropped. Accepts NULL. */
void pd_effect_free(pd_effect *effect);

/* Frees the lists of a Push or Init request that are not needed once its contributions are filed: those of pieces,
 * hyperparameters and scalars. The request itself must live as long as contributions lie in its payload buffer. */
void pd_request_slim(pd_request *request);
/* Turns a request into an effect in the same memory, so it cannot fail. Takes ownership of the request. */
pd_effect *pd_request_become(pd_request *request, pd_effect_kind kind, pd_ticket ticket, uint32_t job);
/* Makes a PD_REQ_READ_OUT. NULL: out of memory. */
pd_request *pd_request_read_out(uint32_t job, uint32_t param);
/* Turns a PD_EFF_WRITE_CHECKPOINT into a PD_REQ_CHECKPOINT_WRITTEN in the same memory, so it cannot fail. Takes
 * ownership of the effect. */
pd_request *pd_effect_become_checkpointed(pd_effect *effect);
/* Turns a PD_EFF_GO_BACK into a PD_REQ_WENT_BACK in the same memory. Takes ownership of the effect. */
pd_request *pd_effect_become_went_back(pd_effect *effect);
/* Turns a PD_EFF_WAL into a PD_REQ_WAL in the same memory. Takes ownership of the effect. */
pd_request *pd_effect_become_wal(pd_effect *effect);
/* Turns a PD_EFF_TASK into a PD_REQ_TASK in the same memory. Takes ownership of the effect. */
pd_request *pd_effect_become_task(pd_effect *effect);

#endif
