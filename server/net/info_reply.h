/* info_reply.h - answers the requests with which operators look at the server (lists, the status), and Set. */
#ifndef PD_INFO_REPLY_H
#define PD_INFO_REPLY_H

#include "conn.h"

/* Answers a Status or a List request. */
void pd_reply_info(pd_conn *conn, pd_pending *pending, pd_info *info);
/* Answers a Set request, with which an operator changed hyperparameters. */
void pd_reply_set(pd_conn *conn, pd_pending *pending, const pd_set_result *result);

#endif
