/* scalar_check.c - checks the scalars of a push: numbers beside the gradients, such as a loss. Client and server
 * apply the same rules. */
#include "scalar_check.h"

#include "text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int check_name(const char *name, size_t i, pd_error *err)
{
    size_t n = strlen(name);
    char what[48];

    if (n == 0 || n > PD_PUSH_SCALAR_NAME)
        return pd_fail(err, PD_INVALID_ARGUMENT, "scalar %zu has a name of %zu bytes: expected 1 to %d", i, n,
                       PD_PUSH_SCALAR_NAME);
    snprintf(what, sizeof what, "the name of scalar %zu", i);
    return pd_text_check(what, name, err);
}

static int check_one(Paramd__Scalar *const *scalars, size_t i, pd_error *err)
{
    if (check_name(scalars[i]->name, i, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (!isfinite(scalars[i]->value))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "scalar %s is %g: expected a finite number; leave it out of this "
                       "push",
                       scalars[i]->name, scalars[i]->value);
    for (size_t k = 0; k < i; k++)
        if (strcmp(scalars[k]->name, scalars[i]->name) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "scalar %s stands twice in one push", scalars[i]->name);
    return PD_OK;
}

int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err)
{
    if (n > PD_PUSH_SCALARS)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%zu scalars in a push: at most %d", n, PD_PUSH_SCALARS);
    for (size_t i = 0; i < n; i++) {
        int rc = check_one(scalars, i, err);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}
