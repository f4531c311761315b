/* restart.h - starts a job anew, from the weights that the workers hold, after the server has lost it. */
#ifndef PD_RESTART_H
#define PD_RESTART_H

#include "paramd/client.h"

struct pd_core;

/* Starts a lost job anew with the parameters that were declared before. Rank 0 creates the job, whose option start_step
 * becomes the lowest step of rank 0's parameters. The other ranks wait until the job exists. The ticket (a number to
 * wait with) is done when the parameters are declared. PD_FAILED_PRECONDITION: the job is not lost (pd_core_lost). */
int pd_core_restart(struct pd_core *core, pd_ticket_id *ticket, pd_error *err);
/* Returns whether the server had weights of this job when it last answered. If it had, and a server now says that
 * there is no such job, the job is lost. */
bool pd_core_has_begun(const struct pd_core *core);
/* Returns whether this process starts the lost job anew, and has not seen weights of it yet. Then only rank 0 may
 * create the job, because only rank 0 knows at which step it begins; the other ranks wait for it. This holds, too, if
 * the server is lost once more before it has the weights. */
bool pd_core_begins_anew(const struct pd_core *core);
/* Ends the client handle (the user's pd_client) because the server no longer has its job. The user may then restart the
 * job on the same handle (pd_client_restart). */
void pd_core_lose_job(struct pd_core *core);

#endif
