/* decide.h - applies what all shards of a cluster have said about a step, and lets the step go on (settle.h). Step
 * thread. */
#ifndef PD_DECIDE_H
#define PD_DECIDE_H

#include "settle.h"

/* Applies a verdict if it is PD_VERDICT_NEW. Sets *state. Errors as pd_settle_check; then nothing has changed. */
int pd_steps_take_verdict(pd_steps *steps, const pd_tallies *tallies, pd_verdict_state *state, pd_error *err);

#endif
