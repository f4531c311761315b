/* export_request.h - Export: an operator reads weights and optimizer state. Loop thread. */
#ifndef PD_EXPORT_REQUEST_H
#define PD_EXPORT_REQUEST_H

#include "conn.h"

int pd_run_export(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers an Export request with the weights or the state that the store has read. */
void pd_reply_export(pd_conn *conn, pd_pending *pending, const pd_exported *exported);

#endif
