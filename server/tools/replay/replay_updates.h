/* replay_updates.h - reads recorded updates, tensors `update/TTTT/NAME`: the change of the weights in a step, with
 * its sign and learning rate. Comparing updates is a sharper test than comparing weights. */
#ifndef PD_REPLAY_UPDATES_H
#define PD_REPLAY_UPDATES_H

#include "trace.h"

/* Returns true if the checked trace has recorded changes of weights ("updates"). */
bool pd_replay_updates_wanted(const pd_trace *trace);
/* Sets the largest error that updates may have: 10 * noise_update + 1e-6, or the weights'
 * tolerance if the trace has no metadata noise_update. PD_INVALID_ARGUMENT: noise_update is no number, or is
 * negative. */
int pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err);
/* Copies the recorded update (change of weights) of a parameter in a step to `at`; steps count from 1. Sets *there
 * to whether it was recorded. PD_INVALID_ARGUMENT: it has another shape than the parameter. */
int pd_replay_update(const pd_trace *trace, int64_t step, size_t param, double *at, bool *there, pd_error *err);

#endif
