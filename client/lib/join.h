/* join.h - joins the job on a new connection: sends Hello and Declare, and handles their answers. They make the
 * connection usable, or end the client handle. */
#ifndef PD_JOIN_H
#define PD_JOIN_H

#include "core.h"
#include "paramd/client.h"

/* Sends Hello on a new connection. PD_OUT_OF_RANGE: options and rules are too long. PD_NO_MEMORY. */
int pd_core_send_hello(pd_core *core);
/* Declares the parameters of the model. The ticket is done when the server has accepted all of them. */
int pd_core_declare(pd_core *core, const pd_client_param *params, size_t n, pd_ticket_id *ticket, pd_error *err);
void pd_core_forget_params(pd_core *core);
/* Returns the lowest number of closed rounds among the parameters, as the server's last answers reported; 0 without
 * parameters. */
uint64_t pd_core_lowest_step(const pd_core *core);

/* Take the server's answer to Hello: a welcome, or an error with which the server refuses it. */
int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
int pd_welcome_refused(pd_core *core, const pd_error *error);
/* Take the server's answer to a Declare frame that has `count` parameters from index `first` on. */
int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header);
int pd_declare_refused(pd_core *core, const pd_error *error);

#endif
