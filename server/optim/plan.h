/* plan.h - the plan of one parameter: its blocks, slots and tasks, and the functions by which a row fills it.
 * Step thread, or the thread that plans. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "partition.h"
#include "quantize.h"

#define PD_MAX_TASK_TENSORS (2 * PD_MAX_RANK)   /* inputs, and outputs, of a task: two for each dimension */
#define PD_RANGE_ELEMENTS 65536                 /* usual size of a range unit */

/* How much of a slot a task of block b gets, as a copy (input) or to fill (output). */
typedef enum pd_share {
    PD_SHARE_WHOLE,             /* the whole slot */
    PD_SHARE_BOX,               /* the slot has the plan's shape: the task gets the box plan->blocks[b], dense */
    PD_SHARE_ITEM,              /* the slot's first dimension counts the plan's blocks: the task gets item b */
} pd_share;

/* A tensor of state. pd_slot_name gives its name in messages and files: "name", or "name.number" where `number` >= 0,
 * or "block_3.name.number" where the slot is `of_block`. */
typedef struct pd_slot_spec {
    const char *name;           /* static text */
    int         number;         /* of a block, or counted as the row likes */
    pd_shape    shape;
    float       fill;           /* initial value */
    /* matrix, or stack of matrices (the last two dimensions): `fill` on the diagonal, zero elsewhere */
    bool        identity;
    bool        temporary;      /* lives for one step: no state, not saved, starts undefined */
    /* A temporary slot, shaped as the parameter, which may use the memory of `after`. Saves a pass over memory. A phase
     * that writes an element of `after` must have read that element of the slot before. At most one slot of a plan.
     * In a row with a `refusal` the phases before adopt_phase leave the slot alone. */
    bool        in_after;
    /* matrix: phases use the lower half alone; copies for tasks and readers have both halves */
    bool        symmetric;
    /* How the slot is stored between steps. Phases see float32 whatever the storage: the slot is stored again at
     * the end of the step, or of the unit where it is blockwise; a slot that did not change keeps its codes. Only
     * PD_STORE_F64 is seen as it is stored: phases and tasks cast the pointer to double *. */
    pd_storage  storage;
    bool        diagonal_apart; /* int8 and int16, square: the diagonal is kept in float32 */
    /* only units and tasks of `block` use it: its float32 form exists only while one of them runs */
    bool        blockwise;
    int         block;
    bool        of_block;       /* belongs to `block`, and its name says so; `number` counts within that block */
    /* How much of the slot a task of a block gets. A slot with a share other than WHOLE is seen as float32 (also where
     * it is stored in fewer bits), and is neither blockwise nor symmetric nor of_block. A BOX may be temporary and
     * in_after: its memory exists when tasks are captured. */
    pd_share    share;
    /* Which dimension of the declared parameter each dimension of the slot is, or is a piece of; -1: none. A later
     * sharding can be derived from it. pd_plan_make sets it for slots of the whole parameter that have its shape and
     * are neither symmetric nor the identity. */
    bool        follows_known;
    int8_t      follows[PD_MAX_RANK];
} pd_slot_spec;

/* Recomputation of one block's root: runs on the root pool, on copies of slots. */
typedef struct pd_task_spec {
    /* index in plan->blocks where a slot of the task has a share; else the row's own meaning */
    int     block;
    int     n_inputs, n_outputs;
    int     input[PD_MAX_TASK_TENSORS];     /* slots that are copied at capture, whole or their share */
    int     output[PD_MAX_TASK_TENSORS];    /* slots whose shapes the results have, whole or their share */
    double  cost;               /* estimated floating-point operations: due tasks run largest first */
    int64_t scratch;            /* most bytes that the task allocates while it runs */
    double  exponent;           /* p, where the task makes inverse p-th roots; else 0. For readers of the plan */
} pd_task_spec;

/* A task of at most this cost is light: it takes a millisecond or less. The root pool has a thread for light tasks. */
#define PD_TASK_LIGHT 1e6

/* root_delay: roots are adopted as soon as they are ready, in a step that depends on timing. */
#define PD_ROOT_READY (-1)

/* A row finds `shape` as declared, range_elements = PD_RANGE_ELEMENTS, stripes = 1, errors_slot = -1, its own struct
 * zeroed, and the rest empty. */
typedef struct pd_plan {
    pd_shape      shape;                    /* the shape that blocks refer to (merged), same elements as declared */
    int64_t       elements;
    pd_block     *blocks;   size_t n_blocks;
    pd_slot_spec *slots;    size_t n_slots;
    pd_task_spec *tasks;    size_t n_tasks;
    int64_t       range_elements;           /* size of a range unit; the last one may be shorter */
    size_t        scratch_floats;           /* scratch memory of a unit, the largest over the phases */
    int           root_delay;               /* d, or PD_ROOT_READY */
    /* float32, one number for each task: errors of roots, for operators; -1: none */
    int           errors_slot;
    void         *own;                      /* the row's own struct, zeroed at first (pd_row.own_bytes): written by the
                                               row's `plan`, only read by its phases and tasks */
    size_t        own_bytes;
    int64_t       stripes;                  /* units of a PD_STRIPES phase for each block, at least 1 */
    /* for whoever declares the parameter (an option without effect): shown in the answer to Declare, in the log
     * and to operators; "": nothing */
    char          note[240];
    /* estimated products of matrices in one step; passes over memory not counted */
    double        flops;
} pd_plan;

/* ---- for rows ---- */

/* Append a slot or a task. Return its index, or PD_NO_MEMORY. */
int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec);
int pd_plan_task(pd_plan *plan, const pd_task_spec *spec);
/* Cuts plan->shape into boxes of at most block_size along every dimension; at most 0: one box. PD_NO_MEMORY. */
int pd_plan_blocks(pd_plan *plan, int64_t block_size);

/* ---- for everyone ---- */

void pd_plan_free(pd_plan *plan);           /* frees the arrays, not the struct; accepts an empty plan */
/* Returns the number of units of the plan's widest phase. */
int64_t pd_plan_most_units(const pd_plan *plan);

/* Returns whether phases see another form than the one kept between steps: neither temporary nor float32 nor
 * float64. */
bool    pd_slot_is_coded(const pd_slot_spec *spec);
/* Returns the bytes of the form that phases see: float32, or float64 where it is stored so. INT64_MAX: too many. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec);
/* Writes a slot's name into `text` (128 bytes suffice): "momentum_buffer", "statistics.3",
 * "block_3.factor_matrices.1". */
char   *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size);
/* Gives a slot's sides as a matrix for quantize.h: its first dimension, and the product of the others. */
void    pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols);
/* Returns the elements of a slot. */
int64_t pd_slot_elements(const pd_slot_spec *spec);
/* Returns the elements of one item of a PD_SHARE_ITEM slot. Items follow each other in memory. */
int64_t pd_slot_item_elements(const pd_slot_spec *spec);
/* Return a task's share of a slot, in elements, and in bytes as the task sees it. */
int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot);
int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot);

#endif
