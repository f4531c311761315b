/* restart.h - a server that no longer has the job, and the job's new start from the weights that the workers hold. */
#ifndef PD_RESTART_H
#define PD_RESTART_H

#include "paramd/client.h"

struct pd_core;

/* Starts the job anew with the parameters that were declared, after pd_core_lost. Rank 0 creates it, with the lowest
 * step of its parameters as start_step; the other ranks wait until it is there. The ticket is done when the parameters
 * are declared. PD_FAILED_PRECONDITION: the job is not lost. */
int  pd_core_restart(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Returns whether the server has had weights of this process's job: a server without them has lost them. */
bool pd_core_has_begun(const struct pd_core *core);
/* Ends the handle, since the server no longer has the job. The handle may be restarted. */
void pd_core_lose_job(struct pd_core *core);

#endif
