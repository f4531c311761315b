/* limited_row.h - optimizers for tests of clipping, both sgd otherwise. Not in the table: give them to a store as rows of its own. */
#ifndef LIMITED_ROW_H
#define LIMITED_ROW_H

#include "row.h"

/* "limited": the gradients of a rule are clipped together, at its `dampening` (which means nothing to it without momentum). */
const pd_row *limited_row(void);
/* "values": what it gets are values, not gradients. */
const pd_row *values_row(void);

#endif
