/* option_copy.c - copies the options of a message into a request for the store. */
#include "option_copy.h"

#include <stdlib.h>
#include <string.h>

int pd_options_copy(pd_option **out, size_t *n_out, Paramd__Option *const *from, size_t n)
{
    pd_option *to;

    if (n == 0) return PD_OK;
    if ((to = calloc(n, sizeof *to)) == NULL) return PD_NO_MEMORY;
    *out = to;
    *n_out = n;
    for (size_t i = 0; i < n; i++)
        if ((to[i].name = strdup(from[i]->name)) == NULL || (to[i].value = strdup(from[i]->value)) == NULL)
            return PD_NO_MEMORY;
    return PD_OK;
}
