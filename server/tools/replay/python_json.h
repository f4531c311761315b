/* python_json.h - reads JSON as Python's json module writes it: besides standard JSON it has NaN, Infinity and
 * -Infinity. The function is pure: its result depends on the text alone. */
#ifndef PD_PYTHON_JSON_H
#define PD_PYTHON_JSON_H

#include <jansson.h>

/* Parses JSON, with null in place of NaN and infinities. The caller frees the result. NULL: the text is not JSON, an
 * object has two equal keys, or memory ran out; *why has the reason. */
json_t *pd_python_json(const char *text, json_error_t *why);

#endif
