/* disk_pass.h - a disk that passes all calls on to another one. A disk that does something of its own puts it first in
 * its struct, and replaces functions of the table: `arg` points to both. */
#ifndef PD_DISK_PASS_H
#define PD_DISK_PASS_H

#include "disk.h"

typedef struct pd_disk_pass {
    pd_disk functions; /* arg is this struct */
    const pd_disk *below;
} pd_disk_pass;

/* Fills the table. `below` gets the calls, and must outlive it. */
void pd_disk_pass_init(pd_disk_pass *disk, const pd_disk *below);

#endif
