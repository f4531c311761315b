/* contribute.h - files a rank's contribution to a chunk, and queues chunks that can be summed after it. Step thread. */
#ifndef PD_CONTRIBUTE_H
#define PD_CONTRIBUTE_H

#include "steps.h"

/* Files a rank's contribution to a chunk, whose state was EMPTY, from its push for step `step`. The round's first
 * contribution opens the round. */
void pd_contribute(pd_steps *steps, pd_chunk *chunk, uint32_t rank, pd_contribution given, uint64_t step,
                   uint64_t now_ns);
/* Files that a rank has no gradient of the parameter in this round. Returns false if the rank has reported that
 * before. */
bool pd_contribute_absent(pd_steps *steps, pd_param *param, uint32_t rank, uint64_t step, uint64_t now_ns);
/* Queues chunks that need not wait any more for a rank whose elements have become known during an open round. */
void pd_contribute_ranges(pd_steps *steps, pd_param *param);
/* Queues all chunks of the parameter, since its fragment has fixed which ranks count in its round. */
void pd_contribute_fixed(pd_steps *steps, pd_param *param);
/* Forgets what the rank has given to the parameter besides gradients, after these were released. */
void pd_contribute_forget(pd_steps *steps, pd_param *param, uint32_t rank);
/* Empties the parameter's round, which is open and still misses contributions of a rank, and in which all ranks count:
 * all that has come is given up. */
void pd_contribute_give_up(pd_steps *steps, pd_param *param);
/* Empties the parameter's round, which has closed. It is open again at once if it has contributions to the next
 * step. */
void pd_contribute_anew(pd_steps *steps, pd_param *param, uint64_t now_ns);

#endif
