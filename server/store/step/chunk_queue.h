/* chunk_queue.h - queues the chunks (sections of parameters) whose contributions can be summed, and sums them. For
 * aggregates that are sums: mean, weighted mean and sum.
 *
 * Step thread. Contributions wait in the buffers they were read into until all contributions to a chunk have come.
 * Then the chunk is summed in one pass. If a rank is over its ingest quota, its
 * contributions are summed earlier, as soon as those of all lower ranks have come. So no order of parameters or of
 * arrival can cause a deadlock. Both ways give the same bits. */
#ifndef PD_CHUNK_QUEUE_H
#define PD_CHUNK_QUEUE_H

#include "steps.h"

/* Queues a chunk to be summed. A complete chunk goes into the queue of complete chunks. Another one goes into the queue
 * of partial chunks, if contributions of its lowest ranks have come that are not summed yet. */
void pd_chunk_list_to_sum(pd_steps *steps, pd_chunk *chunk, bool complete);
/* Removes a chunk from the queue of chunks to be summed that it is in; does nothing if it is in none. */
void pd_chunk_unlist(pd_steps *steps, pd_chunk *chunk);
/* Returns whether some chunk can be summed now. */
bool pd_chunks_have_work(const pd_steps *steps);
/* Sums chunks for about one batch of work. Returns the estimated time that it took, in nanoseconds of one core.
 * *starved becomes the parameter for which memory was short; NULL: none. Calls pd_param_collected for each parameter
 * whose sums are complete. */
double pd_chunks_sum(pd_steps *steps, pd_param **starved);

#endif
