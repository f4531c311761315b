/* join.h - joins the job on a new connection: sends Hello and Declare, and handles the answers, which make the
 * connection usable or end the client handle. */
#ifndef PD_JOIN_H
#define PD_JOIN_H

#include "core.h"
#include "paramd/client.h"

/* Sends Hello on a new connection. PD_OUT_OF_RANGE: options and rules are too long. PD_NO_MEMORY. */
int pd_core_send_hello(pd_core *core);
/* Declares the parameters of the model. The ticket is done when the server has accepted all of them. */
int pd_core_declare(pd_core *core, const pd_client_param *params, size_t n, pd_ticket_id *ticket, pd_error *err);
/* Frees the declared parameters. */
void pd_core_forget_params(pd_core *core);
/* Takes back the declared parameters, because another shard of the cluster has refused them, or knows them otherwise.
 * Drops the connection: the server forgets what it has reserved. The parameters may be declared again. */
void pd_core_withdraw(pd_core *core, const pd_error *error);
/* Returns the lowest number of closed rounds among the parameters, as the server's last answers reported; 0 without
 * parameters. */
uint64_t pd_core_lowest_step(const pd_core *core);

/* Handle the server's answer to Hello: a welcome, or the error with which the server refuses Hello. */
int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
int pd_welcome_refused(pd_core *core, const pd_error *error);
/* Handle the server's answer to a Declare frame: success for the `count` parameters from index `first` on, or an
 * error. */
int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header);
int pd_declare_refused(pd_core *core, const pd_error *error);

#endif
