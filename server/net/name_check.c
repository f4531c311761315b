/* name_check.c - checks the names that a peer gives to jobs and parameters. */
#include "name_check.h"

#include "text.h"
#include "request.h"

#include <stdio.h>
#include <string.h>

int pd_name_check(const char *what, const char *name, pd_error *err)
{
    size_t n = strlen(name);
    char text[32];

    if (n == 0 || n > PD_NAME_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s name of %zu bytes: expected 1 to %d", what, n, PD_NAME_MAX);
    snprintf(text, sizeof text, "%s name", what);
    return pd_text_check(text, name, err);
}
