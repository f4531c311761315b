/* declared_params.h - the parameters of a client handle: checks and keeps their declarations, and sends them. */
#ifndef PD_DECLARED_PARAMS_H
#define PD_DECLARED_PARAMS_H

#include "paramd/client.h"

struct pd_core;

/* Declares the parameters of the model. The ticket is done when the server has accepted all of
 * them. */
int pd_core_declare(struct pd_core *core, const pd_client_param *params, size_t n, pd_ticket_id *ticket, pd_error *err);
/* Sends the declarations of all parameters on a new connection. Returns PD_NO_MEMORY if out of memory. */
int pd_core_send_declare(struct pd_core *core);
void pd_core_forget_params(struct pd_core *core);
/* Returns the lowest number of closed rounds among the parameters, as the server's last answers reported; 0 without
 * parameters. */
uint64_t pd_core_lowest_step(const struct pd_core *core);

#endif
