/* manual.h - what paramd-manual prints, and how it writes the language of scdoc. */
#ifndef PD_MANUAL_H
#define PD_MANUAL_H

#include <stdio.h>

/* Writes the beginning of a page: the line with name and section, "paramctl(1)", and the chapter NAME, "paramctl - asks
 * a daemon". */
void pd_scdoc_begin(FILE *out, const char *name, int section, const char *about);
/* Writes a text without newlines. Characters that mean something to scdoc are escaped. */
void pd_scdoc_text(FILE *out, const char *text);
/* Writes `text` as sentences: begins them with a capital letter, adds the full stop at the end, and breaks long lines.
 * A newline in the text ends a paragraph. `indent` begins each line: "" in a paragraph, a tab in the definition of a
 * term. */
void pd_scdoc_sentence(FILE *out, const char *indent, const char *text);
/* Writes the text with `mark` before and after it: "*" makes it bold, "_" underlined. */
void pd_scdoc_marked(FILE *out, char mark, const char *text);

/* Write the manual page paramctl.1, and the completion scripts for bash and zsh. */
void pd_paramctl_page(FILE *out);
void pd_bash_completion(FILE *out);
void pd_zsh_completion(FILE *out);

#endif
