/* printable.h - checks whether a text is printable, that is, may be shown on a terminal. The same rule holds for names,
 * labels, optimizer rules, errors, the log and paramctl. Pure functions. utf8.h says which characters are printable.
 * Every printable character is allowed in a name. */
#ifndef PD_PRINTABLE_H
#define PD_PRINTABLE_H

#include "paramd/error.h"
#include "utf8.h"

/* Returns the length of the longest printable prefix of a text of n bytes. It is n if the whole text is printable. */
size_t pd_text_printable(const char *text, size_t n);
/* Checks that a text may be shown on a terminal. `what` is the word for the text in the error, such as "job name".
 * PD_INVALID_ARGUMENT: the text has a byte that is not printable; the error says which one, and why. */
int pd_text_check(const char *what, const char *text, pd_error *err);

#endif
