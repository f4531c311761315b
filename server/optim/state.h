/* state.h - the private data of one parameter's optimizer, for the files of this folder: optimizer.c (begins and ends
 * steps), task.c (preconditioner tasks), batch.c (runs steps), stored.c (memory of slots), part.c (reads slots),
 * save.c. Used by the step thread, unless a comment says otherwise. */
#ifndef PD_STATE_H
#define PD_STATE_H

#include "optimizer_ops.h"
#include "optimizer_types.h"

/* Memory for all tasks that one step both captures and adopts. It is one allocation, so that it may lie on huge
 * pages. */
typedef struct pd_task_arena {
    unsigned refs; /* number of tasks that use the arena */
    int64_t used;  /* number of floats at the beginning of `memory` that tasks use */
    float *memory;
} pd_task_arena;

/* The data that an optimizer shares with its tasks. `refs` counts the users: the optimizer and its tasks. Only the step
 * thread makes and frees optimizers and tasks, so neither `refs` nor `spare` is atomic. The other members never
 * change. */
typedef struct pd_shared_plan {
    unsigned refs;
    pd_task_arena *spare; /* the arena of an earlier step, for the next one; NULL: there is none */
    pd_plan plan;
    double stats[PD_MAX_MODEL_STATS];
    pd_random random, random_of_all;
} pd_shared_plan;

/* Removes one reference; the last one frees the shared data. Accepts NULL. */
void pd_shared_plan_drop(pd_shared_plan *shared);

/* The point that a step has reached. */
typedef enum pd_stage {
    PD_STAGE_IDLE,    /* no step is under way */
    PD_STAGE_OPEN,    /* making the float32 forms of coded slots */
    PD_STAGE_PHASES,  /* running phases, until tasks must be captured or adopted */
    PD_STAGE_CAPTURE, /* capturing tasks */
    PD_STAGE_WAIT,    /* waiting for the tasks that are due, and for the other steps of the atomic group */
    PD_STAGE_ADOPT,
    PD_STAGE_CHECK, /* checking whether the new weights are finite, for an optimizer without a phase over ranges */
    PD_STAGE_CLOSE, /* storing the coded slots that changed */
} pd_stage;

/* A coded slot: it is stored in fewer bits than float32, and phases see a float32 form of it. */
typedef struct pd_stored {
    int slot;
    int block;          /* index of the block that the slot belongs to; -1: the slot belongs to the whole parameter */
    pd_quantized codes; /* the stored form of the slot */
} pd_stored;

typedef struct pd_pending_task pd_pending_task;

#define PD_NAME_KEPT 161 /* bytes of a parameter's name that are stored for messages; longer names are truncated */

/* The members of an optimizer that must be restored after a restart, and no others (save.c). */
typedef struct pd_optim_saved {
    int64_t count;
    void *state; /* memory of all lasting slots, in the types in which they are stored */
    pd_root_stats stats;
    pd_root_state *roots;             /* one entry for each task of the plan */
    pd_pending_task *oldest, *newest; /* list of the pending tasks, in the order of capture */
} pd_optim_saved;

/* The memory of the slots, beside pd_optim_saved.state. */
typedef struct pd_slot_memory {
    pd_stored *stored; /* the coded slots */
    /* n_stored: number of coded slots; n_whole: number of coded slots of the whole parameter */
    size_t n_stored, n_whole;
    /* number of floats of the float32 forms of one block's coded slots: the most that any block needs */
    int64_t view_floats;
    int64_t state_bytes;      /* number of bytes of the lasting slots */
    int64_t temporary_floats; /* number of floats of all temporary slots */
    int64_t after_floats;     /* number of floats of the slot that may use the memory of the new weights */
    float *temporary;         /* memory of the temporary slots, and of the float32 forms of coded slots */
} pd_slot_memory;

/* The step under way. */
typedef struct pd_step {
    pd_stage stage;
    int phase;              /* index of the next phase to run */
    int64_t round;          /* number of times that phase number `phase` has run in this step (pd_phase.rounds) */
    bool captured, adopted; /* whether this step has captured its tasks, and adopted the due ones */
    bool parked;            /* whether the step waits for a task and is counted in stats.waits */
    bool opened;            /* whether the coded slots of the whole parameter have their float32 form now */
    /* guards: whether the step fails if it makes finite weights infinite or NaN; spoils: whether it has done so */
    bool guards, spoils;
    bool refused; /* whether the step fails */
    pd_step_io io;
    double hyper[PD_MAX_HYPERS];      /* the hyperparameters that this step uses */
    double own_hyper[PD_MAX_HYPERS];  /* with hyperball: those that the optimizer's own phases see; lr is 1 */
    double (*total)[PD_MAX_PARTIALS]; /* one entry for each phase: pd_unit.total */
} pd_step;

/* The step as a member of its atomic group. */
typedef struct pd_bond {
    pd_atomic_group *group; /* &own if the step may fail alone */
    pd_atomic_group own;    /* of this step alone; own.why is a copy of a larger group's error */
    size_t place;           /* position of the step in its group */
    bool settled;           /* whether the step has told its group whether it fails */
    /* whether the remaining due tasks are thrown away, because an earlier task made a step of the group fail */
    bool dropping;
    const pd_pending_task *last; /* the first task whose failure makes this step fail; NULL: none */
} pd_bond;

/* The tasks that the step under way handles. */
typedef struct pd_step_tasks {
    pd_task **work; /* the tasks that are being captured or adopted; an array with room for all tasks of the plan */
    size_t n_work;
    /* the caller's list of tasks. Without `retakes` the step adds the tasks that it takes; with `retakes` it must take
     * the tasks in the list. NULL: there is no list */
    pd_taken_roots *taken;
    bool retakes;
    pd_pending_task *to_hand_out; /* the first captured task that pd_optim_capture has not handed out yet */
} pd_step_tasks;

/* One parameter's optimizer. Only the member `saved` must survive a restart: the others follow from the declaration, or
 * belong to the step under way. */
struct pd_optim {
    pd_optim_saved saved;
    const pd_optimizer_ops *ops;
    char name[PD_NAME_KEPT];
    pd_hypers hypers; /* hyperparameters as declared for the parameter */
    pd_shared_plan *shared;
    /* own_phases: number of phases of the optimizer. n_phases: with those of hyperball, of which `before` come first,
     * and the others last */
    int own_phases, before, n_phases;
    int last_ranges; /* index of the last phase over ranges of elements, which writes the weights; -1: there is none */
    bool beyond_cache;  /* whether steps write arrays that others read later past the cache (pd_optim_set_job_bytes) */
    int64_t most_units; /* largest number of units that a phase of the plan has */
    double cost_ns;     /* estimated time of a step on one core, in ns */
    float **slot;       /* elements of each slot in the form that phases see; NULL: the slot does not have it now */
    pd_slot_memory memory;
    pd_step step;
    pd_bond bond;
    pd_step_tasks tasks;
};

/* The optimizer's entry for a pending task. A node of the list pd_optim_saved.oldest; the optimizer frees it. */
struct pd_pending_task {
    pd_pending_task *next;
    int64_t count;  /* number of the step that captured the task */
    uint32_t index; /* index of the task in the plan */
    pd_task *task;  /* NULL while the task is at the preconditioner pool */
    bool kept;      /* whether the task must run, even if a newer task of the same root comes */
    bool back;      /* whether the task was delivered (pd_optim_deliver) */
    bool due;       /* whether the task is to be adopted in this step; set by pd_step_settle */
    bool awaited;   /* whether an image that is being written waits for the task's result (save.h) */
};

/* A preconditioner task. Owned by the optimizer, except while it is at the preconditioner pool. */
struct pd_task {
    pd_pending_task *pending;
    const pd_optimizer_ops *ops;
    pd_shared_plan *shared;
    pd_task_view view; /* the argument of the optimizer's task function; points to the members below */
    int status;        /* PD_CANCELLED until the task has run; then PD_OK, or why it gave no root */
    bool kept;         /* whether the task must run, even if a newer task of the same root comes */
    double ms;         /* time that the task took to run (pd_task_took); 0: it has not run */
    double hyper[PD_MAX_HYPERS];
    float *input[PD_MAX_TASK_TENSORS], *output[PD_MAX_TASK_TENSORS];
    float *memory;        /* memory of all tensors of `input` and `output` */
    pd_task_arena *arena; /* contains `memory`; NULL: the task owns its memory */
};

#endif
