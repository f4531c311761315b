/* hello_request.h - Hello: a worker joins a job, or an operator connects. */
#ifndef PD_HELLO_REQUEST_H
#define PD_HELLO_REQUEST_H

#include "conn.h"

/* Handles a Hello. A worker's Hello is sent to the store. An operator's Hello is answered at once. */
int pd_run_hello(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers the Hello of a worker that the store has let into its job. Frees `pending`, the open request. */
void pd_reply_hello(pd_conn *conn, pd_pending *pending, const pd_effect *effect);

#endif
