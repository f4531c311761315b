/* riders.h - what accompanies the steps of a job without computing them. Four riders, which every step calls at the
 * same moments and in the same order:
 *
 *     moment       WAL                                overrides      consistent cut    traces
 *     collected                                                                        summed
 *     may begin    holds back                                        quiesces
 *     before       puts overrides in force            give values
 *     begun        repeats or records roots, inputs                                    begun
 *     stepped                                                                          stepped
 *     closed       records decisions, the aggregate   settle         takes weights     passes the round on
 *
 * The WAL is in wal.h, overrides in override.h, the consistent cut in consistent_cut.h, and traces here: their
 * functions do nothing, and read no clock, if nobody takes events (pd_store_config.trace). Step thread. */
#ifndef PD_RIDERS_H
#define PD_RIDERS_H

#include "steps.h"

/* The aggregate of the parameter's round is complete. */
void pd_riders_collected(const pd_steps *steps, pd_param *param);
/* Puts the parameter, whose step could begin, into steps->queue.ready; or into steps->queue.stopped, if a rider stops
 * it. */
void pd_riders_admit(pd_steps *steps, pd_param *param);
/* The step is about to begin. Writes the values that it uses in place of declared or scheduled ones into
 * value[PD_MAX_HYPERS], and their mask. The optimizer's step count must be set, since schedules read it. PD_NO_MEMORY:
 * try again. */
int pd_riders_before(pd_steps *steps, pd_param *param, double *value, uint64_t *mask);
/* The step has begun. `count` is the optimizer's step count before it. */
void pd_riders_begun(pd_steps *steps, pd_param *param, const pd_step_io *io, int64_t count);
/* The steps of n parameters, as far as they have begun, are finished. */
void pd_riders_stepped(const pd_steps *steps, pd_param *const *params, size_t n);
/* The round has closed and its weights are published; it is not reset yet. The WAL may take the aggregate, and sets
 * param->buffers.accumulator to NULL then. */
void pd_riders_closed(pd_steps *steps, pd_param *param);

/* Lets those stopped parameters go on that no rider stops any more. Call it after a cut has ended, the WAL has gone on,
 * or a pause is over. */
void pd_riders_release(pd_steps *steps);
/* Lets this one go on, if it is stopped and no rider stops it any more. */
void pd_riders_release_one(pd_steps *steps, pd_param *param);

/* Adds the time since the store's clock was last read to a phase of the job's steps (steps.h). Passes the phase of
 * the batch on, if somebody takes events. */
void pd_steps_spend(pd_steps *steps, pd_step_phase phase);
/* Passes on a preconditioner task that has come back, and is not delivered yet. Its time is how long the preconditioner
 * pool computed, up to now. */
void pd_trace_root(const pd_steps *steps, const pd_param *param, const struct pd_task *task);

#endif
