/* utf8.h - reads UTF-8 characters, decides which are printable, and replaces the others in texts. Pure functions.
 *
 * A character is printable unless it moves the cursor, turns the direction of writing or is invisible. Not printable
 * are controls (U+0000-001F, U+007F-009F), marks and controls of direction (U+061C, U+200B-200F, U+202A-202E,
 * U+2066-2069), separators of lines (U+2028, U+2029), invisible operators and deprecated controls (U+2060-206F),
 * U+FEFF, U+FFF9-FFFB and tags (U+E0000-E007F). */
#ifndef PD_UTF8_H
#define PD_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the UTF-8 character at `at`, of at most n bytes. Returns its length in bytes, and writes its code point.
 * Returns 0 if the bytes are not UTF-8. Surrogates, and characters written with more bytes than necessary, do not
 * count as UTF-8. */
size_t pd_utf8_next(const char *at, size_t n, uint32_t *point);
bool pd_point_printable(uint32_t point);
/* Writes the escape of a code point in JSON, such as "\\u202e". A code point beyond 16 bits becomes two escapes.
 * Returns the number of bytes without the terminating zero byte, which is written, too. */
#define PD_ESCAPE 13
size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point);

/* Copies a text into `out`, which has `size` >= 1 bytes, and makes it printable. A text that is too long is cut
 * between two characters. Every character that is not printable, and every byte that is not UTF-8, becomes one '?'.
 * An incomplete last character is left out. Returns `out`. */
char *pd_text_print(char *out, size_t size, const char *text);
/* Makes a text printable in place, like pd_text_print does. It does not become longer. */
void pd_text_mend(char *text);

#endif
