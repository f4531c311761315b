/* progress.c - sends a request that the daemon answers only when no round is open, and prints meanwhile which ranks
 * the rounds wait for. */
#include "progress.h"

#include "background_call.h"
#include "format.h"
#include "watch.h"

static const double look_s = 0.02, report_s = 1;

static void report_job(const Paramd__JobInfo *job, double most_s)
{
    if (job->waits_ms == 0 || job->waits_for[0] == '\0') return;
    pd_print_line(stderr, "paramctl: job %s: step %llu waits for rank %s, %llu of at most %.0f s", job->name,
                  (unsigned long long)job->step_least + 1, job->waits_for, (unsigned long long)job->waits_ms / 1000,
                  most_s);
}

static void report(pd_operator *op, double most_s)
{
    void *reply;
    const Paramd__StatusReply *status;

    if (pd_client_call(op->client, PD_STATUS, NULL, op->arena, &reply, NULL) != PD_OK) return;
    status = reply;
    for (size_t i = 0; i < status->n_jobs; i++) report_job(status->jobs[i], most_s);
}

int pd_call_with_progress(pd_operator *op, pd_operator *second, unsigned method, const ProtobufCMessage *request,
                          double most_s, pd_error *err)
{
    pd_background_call call;
    double since_report = 0;
    int rc = pd_background_call_start(&call, op, method, request, err);

    if (rc != PD_OK) return rc;
    while (!pd_background_call_is_answered(&call)) {
        pd_watch_pause(look_s);
        if ((since_report += look_s) < report_s) continue;
        since_report = 0;
        report(second, most_s);
    }
    return pd_background_call_finish(&call, err);
}
