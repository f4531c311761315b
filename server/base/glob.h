/* glob.h - compares names with globs, as a shell does: names of parameters with optimizer rules, names of jobs and
 * identities with roles.
 *
 * A glob is compiled once, and then compared with many names. * stands for any bytes (slashes, too), ? for one byte,
 * [a-z] for one byte of a set, [!a-z] or [^a-z] for one byte outside a set, \x for the byte x itself. A ] is an
 * ordinary byte of a set if it is the set's first, a - if it is the first or the last. A [ without its ] is an ordinary
 * byte, and so is a \ at the end.
 *
 * Globs come from peers, so a comparison is bounded: each byte of the name costs one step for every 64 elements of the
 * glob (an element is a byte, a ? or a set), whatever glob and name are. */
#ifndef PD_GLOB_H
#define PD_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#define PD_GLOB_MAX 256 /* most bytes of a glob that a peer or an operator gives; checked by who takes it in */

typedef struct pd_glob pd_glob; /* a compiled glob; for use by one thread */

/* Compiles a glob. NULL: out of memory. */
pd_glob *pd_glob_new(const char *text);
/* Returns a copy of a compiled glob, for another thread. NULL: out of memory. */
pd_glob *pd_glob_copy(const pd_glob *from);
void pd_glob_free(pd_glob *glob); /* accepts NULL */
/* Returns whether a name matches a glob. */
bool pd_glob_match(pd_glob *glob, const char *name);
/* Returns an estimate of the time that a comparison with a name of `length` bytes takes, in ns of one core. */
double pd_glob_ns(const pd_glob *glob, size_t length);
/* Returns the bytes of memory that a compiled glob takes. */
size_t pd_glob_bytes(const pd_glob *glob);

#endif
