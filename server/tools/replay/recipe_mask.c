/* recipe_mask.c - turns distributed_kron's weight decay mask, a tree of flags, into groups of parameters. */
#include "recipe_mask.h"

#include <stdio.h>

/* Flattens a tree: makes an object whose keys are the paths to the leaves, with slashes. These paths are the names
 * of parameters, since the reference optimizer's masks are trees like its parameters. Fails only if out of memory.
 * A path that is too long is cut off, and then names no parameter. */
static int flatten(json_t *out, const char *before, const json_t *tree)
{
    const char *key;
    json_t *value;
    int rc = 0;

    json_object_foreach((json_t *)tree, key, value)
    {
        char name[300];
        snprintf(name, sizeof name, "%s%s%s", before, *before != '\0' ? "/" : "", key);
        if (rc == 0) rc = json_is_object(value) ? flatten(out, name, value) : json_object_set(out, name, value);
    }
    return rc;
}

json_t *pd_recipe_leaves(const json_t *tree)
{
    json_t *out = json_object();

    if (out == NULL || flatten(out, "", tree) == 0) return out;
    json_decref(out);
    return NULL;
}

/* Returns a list with one group: the parameters that have no weight decay, {"params": [...], "weight_decay": 0}. The
 * caller frees it. NULL: out of memory. */
static json_t *masked_group(const json_t *mask)
{
    json_t *names = json_array(), *leaves = pd_recipe_leaves(mask), *decays;
    const char *name;

    json_object_foreach(leaves, name, decays)
    {
        if (!json_is_true(decays)) json_array_append_new(names, json_string(name));
    }
    if (leaves != NULL) {
        json_decref(leaves);
        return json_pack("[{s:o, s:i}]", "params", names, "weight_decay", 0);
    }
    json_decref(names);
    return NULL;
}

json_t *pd_recipe_with_groups(const json_t *config)
{
    const json_t *mask = json_object_get(config, "weight_decay_mask");
    json_t *own = json_copy((json_t *)config);

    if (own == NULL || !json_is_object(mask) || json_object_set_new(own, "groups", masked_group(mask)) == 0) return own;
    json_decref(own);
    return NULL;
}
