/* paramctl_page.h - the manual page of paramctl, made from its tables of commands. */
#ifndef PD_PARAMCTL_PAGE_H
#define PD_PARAMCTL_PAGE_H

#include <stdio.h>

/* Writes the manual page paramctl.1 in the language of scdoc. */
void pd_paramctl_page(FILE *out);

#endif
