/* slice.h - divides a machine's processors and memory among several daemons: the key server.slice.
 *
 * Daemon I of N gets the I-th of N equal slices of the processors that the process may use. Processors are taken in the
 * order of their NUMA nodes, and within a node the hyperthreads of one core lie side by side. So a slice spans as few
 * nodes as the numbers allow, and two slices share a core only where a slice is smaller than a core.
 *
 * Any thread may call these functions. */
#ifndef PD_SLICE_H
#define PD_SLICE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "paramd/error.h"

/* A slice of a machine. */
typedef struct pd_slice {
    int number, of; /* the machine is divided into `of` slices, and this is number 1 .. `of`; of = 0: all of it */
} pd_slice;

/* Reads a slice such as "2/4". The empty text is the whole machine. PD_INVALID_ARGUMENT: the text is not a slice. */
int pd_slice_read(pd_slice *out, const char *text, pd_error *err);
/* Chooses the slice's processors among those in *allowed. `folder` lists the machine's nodes, as
 * /sys/devices/system/node does; if it cannot be read, processors are taken in the order of their numbers.
 * PD_INVALID_ARGUMENT: there are fewer processors than slices. */
int pd_slice_choose(cpu_set_t *out, const char *folder, const cpu_set_t *allowed, pd_slice slice, pd_error *err);
/* Chooses the slice's processors on this machine, among those that the process could use at the first call. So later
 * calls return the same processors although the process is by then bound to them. Without a slice, the set is empty if
 * the kernel does not tell. Errors are those of pd_slice_choose, and PD_INTERNAL: the kernel does not tell. */
int pd_slice_processors(cpu_set_t *out, pd_slice slice, pd_error *err);
/* Returns the number of processor cores of a slice whose processors are `processors`: their number, or the slice's
 * share of a limit of processor time, if that is less. At least 1. */
int pd_slice_cores(pd_slice slice, const cpu_set_t *processors);
/* Returns the slice's share of the memory that this process may use, in bytes. */
uint64_t pd_slice_memory(pd_slice slice);
/* Restricts the calling thread, and threads that it starts later, to the slice's processors. Does nothing for the whole
 * machine. Errors are those of pd_slice_choose, and PD_INTERNAL: the system call failed. */
int pd_slice_bind(pd_slice slice, pd_error *err);

#endif
