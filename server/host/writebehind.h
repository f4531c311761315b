/* writebehind.h - a disk that writes behind the caller's back: a thread of its own writes pieces, while the caller
 * makes the next ones. So a checkpoint is hashed while the disk works.
 *
 * Of all functions of the disk only writes differ: they copy the bytes, and may report the error of an earlier write of
 * the same file, at the latest when it is synced or closed. One file is written at a time, by one thread: after writes
 * to a file comes its sync or close, before another is written. */
#ifndef PD_WRITEBEHIND_H
#define PD_WRITEBEHIND_H

#include "disk.h"

typedef struct pd_write_behind pd_write_behind;

/* Starts the thread. `below` does the work; it is borrowed and must exist longer. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED:
 * the thread cannot be started. Then pd_write_behind_stop frees what was made. */
int pd_write_behind_start(pd_write_behind **out, const pd_disk *below, pd_error *err);
/* Returns the functions of the disk, which are valid until pd_write_behind_stop. */
const pd_disk *pd_write_behind_disk(const pd_write_behind *disk);
/* Ends the thread. No file may be open for writing. Accepts NULL. */
void pd_write_behind_stop(pd_write_behind *disk);

#endif
