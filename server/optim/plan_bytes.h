/* plan_bytes.h - how many bytes a plan, its state, its steps and its tasks take. Pure; any thread. */
#ifndef PD_PLAN_BYTES_H
#define PD_PLAN_BYTES_H

#include "plan.h"

/* Returns the bytes that the allocator takes for one block of memory of so many bytes. */
static inline int64_t pd_block_bytes(int64_t bytes) { return (bytes > 24 ? bytes + 8 + 15 : 32) / 16 * 16; }
/* The same for a block of pd_pages_new, which begins and ends at a multiple of 64. */
static inline int64_t pd_pages_bytes(int64_t bytes) { return bytes == INT64_MAX ? bytes : (bytes / 64 + 1) * 64 + 96; }

/* Returns the bytes of one slot's state; 0 of a temporary slot. INT64_MAX: too many. */
int64_t pd_slot_bytes(const pd_slot_spec *spec);
/* Returns the bytes of state: all slots that are not temporary, as they are stored. INT64_MAX: too many. */
int64_t pd_plan_state_bytes(const pd_plan *plan);
/* Returns the bytes that one capture of all tasks copies and reserves for results. INT64_MAX: too many. */
int64_t pd_plan_task_bytes(const pd_plan *plan);
/* Returns the largest scratch of the tasks of at most this cost: bytes that a thread needs which runs them. */
int64_t pd_plan_task_scratch(const pd_plan *plan, double most_cost);
/* Returns the bytes that one step needs beside the state: temporary slots (but the one that may be in `after`), and
 * float32 forms of the whole parameter's slots that are stored otherwise. INT64_MAX: too many. */
int64_t pd_plan_step_bytes(const pd_plan *plan);
/* Gives the bytes that each thread of a batch needs: scratch, and float32 forms of one block's slots. PD_NO_MEMORY. */
int     pd_plan_thread_bytes(const pd_plan *plan, int64_t *bytes);
/* Returns the bytes that the plan and its optimizer take beside the state: records of the optimizer and of each
 * slot and task, the allocator's overhead, and what runs while a step is under way. Tasks count as often as they
 * may be away: twice where roots are used in a later step. */
int64_t pd_plan_own_bytes(const pd_plan *plan);

#endif
