#include "replay_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Gives; NULL: out of memory. */
static char *declared_name(const pd_recipe *recipe, size_t group, const char *name)
{
    char *text = NULL;

    if (recipe->members == NULL) return strdup(name);
    return asprintf(&text, "%zu/%s", group, name) < 0 ? NULL : text;
}

int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    size_t n;
    const pd_trace_param *params = pd_trace_params(trace, &n);

    *out = (pd_replay_parts){ 0 };
    if ((out->at = calloc(n, sizeof *out->at)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    out->n = n;
    for (size_t i = 0; i < n; i++) {
        size_t group = pd_recipe_group(recipe, params[i].name);
        out->at[i] = (pd_replay_part){ .name = declared_name(recipe, group, params[i].name), .param = i, .shape = params[i].shape, .group = group };
        if (out->at[i].name == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

void pd_replay_parts_free(pd_replay_parts *parts)
{
    for (size_t i = 0; parts->at != NULL && i < parts->n; i++) free(parts->at[i].name);
    free(parts->at);
}
