/* ctl.h - what paramctl's commands share: the options, the connection, exit statuses. */
#ifndef PD_CTL_H
#define PD_CTL_H

#include <jansson.h>

#include "operator.h"

/* Exit statuses, as the help says them. */
enum { PD_EXIT_OK = 0, PD_EXIT_REFUSED = 1, PD_EXIT_USAGE = 2, PD_EXIT_UNREACHABLE = 3 };

#define PD_CTL_RULES 64                /* as many as a Hello may have */
#define PD_CTL_OPTIONS 64

/* The command line. */
typedef struct pd_ctl {
    const char *server;             /* --server; NULL: not given, the client library's own default */
    double      timeout;            /* --timeout, seconds */
    bool        json, quiet, verbose, local, state, partial;
    double      within;             /* drain: seconds that open rounds may take */
    int64_t     from;               /* set: the step from which it holds; 0: the next */
    int64_t     workers, tensors, floats, rounds;   /* bench */
    int64_t     world;              /* plan: workers of the job */
    int64_t     threads, pool_threads;          /* plan: the daemon's step_threads and pool_threads */
    char       *rules[PD_CTL_RULES];            /* plan */
    size_t      n_rules;
    char       *options[PD_CTL_OPTIONS];        /* plan: "key=value" of the job */
    size_t      n_options;
    char      **args;               /* what stands after the options */
    int         n_args;
} pd_ctl;

/* Commands: each prints its answer and returns an exit status. */
int pd_ctl_ping(const pd_ctl *ctl);
int pd_ctl_status(const pd_ctl *ctl);
int pd_ctl_jobs(const pd_ctl *ctl);
int pd_ctl_params(const pd_ctl *ctl);
int pd_ctl_workers(const pd_ctl *ctl);
int pd_ctl_roots(const pd_ctl *ctl);
int pd_ctl_state(const pd_ctl *ctl);
int pd_ctl_import_state(const pd_ctl *ctl);
int pd_ctl_optimizers(const pd_ctl *ctl);
int pd_ctl_drop(const pd_ctl *ctl);
int pd_ctl_drain(const pd_ctl *ctl);
int pd_ctl_shutdown(const pd_ctl *ctl);
int pd_ctl_replay(const pd_ctl *ctl);
int pd_ctl_bench(const pd_ctl *ctl);
int pd_ctl_plan(const pd_ctl *ctl);
int pd_ctl_set(const pd_ctl *ctl);
int pd_ctl_settings(const pd_ctl *ctl);

enum { PD_LIST_JOBS = 1, PD_LIST_PARAMS, PD_LIST_WORKERS, PD_LIST_ROOTS, PD_LIST_SETTINGS, PD_LIST_STATE };      /* ListRequest.what */

/* An operator's connection, and memory for its answers. */
typedef struct pd_operator {
    pd_client *client;
    pd_arena  *arena;
} pd_operator;

/* `url` NULL: PARAMD_URL, else tcp://127.0.0.1:7070. PD_UNAVAILABLE: nobody answers there. */
int  pd_operator_open(pd_operator *out, const char *url, double timeout, pd_error *err);
void pd_operator_close(pd_operator *op);
/* Opens, asks one thing and leaves the answer in op's arena; the caller closes op, after an error too. */
int  pd_operator_ask(const pd_ctl *ctl, pd_operator *op, unsigned method, const ProtobufCMessage *request, void **reply, pd_error *err);
/* Hands each page of a list to `use`, which borrows it for the call. Changes request->start. */
typedef void pd_page_user(void *arg, const Paramd__ListReply *page);
int  pd_operator_list(const pd_ctl *ctl, Paramd__ListRequest *request, pd_page_user *use, void *arg, pd_error *err);
/* Ends a job as well as may be: for clearing up, where nobody asks how it went. */
void pd_operator_drop(const char *url, double timeout, const char *job);
/* Whether a daemon answers there: before something whose own deadline is long. */
int  pd_operator_probe(const char *url, double timeout, pd_error *err);

/* Reports an error as the options ask for it and returns the exit status that goes with it. */
int pd_ctl_fail(const pd_ctl *ctl, const pd_error *err);
/* Prints `value` indented on stdout, and frees it. NULL: out of memory. Returns an exit status. */
int pd_ctl_print_json(json_t *value);

/* Any message as a JSON object with the field names of paramd.proto; fixed64 (nonces) as hexadecimal text. Gives; NULL: out of memory. */
json_t *pd_message_json(const ProtobufCMessage *message);

#endif
