/* utf8.h - characters of UTF-8: which are printable, and texts without the others. Pure.
 *
 * Printable is every character that does not move the cursor, turn the direction of writing or stay invisible. Not
 * printable are controls (U+0000-001F, U+007F-009F), marks and controls of direction (U+061C, U+200B-200F,
 * U+202A-202E, U+2066-2069), separators of lines (U+2028, U+2029), invisible operators and deprecated controls
 * (U+2060-206F), U+FEFF, U+FFF9-FFFB and tags (U+E0000-E007F). */
#ifndef PD_UTF8_H
#define PD_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the bytes of the UTF-8 character at `at`, and gives its code point. Reads at most n bytes. Returns 0
 * where the bytes are not UTF-8: only shortest forms are, and no surrogates. */
size_t pd_utf8_next(const char *at, size_t n, uint32_t *point);
bool   pd_point_printable(uint32_t point);
/* Writes a code point's escape in JSON, "\\u202e": two of them beyond 16 bits. Returns its bytes; `out` is
 * terminated. */
#define PD_ESCAPE 13
size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point);

/* Copies a text into `size` bytes, at least 1, and cuts it between two characters where it is too long. Every character
 * that is not printable, and every byte that is not UTF-8, becomes one '?'. An incomplete last character is left out.
 * Returns `out`. */
char  *pd_text_print(char *out, size_t size, const char *text);
/* The same in place: the text does not grow. */
void   pd_text_mend(char *text);

#endif
