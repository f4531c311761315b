/* recipe_value.h - turns a value in a recorded configuration into the value of a hyperparameter. Only recipe.c uses
 * it. All functions are pure: they use no files. */
#ifndef PD_RECIPE_VALUE_H
#define PD_RECIPE_VALUE_H

#include <jansson.h>

#include "paramd/optim.h"

/* Each function below converts a JSON value to text, sets the hyperparameter with pd_hypers_set and returns its
 * errors, or PD_NO_MEMORY. */

/* Sets a hyperparameter from a JSON number, word or flag, from a list such as [0.9, 0.999], or from a schedule such
 * as {"schedule": "linear_warmup", "peak": 0.1}. PD_UNIMPLEMENTED: the optimizer has no such hyperparameter. */
int pd_recipe_set(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err);
/* Sets a hyperparameter that maps parameter names to rules, from JSON such as [["regular expression", rule], ...].
 * A rule is a list, a word, a flag, or null for none. */
int pd_recipe_set_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);
/* Sets a hyperparameter that maps names of dimensions to their role in a factored second moment, from JSON such as
 * {"embed": "ROW"}. */
int pd_recipe_set_axis_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);

#endif
