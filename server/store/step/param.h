/* param.h - one parameter of a job: its weights, its optimizer, and the round that collects its contributions. Step
 * thread. */
#ifndef PD_PARAM_H
#define PD_PARAM_H

#include "job_keys.h"
#include "optimizer.h"
#include "round.h"
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

/* How far a parameter's step is. */
typedef enum pd_stage {
    PD_COLLECTING,                      /* contributions are missing, or not summed yet */
    PD_HELD,                            /* the aggregate is there, and other parameters are waited for: step_group.h */
    PD_READY,                           /* in steps->ready: the aggregate is there, the step has not begun */
    PD_BEGUN,                           /* its step has begun, but not those of all of its atomic group: step_group.h */
    PD_STEPPING,                        /* in steps->ready: begun, and can go on */
    PD_PARKED,                          /* begun, waits for a root task, or for another member of its atomic group */
} pd_stage;

/* The part of a parameter that a restart must bring back, beside its weights, its optimizer, its scalars and its
 * overrides: store/image. */
typedef struct pd_param_saved {
    uint64_t step;                      /* rounds closed */
    uint64_t skipped, refused;          /* of them: skipped; without a step because the optimizer refused it */
    uint64_t gaps;                      /* of them: without a step because some elements had no gradient */
    uint64_t contributions;             /* gradients of chunks taken */
    uint32_t outcome;                   /* of the round closed last (pd_outcome); 0: none was */
    uint64_t initialiser;               /* nonce of the process whose initial weights came last; ranged: in the round's ranges */
} pd_param_saved;

typedef struct pd_param {
    pd_param_saved   saved;
    UT_hash_handle   hh;                /* pd_job.names */

    /* as declared */
    char            *name;
    uint32_t         index;
    pd_shape         shape;
    int64_t          elements;
    char            *axes;              /* logical names of its dimensions, as every rank declares them; NULL: not given */
    bool             ranged;            /* its ranks contribute ranges of it */
    bool             model_state;       /* it is averaged, not trained */
    pd_rule         *rule;
    pd_aggregation   how;               /* what gradients become: pd_param_how */
    pd_dtype         update_dtype;      /* in which updates are pulled; 0: none are */

    /* weights and optimizer */
    pd_optim        *optim;
    pd_snapshot     *current;           /* published weights; NULL until initialised */
    pd_snapshot     *next;              /* those of the step under way, or initial weights that are still coming */
    uint64_t         unlanded;          /* chunks of initial weights still to come: rank 0's, or where it is ranged those of every rank */
    float           *added;             /* a step's update, until it has its type; NULL where that is float32 */
    pd_buffer_pool  *pool[4];           /* by pd_dtype; NULL: nobody pulls that type. PD_UPDATE: of updates */
    struct pd_override_entry *overrides; uint32_t n_overrides, overrides_room;      /* in the order of their steps: override.h */
    struct pd_root_log *root_log;       /* by the plan's tasks; NULL: it has none */
    int64_t          roots_looked_at;   /* tasks, adopted or refused, that the log has looked at */

    /* the round */
    pd_round         round;             /* of step + 1; before there are weights, of initial ones where these are averaged */
    float           *accumulator;       /* sum, then aggregate, of the round; NULL: nothing summed yet */
    pd_buffer_pool  *spills;            /* where contributions are collected: memory of a chunk; else NULL */
    struct pd_adasum_tree *tree;        /* the round's Adasum, while that is under way */
    pd_pushed       *pushed;            /* NULL until hyperparameters come with a push for the first time */
    struct pd_scalars *scalars;         /* NULL until a push brings some for the first time: round_scalars.h */
    uint64_t         seen;              /* number of the last frame that named this parameter, */
    bool             seen_absent;       /* and it did so as absent */

    /* the step */
    pd_stage         stage;
    pd_outcome       outcome;           /* from READY on: how the round ends; PD_STEPPED: it takes a step; 0: initial weights. HELD: the outcome by itself */
    pd_counted      *counted;           /* READY: which ranks count, for pd_closed; NULL: all */
    bool             uncaptured;        /* memory was short when its tasks were to be handed out */
    struct pd_step_group *group;        /* counts its steps with others; NULL: by itself */
    struct pd_param *next_member;       /* of that group */
    struct pd_param *prev_waiting, *next_waiting;       /* steps->waiting */
    struct pd_param *prev_ready, *next_ready;           /* steps->ready, steps->merging, or its group's list of held members */
} pd_param;

/* Returns what the contributions to the open round become. Before there are weights the round is of initial ones. */
static inline pd_aggregation pd_param_how(const pd_param *param)
{
    return param->current == NULL ? PD_MEAN : param->how;
}

/* Asks the policy whether the rank may contribute to a step of the parameter. */
static inline pd_admit pd_param_admit(const pd_param *param, uint32_t rank, uint64_t step)
{
    return param->round.policy->admit(&param->round, rank, param->saved.step, step);
}

/* Returns the bytes of the weights and of the snapshot to come, with these element types; float32 there always is. */
uint64_t pd_weight_bytes(int64_t elements, const bool pulled[4]);
/* Returns the bytes that publishing this element type takes more; 0 where it is published already. */
uint64_t pd_param_type_bytes(const pd_param *param, pd_dtype dtype);
/* Publishes this element type, too, from now on. A published snapshot is immutable: where there is one, *again is a
 * copy that has the type, to be published in its place, else NULL. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull(pd_param *param, pd_buffer_pools *all, pd_dtype dtype, pd_snapshot **again);
/* Publishes what each step adds, too, in this element type, always the same one. PD_NO_MEMORY: nothing has changed. */
int pd_param_pull_updates(pd_param *param, pd_buffer_pools *all, pd_dtype dtype);
/* Returns the bytes that publishing updates takes more; 0 where they are published already. */
uint64_t pd_param_update_bytes(const pd_param *param, pd_dtype dtype);
/* Gives the memory where the step that is about to begin writes its update (of param->next); NULL: nobody pulls it.
 * PD_NO_MEMORY. */
int  pd_param_begin_update(pd_param *param, float **update);
/* Gives that memory back: the step is over, and param->next converted or gone. */
void pd_param_end_update(pd_param *param);
/* Makes the snapshot the current one and fills *closed for the loop thread, which gets a reference of its own. Takes
 * `snapshot`; NULL: the weights before stand. */
void pd_param_publish(pd_param *param, pd_snapshot *snapshot, pd_outcome outcome, pd_closed *closed);

/* Fills *closed with the weights and the outcome of the last round once more: the loop thread has forgotten them. */
void pd_param_publish_again(pd_param *param, pd_closed *closed);

/* Writes the name of the open round: "step 7", or "the initial weights". Returns `text`. */
char *pd_round_text(const pd_param *param, char *text, size_t size);

/* Fills the other element types of n parameters' `next` from its float32, all under one parallel region. Where `next`
 * is NULL: nothing. */
void pd_params_convert(pd_param *const *params, size_t n, int threads);

#endif
