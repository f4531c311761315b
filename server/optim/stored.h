/* stored.h - a parameter's slots in memory, and their float32 forms while a step, a unit or a task uses them. */
#ifndef PD_STORED_H
#define PD_STORED_H

#include "state.h"

/* Lists the coded slots and measures all memory: fills stored, view_floats, state_bytes, temporary_floats.
 * PD_NO_MEMORY. */
int  pd_slots_measure(pd_optim *optim);
/* Allocates the state. PD_NO_MEMORY. */
int  pd_slots_make(pd_optim *optim);
/* Writes initial values of slot at->slot from at->element on, as many as *budget_ns allows. Moves *at on and lowers the
 * budget. PD_NO_MEMORY. */
int  pd_slot_fill(const pd_optim *optim, pd_fill *at, double *budget_ns);
/* Allocates a step's temporary slots and float32 forms; frees them. PD_NO_MEMORY. */
int  pd_slots_open(pd_optim *optim);
void pd_slots_close(pd_optim *optim);
/* Gives the coded slots of a block: first and one past the last in optim->stored. */
void pd_stored_of_block(const pd_optim *optim, int64_t block, size_t *first, size_t *end);
/* Makes the float32 forms of a block's slots in `memory` (view_floats) before a unit runs, and stores them after
 * it. Any thread of a phase. */
void pd_block_open(const pd_optim *optim, int64_t block, float *memory);
void pd_block_close(const pd_optim *optim, int64_t block);
/* The same for optim->stored[i], i < n_whole, at the beginning and end of a step. */
void pd_stored_open(const pd_optim *optim, size_t i);
void pd_stored_close(const pd_optim *optim, size_t i);
/* Returns a slot's codes; NULL: the slot is in optim->slot[slot] as phases see it. */
const pd_quantized *pd_slot_codes(const pd_optim *optim, int slot);
/* Copies a whole slot as phases see it (float32 or float64), with both halves, in whatever form it is. And stores
 * such a copy, which a task made. */
void pd_slot_load(const pd_optim *optim, int slot, void *to);
void pd_slot_store(const pd_optim *optim, int slot, const void *from);
/* The same for a task's share of a slot (pd_slot_spec.share), during a step: coded slots of the whole parameter have
 * their float32 form then. */
void pd_share_load(const pd_optim *optim, const pd_task_spec *task, int slot, void *to);
void pd_share_store(const pd_optim *optim, const pd_task_spec *task, int slot, const void *from);

#endif
