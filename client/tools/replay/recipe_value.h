/* recipe_value.h - turns a value of a recorded configuration into a hyperparameter; for recipe.c alone. Pure. */
#ifndef PD_RECIPE_VALUE_H
#define PD_RECIPE_VALUE_H

#include <jansson.h>

#include "paramd/optim.h"

/* Each function sets the hyperparameter as pd_hypers_set does, with its errors; PD_NO_MEMORY. */

/* Sets a number, word or flag; a list, [0.9, 0.999]; or a schedule, {"schedule": "linear_warmup", "peak": 0.1}.
 * PD_UNIMPLEMENTED: the optimizer has no such hyperparameter. */
int pd_recipe_set(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err);
/* Sets a map of names, [["regular expression", rule], ...]. A rule is a list, a word, a flag, or null for none. */
int pd_recipe_set_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);
/* Sets the meaning of axes, {"embed": "ROW", ...}. */
int pd_recipe_set_axis_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);

#endif
