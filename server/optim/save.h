/* save.h - an optimizer's state as part of an image: what a restart must bring back, byte for byte. Step thread. */
#ifndef PD_SAVE_H
#define PD_SAVE_H

#include "archive.h"
#include "optimizer.h"

/* Returns whether the state can be written now: no step is under way, and no task is out or waits to be handed out. Tasks that are back
 * and not due yet are written with their results. */
bool pd_optim_may_be_saved(const pd_optim *optim);
/* Writes the state, or reads it into an optimizer that was just made from the same declaration: slots as they are stored, the counter, what
 * is known of the roots, and results that are not adopted yet with the hyperparameters in force when they were captured. The step after
 * reading gives the bits that it would have given without. Whatever does not fit is an error of the archive; the optimizer can only be freed
 * then. */
void pd_optim_visit(pd_archive *archive, pd_optim *optim);

#endif
