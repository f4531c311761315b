/* commit.h - closes a round: what the step has left is published. Step thread. */
#ifndef PD_COMMIT_H
#define PD_COMMIT_H

#include "steps.h"

/* Ends the parameter's round, whose outcome is known: fills *closed for the loop thread, publishes param->next, and
 * resets the round for the next step. Parameters that waited for this one go on. */
void pd_round_close(pd_steps *steps, pd_param *param, pd_closed *closed);

#endif
