/* hello_request.h - Hello: a worker joins a job, or an operator connects. */
#ifndef PD_HELLO_REQUEST_H
#define PD_HELLO_REQUEST_H

#include "conn.h"

/* Runs Hello. A worker's goes to the store; an operator is welcomed at once. */
int  pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Welcomes a worker that the store has taken. Ends the pending request. */
void pd_reply_hello(pd_conn *conn, pd_pending *pending, const pd_effect *effect);

#endif
