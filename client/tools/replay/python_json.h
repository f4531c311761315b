/* python_json.h - JSON as Python's json module writes it: beyond the standard it has NaN, Infinity and -Infinity.
 * Pure. */
#ifndef PD_PYTHON_JSON_H
#define PD_PYTHON_JSON_H

#include <jansson.h>

/* Parses JSON; NaN and infinities become null. The caller frees. NULL: not JSON, or two equal keys in one object (*why
 * has the reason), or out of memory. */
json_t *pd_python_json(const char *text, json_error_t *why);

#endif
