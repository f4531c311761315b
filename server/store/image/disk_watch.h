/* disk_watch.h - notices that the disk does not answer: that a checkpoint or entries of a job's log have been with it
 * for longer than disk_timeout. Then it logs that, again each time after twice as long, and does what the job's
 * on_disk_error says. Step thread. */
#ifndef PD_DISK_WATCH_H
#define PD_DISK_WATCH_H

#include "job.h"

/* Notes what the disk has at present. Call it after the job has handed something over or got it back. */
void pd_disk_watch_look(pd_job *job, uint64_t now_ns);
/* Does what is due when the disk has not answered in time. */
void pd_disk_watch_tick(pd_job *job, uint64_t now_ns);
/* Returns the time at which pd_disk_watch_tick must be called next; UINT64_MAX: nothing of the job is with the disk. */
uint64_t pd_disk_watch_next_tick(const pd_job *job);

#endif
