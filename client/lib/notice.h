/* notice.h - gives notices to the user (why a call waits, what the server warns of), and puts the server's address into
 * the commands that error texts and notices name. */
#ifndef PD_NOTICE_H
#define PD_NOTICE_H

#include <stddef.h>

#include "address.h"
#include "core.h"

/* Receiver of notices for the user: pd_client_options.notice, or by default a function that prints to standard
 * error. */
typedef struct pd_notices {
    void (*give)(void *arg, const char *text); /* callback that gets the notices; NULL: the user wants none */
    void *arg;
} pd_notices;

pd_notices pd_notices_of(const pd_client_options *options);
/* Tells the user that a call waits without a connection, why there is none, and for how long the call continues trying.
 * `refused`: the server was reached, but does not let the process into its job yet. */
void pd_notice_waiting(const pd_notices *notices, bool refused, const char *reason, double seconds_left);
/* Tells the user that this process has joined a job that was left over from an earlier run and has already taken steps.
 * Gives no notice if this process created the job, if another worker is connected, or if the job has taken no step. */
void pd_notice_left_over(const pd_notices *notices, const char *job, const pd_welcome *welcome,
                         const pd_address *server);
/* Tells the user that the rests of quantized gradients are 0 again (feedback.h), because the server has lost the steps
 * that they belong to. */
void pd_notice_feedback(const pd_notices *notices, const char *job);
/* Gives the user a text as it is. */
void pd_notice_plain(const pd_notices *notices, const char *text);
/* Gives the user a remark: a warning of the server about the job. */
void pd_notice_remark(const pd_notices *notices, const char *job, const char *remark, const pd_address *server);
/* Tells the user that `in_row` contributions of this worker, one after the other, were late, and how many of all its
 * contributions have counted. */
void pd_notice_late(const pd_notices *notices, const char *job, int in_row, uint64_t counted, uint64_t pushes);

/* Keeps the remarks in the server's answer to a heartbeat. Drops a text that has come before, for instance on an
 * earlier connection, and a text for which there is no room or memory. */
void pd_core_note_remarks(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
/* Returns the oldest remark that the user does not have yet; the caller frees it. NULL: there is none. */
char *pd_core_take_remark(pd_core *core);
void pd_core_remarks_free(pd_core_remarks *remarks);

/* Replaces "paramctl COMMAND" by "paramctl -s ADDRESS COMMAND" wherever a text names a command that asks a daemon. The
 * text has room for `room` bytes; where it would not fit, it stays as it was. */
void pd_command_address(char *text, size_t room, const pd_address *address);

#endif
