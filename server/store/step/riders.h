/* riders.h - calls the four riders of a job's steps, which observe steps or hold them back, but do not compute them.
 * Every step calls them at the same moments and in the same order:
 *
 *     moment       WAL                                overrides      consistent cut    traces
 *     collected                                                                        summed
 *     may begin    holds back                                        quiesces
 *     before       puts overrides in force            give values
 *     begun        repeats or records roots, inputs                                    begun
 *     stepped                                                                          stepped
 *     closed       records decisions, the aggregate   settle         takes weights     reports the round
 *
 * The WAL is in wal.h, overrides in override.h, the consistent cut in consistent_cut.h, and traces are in
 * riders.c. Without a trace file (pd_store_config.trace) traces do nothing, and read no clock. Step thread. */
#ifndef PD_RIDERS_H
#define PD_RIDERS_H

#include "steps.h"

/* Called when the aggregate of the parameter's round is complete. */
void pd_riders_collected(const pd_steps *steps, pd_param *param);
/* Puts the parameter, whose step could begin, into steps->queue.ready; or into steps->queue.stopped, if a rider stops
 * it. */
void pd_riders_admit(pd_steps *steps, pd_param *param);
/* Called when the step is about to begin. Writes the values that the step uses in place of declared or scheduled ones
 * into value[PD_MAX_HYPERS], and sets bit h of *mask for each hyperparameter h that has one. The optimizer's step count
 * must be set, since schedules read it. PD_NO_MEMORY: the caller tries again later. */
int pd_riders_before(pd_steps *steps, pd_param *param, double *value, uint64_t *mask);
/* Called when the step has begun. `count` is the optimizer's step count before it. */
void pd_riders_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count);
/* Called when the rounds of n parameters are about to close; the steps that these rounds have begun are finished. */
void pd_riders_stepped(const pd_steps *steps, pd_param *const *params, size_t n);
/* Called when the round has closed and its weights are published, before the round is reset. If the WAL takes the
 * aggregate, param->buffers.accumulator becomes NULL. */
void pd_riders_closed(pd_steps *steps, pd_param *param);

/* Moves stopped parameters that no rider stops any more to steps->queue.ready, and lets sets be fixed again. Call it
 * when a cut or a pause has ended, or when the WAL lets steps begin again. */
void pd_riders_release(pd_steps *steps);
/* Moves the parameter to steps->queue.ready, if it is stopped and no rider stops it any more. */
void pd_riders_release_one(pd_steps *steps, pd_param *param);

/* Adds the time since the store's clock was last read to a phase of the job's steps (steps.h). Writes an event for the
 * trace file, if there is one. */
void pd_steps_spend(pd_steps *steps, pd_step_phase phase);
/* Writes an event for the trace file, if there is one: a preconditioner task has come back. The event ends now and
 * lasts as long as the preconditioner pool has computed. */
void pd_trace_root(const pd_steps *steps, const pd_param *param, const struct pd_task *task);

#endif
