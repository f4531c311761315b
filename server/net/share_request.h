/* share_request.h - Share and Release: a worker on this machine and the daemon pass payloads in shared memory. */
#ifndef PD_SHARE_REQUEST_H
#define PD_SHARE_REQUEST_H

#include "conn.h"

int pd_run_share(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers a Share with the segment of the job's weights, if it has one. Takes the descriptor from the effect. */
void pd_reply_share(pd_conn *conn, pd_pending *pending, pd_effect *effect);
int pd_run_release(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);

#endif
