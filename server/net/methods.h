/* methods.h - the table of methods: what each one needs, and the functions that handle its requests. */
#ifndef PD_METHODS_H
#define PD_METHODS_H

#include "conn.h"

#define PD_MAX_CONTROL 16               /* open requests of a connection, other than those of a training step */

enum { PD_NEEDS_WORKER = 1, PD_NEEDS_DECLARED = 2, PD_NEEDS_OPERATOR = 4 };

/* A method without a payload is run when its frame is complete. A method with a payload is prepared when the header is
 * there, before memory for the payload is asked for, and finished when the payload is complete. */
typedef struct pd_method_entry {
    const char *name;
    unsigned    needs;
    pd_pending_kind kind;
    int  (*run)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    int  (*prepare)(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
    void (*finish)(pd_conn *conn);
} pd_method_entry;

/* In the order of paramd.proto. */
extern const pd_method_entry pd_methods[PD_METHODS];

/* Asserts that the table agrees with paramd.proto. */
void pd_methods_check(void);

#endif
