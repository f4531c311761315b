/* replay_updates.h - recorded updates, `update/TTTT/NAME`: the change of the weights in a step, with sign and learning
 * rate. A sharper test than the weights. */
#ifndef PD_REPLAY_UPDATES_H
#define PD_REPLAY_UPDATES_H

#include "trace.h"

/* Returns true if the checked trace has some. */
bool pd_replay_updates_wanted(const pd_trace *trace);
/* Sets the tolerance: 10 * noise_update + 1e-6, or that of the weights if the trace has no noise_update.
 * PD_INVALID_ARGUMENT: noise_update is no number from 0 on. */
int  pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err);
/* Copies a parameter's update of a step, counted from 1, to `at` (its elements); *there: it was recorded.
 * PD_INVALID_ARGUMENT: of another size. */
int  pd_replay_update(const pd_trace *trace, int64_t step, size_t param, double *at, bool *there, pd_error *err);

#endif
