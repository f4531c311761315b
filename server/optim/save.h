/* save.h - an optimizer's state as part of an image (the state of a job as bytes): all that a restart of the daemon
 * must restore, byte for byte. Called by the step thread. */
#ifndef PD_SAVE_H
#define PD_SAVE_H

#include "archive.h"
#include "optimizer.h"

/* Returns whether the optimizer's state can be written now: no step is under way, and no root task (computation of a
 * matrix root) is at the root pool or waits to be handed to it. Root tasks that are back from the pool, but whose
 * results are not used yet, are written with their results. */
bool pd_optim_may_be_saved(const pd_optim *optim);
/* Writes the state of an optimizer to an image, or reads it into an optimizer that was just made from the same
 * declaration. The next step after reading gives the same bits as it would have given without the restart.
 *
 * The state is: the tensors as they are stored, the counter of steps, and the record of each matrix root. If root tasks
 * are back whose results are not in the tensors yet, these results are part of the state, with the hyperparameters of
 * their tasks.
 *
 * If the image does not fit the optimizer, the archive gets an error. Then the optimizer must not be used: it can only
 * be freed. */
void pd_optim_visit(pd_archive *archive, pd_optim *optim);

#endif
