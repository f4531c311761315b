/* notice.h - tells the user why a call waits, that the job which this process joined was left over from an earlier run,
 * or of what the server warns. */
#ifndef PD_NOTICE_H
#define PD_NOTICE_H

#include "address.h"
#include "core.h"

/* Receiver of notices for the user: pd_client_options.notice, or by default a function that prints to standard
 * error. */
typedef struct pd_notices {
    void (*give)(void *arg, const char *text); /* callback that gets the notices; NULL: the user wants none */
    void *arg;
} pd_notices;

pd_notices pd_notices_of(const pd_client_options *options);
/* Tells the user that a call waits without a connection, why there is none, and for how long the call goes on trying.
 * `refused`: the server was reached, but does not let the process into its job yet. */
void pd_notice_waiting(const pd_notices *notices, bool refused, const char *reason, double seconds_left);
/* Tells the user that this process has joined a job that was left over from an earlier run and has already taken
 * steps. Gives no notice if this process created the job, if another worker is connected, or if the job has taken no
 * step. */
void pd_notice_left_over(const pd_notices *notices, const char *job, const pd_welcome *welcome,
                         const pd_address *server);
/* Gives the user a warning of the server about the job. */
void pd_notice_remark(const pd_notices *notices, const char *job, const char *remark, const pd_address *server);

#endif
