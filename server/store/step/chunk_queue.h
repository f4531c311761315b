/* chunk_queue.h - queues the chunks whose contributions can be summed, and sums them. For aggregates that are sums:
 * mean and weighted mean. Step thread.
 *
 * Contributions wait in the buffers they were read into until all contributions to a chunk have come. Then the chunk
 * is summed in one pass. If a rank is over its ingest quota, its contributions are summed earlier, as far as the
 * ranks before it have come. So no order of parameters or of arrival can cause a deadlock. Both ways give the same
 * bits. */
#ifndef PD_CHUNK_QUEUE_H
#define PD_CHUNK_QUEUE_H

#include "steps.h"

/* Queues a chunk to be summed. A complete chunk goes to the queue of complete chunks. Any other chunk goes to the
 * queue of partial chunks if its first ranks have contributed. */
void pd_chunk_list_to_sum(pd_steps *steps, pd_chunk *chunk, bool complete);
/* Removes a chunk from its queue, if it is in one. */
void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk);
/* Returns whether some chunk can be summed now. */
bool pd_chunks_have_work(const pd_steps *steps);
/* Sums chunks for about one batch. Returns the estimated cost in nanoseconds. *starved: the parameter for which
 * memory was short, else NULL. Calls pd_param_collected for each parameter whose sums are complete. */
double pd_chunks_sum(pd_steps *steps, pd_param **starved);

#endif
