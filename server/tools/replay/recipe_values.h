/* recipe_values.h - hyperparameters from the JSON values of a recorded run's configuration. Pure functions. */
#ifndef PD_RECIPE_VALUES_H
#define PD_RECIPE_VALUES_H

#include <jansson.h>
#include <stdio.h>

#include "paramd/optim.h"

/* Returns a JSON number, string or flag as text for pd_hypers_set, which sets a hyperparameter. NULL: the value is
 * a list, an object or null. */
const char *pd_recipe_scalar(const json_t *value, char *text, size_t size);
/* Writes a list such as [0.9, 0.999] as text for pd_hypers_set: (0.9,0.999). */
void pd_recipe_print_list(FILE *out, const json_t *list);
/* Sets a hyperparameter from a JSON number, word or flag, from a list such as [0.9, 0.999], or from a schedule such as
 * {"schedule": "linear_warmup", "peak": 0.1}. PD_UNIMPLEMENTED: the optimizer has no such hyperparameter. */
int pd_recipe_set_value(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err);
/* Sets several hyperparameters from an object such as {"type": "adam", "beta2": 0.999}: NAME to adam, and NAME.beta2 to
 * 0.999. Without "type", NAME itself is not set. */
int pd_recipe_set_members(pd_hypers *hypers, const char *name, const json_t *object, pd_error *err);
/* Sets a hyperparameter whose JSON value is a list or an object: `print` writes it as text for pd_hypers_set. */
int pd_recipe_set_printed(pd_hypers *hypers, const char *name, const json_t *value,
                          void (*print)(FILE *out, const json_t *value), pd_error *err);

#endif
