/* sibling.h - programs that are installed together find each other in the folder that they share. */
#ifndef PD_SIBLING_H
#define PD_SIBLING_H

#include <stddef.h>

#include "paramd/error.h"

/* Writes the path of the program `name` in the folder of the running program. PD_UNAVAILABLE: it is not there, or may
 * not be executed. */
int pd_sibling_path(char *path, size_t size, const char *name, pd_error *err);

#endif
