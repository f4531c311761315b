#include "conn.h"

#include <stdlib.h>
#include <string.h>

static int grow(void **array, size_t capacity, size_t size)
{
    void *grown = realloc(*array, capacity * size);

    if (grown == NULL) return PD_NO_MEMORY;
    *array = grown;
    return PD_OK;
}

static int make_room(pd_handles *handles)
{
    size_t capacity = handles->capacity == 0 ? 16 : 2 * handles->capacity;

    if (handles->n < handles->capacity) return PD_OK;
    if (grow((void **)&handles->facts, capacity, sizeof *handles->facts) != PD_OK
        || grow((void **)&handles->ranged, capacity, sizeof *handles->ranged) != PD_OK
        || grow((void **)&handles->shapes, capacity, sizeof *handles->shapes) != PD_OK
        || grow((void **)&handles->pulls, capacity, sizeof *handles->pulls) != PD_OK
        || grow((void **)&handles->updates, capacity, sizeof *handles->updates) != PD_OK
        || grow((void **)&handles->params, capacity, sizeof *handles->params) != PD_OK) return PD_NO_MEMORY;
    handles->capacity = capacity;
    return PD_OK;
}

int pd_handles_add(pd_handles *handles, const pd_handle_facts *facts, bool ranged, const pd_shape *shape, pd_dtype pulls, pd_dtype updates)
{
    char *copy;
    int rc = make_room(handles);

    if (rc != PD_OK) return rc;
    if ((copy = strdup(facts->name)) == NULL) return PD_NO_MEMORY;
    handles->facts[handles->n] = (pd_handle_facts){ facts->start, facts->end, copy };
    handles->ranged[handles->n] = ranged;
    handles->shapes[handles->n] = *shape;
    handles->pulls[handles->n] = pulls;
    handles->updates[handles->n] = updates;
    handles->params[handles->n] = UINT32_MAX;
    handles->n++;
    return PD_OK;
}

void pd_handles_cut(pd_handles *handles, size_t n)
{
    while (handles->n > n) free((char *)handles->facts[--handles->n].name);
}

void pd_handles_free(pd_handles *handles)
{
    pd_handles_cut(handles, 0);
    free(handles->facts);
    free(handles->ranged);
    free(handles->shapes);
    free(handles->pulls);
    free(handles->updates);
    free(handles->params);
    memset(handles, 0, sizeof *handles);
}
