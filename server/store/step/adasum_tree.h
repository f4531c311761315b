/* adasum_tree.h - the Adasum of one parameter's round: which contributions are merged with which, in passes that
 * batches share.
 *
 * Step thread. Dot products run over the whole tensor; of a ranged parameter over each *section*, the elements
 * between two neighbouring ends of ranges, which the same ranks contribute. Adasum then runs among these ranks
 * alone, in their order: so weights in S shards (Trax's N_WEIGHTS_SHARDS) are a parameter of which shard s is the
 * range that ranks s, s + S, s + 2 S, ... declare, and gradients of different shards are never mixed. A rank that
 * has no gradient takes no part; in the tree it stands where it would with zeros (merge(a, 0) = a). */
#ifndef PD_ADASUM_TREE_H
#define PD_ADASUM_TREE_H

#include "adasum.h"
#include "job_keys.h"
#include "stretch.h"
#include "snapshot.h"

typedef struct pd_adasum_tree pd_adasum_tree;

/* Returns the form that an aggregate has. */
static inline pd_adasum_form pd_adasum_form_of(pd_aggregation how)
{
    return how == PD_ADASUM ? PD_ADASUM_TREE : PD_ADASUM_VDOT;
}

/* Plans the Adasum of a round of which every contribution is there (HELD or SPILLED), and stays where it is until the
 * end. The result goes to *accumulator (the whole parameter's, taken from `pool` when somebody has a gradient and it is
 * NULL); what is merged in between, where more than eight ranks contribute, to others from there. PD_NO_MEMORY: nothing
 * has changed. */
int  pd_adasum_tree_begin(pd_adasum_tree **out, const pd_round *round, pd_adasum_form form, float **accumulator,
                          pd_buffer_pool *pool);
void pd_adasum_tree_end(pd_adasum_tree *tree, pd_buffer_pool *pool);       /* accepts NULL */

/* Gives a unit that may run now, beside all others given since the last turn. False: there are no more until
 * pd_adasum_tree_turn. */
bool pd_adasum_tree_next(pd_adasum_tree *tree, pd_adasum **adasum, int64_t *unit);
/* After all units given have run: what has had all of its pass goes on to the next. True: *accumulator is finished. */
bool pd_adasum_tree_turn(pd_adasum_tree *tree);
/* Then: all of it is finite. */
bool pd_adasum_tree_finite(const pd_adasum_tree *tree);

/* Bytes that a merge of a parameter takes beside contributions, of which there are `slots` to all chunks and at most
 * `most` to one, and *accumulator. UINT64_MAX: more. */
uint64_t pd_adasum_tree_bytes(pd_adasum_form form, int64_t elements, uint64_t slots, uint32_t most);

#endif
