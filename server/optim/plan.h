/* plan.h - the plan of one parameter: its blocks, slots and tasks, and the functions by which its optimizer fills
 * it. Called by the step thread, or by the thread that plans.
 *
 * A step runs in phases (row.h). A unit is the part of a phase that one thread computes. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "partition.h"
#include "quantize.h"

#define PD_MAX_TASK_TENSORS (2 * PD_MAX_RANK) /* most inputs of a task, and also most outputs */
#define PD_RANGE_ELEMENTS 65536               /* usual number of elements in a unit of a PD_RANGES phase */

/* The share of a slot that a task of block number b gets. If the slot is an input, the task gets a copy of the
 * share. If the slot is an output, the task computes the share. */
typedef enum pd_share {
    PD_SHARE_WHOLE, /* the whole slot */
    PD_SHARE_BOX,   /* the slot has the plan's shape: the task gets the elements in the box plan->blocks[b], without
                     * gaps */
    PD_SHARE_ITEM,  /* the slot has one item for each of the plan's blocks, along its first dimension: the task gets
                     * item b */
} pd_share;

/* A slot: a tensor of a parameter's optimizer state. pd_slot_name gives its name in messages and files: "name", or
 * "name.number" if `number` >= 0, or "block_3.name.number" if the slot is `of_block`. */
typedef struct pd_slot_spec {
    const char *name; /* static text */
    int number;       /* number in the slot's name: of a block, or chosen by the optimizer; -1: no number */
    pd_shape shape;
    float fill; /* initial value */
    /* The slot is an identity matrix at first, or a stack of them (in the last two dimensions): `fill` on the
     * diagonal, zero elsewhere. */
    bool identity;
    bool temporary; /* The slot lives for one step. It is not saved, and its values are undefined when a step begins. */
    /* The temporary slot has the parameter's shape and may use the memory of `after`, the new weights, which saves a
     * pass over memory. So a phase must read an element of the slot before it writes that element of `after`. A plan
     * has at most one such slot. If the optimizer has a `refusal`, the phases before adopt_phase must not write the
     * slot. */
    bool in_after;
    /* The slot is a symmetric matrix. Phases use only its lower half; tasks and readers get copies with both halves. */
    bool symmetric;
    /* The type in which the slot is stored between steps. With PD_STORE_F64, phases and tasks see float64: they cast
     * the pointer to double *. With any other type they see float32.
     *
     * Changes are stored at the end of the step, or at the end of the unit if the slot is blockwise. A slot that did
     * not change keeps its stored bytes. */
    pd_storage storage;
    bool diagonal_apart; /* The diagonal of an int8 or int16 square matrix is kept in float32. */
    /* Only units and tasks of `block` use the slot, so its float32 form exists only while one of them runs. */
    bool blockwise;
    int block;
    bool of_block; /* The slot belongs to `block`, which is part of its name; `number` counts within that block. */
    /* The share of the slot that a task of a block gets. A slot whose share is not PD_SHARE_WHOLE is seen as float32
     * (also where it is stored in fewer bits). It must not be blockwise, symmetric or of_block. A slot with
     * PD_SHARE_BOX may be temporary and in_after: its memory exists when tasks copy their inputs. */
    pd_share share;
    /* follows[i] is the dimension of the declared parameter that corresponds to dimension i of the slot, whole or
     * cut into pieces; -1: none does. A later version can derive from it how to shard the slot. pd_plan_make sets it
     * for slots of the whole parameter that have its shape and are neither symmetric nor the identity. */
    bool follows_known;
    int8_t follows[PD_MAX_RANK];
} pd_slot_spec;

/* A task: computes the root of one block's matrix from its current statistics. It runs on the root pool, on copies
 * of slots. */
typedef struct pd_task_spec {
    /* Index in plan->blocks, if the task has a share of a slot. Otherwise any number, whose meaning the optimizer
     * defines. */
    int block;
    int n_inputs, n_outputs;
    int input[PD_MAX_TASK_TENSORS];  /* slots whose values the task gets: a copy of the slot or of the task's share
                                      * of it */
    int output[PD_MAX_TASK_TENSORS]; /* slots that the results belong to: the whole slot or the task's share of it */
    double cost;                     /* estimated floating-point operations; the most expensive due tasks run first */
    int64_t scratch;                 /* most bytes that the task allocates while it runs */
    double exponent;                 /* p of the inverse p-th root that the task computes, for displays; 0: it
                                      * computes something else */
} pd_task_spec;

/* Largest cost of a light task, which takes a millisecond or less. The root pool has a thread for light tasks. */
#define PD_TASK_LIGHT 1e6

/* Value of root_delay with which steps use a root as soon as it is ready. In which step that is depends on timing. */
#define PD_ROOT_READY (-1)

/* The plan of one parameter. Before the optimizer fills it, `shape` is as declared, range_elements is
 * PD_RANGE_ELEMENTS, stripes 1 and errors_slot -1; `own` points to zeros, and the rest is empty. */
typedef struct pd_plan {
    pd_shape shape; /* the shape that is cut into blocks: the declared one, or one with merged dimensions */
    int64_t elements;
    pd_block *blocks;
    size_t n_blocks;
    pd_slot_spec *slots;
    size_t n_slots;
    pd_task_spec *tasks;
    size_t n_tasks;
    int64_t range_elements; /* elements of a unit of a PD_RANGES phase; the last unit may have fewer */
    size_t scratch_floats;  /* floats of scratch memory that a unit needs, the largest over the phases */
    int root_delay;         /* d, or PD_ROOT_READY */
    /* index of a float32 slot with the error of each task's root, for operators; -1: none */
    int errors_slot;
    void *own; /* the optimizer's own struct, zeroed at first (pd_row.own_bytes); its `plan` writes it, its phases
                * and tasks only read it */
    size_t own_bytes;
    int64_t stripes; /* number of units that a PD_STRIPES phase has for each block, at least 1 */
    /* Products in the phases over blocks, or in `adopt`, are so large that threads share them (stripes.h). So even a
     * single unit is worth waking all threads. */
    bool large_products;
    /* A note for the user who declares the parameter (for instance: an option has no effect). It is shown in the
     * answer to Declare, in the log and to operators. "": no note. */
    char note[240];
    /* estimated floating-point operations of the matrix products in one step; passes over memory are not counted */
    double flops;
} pd_plan;

/* ---- for the optimizers that fill a plan ---- */

/* Append a slot or a task to the plan. Return its index, or PD_NO_MEMORY. */
int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec);
int pd_plan_task(pd_plan *plan, const pd_task_spec *spec);
/* Cuts plan->shape into blocks of at most block_size along every dimension. A block_size of at most 0: one block.
 * PD_NO_MEMORY. */
int pd_plan_blocks(pd_plan *plan, int64_t block_size);

/* ---- for all users of a plan ---- */

void pd_plan_free(pd_plan *plan); /* frees the arrays, not the struct; accepts an empty plan */
/* Returns the largest number of units that a phase of the plan has. */
int64_t pd_plan_most_units(const pd_plan *plan);

/* Returns whether a slot is coded: phases see another form of it than the one that is stored between steps.
 * Temporary, float32 and float64 slots are not coded. */
bool pd_slot_is_coded(const pd_slot_spec *spec);
/* Returns the bytes of a slot in the form that phases see: float64 if it is stored so, else float32. INT64_MAX: too
 * many. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec);
/* Writes a slot's name into `text` (128 bytes suffice): for instance "momentum_buffer", "statistics.3" or
 * "block_3.factor_matrices.1". Returns `text`. */
char *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size);
/* Gives the rows and columns of a slot as a matrix, for quantize.h: its first dimension, and the product of the
 * others. */
void pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols);
/* Returns the number of elements of a slot. */
int64_t pd_slot_elements(const pd_slot_spec *spec);
/* Returns the number of elements that each block has in a slot with PD_SHARE_ITEM: one item, that is, one element of
 * the first dimension. Items follow each other in memory. */
int64_t pd_slot_item_elements(const pd_slot_spec *spec);
/* Return the size of a task's share of a slot: pd_task_elements in elements, pd_task_share_bytes in bytes of the
 * form that the task sees. */
int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot);
int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot);

#endif
