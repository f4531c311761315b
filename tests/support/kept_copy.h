/* kept_copy.h - copies of checkpoints, as a disk would return them. */
#ifndef KEPT_COPY_H
#define KEPT_COPY_H

#include "kept.h"

/* Returns a copy of a checkpoint, whose weights lie in memory of its own. NULL: out of memory. */
pd_kept *kept_copy(const pd_kept *kept);

#endif
