/* declare_request.h - Declare: the request with which a worker declares its parameters. Loop thread. */
#ifndef PD_DECLARE_REQUEST_H
#define PD_DECLARE_REQUEST_H

#include "conn.h"

/* Handles a Declare request. The last one of a connection sends the parameters of all of them
 * to the store. */
int pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers all Declare requests of a connection, because the store has accepted the set of parameters. */
void pd_reply_declare(pd_conn *conn, const pd_effect *effect);

#endif
