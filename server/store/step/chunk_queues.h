/* chunk_queues.h - queues the chunks whose aggregate can be computed, and those whose contributions only occupy memory.
 *
 * Step thread. A chunk is in one of two queues (pd_chunk_queues), or in none:
 *
 *     ready    its aggregate can be computed: all contributions have come. Adasum, a radial mean, and a mean of initial
 *              weights need those to the whole parameter; for the first two, one chunk stands for all: the first
 *     waiting  contributions to it lie in the memory of frames, and its aggregate cannot be computed yet
 *
 * A rank that waits for ingest memory, and has contributions in waiting chunks, must be relieved of them, or the job
 * could wait for ever. There are two ways, with the same bits:
 *
 *     sum      the contributions of the ranks up to it are summed early, if those of lower ranks have come: sums.h
 *     spill    its contributions are copied to other memory: aggregates that need all contributions at once, and all
 *              aggregates whose ranks are not fixed yet: collect.h */
#ifndef PD_CHUNK_QUEUES_H
#define PD_CHUNK_QUEUES_H

#include "steps.h"

/* Returns whether contributions to the open round of the parameter are spilled, not summed early. */
static inline bool pd_param_spills(const pd_param *param)
{
    return param->round.together || pd_is_collected(pd_param_how(param));
}

/* Queues a chunk after a contribution was filed to it. `held`: the contribution lies in the memory of a frame. */
void pd_chunk_came(pd_steps *steps, pd_chunk *chunk, bool held);
/* Queues those chunks of the parameter as ready whose aggregate can be computed now. Returns false if all were ready,
 * or had their aggregate, before. */
bool pd_chunks_look(pd_steps *steps, pd_param *param);
/* Queues those chunks of the parameter as waiting to which contributions lie in the memory of frames. None of its
 * chunks may be in a queue. */
void pd_chunks_wait(pd_steps *steps, pd_param *param);
/* Removes a chunk from its queue, if it is in one. */
void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk);
/* Removes a chunk from the waiting ones if no contribution to it lies in the memory of a frame any more. */
void pd_chunk_let_go(pd_steps *steps, pd_chunk *chunk);

/* Returns whether waiting chunks must be searched for contributions of ranks over quota. */
bool pd_chunks_must_relieve(const pd_steps *steps);
/* Returns whether there is something to do for chunks in the queues. */
bool pd_chunks_have_work(const pd_steps *steps);

#endif
