/* notice.c - tells the user why a call waits, that the job which this process joined was left over from an earlier run,
 * or of what the server warns. */
#include "notice.h"

#include "command_address.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum { NOTICE_BYTES = PD_ERROR_TEXT + 256 + 2 * PD_ADDRESS_TEXT };

static void print(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "paramd: %s\n", text);
}

pd_notices pd_notices_of(const pd_client_options *options)
{
    if (options->quiet || options->impatient) return (pd_notices){ 0 };
    if (options->notice == NULL) return (pd_notices){ print, NULL };
    return (pd_notices){ options->notice, options->notice_arg };
}

/* Gives a notice. `server`: the address for commands that the notice names. */
static void give(const pd_notices *notices, const pd_address *server, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void give(const pd_notices *notices, const pd_address *server, const char *format, ...)
{
    char text[NOTICE_BYTES];
    va_list args;

    if (notices->give == NULL) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pd_command_address(text, sizeof text, server);
    notices->give(notices->arg, text);
}

void pd_notice_waiting(const pd_notices *notices, bool refused, const char *reason, double seconds_left)
{
    time_t end = time(NULL) + (time_t)ceil(seconds_left);
    struct tm clock = { 0 };

    localtime_r(&end, &clock);
    give(notices, NULL, "%s: %s; trying again until %02d:%02d:%02d, for another %.0f s",
         refused ? "the server does not let this process into its job yet" : "no connection to the server", reason,
         clock.tm_hour, clock.tm_min, clock.tm_sec, ceil(seconds_left));
}

void pd_notice_left_over(const pd_notices *notices, const char *job, const pd_welcome *welcome,
                         const pd_address *server)
{
    if (welcome->created || welcome->linger <= 0 || welcome->step == 0) return;
    give(notices, server,
         "job %s is at step %" PRIu64 " and lingers for another %.0f s: this process goes on from that step. To begin "
         "anew, set PARAMD_RESUME=0, `paramctl drop %s`, or choose another name",
         job, welcome->step, ceil(welcome->linger), job);
}

void pd_notice_remark(const pd_notices *notices, const char *job, const char *remark, const pd_address *server)
{
    give(notices, server, "warning of the server: job %s: %s", job, remark);
}
