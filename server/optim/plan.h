/* plan.h - the plan of one parameter's optimizer: its blocks, slots and preconditioner tasks, and the functions by
 * which the optimizer fills it. Called by the step thread, or by the thread that plans. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "partition.h"
#include "quantize.h"

#define PD_MAX_TASK_TENSORS (2 * PD_MAX_RANK + 2) /* most inputs of a task, and most outputs */
#define PD_RANGE_ELEMENTS 65536                   /* usual number of elements in a unit of a PD_RANGES phase */

/* Which elements of a slot a task of block number b copies (an input) or computes (an output). */
typedef enum pd_share {
    PD_SHARE_WHOLE, /* the whole slot */
    PD_SHARE_BOX,   /* the slot has the shape of the parameter: the elements in plan->blocks[b], without gaps */
    PD_SHARE_ITEM,  /* the slot has one item for each block, along its first dimension: item b */
} pd_share;

/* A slot: a tensor of a parameter's optimizer state. pd_slot_name gives its name in messages and files: "name", or
 * "name.number" if `number` >= 0, or "block_3.name.number" if the slot is `of_block`. */
typedef struct pd_slot_spec {
    const char *name; /* static text */
    int number;       /* number in the slot's name; -1: none */
    pd_shape shape;
    float fill; /* initial value */
    /* Whether the slot begins as an identity matrix, or a stack of them (in the last two dimensions), with `fill` on
     * the diagonal. */
    bool identity;
    bool temporary; /* the slot lives for one step: it is not saved, and its values are undefined at first */
    /* The slot is temporary, has the parameter's shape, and may use the memory of the new weights, which saves a pass
     * over memory. So a phase must read an element of the slot before it writes that element of `after`. A plan has at
     * most one such slot. If the optimizer can make a step fail (pd_optimizer_ops.refusal), phases that run before this
     * decision must not write the slot. */
    bool in_after;
    bool symmetric; /* phases use only the lower half of the matrix; tasks and readers get copies with both halves */
    /* The type in which the slot is stored between steps. With PD_STORE_F64, phases and tasks see float64: they cast
     * the pointer to double *. With any other type they see float32.
     *
     * Changes are stored at the end of the step; changes of a blockwise slot as soon as the thread has computed the
     * block. A slot that did not change keeps its stored bytes. */
    pd_storage storage;
    bool diagonal_apart; /* the slot is a square matrix in int8 or int16 whose diagonal is kept in float32 */
    bool blockwise;      /* the slot is used only while `block` is computed, so its float32 form exists only then */
    int block;
    bool of_block; /* the slot belongs to `block`, which is part of its name; `number` counts within the block */
    /* The share of the slot that a task of a block gets. If it is not PD_SHARE_WHOLE, the slot is seen as float32 (also
     * if it is coded), and must not be blockwise, symmetric or of_block. A slot with PD_SHARE_BOX may be temporary and
     * in_after: its memory exists when tasks copy their inputs. */
    pd_share share;
    /* follows[i]: the dimension of the declared parameter along which dimension i of the slot runs, all of it or a
     * section of it; -1: none. Valid if follows_known. Optimizers set both; pd_plan_make does for slots of the
     * parameter's shape that are not symmetric, the identity, blockwise or of_block. Shown in lists of state. */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
} pd_slot_spec;

/* A preconditioner task: computes, for instance, the root of one block's statistics. It runs on the preconditioner
 * pool, on copies of slots. */
typedef struct pd_task_spec {
    /* Index in plan->blocks, if the task gets a block's share of a slot. Otherwise any number, whose meaning the
     * optimizer defines. */
    int block;
    int n_inputs, n_outputs;
    int input[PD_MAX_TASK_TENSORS];  /* indices of the slots of which the task gets copies */
    int output[PD_MAX_TASK_TENSORS]; /* indices of the slots that receive the results */
    double cost;                     /* estimated floating-point operations; the most expensive tasks run first */
    int64_t scratch;                 /* most bytes of work memory that the task allocates while it runs */
    double exponent; /* p of the inverse p-th root, shown to operators; 0: the task computes something else */
} pd_task_spec;

/* largest cost of a light task, which takes a millisecond or less: one thread of the pool runs light tasks only */
#define PD_TASK_LIGHT 1e6
#define PD_ROOT_READY (-1) /* a root_delay: steps use a root as soon as it is ready, so results depend on timing */

/* The plan of one parameter's optimizer. Before the optimizer fills it, `shape` is the declared one, range_elements is
 * PD_RANGE_ELEMENTS, `stripes` is 1 and errors_slot is -1; `own` points to zeros, and all else is empty. */
typedef struct pd_plan {
    pd_shape shape; /* the shape that is cut into blocks: the declared one, or that with merged dimensions */
    int64_t elements;
    pd_block *blocks;
    size_t n_blocks;
    pd_slot_spec *slots;
    size_t n_slots, n_lasting; /* n_lasting: number of slots that are not temporary */
    pd_task_spec *tasks;
    size_t n_tasks;
    int64_t range_elements; /* elements in a unit of a PD_RANGES phase; the last unit may have fewer */
    size_t scratch_floats;  /* scratch memory of one thread: the most that any phase needs */
    int root_delay;         /* number of steps from the capture of a task to its adoption, or PD_ROOT_READY */
    /* Whether a step whose tasks are captured and adopted before the same phase adopts those of earlier steps first, so
     * that a task reads what the tasks before it wrote. It has no effect with a root_delay of 0. */
    bool adopts_first;
    /* index of the float32 slot that has the error of each task's root, shown to operators; -1: none */
    int errors_slot;
    void *own; /* the optimizer's own struct: its function `plan` writes it, phases and tasks read it */
    size_t own_bytes;
    int64_t stripes; /* number of units that a PD_STRIPES phase has for each block, at least 1 */
    /* Whether products in phases over blocks, or in `adopt`, are so large that threads share them (stripes.h): even a
     * single unit is then worth waking all threads. */
    bool large_products;
    /* Whether the step keeps the norm of the weights (hyperball.h). Then `radius` and `turn` are the indices of two
     * slots, and `lr` is that of the learning rate among the hyperparameters. */
    bool hyperball;
    int radius, turn, lr;
    /* a message for the user who declares the parameter, for instance that an option has no effect; "": none */
    char note[240];
    double flops; /* estimated operations of the matrix products in one step, without element-wise work */
} pd_plan;

/* Append a slot (pd_plan_slot) or a task (pd_plan_task) to the plan. Return its index, or PD_NO_MEMORY, which is
 * negative. */
int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec);
int pd_plan_task(pd_plan *plan, const pd_task_spec *spec);
/* Adds a slot to the plan for each name; the list of names ends with NULL. The slots have the parameter's shape and
 * begin with zeros. Returns PD_OK or PD_NO_MEMORY. */
int pd_plan_slots(pd_plan *plan, const char *const *names);
/* Adds a slot that holds one number, `fill` at first. Returns PD_OK or PD_NO_MEMORY. */
int pd_plan_number(pd_plan *plan, const char *name, float fill);
/* Cuts the shape of the plan into blocks of at most block_size along every dimension. With a block_size of at most 0
 * there is one block. PD_NO_MEMORY: out of memory, or too many blocks. */
int pd_plan_blocks(pd_plan *plan, int64_t block_size);

void pd_plan_free(pd_plan *plan); /* frees the plan's arrays, but not the struct; accepts an empty plan */
int64_t pd_plan_most_units(const pd_plan *plan); /* the largest number of units that a phase has */

/* Returns whether a slot is coded: stored in fewer bits than float32, so that phases see a float32 form of it.
 * Temporary slots are not coded. */
bool pd_slot_is_coded(const pd_slot_spec *spec);
/* Returns the bytes of a slot in the form that the phases of a step see: float64 if it is stored so, else float32.
 * INT64_MAX: the number does not fit. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec);
/* Writes the name of a slot into `text`, for which 128 bytes suffice: for instance "momentum_buffer", "statistics.3" or
 * "block_3.factor_matrices.1". Returns `text`. */
char *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size);
/* Computes the rows and columns of a slot seen as a matrix, for quantize.h: rows are its first dimension, columns the
 * product of the others. */
void pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols);
int64_t pd_slot_elements(const pd_slot_spec *spec);
/* Returns the number of elements of an item in a slot with PD_SHARE_ITEM. The items follow each other in memory. */
int64_t pd_slot_item_elements(const pd_slot_spec *spec);
/* Return the size of a task's share of a slot: in elements, and in bytes of the form that the task sees. */
int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot);
int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot);

/* Return the number of statistics of a plan, and the number of rows of statistic `number`. Each dimension of a block
 * has a statistic, a square matrix with one row for each index of the dimension. Statistics are numbered block by
 * block: dimension d of block b has number b rank + d. */
int64_t pd_statistics_count(const pd_plan *plan);
int64_t pd_statistics_side(const pd_plan *plan, int64_t number);

#endif
