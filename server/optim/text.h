/* text.h - lists as text: words between blanks, items between commas, with brackets and quotes kept together. Pure. */
#ifndef PD_TEXT_H
#define PD_TEXT_H

/* Both cut *rest in place, give the next piece without the blanks around it and move *rest behind it; NULL: there
 * are no more. What stands in () or [] is not cut, and nothing between two ' is cut, left out or counted as a
 * bracket; the quotes stay. Words are never empty, items may be. */
char *pd_text_word(char **rest);        /* between blanks; those in its brackets are left out */
char *pd_text_item(char **rest);        /* between commas; of an empty or blank text there are none */

/* A copy of what a list holds: of "(a,b)", "[a,b]" and "word(a,b)" it is "a,b"; "a,b" stays. NULL where the text
 * is one item without brackets. Gives *inside. PD_NO_MEMORY. */
int pd_text_inside(char **inside, const char *text);

#endif
