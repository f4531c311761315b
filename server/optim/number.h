/* number.h - numbers as text: reading them strictly, writing them short. Pure. */
#ifndef PD_NUMBER_H
#define PD_NUMBER_H

#include <stddef.h>

#define PD_NUMBER_TEXT 32       /* room for any number's text */

/* The whole text is one finite number, without blanks; for the second a whole one that an int64_t holds.
 * PD_INVALID_ARGUMENT: it is not. */
int pd_number_read(const char *text, double *value);
int pd_number_read_whole(const char *text, double *value);

/* The shortest text that reads back to the same bits. Returns `text`. */
char *pd_number_text(double value, char *text, size_t size);

#endif
