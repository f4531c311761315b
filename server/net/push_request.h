/* push_request.h - Initialise, Push and PushPull: the requests that send weights or gradients. Loop thread. */
#ifndef PD_PUSH_REQUEST_H
#define PD_PUSH_REQUEST_H

#include "conn.h"

int pd_prepare_init(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_init(pd_conn *conn);
/* Prepares a Push or PushPull for its payload. A push that is sent again, whose rounds are closed already, is answered
 * from the version table. */
int pd_prepare_push(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_push(pd_conn *conn);

#endif
