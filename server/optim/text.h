/* text.h - reads lists from text: words between blanks, and items between commas. Brackets and quotes keep their
 * contents together. Pure functions. */
#ifndef PD_TEXT_H
#define PD_TEXT_H

/* pd_text_word and pd_text_item return the next word or item of *rest, without the blanks around it. They write a zero
 * byte behind it, and move *rest to the text after it. NULL: there is none left.
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

#endif
