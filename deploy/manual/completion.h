/* completion.h - completion scripts that help shells to complete paramctl's command line, made from its tables of
 * commands. */
#ifndef PD_COMPLETION_H
#define PD_COMPLETION_H

#include <stdio.h>

/* Write the completion script for bash, or that for zsh. */
void pd_bash_completion(FILE *out);
void pd_zsh_completion(FILE *out);

#endif
