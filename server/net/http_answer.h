/* http_answer.h - decides what an HTTP request gets: a page, metrics, health, or an error in words. Loop thread.
 *
 *     GET /metrics     Prometheus' text 0.0.4, or OpenMetrics 1.0 if the peer would rather have it
 *     GET /healthz     200 while the loop turns and the step thread makes progress, otherwise 503
 *     GET /readyz      200 while workers are served; 503 while jobs are recovered, and while the daemon drains
 *     GET /jobs.json   what the daemon and its jobs do now (JOBS_JSON.md)
 *     GET /            the dashboard
 *
 * A long answer is written in pieces as the peer reads, so a slow peer keeps little memory. */
#ifndef PD_HTTP_ANSWER_H
#define PD_HTTP_ANSWER_H

#include "http_request.h"
#include "jobs_json.h"
#include "metrics.h"

/* The part of an answer that is still to be written. */
typedef struct pd_http_answer {
    bool chunked; /* each piece is sent as a chunk of HTTP/1.1 */
    bool metrics, jobs, ended;
    pd_metrics_cursor metrics_cursor;
    pd_jobs_json_cursor jobs_cursor;
} pd_http_answer;

/* Writes the head of the answer to a request, and its body if it is short. */
void pd_http_answer_begin(pd_http_answer *answer, const pd_daemon *daemon, const pd_http_request *request,
                          pd_document *out);
/* Writes the answer to a request that pd_http_parse has refused, or that the connection refuses for another reason. */
void pd_http_answer_refuse(pd_http_answer *answer, int code, const char *why, bool head, pd_document *out);
/* Appends the next piece of the body, about PD_HTTP_PIECE bytes. Returns false if everything was written before. */
bool pd_http_answer_next(pd_http_answer *answer, const pd_daemon *daemon, pd_document *out);

#define PD_HTTP_PIECE 16384

#endif
