/* scdoc.h - writes texts into a manual page in the language of scdoc, a program that makes manual pages (man 5
 * scdoc). */
#ifndef PD_SCDOC_H
#define PD_SCDOC_H

#include <stdio.h>

/* Writes the beginning of a page: the line with name and section, "paramctl(1)", and the chapter NAME, "paramctl -
 * asks a daemon". */
void pd_scdoc_begin(FILE *out, const char *name, int section, const char *about);
/* Writes a text without newlines. Characters that mean something to scdoc are escaped. */
void pd_scdoc_text(FILE *out, const char *text);
/* Writes `text` as sentences: begins them with a capital letter, adds the full stop at the end, and breaks long
 * lines. A newline in the text ends a paragraph. `indent` begins each line: "" in a paragraph, a tab in the
 * definition of a term. */
void pd_scdoc_sentence(FILE *out, const char *indent, const char *text);
/* Writes the text with `mark` before and after it: "*" makes it bold, "_" underlined. */
void pd_scdoc_marked(FILE *out, char mark, const char *text);

#endif
