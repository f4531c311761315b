/* connection.h - opens an operator's connection to a daemon, which joins no job, and sends requests. Also reads the
 * clock and sleeps, for programs that wait. */
#ifndef PD_CONNECTION_H
#define PD_CONNECTION_H

#include "operator.h"

/* An operator's connection to a daemon, and the memory for the daemon's answers. */
typedef struct pd_operator {
    pd_client *client;
    pd_arena *arena;
} pd_operator;

/* Connects to the daemon at the address `url`. If `url` is NULL, the environment variable PARAMD_URL has the
 * address; if that is not set, it is tcp://127.0.0.1:7070. PD_UNAVAILABLE: no daemon answers there. */
int pd_operator_open(pd_operator *out, const char *url, double timeout, pd_error *err);
void pd_operator_close(pd_operator *op);
/* Fetches a list from the daemon page by page, and calls `use` with each page. A page is valid only during this
 * call. Changes request->start, the number of the first entry to send. */
typedef void pd_page_user(void *arg, const Paramd__ListReply *page);
int pd_operator_list(pd_operator *op, Paramd__ListRequest *request, pd_page_user *use, void *arg, pd_error *err);
/* Drops (deletes) a job, to clean up after a replay or a measurement. Errors are ignored. */
void pd_operator_drop(const char *url, double timeout, const char *job);
/* Checks that a daemon answers at all. Called before a request with a long deadline, so that the user hears soon if
 * there is no daemon. */
int pd_operator_probe(const char *url, double timeout, pd_error *err);

/* Returns the time of a monotonic clock, in seconds. */
double pd_now_s(void);
/* Sleeps for this many seconds. Signals do not end the sleep early. */
void pd_pause_s(double seconds);

#endif
