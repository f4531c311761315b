/* declare_request.h - Declare: the parameters of a worker. */
#ifndef PD_DECLARE_REQUEST_H
#define PD_DECLARE_REQUEST_H

#include "conn.h"

/* Runs Declare. The last one of a set sends the whole set to the store. */
int  pd_run_declare(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers all Declare requests of the set that the store has taken. */
void pd_reply_declare(pd_conn *conn, const pd_effect *effect);

#endif
