/* param.h - one parameter of a job: its weights, its optimizer, and the round that collects its contributions. Step
 * thread. */
#ifndef PD_PARAM_H
#define PD_PARAM_H

#include "job_keys.h"
#include "optimizer.h"
#include "round.h"
#include "rule.h"
#include "published.h"
#include "request.h"
#include "stats.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum { PD_WAL_MOST = 4 }; /* most records of a job's stream of steps that are on their way to the disk */

/* Hyperparameters that workers have sent with pushes of the open round: pushed_hypers.h. */
typedef struct pd_pushed {
    uint64_t mask;                /* bit h: hyperparameter h was sent */
    uint32_t rank[PD_MAX_HYPERS]; /* rank[h]: the rank that sent hyperparameter h first */
    /* values that the round's step would use without overrides: those that were sent for the hyperparameters in
     * `mask`, the declared or scheduled ones for the others */
    pd_hypers hypers;
    /* by rank: what was sent with pushes, until the ranks that count are fixed (pushed_hypers.h). NULL: nothing was, or
     * all ranks count */
    struct pd_pushed_row *rows;
} pd_pushed;

/* What the first push of the open round has said of a change of weights by hand; the other pushes must say the same:
 * job/replacement.h. */
typedef struct pd_change_told {
    bool known;             /* a push of the open round has come */
    uint32_t rank, process; /* rank of the push; number of the rank's process */
    uint64_t number;        /* number of the change that the rank has; 0: it has the weights of the last step */
} pd_change_told;

/* How far a parameter is in its present round and step. */
typedef enum pd_stage {
    PD_COLLECTING, /* contributions to the round are missing, or those that came are not summed yet */
    /* the aggregate is complete, and the step waits for other parameters of the job: step_group.h */
    PD_HELD,
    /* the step could begin, but a rider stops it: a cut quiesces the parameter, or the WAL or a pause holds it back;
     * the parameter is in steps->queue.stopped (riders.h) */
    PD_STOPPED,
    /* the aggregate is complete, and the step has not begun; the parameter is in steps->queue.ready */
    PD_READY,
    PD_STEPPING, /* the step has begun and can continue; the parameter is in steps->queue.ready */
    /* the step has begun, and waits for preconditioner tasks or for the other steps of its atomic group:
     * step_group.h */
    PD_PARKED,
} pd_stage;

/* The members of a parameter that survive a restart of the server: store/image writes and reads them. Weights,
 * optimizer state, scalars and overrides survive, too. */
typedef struct pd_param_saved {
    /* number of the last step whose round the parameter has closed; steps up to the job's start_step count as closed */
    uint64_t step;
    /* number of steps that were skipped; number of steps that the optimizer refused to take */
    uint64_t skipped, refused;
    uint64_t gaps; /* number of rounds that closed without a step because only some of the elements had a gradient */
    /* number of contributions with a gradient, counted for each chunk and rank */
    uint64_t contributions;
    uint32_t outcome; /* outcome of the last closed round (pd_outcome); 0: no round has closed yet */
    /* nonce of the process that last sent initial weights; a ranged parameter has one for each rank instead */
    uint64_t initialiser;
} pd_param_saved;

/* The overrides of a parameter: override.h. */
typedef struct pd_override_list {
    struct pd_override_entry *at; /* sorted by step */
    uint32_t n, room;             /* number of entries; number of entries that `at` has room for */
} pd_override_list;

/* What the log has reported of the parameter's roots: root_report.h. */
typedef struct pd_root_reports {
    struct pd_root_log *log; /* one for each task; NULL: the optimizer has no roots */
    int64_t looked_at;       /* number of roots that were adopted or have failed, when pd_roots_watch last looked */
} pd_root_reports;

/* Memory for weights, updates and contributions. */
typedef struct pd_param_buffers {
    /* pools of the weights in each element type (pd_dtype), and of updates (PD_UPDATE); NULL: no worker pulls them */
    pd_buffer_pool *pool[4];
    bool durable; /* a checkpoint may keep old weights until they are on the disk */
    bool logged;  /* the job has a stream of steps, which keeps aggregates until they are on the disk */
    /* the update of the present step as float32, until it is converted; NULL: workers pull float32 updates, or none */
    float *added;
    float *accumulator; /* sum of the round's contributions, which becomes their aggregate; NULL: none is summed */
    /* pool of buffers for spilled contributions: collect.h. NULL: contributions are not spilled */
    pd_buffer_pool *spills;
} pd_param_buffers;

/* Weights that the program has changed by hand since the last round closed: job/replacement.h. */
typedef struct pd_param_change {
    uint64_t number; /* number of the change, which each push of the open round must name; 0: there is none */
    uint32_t rank;   /* if there is one: the rank that has sent the weights; 0 after a restart of the server */
    pd_change_told told;
} pd_param_change;

/* The last frame that had data of the parameter. It shows whether a frame names the parameter twice. */
typedef struct pd_param_frame {
    uint64_t number; /* number of the frame */
    bool absent;     /* the frame has reported that the rank has no gradient of the parameter */
} pd_param_frame;

/* How the open round ends. */
typedef struct pd_round_end {
    /* How the round ends; valid from stage PD_READY on. 0: the initial weights are published. In stage PD_HELD it says
     * how the round would end if no other parameter mattered. */
    pd_outcome outcome;
    pd_traced_round traced; /* times of the round, if there is a trace file: riders.h */
    bool uncaptured;        /* some preconditioner tasks are not handed out yet, because memory was short */
} pd_round_end;

typedef struct pd_param_links {
    struct pd_param *prev_waiting, *next_waiting; /* links in steps->queue.waiting */
    struct pd_param *prev_ready, *next_ready;     /* links in steps->queue.ready or steps->queue.stopped */
    struct pd_param *next_member;                 /* next member of the same step group */
} pd_param_links;

/* A parameter of a job. The members that each contribution reads come first and lie together: a job may have so many
 * parameters that no cache holds them. */
typedef struct pd_param {
    pd_param_saved saved;
    pd_round round;               /* collects contributions to step saved.step + 1, or averages initial weights */
    pd_published *current;        /* the published weights; NULL: initial weights are not published yet */
    struct pd_fragment *fragment; /* decides which ranks count in the parameter's rounds: fragment.h */
    struct pd_step_group *group;  /* NULL: the parameter counts its own steps */
    pd_param_frame frame;
    pd_param_change change;
    uint32_t index;
    pd_aggregation how; /* how gradients are aggregated; for the open round see pd_param_how */
    /* Element type in which all ranks push; 0: any. Noted only if contributions may be spilled, whose memory it
     * determines. */
    pd_dtype push_dtype;
    pd_dtype update_dtype; /* element type in which workers pull updates; 0: none pulls updates */

    /* The version that is being written: by the present step; or from initial weights that workers send, or from
     * weights that replace the published ones (job/replacement.h). NULL: none is being written */
    pd_published *next;
    pd_optim *optim;
    pd_param_links links;
    pd_stage stage;
    pd_round_end end;
    pd_param_buffers buffers;
    pd_override_list overrides;
    pd_root_reports roots;
    struct pd_adasum_tree *tree; /* the round's Adasum or radial mean, while it is being computed */
    pd_pushed *pushed;           /* hyperparameters of the round's pushes; NULL: none have ever been sent */
    struct pd_scalars *scalars;  /* scalars of the round's pushes: round_scalars.h. NULL: none have ever been sent */
    pd_request *reader;          /* the PD_REQ_READ_OUT that is not answered yet (readout.h); NULL: there is none */
    /* number of chunks whose initial or replacing weights have not come into `next` yet; a chunk of a ranged parameter
     * counts once for each rank that may have elements of it, or, if the sets of ranks are open, until all its elements
     * have come */
    uint64_t unlanded;

    char *name; /* the members from here to `model_state` are what the ranks have declared */
    pd_shape shape;
    int64_t elements;
    char *axes;       /* names of the dimensions, the same from every rank; NULL: none were declared */
    bool ranged;      /* each rank contributes a range of the elements */
    bool model_state; /* averaged over the ranks, not trained */
    pd_rule *rule;

    /* Which part of the declaration this is. In a job on several shards, steps->params has only the portions of this
     * shard, ascending by `declared` and `origin`. */
    uint32_t declared;   /* index of the parameter in the declaration */
    bool cut;            /* this is a portion of a parameter that is cut */
    uint32_t portions;   /* number of portions that the parameter is cut into, on all shards; 1: it is not cut */
    uint32_t cut_number; /* number of cut parameters before this one in the declaration, if `cut` */
    int64_t origin;      /* first element of the portion in its parameter */
    /* Name of the parameter in the declaration: `name` unless the job has cut parameters, whose portions are numbered
     * ("wte#2"). Patterns of operators match it, and random numbers depend on it. Borrowed */
    const char *declared_name;
    UT_hash_handle hh; /* link in the hash table pd_job.names */
} pd_param;

/* Returns how the contributions to the parameter's open round are aggregated. If they are initial weights they are
 * averaged. */
static inline pd_aggregation pd_param_how(const pd_param *param)
{
    return param->current == NULL ? PD_MEAN : param->how;
}

/* Returns the bytes of a parameter's published weights and of its next weights together: in float32, and in each
 * element type t (pd_dtype) with pulled[t]. */
uint64_t pd_weight_bytes(int64_t elements, const bool pulled[4]);
/* Joins the buffer pool for the parameter's published weights in element type `type`, or for the published changes of
 * its weights if `type` is PD_UPDATE. A buffer has `bytes` bytes. PD_NO_MEMORY: nothing has changed.
 * pd_param_leave_pools leaves all these pools. */
int pd_param_join_pool(pd_param *param, const pd_memory *memory, int type, size_t bytes);
void pd_param_leave_pools(pd_param *param);
/* Returns how many more bytes weights take if they are also published in this element type; 0: the type is published
 * already. */
uint64_t pd_param_type_bytes(const pd_param *param, pd_dtype dtype);
/* Makes sure that the weights are also published in this element type, from now on. If the parameter has published
 * weights without this type, *again becomes a copy of them that has it, which the caller must publish. Otherwise *again
 * becomes NULL. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull(pd_param *param, const pd_memory *memory, pd_dtype dtype, pd_published **again);
/* Makes sure that the update of each step is published in this element type from now on. A parameter has only one type
 * of updates. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull_updates(pd_param *param, const pd_memory *memory, pd_dtype dtype);
/* Returns how many more bytes the parameter takes if its updates are published in this element type; 0: they are
 * published already. */
uint64_t pd_param_update_bytes(const pd_param *param, pd_dtype dtype);
/* Stores in *update the memory into which the step that is about to begin writes its update. NULL: no worker
 * pulls updates. PD_NO_MEMORY. */
int pd_param_begin_update(pd_param *param, float **update);
/* Gives the float32 buffer of the step's update back to its pool. Call it when the step is over, after param->next was
 * converted or discarded. */
void pd_param_end_update(pd_param *param);
/* Makes the weights to evaluate with, in all element types in which weights are published. Runs in one parallel region.
 * Call it only between two steps of an optimizer that has them (pd_optim_has_readout). NULL: out of memory. */
pd_published *pd_param_read_out(const pd_param *param, int threads);
/* Publishes a version as the parameter's weights, and fills *closed, the report to the loop thread, with a reference to
 * it. Takes ownership of `published`; NULL: the weights stay as they are. `unread` counts the weights that it
 * replaces. */
void pd_param_publish(pd_unread *unread, pd_param *param, pd_published *published, pd_outcome outcome,
                      pd_closed *closed);

/* Fills *closed, the report to the loop thread, with the published weights and the outcome of the last closed round
 * again. After a restart the loop thread does not have them. */
void pd_param_publish_again(pd_unread *unread, pd_param *param, pd_closed *closed);

/* Writes the name of the parameter's open round: "step 7", or "the initial weights". Returns `text`. */
char *pd_round_text(const pd_param *param, char *text, size_t size);

/* Writes why the open round is skipped: "the gradient of p is not finite", for instance. Returns `text`; 384 bytes
 * suffice. */
char *pd_param_why_skipped(const pd_param *param, char *text, size_t size);

/* Converts the next float32 weights of n parameters, and their updates, to the other element types that workers pull.
 * Runs in one parallel region. Skips parameters whose `next` is NULL. */
void pd_params_convert(pd_param *const *params, size_t n, int threads);

#endif
