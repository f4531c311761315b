/* scalar_check.h - checks the scalars of a push: numbers beside the gradients, such as a loss. Client and server
 * apply the same rules. */
#ifndef PD_SCALAR_CHECK_H
#define PD_SCALAR_CHECK_H

#include "message.h"

/* Most scalars (numbers beside the gradients, such as a loss) of a push; most bytes of a scalar's name. */
enum { PD_PUSH_SCALARS = 16, PD_PUSH_SCALAR_NAME = 64 };

/* Checks the names and values of the scalars of a push. A name has 1 to 64 bytes and is UTF-8 without control
 * characters. No name comes twice. Values are finite. PD_INVALID_ARGUMENT: the error names the scalar and what is
 * wrong. PD_RESOURCE_EXHAUSTED: too many scalars. */
int pd_scalars_check(Paramd__Scalar *const *scalars, size_t n, pd_error *err);

#endif
