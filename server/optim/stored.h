/* stored.h - a parameter's slots in memory, and their float32 forms while a step, a unit or a task uses them. */
#ifndef PD_STORED_H
#define PD_STORED_H

#include "state.h"

/* Lists the coded slots in optim->stored, and computes how much memory all slots need: sets view_floats, state_bytes
 * and temporary_floats. PD_NO_MEMORY. */
int pd_slots_measure(pd_optim *optim);
/* Allocates the memory of the state. PD_NO_MEMORY. */
int pd_slots_make(pd_optim *optim);
/* Writes initial values of slot number at->slot, beginning at element at->element, as many as the time *budget_ns
 * allows. Moves *at behind the written values, and subtracts their time from the budget. PD_NO_MEMORY. */
int pd_slot_fill(const pd_optim *optim, pd_fill *at, double *budget_ns);
/* Allocate the memory of a step, and free it: temporary slots, and the float32 forms of coded slots. PD_NO_MEMORY. */
int pd_slots_open(pd_optim *optim);
void pd_slots_close(pd_optim *optim);
/* Finds the coded slots of a block: they are optim->stored[*first] to optim->stored[*end - 1]. */
void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end);
/* Make the float32 forms of a block's coded slots before a unit runs, in `memory` of view_floats floats, and store
 * them again after it. Any thread of a phase. */
void pd_block_open(const pd_optim *optim, int64_t block, float *memory);
void pd_block_close(const pd_optim *optim, int64_t block);
/* Make the float32 form of the coded slot optim->stored[i] at the beginning of a step, and store it again at the
 * end. Call these functions for the slots of the whole parameter: i < n_whole. */
void pd_stored_open(const pd_optim *optim, size_t i);
void pd_stored_close(const pd_optim *optim, size_t i);
/* Returns a slot's codes. NULL: the slot is not coded, or has its float32 form now, in optim->slot[slot]. */
const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot);
/* pd_slot_load copies a whole slot as phases see it (float32 or float64), whatever its form is now; of a symmetric
 * slot it gives both halves. pd_slot_store stores such a copy, which a task made. */
void pd_slot_load(const pd_optim *optim, int slot, void *to);
void pd_slot_store(const pd_optim *optim, int slot, const void *from);
/* Load and store a task's share of a slot (pd_slot_spec.share), as pd_slot_load and pd_slot_store do for a whole
 * slot. Only during a step: coded slots of the whole parameter have their float32 form then. */
void pd_slot_part_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to);
void pd_slot_part_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from);

#endif
