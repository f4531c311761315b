/* diskspeed.h - measures how fast the disk of the state directory is, before jobs are there. */
#ifndef PD_DISKSPEED_H
#define PD_DISKSPEED_H

#include "disk.h"

/* Writes a file of up to 16 MiB into a directory, for at most about 0.1 s, waits until the disk has it, and removes it.
 * Sets *bytes_per_s to the speed; 0: after an error. Errors are those of the disk, and PD_NO_MEMORY. */
int pd_disk_speed(const pd_disk *disk, const char *dir, uint64_t *bytes_per_s, pd_error *err);

#endif
