/* overlapped.h - three helper threads, which wait for a disk or the kernel in place of their user: one reads files
 * ahead, one writes files behind, and one (the warmer) populates memory before its first use. Also measures the speed
 * of the disk.
 *
 * **Read-ahead.** The disk is idle while its user checks, hashes and copies the bytes that it has read. So this pd_disk
 * wraps another one: while its user reads a file from the beginning without gaps, a thread reads the bytes that follow.
 * An error is returned by the read call whose bytes it concerns. All other calls go to the wrapped disk. Only one
 * thread may use the pd_disk, and one file at a time is read ahead.
 *
 * **Write-behind.** A thread writes bytes while the caller makes the next ones, so a checkpoint is hashed while the
 * disk works. This pd_disk wraps another one, too. A write only copies the bytes. If the disk reports an error, a later
 * write, sync or close of the same file returns it. Only one thread may write, and to one file at a time: it must sync
 * or close a file before it writes to another one.
 *
 * **Warmer.** The first write to a page of memory waits until the kernel has cleared the page. While a job is restored,
 * the disk is busy and a core is idle. So a thread lets the kernel clear the pages of the job's shared segment before
 * weights are read into it. */
#ifndef PD_OVERLAPPED_H
#define PD_OVERLAPPED_H

#include "disk.h"
#include "host.h"
#include "paramd/error.h"

#include <stddef.h>

typedef struct pd_read_ahead pd_read_ahead; /* the thread that reads ahead, and the pd_disk of its user */

/* Starts the thread that reads ahead from the disk `below`, which is borrowed and must exist longer. PD_NO_MEMORY,
 * PD_RESOURCE_EXHAUSTED: the thread does not run, and the caller must still call pd_read_ahead_stop(*out). */
int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err);
/* Returns the disk that reads ahead. It is valid until pd_read_ahead_stop. */
const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk);
/* Ends the thread and frees *disk. No file may be open. Accepts NULL. */
void pd_read_ahead_stop(pd_read_ahead *disk);

typedef struct pd_write_behind pd_write_behind; /* the thread that writes behind, and the pd_disk of its user */

/* Starts the thread that writes to the disk `below`, which is borrowed and must exist longer. PD_NO_MEMORY,
 * PD_RESOURCE_EXHAUSTED: the thread does not run, and the caller must still call pd_write_behind_stop(*out). */
int pd_write_behind_start(pd_write_behind **out, const pd_disk *below, pd_error *err);
/* Returns the disk that writes behind. It is valid until pd_write_behind_stop. */
const pd_disk *pd_write_behind_disk(const pd_write_behind *disk);
/* Ends the thread and frees *disk. No file may be open for writing. Accepts NULL. */
void pd_write_behind_stop(pd_write_behind *disk);

typedef struct pd_warmer pd_warmer;

/* Starts the warmer. The memory that it populates lies on the chosen NUMA node while that has free memory.
 * PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED: the thread does not run, and the caller must still call pd_warmer_stop(*out). */
int pd_warmer_start(pd_warmer **out, const pd_numa *numa, pd_error *err);
/* Lets the warmer (`arg`, a pd_warmer) populate `bytes` bytes of mapped memory, which begin at a page boundary. Their
 * content does not change. Before that, stops the work on the memory of the previous call, and waits until the thread
 * no longer uses that memory. With 0 bytes, the call only stops that work: then the caller may unmap the memory. */
void pd_warmer_put(void *arg, void *at, size_t bytes);
/* Ends the warmer, which leaves the rest of its memory unpopulated, and frees it. Accepts NULL. */
void pd_warmer_stop(pd_warmer *warmer);

/* Measures how fast the disk writes. Writes a file of up to 16 MiB into the directory `dir`, for about 0.1 s at most,
 * syncs it, and removes it. Sets *bytes_per_s to the speed, or to 0 after an error. Fails with PD_NO_MEMORY or the
 * error of the disk. */
int pd_disk_speed(const pd_disk *disk, const char *dir, uint64_t *bytes_per_s, pd_error *err);

#endif
