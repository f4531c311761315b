/* recipe_mask.h - Kron's trees of flags, one a parameter: the mask of weight decay, as groups of parameters, and
 * scanned layers; for recipe.c alone. Pure. */
#ifndef PD_RECIPE_MASK_H
#define PD_RECIPE_MASK_H

#include <jansson.h>

/* {"encoder": {"w": true}, "b": false} as {"encoder/w": true, "b": false}. Gives; NULL: out of memory. */
json_t *pd_recipe_leaves(const json_t *tree);
/* The configuration, where `weight_decay_mask` is a dictionary with `groups` for it: one, without decay, of the
 * parameters that are not true there. Gives; NULL: out of memory. */
json_t *pd_recipe_with_groups(const json_t *config);

#endif
