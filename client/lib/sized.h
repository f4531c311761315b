/* sized.h - reads structs of programs that were compiled with an older header, whose structs have fewer fields. */
#ifndef PD_SIZED_H
#define PD_SIZED_H

#include <stddef.h>

#include "paramd/error.h"

/* Size of a struct up to and including `field`, which was its last field in version 0.1 of the library. A caller's
 * struct has at least this size. */
#define PD_LEAST_SIZE(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* Copies the caller's struct of `size` bytes to *out, which has `known` bytes. Fields that the caller's struct does
 * not have become 0. `name` names the struct in the error text. PD_INVALID_ARGUMENT: `size` is less than `least` or
 * more than `known`. */
int pd_sized_read(void *out, size_t known, size_t least, const void *from, size_t size, const char *name,
                  pd_error *err);

#endif
