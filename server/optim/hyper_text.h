/* hyper_text.h - reads numbers and lists from text: words between blanks, items between commas. Brackets and quotes
 * keep their contents together. Pure functions. */
#ifndef PD_HYPER_TEXT_H
#define PD_HYPER_TEXT_H

#include <stddef.h>

/* pd_text_word and pd_text_item return the next word or item of *rest, without the blanks around it. They write a zero
 * byte after it, and move *rest to the text after it. NULL: there is none left.
 *
 * - Text in () or [] is not cut.
 * - Text between two single quotes (') is not cut or changed, and brackets in it do not count; the quotes stay.
 * - Words are never empty, items may be. */
/* returns the next word, which ends at a blank; blanks within its brackets are removed */
char *pd_text_word(char **rest);
char *pd_text_item(char **rest); /* returns the next item, which ends at a comma; an empty or blank text has none */

/* Copies the text inside the brackets of a list: "a,b" for "(a,b)", "[a,b]", "word(a,b)" and also for "a,b". Stores the
 * copy in *inside (free it with free()), or NULL for a single item without brackets. PD_NO_MEMORY: out of memory. */
int pd_text_inside(char **inside, const char *text);

#define PD_NUMBER_TEXT 32 /* enough bytes for the text of any number */

/* Read a text that is one finite number, with no blanks around it. pd_number_read_whole accepts only whole numbers that
 * fit an int64_t. PD_INVALID_ARGUMENT: the text is not such a number. */
int pd_number_read(const char *text, double *value);
int pd_number_read_whole(const char *text, double *value);

/* Writes the shortest text from which pd_number_read gets exactly the same double. Returns `text`. */
char *pd_number_text(double value, char *text, size_t size);

#endif
