/* param.h - one parameter of a job: weights, optimizer, the round being gathered. Step thread. */
#ifndef PD_PARAM_H
#define PD_PARAM_H

#include "sums.h"
#include "collect.h"
#include "optim.h"
#include "rule.h"
#include "snapshot.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Hyperparameters sent with the pushes of the open round. */
typedef struct pd_pushed {
    uint64_t  mask;                     /* bit h: hyperparameter h was sent */
    uint32_t  rank[PD_MAX_HYPERS];      /* by whom first */
    pd_hypers hypers;                   /* plain values of the round's step: with a bit in the mask those that were sent */
} pd_pushed;

/* What the log has said of one root. */
typedef struct pd_root_said {
    int64_t failed;                     /* failures that it has looked at */
    bool    failing;                    /* it has said that this root fails, and not yet that it is good again */
} pd_root_said;

/* Where a parameter's step is. */
typedef enum pd_stage {
    PD_GATHERING,                       /* contributions are missing, or not summed yet */
    PD_HELD,                            /* the aggregate is there, and other parameters are waited for: together.h */
    PD_READY,                           /* in job->ready: the aggregate is there, the step has not begun */
    PD_BEGUN,                           /* its step has begun, but not those of all that it is bound to: together.h */
    PD_STEPPING,                        /* in job->ready: begun, and can go on */
    PD_PARKED,                          /* begun, waits for a root task, or for what another one that it is bound to says */
} pd_stage;

struct pd_override_entry;

typedef struct pd_param {
    UT_hash_handle   hh;                /* job->names */
    char            *name;
    uint32_t         index;
    pd_shape         shape;
    int64_t          elements;
    char            *axes;              /* logical names of its dimensions, as every rank declares them; NULL: not given */
    bool             ranged;            /* its ranks contribute ranges of it */
    bool             model_state;       /* declared as such */
    pd_rule         *rule;
    pd_optim        *optim;
    pd_root_said    *said;              /* by the plan's tasks; NULL: it has none */
    int64_t          settled;           /* its tasks, adopted or refused, that the log has looked at */
    pd_buffer_pool        *shelf[4];          /* by pd_dtype; NULL: nobody pulls that type. PD_UPDATE: of updates */
    pd_dtype         update_dtype;      /* in which updates are pulled; 0: none are */
    float           *added;             /* a step's update, until it has that type; NULL where that is float32 */

    pd_snapshot     *current;           /* published weights; NULL until initialised */
    pd_snapshot     *next;              /* those of the step under way, or initial weights that are still coming */
    uint64_t         unlanded;          /* chunks of initial weights still to come: rank 0's, or where it is ranged those of every rank */
    uint64_t         initialiser;       /* nonce of the process whose initial weights these were; ranged: in the round's ranges */

    pd_round         round;             /* of step + 1; before there are weights, of initial ones where these are averaged */
    pd_aggregation   how;               /* what gradients become: pd_param_how */
    float           *accumulator;       /* sum, then aggregate, of the round; NULL: nothing summed yet */
    pd_buffer_pool        *spills;            /* where it gathers: memory of a chunk; else NULL */
    pd_adasum_tree        *merge;             /* its Adasum, while that is under way */
    pd_pushed       *pushed;            /* NULL until hyperparameters come with a push for the first time */
    struct pd_scalars *scalars;         /* NULL until a push brings some for the first time: scalars.h */
    struct pd_override_entry  *holds;             /* what operators have set, in the order of the steps from which it holds: setting.h */
    uint32_t         n_holds, holds_room;
    pd_stage         stage;
    pd_outcome       outcome;           /* from READY on: how the round ends; PD_STEPPED: it takes a step; 0: initial weights. HELD: so it would by itself */
    struct pd_step_group *group;             /* counts its steps with others; NULL: by itself */
    struct pd_param *next_member;       /* of that group */
    bool             uncaptured;        /* memory was short when its tasks were to be handed out */
    struct pd_param *prev_waiting, *next_waiting;       /* job->waiting: open rounds that miss somebody or may be held, oldest first */
    struct pd_param *prev_ready, *next_ready;           /* job->ready, job->merging, or its group's list of those held */
    uint64_t         mark;              /* number of the last frame that named this parameter */
    bool             mark_absent;       /* and it did so as absent */

    uint64_t         step, skipped, contributions;      /* rounds closed; of them skipped; gradients of chunks taken */
    uint64_t         gaps;              /* rounds closed without a step because some elements had no gradient */
    uint64_t         refused;           /* of the rounds closed: those whose step the optimizer refused */
} pd_param;

/* What the contributions to its round become. Before there are weights the round is of initial ones. */
static inline pd_aggregation pd_param_how(const pd_param *param) { return param->current == NULL ? PD_MEAN : param->how; }

/* Frees what the parameter owns, not the struct: it stands in the job's array. No contribution may be held, no task be out. */
void pd_param_clear(pd_param *param);

/* Bytes of the weights and of the snapshot to come, with these element types; float32 there always is. */
uint64_t pd_weight_bytes(int64_t elements, const bool pulled[4]);
/* Also publish this element type from now on. A published snapshot is immutable: where there is one, *again is a copy that has
 * the type, to be published in its place, else NULL. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull(pd_param *param, pd_buffer_pools *all, pd_dtype dtype, pd_snapshot **again);
/* Also publish what each step adds, in this element type, always the same one. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull_updates(pd_param *param, pd_buffer_pools *all, pd_dtype dtype);
/* Bytes that this takes more; 0 where updates are published already. */
uint64_t pd_param_update_bytes(const pd_param *param, pd_dtype dtype);
/* Where the step that is about to begin writes its update (of param->next); NULL: nobody wants it. PD_NO_MEMORY. */
int  pd_param_begin_update(pd_param *param, float **update);
/* The step is over, and param->next converted or gone. */
void pd_param_end_update(pd_param *param);
/* The snapshot becomes the current one and the entry *closed tells the loop thread, which has a reference of its own. Takes
 * `snapshot`; NULL: those before stand. */
void pd_param_publish(pd_param *param, pd_snapshot *snapshot, pd_outcome outcome, pd_closed *closed);

/* What the round is of: "step 7", or "the initial weights". Returns `text`. */
char *pd_round_text(const pd_param *param, char *text, size_t size);

/* Fills the other element types of n parameters' `next` from its float32, all under one parallel region. Where that is NULL: nothing. */
void pd_params_convert(pd_param *const *params, size_t n, int threads);

#endif
