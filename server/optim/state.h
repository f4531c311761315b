/* state.h - the inside of one parameter's optimizer, for the files of this folder: optimizer.c (begins and ends
 * steps), task.c (root tasks), batch.c (runs steps), stored.c (slots), part.c (reads slots). Used by the step
 * thread, unless a comment says otherwise.
 *
 * A step captures a root task (copies its inputs for the root pool), and the same step or a later one adopts it
 * (stores its result). */
#ifndef PD_STATE_H
#define PD_STATE_H

#include "optimizer_types.h"
#include "shared_plan.h"

/* The point that a step has reached. */
typedef enum pd_stage {
    PD_STAGE_IDLE,    /* no step under way */
    PD_STAGE_OPEN,    /* making the float32 forms of slots that are stored in another type */
    PD_STAGE_PHASES,  /* running phases, until tasks must be captured or adopted */
    PD_STAGE_CAPTURE, /* copying the inputs of the root tasks that this step captures */
    /* waiting for the root tasks that are due in this step, and for the other steps of the atomic group */
    PD_STAGE_WAIT,
    PD_STAGE_ADOPT,
    PD_STAGE_CLOSE, /* storing changed slots in their own type again, at the end of the step */
} pd_stage;

/* A coded slot (pd_slot_is_coded): it is stored in another form than the one that phases see. */
typedef struct pd_stored {
    int slot;
    int block; /* index of the block that the slot belongs to; -1: the whole parameter */
    pd_quantized codes;
} pd_stored;

/* Memory for all tasks that one step captures and adopts: one block, so that it may lie on huge pages. `refs` counts
 * the tasks that use it. */
typedef struct pd_task_arena {
    unsigned refs;
    int64_t used; /* floats */
    float *memory;
} pd_task_arena;

typedef struct pd_pending_task pd_pending_task;

#define PD_NAME_KEPT 161 /* bytes kept of a parameter's name, for messages */

/* Exactly the part of an optimizer that must be restored after a restart of the daemon: save.c writes and reads it. */
typedef struct pd_optim_saved {
    int64_t count;
    void *state; /* memory of all slots that are not temporary, in their storage types */
    pd_root_stats stats;
    pd_root_state *roots;             /* by plan->tasks */
    pd_pending_task *oldest, *newest; /* list of the tasks that are captured and not adopted yet, in the order of
                                       * capture */
} pd_optim_saved;

/* One parameter's optimizer. Only `saved` must be stored: the other members follow from the declaration, or belong
 * to the step under way. */
struct pd_optim {
    pd_optim_saved saved;
    const pd_row *row;
    char name[PD_NAME_KEPT];
    pd_hypers hypers; /* as declared */
    pd_shared_plan *shared;
    int n_phases;
    int64_t most_units; /* number of units of the plan's widest phase */
    double cost_ns;

    float **slot;      /* for each slot of the plan, its tensor in the form that phases see; NULL: it has none now */
    pd_stored *stored; /* coded slots: first those of the whole parameter, then by block */
    size_t n_stored, n_whole;
    int64_t view_floats;      /* floats that the float32 forms of one block's coded slots take, in the block with the
                               * most */
    int64_t state_bytes;      /* bytes of state in memory: all slots that are not temporary */
    int64_t temporary_floats; /* floats of all temporary slots, including one that may use `after` */
    int64_t after_floats;     /* floats of the temporary slot that may use `after` */

    /* ---- the step under way ---- */
    pd_stage stage;
    int phase;              /* index of the next phase to run */
    int64_t round;          /* number of the phase's next round */
    bool captured, adopted; /* in this step */
    bool parked;            /* whether the step is counted in stats.waits */
    pd_step_io io;
    double hyper[PD_MAX_HYPERS]; /* in force */
    bool opened;                 /* whether the coded slots of the whole parameter have their float32 form now */
    float *temporary;            /* memory of temporary slots, and of the float32 forms of coded slots */
    double (*total)[PD_MAX_PARTIALS];

    /* ---- failure of the step under way, or of the last one ---- */
    pd_atomic_group *group;      /* the atomic group of the step; &own if the step may fail alone */
    pd_atomic_group own;         /* group of this step alone; in a larger group, own.why is a copy of that group's
                                  * error */
    size_t place;                /* in the group */
    bool settled;                /* whether the step has told its group whether it is refused */
    const pd_pending_task *last; /* the first task whose failure makes this step fail; NULL: none */
    bool dropping;               /* whether further tasks are thrown away, because an earlier task made the step fail */
    bool refused;

    /* tasks */
    pd_task **work; /* tasks being copied or adopted; has room for all tasks of the plan */
    size_t n_work;
    pd_pending_task *to_hand_out; /* the first pending task that pd_optim_capture has not handed out */
};

/* The optimizer's record of a pending task: one that was captured and is not adopted yet. */
struct pd_pending_task {
    pd_pending_task *next;
    int64_t count; /* number of the step in which the task was captured */
    pd_task *task; /* NULL while the task is at the root pool */
    bool back;
    bool due; /* whether the task is to be adopted in this step; set by pd_step_settle */
};

struct pd_task {
    pd_pending_task *pending; /* the optimizer's */
    const pd_row *row;
    pd_shared_plan *shared;
    pd_task_view view;
    int status; /* PD_CANCELLED until the task has run; then PD_OK, or why it has no root */
    double ms;
    double hyper[PD_MAX_HYPERS];
    float *input[PD_MAX_TASK_TENSORS], *output[PD_MAX_TASK_TENSORS]; /* the task's copies of its inputs, and memory for
                                                                      * its results; `view` points to them */
    float *memory;                                                   /* memory of `input` and `output` */
    pd_task_arena *arena;                                            /* the arena that contains the memory; NULL: the
                                                                      * task owns the memory */
};

#endif
