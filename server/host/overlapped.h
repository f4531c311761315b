/* overlapped.h - work that threads do beside their user while a disk or the kernel is slow: files that are read ahead
 * or written behind, and memory that is touched before its first use. Also measures the disk.
 *
 * **Read-ahead.** Whoever checks, hashes and copies what it reads keeps the disk waiting meanwhile. With this disk in
 * place of another one, both work at once: when a file is read from its beginning without gaps, a thread reads the next
 * pieces. Errors come out at the read that they concern. All other calls are passed on. One thread may use it, and one
 * file at a time is read ahead.
 *
 * **Write-behind.** A thread writes pieces while the caller makes the next ones, so a checkpoint is hashed while the
 * disk works. Of all functions of the disk only writes differ: they copy the bytes, and may report the error of an
 * earlier write of the same file, at the latest when it is synced or closed. One file is written at a time, by one
 * thread: after writes to a file comes its sync or close, before another is written.
 *
 * **Warmer.** The first write to a page waits until the kernel has cleared it. While a job is loaded the disk is busy
 * and a core is idle, so a thread lets the kernel clear the pages of the job's shared segment before weights are read
 * there. */
#ifndef PD_OVERLAPPED_H
#define PD_OVERLAPPED_H

#include "disk.h"
#include "host.h"
#include "paramd/error.h"

#include <stddef.h>

typedef struct pd_read_ahead pd_read_ahead;

/* Starts the thread that reads. `below` is the disk that it reads from. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED:
 * pd_read_ahead_stop frees what was made. */
int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err);
/* Returns the table of the disk that reads ahead; it lives as long as the thread. */
const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk);
/* Ends the thread. No file may be open. Accepts NULL. */
void pd_read_ahead_stop(pd_read_ahead *disk);

typedef struct pd_write_behind pd_write_behind;

/* Starts the thread. `below` does the work; it is borrowed and must exist longer. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED:
 * the thread cannot be started. Then pd_write_behind_stop frees what was made. */
int pd_write_behind_start(pd_write_behind **out, const pd_disk *below, pd_error *err);
/* Returns the functions of the disk, which are valid until pd_write_behind_stop. */
const pd_disk *pd_write_behind_disk(const pd_write_behind *disk);
/* Ends the thread. No file may be open for writing. Accepts NULL. */
void pd_write_behind_stop(pd_write_behind *disk);

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

/* Writes a file of up to 16 MiB into a directory, for at most about 0.1 s, waits until the disk has it, and removes it.
 * Sets *bytes_per_s to the speed; 0: after an error. Errors are those of the disk, and PD_NO_MEMORY. */
int pd_disk_speed(const pd_disk *disk, const char *dir, uint64_t *bytes_per_s, pd_error *err);

#endif
