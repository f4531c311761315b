/* printable.h - which text may reach a terminal: one answer for names, labels, rules, errors, the log and paramctl. Pure.
 *
 * Printable is UTF-8 without characters that move the cursor, turn the direction of writing or are invisible: controls (U+0000-001F, U+007F-009F),
 * marks and controls of direction (U+061C, U+200B-200F, U+202A-202E, U+2066-2069), separators of lines (U+2028, U+2029), invisible operators and
 * deprecated controls (U+2060-206F), U+FEFF, U+FFF9-FFFB and tags (U+E0000-E007F). Every other character may stand in a name. */
#ifndef PD_PRINTABLE_H
#define PD_PRINTABLE_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how many bytes the character of UTF-8 at `at` has, and gives its code point. At most n bytes are read. Returns 0 where the bytes are no
 * UTF-8: shortest forms only, no surrogates. */
size_t pd_utf8_next(const char *at, size_t n, uint32_t *point);
bool   pd_point_printable(uint32_t point);
/* The escape of a code point in JSON, "\\u202e": two of them beyond 16 bits. Returns its bytes; `out` is terminated. */
#define PD_ESCAPE 13
size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point);

/* Returns the length of the longest printable prefix of a text of n bytes: n where all of it is printable. */
size_t pd_text_printable(const char *text, size_t n);
/* Checks that a text is printable. `what` names it in the error, "job name". PD_INVALID_ARGUMENT: says which byte is not, and why. */
int    pd_text_check(const char *what, const char *text, pd_error *err);

/* Copies a text into `size` bytes, at least 1, and cuts it between two characters where it is too long. Every character that is not printable
 * becomes one '?', and every byte that is no UTF-8. A last character of which bytes are missing is left out. Returns `out`. */
char  *pd_text_print(char *out, size_t size, const char *text);
/* The same in place: the text does not grow. */
void   pd_text_mend(char *text);

#endif
