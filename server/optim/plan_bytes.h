/* plan_bytes.h - how many bytes a plan, its state, its steps and its tasks take. Pure functions; any thread. */
#ifndef PD_PLAN_BYTES_H
#define PD_PLAN_BYTES_H

#include "plan.h"

/* Returns the bytes that malloc takes for one block of memory of `bytes` bytes, with its own overhead. */
static inline int64_t pd_block_bytes(int64_t bytes)
{
    return (bytes > 24 ? bytes + 8 + 15 : 32) / 16 * 16;
}
/* Returns the bytes that pd_pages_new takes for one block of memory of `bytes` bytes, which begins and ends at a
 * multiple of 64. */
static inline int64_t pd_pages_bytes(int64_t bytes)
{
    return bytes == INT64_MAX ? bytes : (bytes / 64 + 1) * 64 + 96;
}

/* Returns the bytes of state that one slot takes as it is stored; 0 for a temporary slot. INT64_MAX: too many. */
int64_t pd_slot_bytes(const pd_slot_spec *spec);
/* Returns the unused bytes that follow a large slot in memory, so that loops over several slots are fast; 0 for slots
 * that are small, coded or temporary. A multiple of 64. */
int64_t pd_slot_gap(const pd_slot_spec *spec);
/* Returns the bytes of a parameter's state: all slots that are not temporary, as they are stored. INT64_MAX: too
 * many. */
int64_t pd_plan_state_bytes(const pd_plan *plan);
/* Returns the bytes that are needed when all tasks are at the root pool, each once: copies of their inputs, and
 * memory for their results. INT64_MAX: too many. */
int64_t pd_plan_task_bytes(const pd_plan *plan);
/* Returns the bytes of scratch memory that a thread needs to run any task of at most this cost. */
int64_t pd_plan_task_scratch(const pd_plan *plan, double most_cost);
/* Returns the bytes that one step needs beside the state: slots that live for one step, and float32 copies of slots
 * that are stored in fewer bits. Not counted are copies that a thread makes block by block (pd_plan_thread_bytes), and
 * a slot that may use the memory of the new weights. INT64_MAX: too many. */
int64_t pd_plan_step_bytes(const pd_plan *plan);
/* Computes in *bytes what each thread of a step needs for itself: scratch memory, and float32 copies of the slots of
 * one block that are stored in fewer bits. PD_NO_MEMORY: *bytes is not written. */
int pd_plan_thread_bytes(const pd_plan *plan, int64_t *bytes);
/* Returns the bytes that the plan and its optimizer take beside the state: records of the optimizer and of each slot
 * and task, the allocator's overhead, and memory that is used while a step is under way. If roots are used in a
 * later step, each task counts twice, since two of its kind may be at the root pool. */
int64_t pd_plan_own_bytes(const pd_plan *plan);

#endif
