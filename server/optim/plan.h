/* plan.h - the plan of one parameter's optimizer: the blocks that the parameter is cut into, the tensors of its state
 * and the preconditioner tasks, and the functions by which the optimizer fills it. Called by the step thread, or by the
 * thread that plans.
 *
 * A step runs in phases (optimizer_ops.h). A unit is the part of a phase that one thread computes, for instance a
 * block. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "partition.h"
#include "quantize.h"

/* most input tensors of a preconditioner task, and also most output tensors */
#define PD_MAX_TASK_TENSORS (2 * PD_MAX_RANK)
/* usual number of elements in a unit of a PD_RANGES phase */
#define PD_RANGE_ELEMENTS 65536

/* Which elements of a slot a preconditioner task of block number b gets. If the slot is an input, the task gets a copy
 * of these elements. If the slot is an output, the task computes them. */
typedef enum pd_share {
    PD_SHARE_WHOLE, /* the whole slot */
    /* The slot has the shape of the parameter: the task gets the elements in its block plan->blocks[b], without
     * gaps. */
    PD_SHARE_BOX,
    /* The slot has one item for each of the plan's blocks, along its first dimension: the task gets item b. */
    PD_SHARE_ITEM,
} pd_share;

/* A slot: a tensor of a parameter's optimizer state. pd_slot_name gives its name in messages and files: "name", or
 * "name.number" if `number` >= 0, or "block_3.name.number" if the slot is `of_block`. */
typedef struct pd_slot_spec {
    const char *name; /* static text */
    /* Number in the name of this state tensor, for instance that of a block, or one that the optimizer chooses. -1: no
     * number. */
    int number;
    pd_shape shape;
    float fill; /* initial value */
    /* At first this state tensor is an identity matrix, or a stack of them (in the last two dimensions): the number
     * `fill` is on the diagonal, and zero elsewhere. */
    bool identity;
    /* This state tensor lives for one step. It is not saved, and its values are undefined when a step begins. */
    bool temporary;
    /* This state tensor is temporary, has the parameter's shape, and may use the memory of `after`, which receives the
     * new weights. This saves a pass over memory. So a phase must read an element of the tensor before it writes that
     * element of `after`. A plan has at most one such tensor. If the optimizer can make a step fail
     * (pd_optimizer_ops.refusal), phases that run before this decision must not write the tensor. */
    bool in_after;
    /* This state tensor is a symmetric matrix. The phases of a step use only its lower half; preconditioner tasks and
     * readers get copies with both halves. */
    bool symmetric;
    /* The type in which the state tensor is stored between steps. With PD_STORE_F64, the phases of a step and the root
     * tasks see float64: they cast the pointer to double *. With any other type they see float32.
     *
     * Changes are stored at the end of the step. If the tensor is blockwise, they are stored when the thread is done
     * with the block. A tensor that did not change keeps its stored bytes. */
    pd_storage storage;
    bool diagonal_apart; /* This state tensor is a square matrix in int8 or int16 whose diagonal is kept in float32. */
    /* This state tensor is used only while `block` is computed, by the phases of a step and by preconditioner tasks. So
     * its float32 form exists only then. */
    bool blockwise;
    int block;
    /* This state tensor belongs to the block with number `block`, which is part of its name; `number` counts within
     * that block. */
    bool of_block;
    /* The share of this state tensor that a preconditioner task of a block gets. If the share is not PD_SHARE_WHOLE,
     * the tensor is seen as float32 (also if it is stored in fewer bits), and must not be blockwise, symmetric or
     * of_block. A tensor with PD_SHARE_BOX may be temporary and in_after: its memory exists when tasks copy their
     * inputs. */
    pd_share share;
    /* follows[i] is the dimension of the declared parameter that corresponds to dimension i of this state tensor, whole
     * or cut into pieces; -1: no dimension corresponds. A later version can derive from it how to divide the tensor
     * among several servers. pd_plan_make sets it for tensors of the whole parameter that have its shape and are
     * neither symmetric nor the identity. */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
} pd_slot_spec;

/* A preconditioner task: computes the root of one block's matrix from the statistics that the optimizer has gathered.
 * It runs on the preconditioner pool, on copies of slots. */
typedef struct pd_task_spec {
    /* Index in plan->blocks of the block that the task works for, if the task gets a block's share of a slot. Otherwise
     * any number, whose meaning the optimizer defines. */
    int block;
    int n_inputs, n_outputs;
    /* indices of the state tensors whose values the task gets: a copy of each, or of the task's share of it */
    int input[PD_MAX_TASK_TENSORS];
    /* indices of the state tensors that receive the results: each as a whole, or the task's share of it */
    int output[PD_MAX_TASK_TENSORS];
    /* estimated floating-point operations of the task; the most expensive tasks run first */
    double cost;
    int64_t scratch; /* most bytes that the preconditioner task allocates while it runs */
    /* p of the inverse p-th root that the task computes, shown to operators; 0: the task computes something else */
    double exponent;
} pd_task_spec;

/* Largest cost (floating-point operations) of a light preconditioner task, which takes a millisecond or less. The
 * preconditioner pool keeps a thread for light tasks. */
#define PD_TASK_LIGHT 1e6

/* Value of the option root_delay with which steps use a matrix root as soon as it is ready. In which step that happens
 * depends on timing. */
#define PD_ROOT_READY (-1)

/* The plan of one parameter's optimizer. Before the optimizer fills it, `shape` is the declared one, range_elements is
 * PD_RANGE_ELEMENTS, `stripes` is 1 and errors_slot is -1; `own` points to zeros, and all else is empty. */
typedef struct pd_plan {
    /* the shape that is cut into blocks: the parameter's declared shape, or that with merged dimensions */
    pd_shape shape;
    int64_t elements;
    pd_block *blocks;
    size_t n_blocks;
    pd_slot_spec *slots;
    size_t n_slots, n_lasting; /* n_lasting: number of slots that are not temporary */
    pd_task_spec *tasks;
    size_t n_tasks;
    /* Number of elements in a unit of a PD_RANGES phase; the last unit may have fewer. */
    int64_t range_elements;
    /* floats of scratch memory that one thread needs: the most that any phase needs */
    size_t scratch_floats;
    /* Number of steps from the capture of a preconditioner task to the use of the matrix root that it computes, or
     * PD_ROOT_READY. */
    int root_delay;
    /* index of a float32 state tensor that holds the error of the matrix root that each task computes, shown to
     * operators; -1: there is none */
    int errors_slot;
    /* The optimizer's own struct, zeroed at first. The optimizer's function `plan` writes it; its phases and
     * preconditioner tasks only read it. */
    void *own;
    size_t own_bytes;
    /* number of units that a PD_STRIPES phase has for each block, at least 1 */
    int64_t stripes;
    /* whether products in phases over blocks, or in `adopt`, are so large that threads share them (stripes.h): even a
     * single unit is then worth waking all threads */
    bool large_products;
    /* A note for the user who declares the parameter (for instance: an option has no effect). It is shown in the answer
     * to Declare, in the log and to operators. "": no note. */
    char note[240];
    /* estimated floating-point operations of the matrix products in one step; element-wise work is not counted */
    double flops;
} pd_plan;

/* These functions append a slot or a preconditioner task to the plan. They return its index, or PD_NO_MEMORY. */
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
/* Returns the largest number of units that a phase of the plan has. */
int64_t pd_plan_most_units(const pd_plan *plan);

/* Returns whether a slot is coded: it is stored in fewer bits than float32, so the phases of a step see a float32 form
 * of it. Temporary slots are not coded. */
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
/* Returns the number of elements of a slot. */
int64_t pd_slot_elements(const pd_slot_spec *spec);
/* Returns how many elements each block has in a slot with PD_SHARE_ITEM. Such a slot has one item for each block: all
 * elements with one index in the first dimension. The items follow each other in memory. */
int64_t pd_slot_item_elements(const pd_slot_spec *spec);
/* Return the size of what a preconditioner task gets of a state tensor (slot): the whole tensor, a block's elements, or
 * a block's item. pd_task_elements counts elements; pd_task_share_bytes counts bytes in the form that the task sees
 * (float64 or float32). */
int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot);
int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot);

/* These functions return the number of statistics of a plan whose shape was cut into blocks, and the number of rows of
 * one of them. Each dimension of a block has a statistic, a square matrix with one row for each index. The statistic of
 * dimension d of a block has the number block * rank + d. */
int64_t pd_statistics_count(const pd_plan *plan);
int64_t pd_statistics_side(const pd_plan *plan, int64_t number);

#endif
