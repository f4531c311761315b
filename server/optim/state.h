/* state.h - the private data of one parameter's optimizer, for the files of this folder: optimizer.c (begins and ends
 * steps), task.c (preconditioner tasks: computations of matrix roots), batch.c (runs steps), stored.c (keeps the slots,
 * the tensors of the state), part.c (reads slots). Used by the step thread, unless a comment says otherwise.
 *
 * A step captures a preconditioner task, and the same step or a later one adopts it (stores its result). */
#ifndef PD_STATE_H
#define PD_STATE_H

#include "optimizer_ops.h"
#include "optimizer_types.h"

/* The data that an optimizer shares with its preconditioner tasks. They never change. Only the step thread makes and
 * frees optimizers and tasks, so it alone counts the references. */
typedef struct pd_shared_plan {
    unsigned refs;
    pd_plan plan;
    double stats[PD_MAX_MODEL_STATS];
    pd_random random, random_of_all;
} pd_shared_plan;

/* Removes one reference; the last one frees the shared data. Accepts NULL. */
void pd_shared_plan_drop(pd_shared_plan *shared);

/* The point that a step has reached. */
typedef enum pd_stage {
    PD_STAGE_IDLE, /* no step is under way */
    PD_STAGE_OPEN, /* making the float32 forms of state tensors that are stored in fewer bits */
    /* running phases, until preconditioner tasks must be captured or adopted */
    PD_STAGE_PHASES,
    PD_STAGE_CAPTURE, /* copying the inputs of the preconditioner tasks that this step starts */
    /* waiting for the preconditioner tasks whose results this step must use, and for the other steps of its atomic
     * group */
    PD_STAGE_WAIT,
    PD_STAGE_ADOPT,
    PD_STAGE_CHECK, /* looking whether the new weights are finite, where no phase over ranges has done so */
    PD_STAGE_CLOSE, /* at the end of the step: storing the state tensors that changed in fewer bits again */
} pd_stage;

/* A coded slot: a tensor of the state that is stored in fewer bits than float32, so that the phases of a step see
 * another form of it. */
typedef struct pd_stored {
    int slot;
    int block; /* index of the block that the state tensor belongs to; -1: it belongs to the whole parameter */
    pd_quantized codes;
} pd_stored;

/* Memory for all preconditioner tasks that one step both captures and adopts. It is one allocation, so that it may lie
 * on huge pages. `refs` counts the tasks that use it. */
typedef struct pd_task_arena {
    unsigned refs;
    int64_t used; /* number of floats that are in use */
    float *memory;
} pd_task_arena;

typedef struct pd_pending_task pd_pending_task;

#define PD_NAME_KEPT 161 /* number of bytes of a parameter's name that are kept for messages */

/* The part of an optimizer that must be restored after a restart of the daemon, and nothing else: save.c writes and
 * reads it. */
typedef struct pd_optim_saved {
    int64_t count;
    /* Memory of all tensors of the state except those that live for one step, in the types in which they are stored. */
    void *state;
    pd_root_stats stats;
    pd_root_state *roots; /* one record for each preconditioner task of the plan */
    /* List of the preconditioner tasks that are captured and not adopted yet, in the order of capture. */
    pd_pending_task *oldest, *newest;
} pd_optim_saved;

/* One parameter's optimizer. Only the member `saved` must survive a restart: the others follow from the declaration, or
 * belong to the step under way. */
struct pd_optim {
    pd_optim_saved saved;
    const pd_optimizer_ops *ops;
    char name[PD_NAME_KEPT];
    pd_hypers hypers; /* hyperparameters as declared for the parameter */
    pd_shared_plan *shared;
    int n_phases;
    int last_ranges; /* index of the last phase over ranges of elements, which writes the weights; -1: there is none */
    /* largest number of units that a phase of the plan has */
    int64_t most_units;
    double cost_ns;

    /* For each slot, its elements in the form that the phases of a step see. NULL: the slot does not have that form
     * now. */
    float **slot;
    /* the state tensors that are stored in fewer bits: first those of the whole parameter, then those of each block */
    pd_stored *stored;
    size_t n_stored, n_whole;
    /* Number of floats that the float32 forms of one block's state tensors take, if these are stored in fewer bits: the
     * most that any block needs. */
    int64_t view_floats;
    int64_t state_bytes; /* bytes of state in memory, without the tensors that live for one step */
    /* floats of all tensors that live for one step, including one that may use the memory of `after` */
    int64_t temporary_floats;
    int64_t after_floats; /* floats of the tensor that may use the memory of the new weights, `after` */

    pd_stage stage;
    int phase;     /* index of the next phase to run */
    int64_t round; /* number of times that the next phase to run has run in this step already */
    /* whether this step has captured its preconditioner tasks, and adopted the due ones */
    bool captured, adopted;
    /* whether the step waits for a preconditioner task and is counted in stats.waits */
    bool parked;
    pd_step_io io;
    double hyper[PD_MAX_HYPERS]; /* the hyperparameters that this step uses */
    /* whether the state tensors of the whole parameter that are stored in fewer bits have their float32 form now */
    bool opened;
    /* memory of the tensors that live for one step, and of the float32 forms of those stored in fewer bits */
    float *temporary;
    double (*total)[PD_MAX_PARTIALS];

    /* the steps that succeed or fail together with this one; &own if the step may fail alone */
    pd_atomic_group *group;
    /* The atomic group of this step alone. If the step is in a larger group, own.why is a copy of that group's
     * error. */
    pd_atomic_group own;
    size_t place; /* position of the step in its atomic group */
    /* whether the step has told its atomic group whether it fails */
    bool settled;
    /* the first preconditioner task whose failure makes this step fail; NULL: none */
    const pd_pending_task *last;
    /* whether the remaining preconditioner tasks are thrown away, because an earlier one made the step fail */
    bool dropping;
    bool refused;
    /* whether the step is refused if it makes finite weights infinite or NaN; whether it has done so */
    bool guards, spoils;

    /* preconditioner tasks whose inputs are being copied or whose results are being stored; has room for all tasks of
     * the plan */
    pd_task **work;
    size_t n_work;
    /* where the step notes which preconditioner tasks it takes, or (`retakes`) which it must take; NULL: it takes those
     * that are due, and notes nothing */
    pd_taken_roots *taken;
    bool retakes;
    /* later steps will repeat earlier ones, so no preconditioner task may be left out */
    bool keeps_tasks;
    /* the first preconditioner task whose inputs are copied and that pd_optim_capture has not handed out yet */
    pd_pending_task *to_hand_out;
};

/* The optimizer's record of a pending preconditioner task: its inputs were copied, and its result is not stored in the
 * state yet. */
struct pd_pending_task {
    pd_pending_task *next;
    int64_t count;  /* number of the step in which the task's inputs were copied */
    uint32_t index; /* index of the task in the plan */
    pd_task *task;  /* the task; NULL while the task is at the preconditioner pool */
    bool kept;      /* as in pd_task */
    bool back;
    bool due; /* whether the task's result is to be stored in this step; set by pd_step_settle */
    /* whether an image that is being written waits for the task's result: save.h */
    bool awaited;
};

struct pd_task {
    pd_pending_task *pending; /* the optimizer's record of this preconditioner task */
    const pd_optimizer_ops *ops;
    pd_shared_plan *shared;
    pd_task_view view;
    int status; /* PD_CANCELLED until the preconditioner task has run; then PD_OK, or why it gave no root */
    bool kept;  /* the preconditioner task must run, even if a newer one of the same root comes */
    double ms;
    double hyper[PD_MAX_HYPERS];
    /* The task's copies of its inputs, and memory for its results. `view`, which the optimizer's task function gets,
     * points to them. */
    float *input[PD_MAX_TASK_TENSORS], *output[PD_MAX_TASK_TENSORS];
    float *memory; /* memory of `input` and `output` */
    /* the shared allocation that contains `memory`; NULL: the task owns its memory */
    pd_task_arena *arena;
};

#endif
