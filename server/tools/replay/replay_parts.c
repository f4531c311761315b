/* replay_parts.c - finds the parameters that a replay declares: parameters of the trace, or blocks of their shards. */
#include "replay_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recovery.h"

typedef struct search {
    const pd_recipe *recipe;
    const pd_trace_param *params;
    size_t n;
    /* JSON list with an object for each rank, from a parameter's name to the rank's range [start, end] of it. NULL:
     * no parameter is sharded. */
    json_t *shards;
    pd_replay_parts *parts;
    size_t room;
    pd_error *err;
} search;

/* Returns the name under which a replay declares a part: a parameter of the trace, or a
 * block of a shard, which is one rank's range of it. The caller frees the name. NULL: out of
 * memory. */
static char *declared_name(const pd_recipe *recipe, size_t group, const char *name, bool whole, int64_t offset)
{
    char of_group[32] = "", of_block[32] = "", *text = NULL;

    if (recipe->members != NULL) snprintf(of_group, sizeof of_group, "%zu/", group);
    if (!whole) snprintf(of_block, sizeof of_block, "@%lld", (long long)offset);
    return asprintf(&text, "%s%s%s", of_group, name, of_block) < 0 ? NULL : text;
}

static int add_part(search *s, size_t param, bool whole, int64_t offset, const pd_shape *shape)
{
    pd_replay_parts *parts = s->parts;
    size_t group = pd_recipe_group(s->recipe, s->params[param].name);

    if (parts->n == s->room) {
        size_t room = 2 * s->room + 8;
        pd_replay_part *more = realloc(parts->at, room * sizeof *more);
        if (more == NULL) return pd_fail(s->err, PD_NO_MEMORY, "out of memory");
        parts->at = more;
        s->room = room;
    }
    parts->at[parts->n] =
        (pd_replay_part){ .recorded = s->params[param].name,
                          .name = declared_name(s->recipe, group, s->params[param].name, whole, offset),
                          .param = param,
                          .offset = offset,
                          .shape = *shape,
                          .group = group,
                          .axes = pd_recipe_axes(s->recipe, whole ? s->params[param].name : "", shape->rank) };
    parts->n++;
    return parts->at[parts->n - 1].name != NULL && parts->at[parts->n - 1].axes != NULL
               ? PD_OK
               : pd_fail(s->err, PD_NO_MEMORY, "out of memory");
}

static int read_range(const search *s, size_t param, const json_t *range, int64_t *start, int64_t *end)
{
    const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);

    if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to)) {
        return pd_fail(s->err, PD_INVALID_ARGUMENT, "metadata shards: expected [start, end] of %.200s",
                       s->params[param].name);
    }
    *start = json_integer_value(from);
    *end = json_integer_value(to);
    return PD_OK;
}

/* Adds the blocks into which the reference optimizer cuts one rank's range of a parameter, so that each block is a
 * tensor again. */
static int add_shard(search *s, size_t param, int64_t start, int64_t end)
{
    pd_recovered blocks;
    int rc = pd_recover_blocks(&blocks, &s->params[param].shape, start, end, s->err);

    for (int i = 0; rc == PD_OK && i < blocks.n; i++)
        rc = add_part(s, param, false, blocks.at[i].offset, &blocks.at[i].shape);
    return rc;
}

/* Adds the shards of a parameter: the ranges of it that the ranks have. Checks that the ranges, in the order of the
 * ranks, follow each other and cover the parameter. A rank's range may be empty. Sets *found to whether any rank
 * has a shard of the parameter. */
static int add_shards(search *s, size_t param, bool *found)
{
    int64_t at = 0;
    json_t *rank;
    size_t i;

    *found = false;
    json_array_foreach(s->shards, i, rank)
    {
        const json_t *range = json_object_get(rank, s->params[param].name);
        int64_t start = 0, end = 0;
        int rc;
        if (range == NULL) continue;
        *found = true;
        if ((rc = read_range(s, param, range, &start, &end)) != PD_OK) return rc;
        if (start == end) continue;
        if (start != at || end < start || end > s->params[param].elements) {
            return pd_fail(s->err, PD_INVALID_ARGUMENT,
                           "metadata shards: %.200s: expected a range from %lld on within %lld elements, got %lld to "
                           "%lld",
                           s->params[param].name, (long long)at, (long long)s->params[param].elements, (long long)start,
                           (long long)end);
        }
        if ((rc = add_shard(s, param, start, end)) != PD_OK) return rc;
        at = end;
    }
    if (!*found || at == s->params[param].elements) return PD_OK;
    return pd_fail(s->err, PD_INVALID_ARGUMENT, "metadata shards: those of %.200s end at element %lld of %lld",
                   s->params[param].name, (long long)at, (long long)s->params[param].elements);
}

static int find_all(search *s)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < s->n; i++) {
        bool sharded = false;
        if (s->shards != NULL) rc = add_shards(s, i, &sharded);
        if (rc == PD_OK && !sharded) rc = add_part(s, i, true, 0, &s->params[i].shape);
    }
    return rc;
}

bool pd_replay_is_sharded(const pd_trace *trace)
{
    return pd_trace_meta(trace, "shards") != NULL;
}

int pd_replay_parts_find(pd_replay_parts *out, const pd_trace *trace, const pd_recipe *recipe, pd_error *err)
{
    search s = { .recipe = recipe, .parts = out, .err = err };
    int rc;

    *out = (pd_replay_parts){ 0 };
    s.params = pd_trace_params(trace, &s.n);
    rc = pd_trace_json(trace, "shards", JSON_ARRAY, &s.shards, err);
    if (rc == PD_OK) rc = find_all(&s);
    json_decref(s.shards);
    return rc;
}

void pd_replay_parts_free(pd_replay_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++) {
        free(parts->at[i].name);
        free(parts->at[i].axes);
    }
    free(parts->at);
}
