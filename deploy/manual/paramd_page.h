/* paramd_page.h - the manual pages of the daemon, made from its tables of flags and keys. */
#ifndef PD_PARAMD_PAGE_H
#define PD_PARAMD_PAGE_H

#include <stdio.h>

/* Write the manual pages paramd.8 and paramd.conf.5 in the language of scdoc. */
void pd_paramd_page(FILE *out);
void pd_conf_page(FILE *out);

#endif
