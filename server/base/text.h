/* text.h - makes text printable, writes JSON strings, finds the nearest known word, and reads sizes and durations. Pure
 * functions.
 *
 * A character is printable unless it moves the cursor, changes the direction of writing or is invisible. Not printable
 * are controls (U+0000-001F, U+007F-009F), marks and controls of direction (U+061C, U+200B-200F, U+202A-202E,
 * U+2066-2069), separators of lines (U+2028, U+2029), invisible operators and deprecated controls (U+2060-206F),
 * U+FEFF, U+FFF9-FFFB and tags (U+E0000-E007F). */
#ifndef PD_TEXT_H
#define PD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"

/* Reads the UTF-8 character at `at`, of at most n bytes. Sets *point to its code point and returns its length in bytes.
 * Returns 0 if the bytes are not UTF-8. Surrogates, and characters written with more bytes than necessary, do not count
 * as UTF-8. */
size_t pd_utf8_next(const char *at, size_t n, uint32_t *point);
bool pd_point_printable(uint32_t point);
/* Writes the escape of a code point in JSON, such as "\\u202e". A code point beyond 16 bits becomes two escapes.
 * Returns the number of bytes written, not counting a terminating zero. */
#define PD_ESCAPE 13
size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point);
/* Writes the next character of a text of n > 0 bytes to `out`, as it must stand in a JSON string: with an escape if it
 * is '"', '\\' or not printable; '?' for a byte that is not UTF-8. Sets *used to the number of bytes read. Returns the
 * number of bytes written. */
size_t pd_json_next(char out[PD_ESCAPE], const char *at, size_t n, size_t *used);

/* Copies a text into `out`, which has `size` >= 1 bytes, and makes it printable. A text that is too long is cut between
 * two characters. Every character that is not printable, and every byte that is not UTF-8, becomes one '?'. An
 * incomplete last character is left out. Returns `out`. */
char *pd_text_print(char *out, size_t size, const char *text);
/* Makes a text printable in place, as pd_text_print does. The text does not become longer. */
void pd_text_mend(char *text);

/* Returns the length of the longest printable prefix of a text of n bytes. It is n if the whole text is printable. */
size_t pd_text_printable(const char *text, size_t n);
/* Checks that a text may be shown on a terminal. `what` is the word for the text in the error, such as "job name".
 * PD_INVALID_ARGUMENT: the text has a byte that is not printable; the error says which one, and why. */
int pd_text_check(const char *what, const char *text, pd_error *err);

/* The state of a search for the known word that is nearest to a mistyped one, `word`. The known words (candidates) are
 * offered one by one. */
typedef struct pd_nearest {
    const char *word; /* the mistyped word, of n bytes; borrowed */
    size_t n;
    const char *best; /* the nearest candidate so far; NULL: no candidate is near enough */
    size_t distance;  /* Levenshtein distance from `word` to `best`, but at most 1 if `best` begins with `word` */
} pd_nearest;

pd_nearest pd_nearest_begin(const char *word, size_t n);
/* Compares the mistyped word `word` with one candidate. A candidate is near enough if it begins with `word`, or if at
 * most half of the letters differ. Of two candidates that are equally near the shorter one wins. */
void pd_nearest_offer(pd_nearest *search, const char *candidate);

/* Reads a size such as "4096", "64k", "256M", "1 GiB" or "2Ti" as bytes. Units are powers of 1024, in upper or lower
 * case, and may end in "iB", "i" or "B". Returns false if the text is not a size, or the size does not fit into 64
 * bits. */
bool pd_bytes_read(const char *text, uint64_t *bytes);
/* Reads a duration such as "500ms", "30s", "1.5 min", "5m", "1h" or "1d" as seconds. If `bare` is true, a number
 * without a unit is accepted as seconds. Returns false if the text is not a duration. */
bool pd_duration_read(const char *text, bool bare, double *seconds);

#endif
