/* plan_bytes.h - counts the bytes that an optimizer's plan, its state, its steps and its preconditioner tasks take.
 * Pure functions; any thread. */
#ifndef PD_PLAN_BYTES_H
#define PD_PLAN_BYTES_H

#include "plan.h"

/* Returns the bytes that malloc takes for a request of `bytes` bytes, including its own overhead. */
static inline int64_t pd_block_bytes(int64_t bytes)
{
    return (bytes > 24 ? bytes + 8 + 15 : 32) / 16 * 16;
}
/* Returns the bytes that pd_pages_new takes for a request of `bytes` bytes: the memory begins and ends at a multiple of
 * 64. */
static inline int64_t pd_pages_bytes(int64_t bytes)
{
    return bytes == INT64_MAX ? bytes : (bytes / 64 + 1) * 64 + 96;
}

/* Returns the bytes that one slot takes as it is stored; 0 for a temporary slot. INT64_MAX: the number does not fit. */
int64_t pd_slot_bytes(const pd_slot_spec *spec);
/* Returns the unused bytes that follow a large slot in memory, so that loops over several slots are fast. A multiple of
 * 64. Slots that are small, stored in fewer bits than float32, or live for one step only have none. */
int64_t pd_slot_gap(const pd_slot_spec *spec);
/* Returns the bytes of a parameter's optimizer state as it is stored, without the temporary slots. INT64_MAX: the
 * number does not fit. */
int64_t pd_plan_state_bytes(const pd_plan *plan);
/* Returns the bytes that are needed when each task of the plan is at the preconditioner pool once: copies of the
 * inputs, and memory for the results. INT64_MAX: the number does not fit. */
int64_t pd_plan_task_bytes(const pd_plan *plan);
/* Returns the most bytes that an optimizer with this plan takes in an image (save.h), with the results of pending
 * tasks. INT64_MAX: the number does not fit. */
int64_t pd_plan_image_bytes(const pd_plan *plan);
/* Returns the bytes of scratch memory that a thread needs to run any task of the plan that costs at most
 * `most_cost`. */
int64_t pd_plan_task_scratch(const pd_plan *plan, double most_cost);
/* Returns the bytes that one step needs beside the state: temporary slots, and float32 copies of coded slots. Not
 * counted are copies that a thread makes block by block (pd_plan_thread_bytes), and a tensor that may use the memory of
 * the new weights. INT64_MAX: the number does not fit. */
int64_t pd_plan_step_bytes(const pd_plan *plan);
/* Computes in *bytes what each thread of a step needs for itself: scratch memory, and float32 copies of one block's
 * coded slots. PD_NO_MEMORY: *bytes is not written. */
int pd_plan_thread_bytes(const pd_plan *plan, int64_t *bytes);
/* Returns the bytes that the plan and its optimizer take beside the state: the structs for the optimizer, each slot and
 * each task, the allocator's overhead, and memory that is used while a step is under way. If roots are used in a later
 * step, each task counts twice, since it may be at the preconditioner pool twice at the same time. */
int64_t pd_plan_own_bytes(const pd_plan *plan);

#endif
