/* glob.h - compares names with globs (patterns as in a shell). Optimizer rules have globs for names of parameters,
 * roles for names of jobs and identities.
 *
 * A glob is compiled once, and then compared with many names. * matches any bytes (slashes, too), ? one byte, [a-z] one
 * byte of a set, [!a-z] or [^a-z] one byte outside a set, \x the byte x itself. In a set, ] is an ordinary byte if it
 * comes first, and - if it comes first or last. A [ without its ] is an ordinary byte, and so is a \ at the end.
 *
 * Globs come from peers, so the time of a comparison is bounded for every glob and name: each byte of the name costs
 * one step for every 64 elements of the glob (an element is a byte, a ? or a set). */
#ifndef PD_GLOB_H
#define PD_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#define PD_GLOB_MAX 256 /* most bytes of a glob from a peer or an operator; its receiver checks this */

typedef struct pd_glob pd_glob; /* a compiled glob; for use by one thread */

/* Compiles a glob. Returns NULL if out of memory. */
pd_glob *pd_glob_new(const char *text);
/* Returns a copy of a compiled glob, for another thread. Returns NULL if out of memory. */
pd_glob *pd_glob_copy(const pd_glob *from);
void pd_glob_free(pd_glob *glob); /* accepts NULL */
/* Returns whether a name matches a glob. */
bool pd_glob_match(pd_glob *glob, const char *name);
/* Returns an estimate of the time that a comparison with a name of `length` bytes takes, in ns of one core. */
double pd_glob_ns(const pd_glob *glob, size_t length);
/* Returns the bytes of memory that a compiled glob takes. */
size_t pd_glob_bytes(const pd_glob *glob);

#endif
