/* format.h - formats numbers and lines of text for people at a terminal. */
#ifndef PD_FORMAT_H
#define PD_FORMAT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "paramd/error.h"

#define PD_CELL 48 /* size of a buffer that has room for any number as text */

/* Writes a number of bytes, such as "1.2 GiB" or "512 B". Returns `text`. */
char *pd_bytes_text(char text[PD_CELL], uint64_t bytes);
/* Writes a number with separators, such as "1,048,576". */
char *pd_count_text(char text[PD_CELL], uint64_t count);
/* Writes a duration, such as "850 ms", "3 min 12 s" or "2 d 4 h". */
char *pd_duration_text(char text[PD_CELL], uint64_t ms);

/* Writes the duration of a step or a phase, such as "0.21 ms", "12.5 ms" or "1.20 s". */
char *pd_seconds_text(char text[PD_CELL], double seconds);

/* Writes a rate of events per second, such as "120", "12.5" or "0.07". */
char *pd_speed_text(char text[PD_CELL], double per_second);

/* Writes a number of floating-point operations, such as "3.2 Gflop". */
char *pd_flops_text(char text[PD_CELL], double flops);

/* Returns the formatted text with '?' in place of characters that cannot be printed. The caller frees it. NULL: out
 * of memory. */
char *pd_text_formatted(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
/* Prints a line. Unprintable characters and newlines show as '?', because a text from a daemon or a file could
 * change the terminal's state. */
void pd_print_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints JSON text, which may have several lines. Unprintable characters become JSON escapes, so that the values
 * stay the same. */
void pd_print_json(FILE *out, const char *json);

/* Shows how much is transferred, in a line such as "1.2 MiB of 3 GiB sent" that replaces the line before. Does
 * nothing if standard error is no terminal. `last`: the transfer is over, so the line is ended. */
void pd_transfer_show(uint64_t done, uint64_t all, const char *verb, bool last);

#endif
