/* kept_copy.h - copies of checkpoints, as a disk would return them. */
#ifndef KEPT_COPY_H
#define KEPT_COPY_H

#include "checkpoint_image.h"

/* Returns a copy of a checkpoint, whose weights lie in memory of its own. NULL: out of memory. */
pd_checkpoint_image *kept_copy(const pd_checkpoint_image *kept);

#endif
