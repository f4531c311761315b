/* outrun.h - compares what a job writes to the disk with the speed of the disk (pd_store_config.disk_speed). Step
 * thread. */
#ifndef PD_OUTRUN_H
#define PD_OUTRUN_H

#include "job.h"

/* Returns the bytes that a parameter with this plan has in a checkpoint. */
uint64_t pd_outrun_bytes(const pd_plan *plan);
/* Notes how many bytes a checkpoint of the job has, and an entry of its log, and logs how long the disk takes for them.
 * Does nothing if the job has no checkpoints, or if the speed of the disk is not known. */
void pd_outrun_begin(pd_job *job, uint64_t checkpoint_bytes, uint64_t entry_bytes);
/* Logs a warning, once, if the disk takes longer for a checkpoint than the job for the steps between two, or if entries
 * take more than half of the disk. Called when a checkpoint begins: then the speed of the job is known. */
void pd_outrun_look(pd_job *job, uint64_t now_ns);

#endif
