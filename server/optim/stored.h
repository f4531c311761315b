/* stored.h - the tensors of a parameter's optimizer state in memory. Slots that are stored in fewer bits have a float32
 * form while a step, a thread that computes a block, or a preconditioner task uses them. */
#ifndef PD_STORED_H
#define PD_STORED_H

#include "state.h"

/* Lists the coded slots in optim->memory.stored, and computes how much memory all slots need: sets view_floats,
 * state_bytes, temporary_floats and after_floats. PD_NO_MEMORY: out of memory. */
int pd_slots_measure(pd_optim *optim);
/* Allocates the memory of the optimizer state. PD_NO_MEMORY: out of memory. */
int pd_slots_make(pd_optim *optim);
/* Writes initial values of the slot with number at->slot, from element at->element on, as many as the time *budget_ns
 * allows. Moves *at after the written values, and subtracts the estimated time from the budget. PD_NO_MEMORY: out of
 * memory. */
int pd_slot_fill(const pd_optim *optim, pd_fill *at, double *budget_ns);
/* pd_slots_open allocates the memory that a step needs: the temporary slots, and the float32 forms of coded slots.
 * pd_slots_close frees it. PD_NO_MEMORY: out of memory; nothing is allocated. */
int pd_slots_open(pd_optim *optim);
void pd_slots_close(pd_optim *optim);
/* Finds the coded slots of a block: they are optim->memory.stored[*first] to optim->memory.stored[*end - 1]. */
void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end);
/* pd_block_open makes the float32 forms of a block's coded slots before a thread computes the block. `memory` has room
 * for view_floats floats. pd_block_close encodes and stores the slots again. Any thread of a phase. */
void pd_block_open(const pd_optim *optim, int64_t block, float *memory);
void pd_block_close(const pd_optim *optim, int64_t block);
/* pd_stored_open makes the float32 form of the coded slot optim->memory.stored[i] at the beginning of a step, and
 * pd_stored_close encodes and stores it again at the end. Only for slots of the whole parameter: i < n_whole. */
void pd_stored_open(const pd_optim *optim, size_t i);
void pd_stored_close(const pd_optim *optim, size_t i);
/* Returns the stored form of a slot that is stored in fewer bits. NULL: the slot is not stored in fewer bits, or has
 * its float32 form now, in optim->slot[slot]. */
const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot);
/* pd_slot_load copies a whole slot in the type that the phases of a step see (float32 or float64), whatever form it has
 * now; of a symmetric matrix it copies both halves. pd_slot_store writes such a copy, computed by a task, to the
 * slot. */
void pd_slot_load(const pd_optim *optim, int slot, void *to);
void pd_slot_store(const pd_optim *optim, int slot, const void *from);
/* Load and store a task's share of a slot (pd_slot_spec.share: the whole slot, one block or one item), as pd_slot_load
 * and pd_slot_store do for a whole slot. Call them only during a step, while the coded slots of the whole parameter
 * have their float32 form. */
void pd_slot_part_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to);
void pd_slot_part_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from);

#endif
