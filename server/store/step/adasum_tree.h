/* adasum_tree.h - merges the contributions to one parameter's round by Adasum, in passes that are cut into units of
 * work for one thread.
 *
 * Step thread. Adasum computes dot products of whole gradients. So a ranged parameter, of which each rank contributes
 * a range of elements, is cut into *sections*: consecutive elements that the same ranks contribute. Each section has
 * an Adasum of its own, among these ranks alone and in their order.
 *
 * This allows weights that are cut into S shards (Trax's N_WEIGHTS_SHARDS) to be one parameter: ranks s, s + S, s + 2
 * S, ... declare the range that is shard s. Gradients of different shards are never mixed.
 *
 * A rank without a gradient takes no part. Only in the tree form, which merges ranks in pairs, it keeps its place, as
 * if its gradient were zeros: merge(a, 0) = a. */
#ifndef PD_ADASUM_TREE_H
#define PD_ADASUM_TREE_H

#include "adasum.h"
#include "job_keys.h"
#include "stretch.h"
#include "published.h"

typedef struct pd_adasum_tree pd_adasum_tree;

/* Returns the form of Adasum that the way `how` to aggregate contributions uses. */
static inline pd_adasum_form pd_adasum_form_of(pd_aggregation how)
{
    return how == PD_ADASUM ? PD_ADASUM_TREE : PD_ADASUM_VDOT;
}

/* Begins the Adasum of a round. All contributions to the round must have come (HELD or SPILLED) and must stay in
 * memory until the Adasum ends.
 *
 * The result is written to *accumulator, a buffer of the parameter's size. If this is NULL and some rank has a
 * gradient, a buffer is taken from `pool` and stored there. If more than eight ranks contribute, further buffers are
 * taken for intermediate results. PD_NO_MEMORY: nothing has changed. */
int pd_adasum_tree_begin(pd_adasum_tree **out, const pd_round *round, pd_adasum_form form, float **accumulator,
                         pd_buffer_pool *pool);
void pd_adasum_tree_end(pd_adasum_tree *tree, pd_buffer_pool *pool); /* accepts NULL */

/* Hands out a unit of work: pd_adasum_unit(*adasum, *unit) computes it. It may run at the same time as all other
 * units that were handed out since the last pd_adasum_tree_turn. Returns false if there are no more units until the
 * next turn. */
bool pd_adasum_tree_next(pd_adasum_tree *tree, pd_adasum **adasum, int64_t *unit);
/* Moves each section (elements of the same ranks) whose pass is complete to its next pass. Call it after all units
 * that were handed out have run. Returns true if the whole Adasum is complete. */
bool pd_adasum_tree_turn(pd_adasum_tree *tree);
/* Returns whether all elements of the result are finite. Call it when the Adasum is complete. */
float pd_adasum_tree_largest(const pd_adasum_tree *tree);

/* Returns the bytes that the Adasum of a round takes besides the contributions and the result. `slots` is the number of
 * contributions to all chunks (sections of parameters) together, `most` the largest number of contributions to one
 * chunk. UINT64_MAX: too many. */
uint64_t pd_adasum_tree_bytes(pd_adasum_form form, int64_t elements, uint64_t slots, uint32_t most);

#endif
