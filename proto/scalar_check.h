/* scalar_check.h - checks the scalars of a push, on both sides by the same rules. */
#ifndef PD_SCALAR_CHECK_H
#define PD_SCALAR_CHECK_H

#include "message.h"

enum { PD_PUSH_SCALARS = 16, PD_PUSH_SCALAR_NAME = 64 };       /* most scalars of a push; most bytes of a name */

/* Checks that names have 1 to 64 bytes, are UTF-8 without control characters and differ, and that values are finite.
 * PD_INVALID_ARGUMENT: the error names the scalar and what is wrong. PD_RESOURCE_EXHAUSTED: too many scalars. */
int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err);

#endif
