/* connection.h - an operator's connection to a daemon, which joins no job. */
#ifndef PD_CONNECTION_H
#define PD_CONNECTION_H

#include "operator.h"

struct pd_line;                         /* command_line.h */

/* The connection, and memory for its answers. */
typedef struct pd_operator {
    pd_client *client;
    pd_arena  *arena;
} pd_operator;

/* `url` NULL: PARAMD_URL, else tcp://127.0.0.1:7070. PD_UNAVAILABLE: nobody answers there. */
int  pd_operator_open(pd_operator *out, const char *url, double timeout, pd_error *err);
void pd_operator_close(pd_operator *op);
/* Opens a connection as the line says and asks one thing. The answer is in op's arena. The caller closes op, also after
 * an error. */
int  pd_operator_ask(const struct pd_line *line, pd_operator *op, unsigned method, const ProtobufCMessage *request,
                     void **reply, pd_error *err);
/* Hands each page of a list to `use`, which borrows it for the call. Changes request->start. */
typedef void pd_page_user(void *arg, const Paramd__ListReply *page);
int  pd_operator_list(pd_operator *op, Paramd__ListRequest *request, pd_page_user *use, void *arg, pd_error *err);
/* Ends a job, for cleaning up: errors are ignored. */
void pd_operator_drop(const char *url, double timeout, const char *job);
/* Checks that a daemon answers, before a request whose own deadline is long. */
int  pd_operator_probe(const char *url, double timeout, pd_error *err);

#endif
