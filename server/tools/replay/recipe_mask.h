/* recipe_mask.h - reads distributed_kron's trees with one flag for each parameter: weight decay masks (which
 * parameters have weight decay), and scanned layers. Only recipe.c uses it. All functions are pure. */
#ifndef PD_RECIPE_MASK_H
#define PD_RECIPE_MASK_H

#include <jansson.h>

/* Flattens a tree: returns {"encoder/w": true, "b": false} for {"encoder": {"w": true}, "b": false}. The caller
 * frees the result. NULL: out of memory. */
json_t *pd_recipe_leaves(const json_t *tree);
/* Returns a copy of the configuration. If its `weight_decay_mask` is a dictionary, the copy has `groups`, with one
 * group that has no weight decay: the parameters whose flag is not true. The caller frees the copy. NULL: out of
 * memory. */
json_t *pd_recipe_with_groups(const json_t *config);

#endif
