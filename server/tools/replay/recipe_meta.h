/* recipe_meta.h - the configuration of a recorded run of Meta's Shampoo of 2026. Pure functions. */
#ifndef PD_RECIPE_META_H
#define PD_RECIPE_META_H

#include <jansson.h>
#include <stdbool.h>

#include "paramd/optim.h"

/* Meta's Shampoo of 2026: sets the hyperparameters that one key of the configuration stands for. */
int pd_recipe_set_meta(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err);
/* Returns what paramd leaves out of such a run; NULL: nothing. */
const char *pd_recipe_meta_left_out(const json_t *config);
/* Returns true if such a run keeps eigenvectors and eigenvalues in place of roots. Here roots are kept. */
bool pd_recipe_meta_has_bases(const json_t *config);

#endif
