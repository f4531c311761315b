/* logged.c - frees a step of a job for the log. */
#include "logged.h"

#include <assert.h>
#include <stdlib.h>

void pd_logged_free(pd_logged *logged)
{
    if (logged == NULL) return;
    for (uint32_t i = 0; i < logged->n_parts; i++) assert(logged->parts[i].pool == NULL);
    free(logged->parts);
    free(logged->head);
    free(logged->memory);
    free(logged->job);
    free(logged);
}
