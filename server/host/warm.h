/* warm.h - touches memory that is about to be written for the first time, in a thread of its own.
 *
 * The first write to a page waits until the kernel has cleared it. While a job is loaded the disk is busy and a core is
 * idle, so this thread lets the kernel clear the pages of the job's shared segment before weights are read there. */
#ifndef PD_WARM_H
#define PD_WARM_H

#include <stddef.h>

#include "numa.h"
#include "paramd/error.h"

typedef struct pd_warmer pd_warmer;

/* Starts the thread, which takes memory from the chosen node first. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED:
 * pd_warmer_stop frees what was made. */
int pd_warmer_start(pd_warmer **out, const pd_numa *numa, pd_error *err);
/* Lets the thread (`arg`, a pd_warmer) touch this memory, which is mapped and begins with a page. Content is unchanged.
 * Waits until the thread has left the memory of the call before, and drops what is left of it. 0 bytes: only that, so
 * the memory may be unmapped. */
void pd_warmer_put(void *arg, void *at, size_t bytes);
/* Ends the thread; memory that was not touched yet stays so. Accepts NULL. */
void pd_warmer_stop(pd_warmer *warmer);

#endif
