/* text.h - reads lists from text: words between blanks, and items between commas. Brackets and quotes keep their
 * contents together. Pure functions. */
#ifndef PD_TEXT_H
#define PD_TEXT_H

/* pd_text_word and pd_text_item return the next word or item of *rest, without the blanks around it. They write a
 * zero behind it, and move *rest to the text after it. NULL: there is none left. Text in () or [] is not cut. Text
 * between two ' is not cut or changed, and brackets in it do not count; the quotes stay. Words are never empty,
 * items may be. */
char *pd_text_word(char **rest); /* returns the next word, between blanks; blanks in its brackets are left out */
char *pd_text_item(char **rest); /* returns the next item, between commas; an empty or blank text has none */

/* Copies the text inside the brackets of a list: "a,b" for "(a,b)", "[a,b]", "word(a,b)" and also for "a,b". NULL
 * for a single item without brackets. Gives *inside (free() it). PD_NO_MEMORY. */
int pd_text_inside(char **inside, const char *text);

#endif
