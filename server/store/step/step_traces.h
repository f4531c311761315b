/* step_traces.h - reads the clock between the phases of a batch of work, notes when the rounds of a traced job go from
 * one stage to the next, and passes these events on to the trace file. Step thread.
 *
 * Every function whose name begins with pd_trace does nothing, and reads no clock, if nobody takes events
 * (pd_store_config.trace). */
#ifndef PD_STEP_TRACES_H
#define PD_STEP_TRACES_H

#include "steps.h"

/* Adds the time since the store's clock was last read to a phase of the job's steps (step_times.h). Passes the phase of
 * the batch on, if somebody takes events. */
void pd_steps_spend(pd_steps *steps, pd_step_phase phase);
/* Notes that the aggregate of the parameter's round is complete. */
void pd_trace_summed(const pd_steps *steps, pd_param *param);
/* Notes that the parameter's step begins. */
void pd_trace_begun(const pd_steps *steps, pd_param *param);
/* Notes that the steps of n parameters, as far as they have begun, are finished. */
void pd_trace_stepped(const pd_steps *steps, pd_param *const *params, size_t n);
/* Passes on the times of the parameter's round, which has just been counted as closed and is not reset yet. */
void pd_trace_closed(const pd_steps *steps, pd_param *param);
/* Passes on a preconditioner task that has come back from the preconditioner pool, and is not delivered yet.
 * Its time is how long the preconditioner pool computed, up to now. */
void pd_trace_root(const pd_steps *steps, const pd_param *param, const struct pd_task *task);

#endif
