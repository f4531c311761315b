/* recipe_mask.h - Kron's trees of flags, one flag a parameter: the mask of weight decay, and scanned layers. For
 * recipe.c alone. Pure. */
#ifndef PD_RECIPE_MASK_H
#define PD_RECIPE_MASK_H

#include <jansson.h>

/* Returns {"encoder/w": true, "b": false} for {"encoder": {"w": true}, "b": false}. The caller frees. NULL: out of
 * memory. */
json_t *pd_recipe_leaves(const json_t *tree);
/* Returns a copy of the configuration. If `weight_decay_mask` is a dictionary, the copy has `groups`: one, without
 * decay, of the parameters that are not true in it. The caller frees. NULL: out of memory. */
json_t *pd_recipe_with_groups(const json_t *config);

#endif
