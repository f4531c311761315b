/* pull_request.h - Pull: a worker's request for weights. Loop thread. */
#ifndef PD_PULL_REQUEST_H
#define PD_PULL_REQUEST_H

#include "conn.h"

int pd_run_pull(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);

#endif
