/* declare_request.h - Declare: the request with which a worker declares its parameters. Loop thread. */
#ifndef PD_DECLARE_REQUEST_H
#define PD_DECLARE_REQUEST_H

#include "conn.h"

/* Handles a Declare request. The last Declare of a connection sends the declarations of all its Declare requests to
 * the store. */
int pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers all Declare requests of a connection whose declarations the store has accepted. */
void pd_reply_declare(pd_conn *conn, const pd_effect *effect);

#endif
