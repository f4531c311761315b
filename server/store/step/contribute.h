/* contribute.h - files a rank's contribution to a chunk, and queues what can be summed by that. Step thread. */
#ifndef PD_CONTRIBUTE_H
#define PD_CONTRIBUTE_H

#include "steps.h"

/* Files a contribution into the rank's empty slot of the chunk. The first of a round opens it. */
void pd_contribute(pd_steps *steps, pd_chunk *chunk, uint32_t rank, pd_slot slot, uint64_t now_ns);
/* Files that a rank has no gradient of the parameter. False: it has reported that before. */
bool pd_contribute_absent(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t now_ns);
/* Queues the parameter's chunks anew: a rank's range has become known while its round was open, and chunks need not
 * wait for it. */
void pd_chunks_list_anew(pd_steps *steps, pd_param *param);
/* Closes the parameter's round with what has come, where its policy says that it is complete then. */
void pd_contribute_no_more(pd_steps *steps, pd_param *param);

#endif
