/* handles.h - the parameters of one connection. A parameter's handle is its index in the order of declaration. Loop
 * thread. */
#ifndef PD_HANDLES_H
#define PD_HANDLES_H

#include "pieces.h"
#include "request.h"

typedef struct pd_handles {
    size_t n, capacity;
    pd_handle_facts *facts; /* name of each parameter (in the memory of `decls`), and the range of elements that the
                             * connection uses */
    pd_param_decl *decls;   /* the declarations; they own their strings */
    uint32_t *params;       /* index of each parameter in the job; known once the store has answered the Declare */
} pd_handles;

/* Adds a declaration and copies its strings. A declaration without a range gets the range of all `elements`.
 * PD_NO_MEMORY: nothing has changed. */
int pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements);
/* Copies a declaration and its strings. PD_NO_MEMORY: *to owns no memory. */
int pd_decl_copy(pd_param_decl *to, const pd_param_decl *from);
/* Removes all declarations but the first n. */
void pd_handles_cut(pd_handles *handles, size_t n);
void pd_handles_free(pd_handles *handles);

#endif
