/* plan.h - how a row fills its plan. Step thread, or whoever plans. */
#ifndef PD_PLAN_H
#define PD_PLAN_H

#include "row.h"

/* Makes the plan of a declaration, without any state: what pd_optim_new does first, and how a limit on bytes is checked before
 * memory is asked for. Fills *plan; pd_plan_free it. After an error it is empty, and the text begins with the parameter's name.
 * PD_INVALID_ARGUMENT: hyperparameters or a shape that the row refuses. PD_NO_MEMORY. */
int pd_plan_make(pd_plan *plan, const pd_declaration *declaration, const double *fact, pd_error *err);
void pd_plan_free(pd_plan *plan);       /* frees the arrays, not the struct; accepts an empty plan */

/* Bytes of state: slots that are not temporary, as they are stored. INT64_MAX where the sum does not fit. */
int64_t pd_plan_state_bytes(const pd_plan *plan);
/* Bytes of one slot's state; 0 of a temporary one. INT64_MAX where that does not fit. */
int64_t pd_slot_bytes(const pd_slot_spec *spec);
/* It is kept between steps in another form than phases see: what is neither temporary nor float32 nor float64. */
bool    pd_slot_is_coded(const pd_slot_spec *spec);
/* Bytes of the form that phases see: float32, or float64 where it is stored so. INT64_MAX where that does not fit. */
int64_t pd_slot_seen_bytes(const pd_slot_spec *spec);
/* Its name in messages and files: "momentum_buffer", "statistics.3", "block_3.factor_matrices.1". Returns `text`; 128 bytes suffice. */
char   *pd_slot_name(const pd_slot_spec *spec, char *text, size_t size);
/* A slot as the matrix that quantize.h sees: its first dimension, and the product of the others. */
void    pd_slot_sides(const pd_slot_spec *spec, int64_t *rows, int64_t *cols);
/* Of a slot with PD_SHARE_ITEM: elements of one item, which follow those of the item before it. */
int64_t pd_slot_item_elements(const pd_slot_spec *spec);
/* Elements that a task gets of a slot, as input or output: its share of it, and the same in bytes as tasks see it. */
int64_t pd_task_elements(const pd_plan *plan, const pd_task_spec *task, int slot);
int64_t pd_task_share_bytes(const pd_plan *plan, const pd_task_spec *task, int slot);
/* Bytes that one capture of all tasks copies and reserves for results. INT64_MAX where that does not fit. */
int64_t pd_plan_task_bytes(const pd_plan *plan);
/* Returns the largest scratch of the tasks of at most this cost: bytes that a thread which runs them needs beside. */
int64_t pd_plan_task_scratch(const pd_plan *plan, double most_cost);
/* Bytes that the plan and its optimizer take beside the state: records of the optimizer and of each slot and task, what the allocator adds, and what runs
 * while a step is under way. Tasks count as often as they may be out: twice where roots are used later than in their step. */
int64_t pd_plan_own_bytes(const pd_plan *plan);
/* Bytes that the allocator sets aside for one block of memory of so many. */
static inline int64_t pd_block_bytes(int64_t bytes) { return (bytes > 24 ? bytes + 8 + 15 : 32) / 16 * 16; }
/* The same for one of pd_pages_new: it begins and ends at a multiple of 64. */
static inline int64_t pd_pages_bytes(int64_t bytes) { return bytes == INT64_MAX ? bytes : (bytes / 64 + 1) * 64 + 96; }
/* Bytes that one step needs beside the state: temporary slots (but one that may be in `after`), and the forms of slots of the
 * whole parameter that are stored otherwise. INT64_MAX where that does not fit. */
int64_t pd_plan_step_bytes(const pd_plan *plan);
/* Bytes that each thread of a batch needs: scratch, and the float32 forms of one block's slots. PD_NO_MEMORY. */
int     pd_plan_thread_bytes(const pd_plan *plan, int64_t *bytes);

/* ---- for rows ---- */

/* Appends; return the index of what was appended or PD_NO_MEMORY. */
int pd_plan_slot(pd_plan *plan, const pd_slot_spec *spec);
int pd_plan_task(pd_plan *plan, const pd_task_spec *spec);
/* Cuts plan->shape into boxes of at most block_size along every dimension, or not at all where that is at most 0 (partition.h). PD_NO_MEMORY. */
int pd_plan_blocks(pd_plan *plan, int64_t block_size);

#endif
