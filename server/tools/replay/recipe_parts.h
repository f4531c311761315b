/* recipe_parts.h - what recipe.c and recipe_meta.c share to read the configuration of a recorded run. Pure functions.
 */
#ifndef PD_RECIPE_PARTS_H
#define PD_RECIPE_PARTS_H

#include <stdio.h>

#include "recipe.h"

/* Sets a hyperparameter from a JSON number, word or flag, from a list such as [0.9, 0.999], or from a schedule such as
 * {"schedule": "linear_warmup", "peak": 0.1}. PD_UNIMPLEMENTED: the optimizer has no such hyperparameter. */
int pd_recipe_set_value(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err);
/* Sets several hyperparameters from an object such as {"type": "adam", "beta2": 0.999}: NAME to adam, and NAME.beta2 to
 * 0.999. Without "type", NAME itself is not set. */
int pd_recipe_set_members(pd_hypers *hypers, const char *name, const json_t *object, pd_error *err);
/* Sets a hyperparameter whose JSON value is a list or an object: `print` writes it as text for pd_hypers_set. */
int pd_recipe_set_printed(pd_hypers *hypers, const char *name, const json_t *value,
                          void (*print)(FILE *out, const json_t *value), pd_error *err);

/* Meta's Shampoo of 2026: sets the hyperparameters that one key of the configuration stands for. */
int pd_recipe_set_meta(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err);
/* Returns what paramd leaves out of such a run; NULL: nothing. */
const char *pd_recipe_meta_left_out(const json_t *config);
/* Returns true if such a run keeps eigenvectors and eigenvalues in place of roots. Here roots are kept. */
bool pd_recipe_meta_has_bases(const json_t *config);

#endif
