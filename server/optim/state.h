/* state.h - inside of one parameter's optimizer: shared by optim.c (its life), task.c (its roots) and batch.c (its steps) alone.
 * Step thread, except where a comment says otherwise. */
#ifndef PD_STATE_H
#define PD_STATE_H

#include "optim.h"

/* What an optim and its tasks read and nobody writes. Counted by the step thread: tasks are made and freed there. */
typedef struct pd_basis {
    unsigned refs;
    pd_plan  plan;
    double   fact[PD_MAX_FACTS];
    pd_random random, random_of_all;
} pd_basis;
void pd_basis_drop(pd_basis *basis);

/* Where a step stands. */
typedef enum pd_stage {
    PD_STAGE_IDLE,          /* no step under way */
    PD_STAGE_OPEN,          /* float32 forms of the slots that are stored otherwise */
    PD_STAGE_EARLY,         /* phases before task_phase */
    PD_STAGE_CAPTURE,       /* copying inputs of the tasks due now */
    PD_STAGE_WAIT,          /* until what is to be adopted now is back, and so far with all steps of the bond */
    PD_STAGE_ADOPT,
    PD_STAGE_LATE,          /* phases from task_phase on */
    PD_STAGE_CLOSE,         /* those slots stored again */
} pd_stage;

/* A slot that has another form between steps: pd_slot_is_coded. */
typedef struct pd_stored {
    int          slot;
    int          block;             /* -1: the whole parameter's */
    pd_quantized codes;
} pd_stored;

/* Memory that all tasks of a capture share, where they are adopted in the same step: one piece, so that it may lie on huge pages. Counted as pd_basis is. */
typedef struct pd_room {
    unsigned refs;
    int64_t  used;                  /* floats */
    float   *memory;
} pd_room;

typedef struct pd_slip pd_slip;

#define PD_NAME_KEPT 161        /* of a parameter's name, for messages */

struct pd_optim {
    const pd_row *row;
    char          name[PD_NAME_KEPT];
    pd_hypers     hypers;           /* as declared */
    pd_basis     *basis;
    int           n_phases;
    int64_t       most_units;       /* of a stage, over the stages */
    double        cost_ns;

    float       **slot;             /* by plan->slots: as phases see it, NULL while there is no such form */
    void         *state;            /* memory of those that are not temporary */
    pd_stored    *stored;           /* in the order of their blocks, after those that belong to the whole parameter */
    size_t        n_stored, n_whole;
    int64_t       view_floats;      /* float32 forms of a block's, the largest over the blocks */
    int64_t       state_bytes, temporary_floats;        /* in memory; temporary: with a slot that may be in `after` */
    int64_t       after_floats;     /* of that slot */
    int64_t       count;

    /* the step under way */
    pd_stage      stage;
    int           phase;            /* next one to run */
    bool          parked;           /* counted as a wait */
    pd_step_io    io;
    double        hyper[PD_MAX_HYPERS];         /* in force */
    bool          opened;           /* slots of the whole parameter that are stored otherwise have their float32 form */
    float        *temporary;        /* memory of temporary slots, and of those forms */
    double      (*total)[PD_MAX_PARTIALS];

    /* whether that step is given up, or the one that ended last was */
    pd_bond      *bond;             /* those that decide it together; alone: */
    pd_bond       own;              /* its `why` is also kept here when the bond is over */
    size_t        place;            /* in the bond */
    bool          settled;          /* has said in the bond whether it refuses */
    const pd_slip *last;            /* the task for which it does */
    bool          dropping;         /* what is still to be adopted lies behind the task for which the bond refuses */
    bool          refused;

    /* tasks */
    pd_task     **work;             /* being copied or adopted: room for one of each of the plan */
    size_t        n_work;
    pd_root_state *roots;           /* by plan->tasks */
    pd_slip      *oldest, *newest;  /* one for each task captured and not adopted, in the order of capture */
    pd_slip      *to_hand_out;      /* the first of them that pd_optim_capture has not given */
    pd_root_stats stats;
};

/* What stays here of a task while others have it. */
struct pd_slip {
    pd_slip *next;
    int64_t  count;                 /* step it was captured in */
    pd_task *task;                  /* NULL while it is away */
    bool     back;
    bool     due;                   /* to be adopted in this step: found when that is settled */
};

struct pd_task {
    pd_slip      *slip;             /* the optim's */
    const pd_row *row;
    pd_basis     *basis;
    pd_task_view  view;
    int           status;           /* PD_CANCELLED until it has run */
    double        ms;
    double        hyper[PD_MAX_HYPERS];
    float        *input[PD_MAX_TASK_TENSORS], *output[PD_MAX_TASK_TENSORS];         /* what the view points to */
    float        *memory;           /* of these */
    pd_room      *room;             /* that it lies in; NULL: it is the task's own */
};

/* Return the bytes that every optimizer takes, resp. every task that is under way, whatever the plan: its records, and what
 * malloc adds to each block. Bytes that depend on the plan are counted elsewhere. */
int64_t pd_optim_own_bytes(void);
int64_t pd_task_own_bytes(void);
/* Returns how many units the plan's widest stage has. */
int64_t pd_plan_most_units(const pd_plan *plan);

/* n floats at a multiple of 64 bytes; free() them. NULL: out of memory. */
float *pd_floats_new(int64_t n);
/* A size in floats that keeps what follows at a multiple of 64 bytes. */
int64_t pd_floats_padded(int64_t n);

/* One more value folded in. */
double pd_folded(pd_fold fold, double sofar, double value);

/* ---- slots that are stored in fewer bits: stored.c ---- */

/* Finds them, and lays out everything's memory: fills stored, view_floats, state_bytes, temporary_floats. PD_NO_MEMORY. */
int  pd_slots_measure(pd_optim *optim);
/* Makes the memory of the state. PD_NO_MEMORY. */
int  pd_slots_make(pd_optim *optim);
/* Writes initial values of slot at->slot from at->element on, as many as *budget_ns allows; moves *at on and lowers the budget. PD_NO_MEMORY. */
int  pd_slot_fill(const pd_optim *optim, pd_fill *at, double *budget_ns);
/* Memory for a step's temporary slots and float32 forms. PD_NO_MEMORY. */
int  pd_slots_open(pd_optim *optim);
void pd_slots_close(pd_optim *optim);
/* Those that a block's units see: first and one past the last in optim->stored. */
void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end);
/* Float32 forms of a block's slots in `memory` (view_floats), before a unit, and back after it. Any thread of a phase. */
void pd_block_open(const pd_optim *optim, int64_t block, float *memory);
void pd_block_close(const pd_optim *optim, int64_t block);
/* The same for optim->stored[i], i < n_whole, over a step. */
void pd_stored_open(const pd_optim *optim, size_t i);
void pd_stored_close(const pd_optim *optim, size_t i);
/* NULL: it lies in optim->slot[slot] as phases see it. */
const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot);
/* A whole copy of slot i as phases see it (float32 or float64), with both halves, from wherever it is. And back, a task's result. */
void pd_slot_load(const pd_optim *optim, int slot, void *to);
void pd_slot_store(const pd_optim *optim, int slot, const void *from);
/* The same of what a task gets of it (pd_slot_spec.share), in the midst of a step: slots of the whole parameter have their float32 form then. */
void pd_share_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to);
void pd_share_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from);

/* The step is over: its temporary memory goes. */
void pd_optim_end(pd_optim *optim);
/* Undoes pd_optim_begin: nothing has run yet. */
void pd_optim_cancel(pd_optim *optim);

/* ---- the tasks' part of a step, in this order ---- */

/* Makes the tasks that are due, without their copies, in optim->work. */
void pd_tasks_prepare(pd_optim *optim);
/* Copies the inputs of optim->work[i]. Any thread of a phase. */
void pd_tasks_copy(const pd_optim *optim, size_t i);
/* Now pd_optim_capture may hand them out. */
void pd_tasks_captured(pd_optim *optim);
/* Nothing that must be adopted in this step is away. */
bool pd_tasks_are_back(const pd_optim *optim);
/* A step that waits for nothing of its own says in its bond whether it refuses; once. */
void pd_step_settle(pd_optim *optim);
/* All steps of the bond have: nothing is waited for any more. */
bool pd_step_is_decided(const pd_optim *optim);
/* Then: is it given up, and which of its tasks are adopted all the same? */
void pd_step_decide(pd_optim *optim);
/* Puts what is to be adopted now in optim->work, the tasks of one step at a time, oldest first. */
void pd_tasks_collect(pd_optim *optim);
/* Puts the result of optim->work[i] into its slots, unless it failed. Any thread of a phase. */
void pd_tasks_adopt(const pd_optim *optim, size_t i);
void pd_tasks_adopted(pd_optim *optim);
/* Frees all that the optim still holds. */
void pd_tasks_free(pd_optim *optim);

/* ---- batches with their own memory ---- */

typedef struct pd_batch pd_batch;
/* Memory to run any subset of these steps, at most `threads` at once. NULL: out of memory. */
pd_batch *pd_batch_new(pd_optim *const *optims, size_t n, int threads);
void      pd_batch_free(pd_batch *batch);
int       pd_batch_threads(const pd_batch *batch);
/* As pd_batch_run; cannot fail. */
void      pd_batch_run_steps(pd_batch *batch, pd_optim *const *steps, size_t n);
/* Runs tasks that are out, a thread each. */
void      pd_batch_run_tasks(const pd_batch *batch, pd_task *const *tasks, size_t n);

#endif
