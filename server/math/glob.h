/* glob.h - compares names with globs, as a shell does: names of parameters with optimizer rules, names of jobs and
 * identities with roles. Pure functions. */
#ifndef PD_GLOB_H
#define PD_GLOB_H

#include <stdbool.h>

/* Returns whether a name matches a glob, as in a shell. * stands for any bytes (slashes, too), ? for one byte, [a-z]
 * for one byte of a set, [!a-z] for one byte outside a set, \x for the byte x itself. Globs come from peers, so the
 * time is limited: it is at most the product of the lengths of glob and name. */
bool pd_glob_match(const char *glob, const char *name);

#endif
