/* result.h - prints the result of a command: an error, or an answer as JSON. */
#ifndef PD_RESULT_H
#define PD_RESULT_H

#include <jansson.h>
#include <stdbool.h>

#include "command.h"
#include "paramd/error.h"

/* Prints an error on standard error; if `json` is set, also as an object on standard output. Returns the exit
 * status for this error. */
int pd_result_fail(bool json, const pd_error *err);
/* Prints an error as pd_result_fail does, after the daemon was reached, or in a command that asks none. Returns the
 * exit status "failed", also for a disk that is not available and for a timeout: the other status of these errors
 * means that no daemon can be reached. */
int pd_result_fail_reached(bool json, const pd_error *err);
/* Prints an error as a JSON object if `json` is set, and nothing otherwise. Returns the exit status for this error. */
int pd_result_fail_quietly(bool json, const pd_error *err);
/* Prints `value` with indentation on standard output, and frees it. A `value` of NULL means out of memory. Returns
 * an exit status. */
int pd_result_json(json_t *value);

#endif
