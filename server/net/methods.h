/* methods.h - the table of the protocol's methods: for each, who may call it, and the functions that handle its
 * requests. */
#ifndef PD_METHODS_H
#define PD_METHODS_H

#include "access.h"

/* How many requests of a connection may wait for an answer of the store; as many may wait for other connections. */
#define PD_MAX_CONTROL 16

enum { PD_NEEDS_WORKER = 1, PD_NEEDS_DECLARED = 2, PD_NEEDS_OPERATOR = 4 };

/* The functions that handle the requests of one method. For a method without a payload, `run` is called when the frame
 * is complete. For a method with a payload, `prepare` is called once the header has arrived, before memory for the
 * payload is requested, and `finish` is called when the payload is complete. */
typedef struct pd_method_entry {
    const char *name;
    unsigned needs;
    pd_may may;
    pd_pending_kind kind;
    int (*run)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    int (*prepare)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    void (*finish)(pd_conn *conn);
} pd_method_entry;

/* The table of all methods of the protocol, in the order of paramd.proto. */
extern const pd_method_entry pd_methods[PD_METHODS];

/* Asserts that the table of methods has the names and the order of paramd.proto. */
void pd_methods_check(void);

#endif
