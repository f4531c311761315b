#include "recipe_mask.h"

/* A mask of weight decay makes a group of those that it leaves alone: {"params": [...], "weight_decay": 0}. Gives; NULL: out of memory. */
static json_t *masked_group(const json_t *mask)
{
    json_t *names = json_array(), *decays;
    const char *name;

    json_object_foreach((json_t *)mask, name, decays) {
        if (!json_is_true(decays)) json_array_append_new(names, json_string(name));
    }
    return json_pack("[{s:o, s:i}]", "params", names, "weight_decay", 0);
}

json_t *pd_recipe_with_groups(const json_t *config)
{
    const json_t *mask = json_object_get(config, "weight_decay_mask");
    json_t *own = json_copy((json_t *)config);

    if (own == NULL || !json_is_object(mask) || json_object_set_new(own, "groups", masked_group(mask)) == 0) return own;
    json_decref(own);
    return NULL;
}
