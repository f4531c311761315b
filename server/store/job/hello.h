/* hello.h - checks of a Hello that need no job. Pure. */
#ifndef PD_HELLO_H
#define PD_HELLO_H

#include "store_config.h"

/* Checks the names, options, rules and rank numbers of a Hello. PD_INVALID_ARGUMENT. */
int pd_hello_check(const pd_request *request, pd_error *err);

/* Checks that the globs of a Hello's rules have at most PD_GLOB_MAX bytes. Rules of a job that is there are not
 * checked: older versions took longer ones. PD_INVALID_ARGUMENT. */
int pd_hello_check_globs(const pd_request *request, pd_error *err);

#endif
