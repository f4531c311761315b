/* readahead.h - a disk that reads files ahead of its user.
 *
 * Whoever checks, hashes and copies what it reads keeps the disk waiting meanwhile. With this table in place of another
 * one, both work at once: when a file is read from its beginning without gaps, a thread of this disk reads the next
 * pieces. Errors come out at the read that they concern. All other calls are passed on. One thread may use it, and one
 * file at a time is read ahead. */
#ifndef PD_READAHEAD_H
#define PD_READAHEAD_H

#include "disk.h"

typedef struct pd_read_ahead pd_read_ahead;

/* Starts the thread that reads. `below` is the disk that it reads from. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED:
 * pd_read_ahead_stop frees what was made. */
int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err);
/* Returns the table of the disk that reads ahead; it lives as long as the thread. */
const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk);
/* Ends the thread. No file may be open. Accepts NULL. */
void pd_read_ahead_stop(pd_read_ahead *disk);

#endif
