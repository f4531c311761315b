/* checkpoint_retry.h - tries a checkpoint again by time, where no step comes that would make the next one due. Step
 * thread.
 *
 * A job that trains tries a checkpoint that has failed again at the next multiple of checkpoint_every. A job that is
 * paused (pause.h), whose workers have all gone, or whose last checkpoint before the server stops has failed, closes no
 * step. It tries again after a second, and less and less often, at last once a minute, until a checkpoint is on the
 * disk. */
#ifndef PD_CHECKPOINT_RETRY_H
#define PD_CHECKPOINT_RETRY_H

#include "job.h"

/* Lets the next attempt be made at once, and those after it a second later and so on. */
void pd_retry_at_once(pd_job *job);
/* Returns whether a checkpoint should be begun now, because an earlier one has failed and no step makes one due. */
bool pd_retry_wants_checkpoint(const pd_job *job, uint64_t now_ns);
/* Notes that a checkpoint is begun: the next attempt comes later. */
void pd_retry_tried(pd_job *job, uint64_t now_ns);
/* Notes that a checkpoint is on the disk. */
void pd_retry_end(pd_job *job);
/* Returns whether the next attempt after a failure is due at a time and not at a step. */
bool pd_retry_is_by_time(const pd_job *job);
/* Returns the time of the next attempt; UINT64_MAX: none is due. */
uint64_t pd_retry_next_tick(const pd_job *job);

#endif
