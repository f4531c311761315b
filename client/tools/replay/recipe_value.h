/* recipe_value.h - a value of a recorded configuration becomes that of a hyperparameter; for recipe.c alone. Pure. */
#ifndef PD_RECIPE_VALUE_H
#define PD_RECIPE_VALUE_H

#include <jansson.h>

#include "paramd/optim.h"

/* Each sets the hyperparameter as pd_hypers_set does, with its errors; PD_NO_MEMORY. */

/* A number, word or flag; a list, [0.9, 0.999]; or a schedule, {"schedule": "linear_warmup", "peak": 0.1}.
 * PD_UNIMPLEMENTED: the optimizer has no hyperparameter of that name. */
int pd_recipe_set(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err);
/* A map of names, [["regular expression", rule], ...]: a rule is a list, a word, a flag, or null for none. */
int pd_recipe_set_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);
/* What axes mean, {"embed": "ROW", ...}. */
int pd_recipe_set_axis_rules(pd_hypers *hypers, const char *name, const json_t *rules, pd_error *err);

#endif
