/* reserves.h - reserves room in the ingest budget for the frames of a job's ranks (base/budget.h). Step thread.
 *
 * A job has room for all its members or for none. The first rank that declares also takes the reserves of the ranks
 * that have not come yet, as if they had the same ranges; each reserve is corrected when its rank declares. So, of
 * several jobs that do not fit together, the last one is refused at its first rank, and none trains with half of its
 * workers.
 *
 * A lost rank keeps its reserve for PD_RESERVE_KEPT_S seconds. Then other jobs may take it. If the rank returns later,
 * it takes its reserve again, together with the reserves that other ranks of its job have lost. Because a job takes
 * whatever it lacks at once, jobs never wait for each other in a circle: the job that was the last to have all its
 * reserves can have them again. */
#ifndef PD_RESERVES_H
#define PD_RESERVES_H

#include "job.h"

#define PD_RESERVE_KEPT_S 30 /* seconds for which a lost rank keeps its reserve */

/* Checks that the ingest budget has room for the reserves of all ranks of this job, if there were no other jobs. `own`
 * is the reserve of the rank that declares, `other` that of each other rank. PD_RESOURCE_EXHAUSTED. */
int pd_reserves_check_world(const pd_job *job, uint64_t own, uint64_t other, pd_error *err);
/* Reserves `bytes` for a rank that declares, and what all other ranks of the job lack, except for those that have left
 * for good. PD_RESOURCE_EXHAUSTED: the budget, or the share of the job's owner, has no room; nothing has changed. */
int pd_reserves_take(pd_job *job, uint32_t rank, uint64_t bytes, uint64_t now_ns, pd_error *err);
/* Starts the time after which the reserve of a lost rank ends; ends the reserve of a rank that has left for good at
 * once. If no worker of the job is connected, ends all its reserves. */
void pd_reserves_gone(pd_job *job, uint32_t rank, uint64_t now_ns);
/* Ends the reserve of a rank that is no member any more. */
void pd_reserves_remove(pd_job *job, uint32_t rank);
/* Returns the time at which pd_reserves_tick has something to do; UINT64_MAX: never. */
uint64_t pd_reserves_next(const pd_job *job);
/* Ends the reserves of ranks that were lost PD_RESERVE_KEPT_S seconds ago. */
void pd_reserves_tick(pd_job *job, uint64_t now_ns);
/* Ends all reserves of the job, because it has no parameters any more. */
void pd_reserves_forget(pd_job *job);

#endif
