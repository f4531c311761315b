/* chunk_queue.h - chunks whose contributions are added up as they come: which of them can be summed now? Step
 * thread.
 *
 * Contributions wait in the buffers they were read into until a chunk can be added up in one pass. What a rank holds
 * that is over its ingest quota is summed at once, in rank order, so no order of parameters or arrivals can
 * deadlock. Both ways give the same bits. */
#ifndef PD_CHUNK_QUEUE_H
#define PD_CHUNK_QUEUE_H

#include "steps.h"

/* Puts a chunk into the queue of complete chunks, or where some of its first ranks are there into that of partial
 * ones. */
void pd_chunk_list_to_sum(pd_steps *steps, pd_chunk *chunk, bool complete);
/* Takes a chunk out of its queue, if it is in one. */
void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk);
/* Returns whether some chunk can be summed now. */
bool pd_chunks_have_work(const pd_steps *steps);
/* Sums chunks for about one batch; returns the cost. *starved: the parameter for which memory was short, else NULL.
 * Parameters whose sums are complete go on: pd_param_collected. */
double pd_chunks_sum(pd_steps *steps, pd_param **starved);

#endif
