/* handles.h - the parameters of one connection, as the connection numbers them. Loop thread. */
#ifndef PD_HANDLES_H
#define PD_HANDLES_H

#include "pieces.h"
#include "request.h"

typedef struct pd_handles {
    size_t           n, capacity;
    pd_handle_facts *facts;             /* the elements that travel on this connection; names are those of `decls` */
    pd_param_decl   *decls;             /* the declarations; they own their texts */
    uint32_t        *params;            /* index in the job; known once declared */
} pd_handles;

/* Adds a declaration. Copies its texts. A declaration that is not ranged gets all `elements`. PD_NO_MEMORY: nothing has
 * changed. */
int  pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements);
/* Copies a declaration with its texts. PD_NO_MEMORY: *to owns nothing. */
int  pd_decl_copy(pd_param_decl *to, const pd_param_decl *from);
/* Removes all but the first n. */
void pd_handles_cut(pd_handles *handles, size_t n);
void pd_handles_free(pd_handles *handles);

#endif
