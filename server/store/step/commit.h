/* commit.h - closes a round and publishes its result. Step thread. */
#ifndef PD_COMMIT_H
#define PD_COMMIT_H

#include "steps.h"

/* Closes the parameter's round, whose outcome is decided: publishes param->next (the new weights), fills *closed, the
 * report to the loop thread, and makes the round ready for the next step. Parameters that waited for this round go
 * on. */
void pd_round_close(pd_steps *steps, pd_param *param, pd_closed *closed);

#endif
