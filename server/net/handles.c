/* handles.c - the table of the parameters that a connection has declared. A parameter's index in it, its handle, names
 * the parameter in later requests. */
#include "handles.h"

#include <stdlib.h>
#include <string.h>

/* Declared parameters are kept in arrays that grow by doubling, so up to half of the memory may be unused: hence the
 * factor 2. */
_Static_assert(2 * (sizeof(pd_handle_facts) + sizeof(pd_param_decl) + sizeof(uint32_t)) <= PD_LOOP_DECL_BYTES,
               "what a connection keeps of a declaration is counted at Declare");

static int grow(void **array, size_t capacity, size_t size)
{
    void *grown = realloc(*array, capacity * size);

    if (grown == NULL) return PD_NO_MEMORY;
    *array = grown;
    return PD_OK;
}

enum { LEAST = 16 };
_Static_assert(LEAST *(sizeof(pd_handle_facts) + sizeof(pd_param_decl) + sizeof(uint32_t)) + 48 <= PD_LOOP_RANK_BYTES,
               "what a connection keeps of a small set is counted at Declare");

static int make_room(pd_handles *handles)
{
    size_t capacity = handles->capacity == 0 ? LEAST : 2 * handles->capacity;

    if (handles->n < handles->capacity) return PD_OK;
    if (grow((void **)&handles->facts, capacity, sizeof *handles->facts) != PD_OK ||
        grow((void **)&handles->decls, capacity, sizeof *handles->decls) != PD_OK ||
        grow((void **)&handles->params, capacity, sizeof *handles->params) != PD_OK)
        return PD_NO_MEMORY;
    handles->capacity = capacity;
    return PD_OK;
}

int pd_decl_copy(pd_param_decl *to, const pd_param_decl *from)
{
    *to = *from;
    to->axes = NULL;
    if ((to->name = strdup(from->name)) == NULL) return PD_NO_MEMORY;
    if (from->axes == NULL || (to->axes = strdup(from->axes)) != NULL) return PD_OK;
    free(to->name);
    to->name = NULL;
    return PD_NO_MEMORY;
}

int pd_handles_add(pd_handles *handles, const pd_param_decl *decl, int64_t elements)
{
    pd_param_decl *copy;

    if (make_room(handles) != PD_OK) return PD_NO_MEMORY;
    copy = &handles->decls[handles->n];
    if (pd_decl_copy(copy, decl) != PD_OK) return PD_NO_MEMORY;
    if (!copy->ranged) copy->end = elements;
    handles->facts[handles->n] = (pd_handle_facts){ copy->start, copy->end, copy->name };
    handles->params[handles->n] = UINT32_MAX;
    handles->n++;
    return PD_OK;
}

void pd_handles_cut(pd_handles *handles, size_t n)
{
    while (handles->n > n) {
        free(handles->decls[--handles->n].name);
        free(handles->decls[handles->n].axes);
    }
}

void pd_handles_free(pd_handles *handles)
{
    pd_handles_cut(handles, 0);
    free(handles->facts);
    free(handles->decls);
    free(handles->params);
    memset(handles, 0, sizeof *handles);
}
