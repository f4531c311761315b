/* printable.h - checks whether a text may be shown on a terminal: the same rule for names, labels, rules, errors,
 * the log and paramctl. Pure. utf8.h says which characters are printable. Every printable character may stand in a
 * name. */
#ifndef PD_PRINTABLE_H
#define PD_PRINTABLE_H

#include "paramd/error.h"
#include "utf8.h"

/* Returns the length of the longest printable prefix of a text of n bytes: n where all of it is printable. */
size_t pd_text_printable(const char *text, size_t n);
/* Checks that a text is printable. `what` says in the error which text it is, such as "job name".
 * PD_INVALID_ARGUMENT: the text has a byte that is not printable; the error says which one, and why. */
int pd_text_check(const char *what, const char *text, pd_error *err);

#endif
