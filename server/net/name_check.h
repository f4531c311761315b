/* name_check.h - checks the names that a peer gives to jobs and parameters. */
#ifndef PD_NAME_CHECK_H
#define PD_NAME_CHECK_H

#include "paramd/error.h"

/* Checks the length and the characters of a name. `what` says what the name is of, such as "job", in the error. Fails
 * with PD_INVALID_ARGUMENT. */
int pd_name_check(const char *what, const char *name, pd_error *err);

#endif
