/* replay_updates.h - recorded updates, `update/TTTT/NAME`: what a step added to the weights, sign and learning rate
 * included. A sharper test than the weights. */
#ifndef PD_REPLAY_UPDATES_H
#define PD_REPLAY_UPDATES_H

#include "trace.h"

/* The trace, which has been checked, has some. */
bool pd_replay_updates_wanted(const pd_trace *trace);
/* 10 * noise_update + 1e-6; where the trace does not say how noisy its updates are, that of the weights.
 * PD_INVALID_ARGUMENT: noise_update is no number from 0 on. */
int  pd_replay_updates_tolerance(const pd_trace *trace, double *tolerance, pd_error *err);
/* Copies a parameter's update of a step, counted from 1, to `at` (its elements); *there: it was recorded.
 * PD_INVALID_ARGUMENT: of another size. */
int  pd_replay_update(const pd_trace *trace, int64_t step, size_t param, double *at, bool *there, pd_error *err);

#endif
