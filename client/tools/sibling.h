/* sibling.h - finds a program in the folder of the running program, where both were installed. */
#ifndef PD_SIBLING_H
#define PD_SIBLING_H

#include <stddef.h>

#include "paramd/error.h"

/* Writes the path of the program `name` in the folder of the running program. PD_UNAVAILABLE: the folder has no such
 * program, or it may not be executed. */
int pd_sibling_path(char *path, size_t size, const char *name, pd_error *err);

#endif
