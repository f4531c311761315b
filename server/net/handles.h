/* handles.h - the table of the parameters that a connection has declared. A parameter's index in it, its handle, names
 * the parameter in later requests. Loop thread. */
#ifndef PD_HANDLES_H
#define PD_HANDLES_H

#include "pieces.h"
#include "request.h"

typedef struct pd_handles {
    size_t n, capacity;
    pd_handle_facts *facts; /* of each parameter: its name (in the memory of `decls`), and the range of elements that
                             * the connection pushes and pulls */
    pd_param_decl *decls;   /* what the worker declared of each parameter, with the memory of the strings */
    /* of each parameter: its index in the job, which is known once the store has answered the Declare (list of
     * parameters) */
    uint32_t *params;
} pd_handles;

/* Adds a parameter and copies the strings of its declaration. A declaration without a range gets the range of all
 * `elements`. PD_NO_MEMORY: nothing has changed. */
int pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements);
/* Copies the declaration of a parameter with its strings. PD_NO_MEMORY: *to owns no memory. */
int pd_decl_copy(pd_param_decl *to, const pd_param_decl *from);
/* Removes all parameters but the first n. */
void pd_handles_cut(pd_handles *handles, size_t n);
void pd_handles_free(pd_handles *handles);

#endif
