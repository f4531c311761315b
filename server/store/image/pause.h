/* pause.h - lets a job with on_disk_error = pause stand still while its steps cannot become durable. Step thread.
 *
 * A paused job finishes the step that any of its parameters has begun, and begins no other one. Rounds may collect
 * contributions meanwhile. It tries to make a checkpoint (checkpoint_retry.h), and goes on when one is on the disk. */
#ifndef PD_PAUSE_H
#define PD_PAUSE_H

#include "job.h"

/* Pauses the job, and logs it, if its configuration says so and its log does not make steps durable. Does nothing if
 * the job is paused. */
void pd_pause_begin(pd_job *job);
/* Lets a paused job go on. Does nothing if the job is not paused. */
void pd_pause_end(pd_job *job);

#endif
