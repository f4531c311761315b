/* state.h - the inside of one parameter's optimizer, for the files of this folder: optimizer.c (its life), task.c
 * (its roots), batch.c (its steps), stored.c (its slots), part.c (reading them). Step thread, except where a
 * comment differs. */
#ifndef PD_STATE_H
#define PD_STATE_H

#include "optimizer_types.h"
#include "shared_plan.h"

/* Where a step stands. */
typedef enum pd_stage {
    PD_STAGE_IDLE,          /* no step under way */
    PD_STAGE_OPEN,          /* making float32 forms of coded slots */
    PD_STAGE_PHASES,        /* running phases, up to the next capture or adoption */
    PD_STAGE_CAPTURE,       /* copying inputs of the tasks that are due */
    /* waiting for the roots that are due in this step, and for the other members of the atomic group */
    PD_STAGE_WAIT,
    PD_STAGE_ADOPT,
    PD_STAGE_CLOSE,         /* storing the coded slots again */
} pd_stage;

/* A coded slot (pd_slot_is_coded): stored in another form than phases see. */
typedef struct pd_stored {
    int          slot;
    int          block;             /* -1: the whole parameter's */
    pd_quantized codes;
} pd_stored;

/* Memory for all tasks of a capture that are adopted in the same step: one block, so that it may lie on huge pages.
 * References are counted as in pd_shared_plan. */
typedef struct pd_task_arena {
    unsigned refs;
    int64_t  used;                  /* floats */
    float   *memory;
} pd_task_arena;

typedef struct pd_pending_task pd_pending_task;

#define PD_NAME_KEPT 161        /* of a parameter's name, for messages */

/* The part of an optimizer that a restart must bring back, and nothing else: save.c visits it. */
typedef struct pd_optim_saved {
    int64_t        count;
    void          *state;               /* memory of the slots that are not temporary, as they are stored */
    pd_root_stats  stats;
    pd_root_state *roots;               /* by plan->tasks */
    pd_pending_task *oldest, *newest;   /* one for each task captured and not adopted, in the order of capture */
} pd_optim_saved;

/* Members other than `saved` follow from the declaration, or belong to the step under way. */
struct pd_optim {
    pd_optim_saved saved;
    const pd_row *row;
    char          name[PD_NAME_KEPT];
    pd_hypers     hypers;           /* as declared */
    pd_shared_plan *shared;
    int           n_phases;
    int64_t       most_units;       /* of the plan's widest phase */
    double        cost_ns;

    float       **slot;             /* by plan->slots: as phases see it, NULL while there is no such form */
    pd_stored    *stored;           /* in the order of their blocks, after those that belong to the whole parameter */
    size_t        n_stored, n_whole;
    int64_t       view_floats;      /* float32 forms of a block's, the largest over the blocks */
    int64_t       state_bytes, temporary_floats;        /* in memory; temporary: with a slot that may be in `after` */
    int64_t       after_floats;     /* of that slot */

    /* the step under way */
    pd_stage      stage;
    int           phase;            /* next one to run */
    int64_t       round;            /* of that phase */
    bool          captured, adopted;            /* in this step */
    bool          parked;           /* counted as a wait */
    pd_step_io    io;
    double        hyper[PD_MAX_HYPERS];         /* in force */
    bool          opened;           /* slots of the whole parameter that are stored otherwise have their float32 form */
    float        *temporary;        /* memory of temporary slots, and of those forms */
    double      (*total)[PD_MAX_PARTIALS];

    /* whether the step under way, or the last one, failed */
    pd_atomic_group *group;         /* the steps that fail together; alone: */
    pd_atomic_group  own;           /* its `why` is also kept here when the group is gone */
    size_t        place;            /* in the group */
    bool          settled;          /* has reported to the group whether it refuses */
    const pd_pending_task *last;    /* the task for which it refuses */
    bool          dropping;         /* the tasks still to adopt lie behind the task for which the group refuses */
    bool          refused;

    /* tasks */
    pd_task     **work;             /* being copied or adopted: room for one of each of the plan */
    size_t        n_work;
    pd_pending_task *to_hand_out;   /* the first pending task that pd_optim_capture has not given */
};

/* The optimizer's record of a task that was captured and not adopted yet. */
struct pd_pending_task {
    pd_pending_task *next;
    int64_t  count;                 /* step it was captured in */
    pd_task *task;                  /* NULL while it is away */
    bool     back;
    bool     due;                   /* to be adopted in this step: set by pd_step_settle */
};

struct pd_task {
    pd_pending_task *pending;       /* the optimizer's */
    const pd_row *row;
    pd_shared_plan *shared;
    pd_task_view  view;
    int           status;           /* PD_CANCELLED until it has run */
    double        ms;
    double        hyper[PD_MAX_HYPERS];
    float        *input[PD_MAX_TASK_TENSORS], *output[PD_MAX_TASK_TENSORS];         /* what the view points to */
    float        *memory;           /* of these */
    pd_task_arena *arena;           /* holds that memory; NULL: the task owns it */
};

#endif
