/* result.h - how a command ends: exit statuses, errors and answers in JSON. */
#ifndef PD_RESULT_H
#define PD_RESULT_H

#include <jansson.h>
#include <stdbool.h>

#include "paramd/error.h"

/* Exit statuses, as the help lists them. */
enum { PD_EXIT_OK = 0, PD_EXIT_REFUSED = 1, PD_EXIT_USAGE = 2, PD_EXIT_UNREACHABLE = 3 };

/* Prints an error, and with `json` also as an object on stdout. Returns the exit status that belongs to it. */
int pd_result_fail(bool json, const pd_error *err);
/* The same, but prints nothing without `json`. */
int pd_result_fail_quietly(bool json, const pd_error *err);
/* Prints `value` indented on stdout, and frees it. NULL: out of memory. Returns an exit status. */
int pd_result_json(json_t *value);

#endif
