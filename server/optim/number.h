/* number.h - reads numbers strictly from text, and writes them as the shortest text. Pure functions. */
#ifndef PD_NUMBER_H
#define PD_NUMBER_H

#include <stddef.h>

#define PD_NUMBER_TEXT 32 /* enough bytes for the text of any number */

/* Both functions read a text that is one finite number, with no blanks around it. pd_number_read_whole accepts only
 * whole numbers that fit an int64_t. PD_INVALID_ARGUMENT: the text is not such a number. */
int pd_number_read(const char *text, double *value);
int pd_number_read_whole(const char *text, double *value);

/* Writes the shortest text from which pd_number_read gets exactly the same double. Returns `text`. */
char *pd_number_text(double value, char *text, size_t size);

#endif
